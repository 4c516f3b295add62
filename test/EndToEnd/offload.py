#!/usr/bin/env python3
"""usage: test/EndToEnd/offload.py quick|all-PART|kernels|faults|calls|calls-NUMBER|MODEL OPTIMIZER PLAN KINDS

Values on disk change no bit: 10 steps of any plan leave the tensors of the same plan without offload. KINDS are values of --offload, with spaces between. Checkpoints move between both. What the compiler
reports of arenas and links is what a run counts. A full or broken disk, and a missing or doubtful directory, end the run or are reported.
"all-PART": of all models and plans every eighth one, from number PART (0 to 7) on.
"kernels": compiles all models and plans, and compares the fusions with those without offload. "quick" does so for some.
"calls": a call of the system that allocates, reads or writes the scratch file fails, is interrupted or is short. Some calls for each kind of values, or all calls of plan NUMBER of BROKEN."""
import json
import re
import sys
from collections import Counter

from cases import BUILD, GOLDEN, STAND_IN, UNCHECKED, Case, data_flags, mesh_flags, ranks_of

PLANS = ["1", "1 --microbatches=2", "dp=2", "dp=2 --zero=1", "dp=2 --zero=2", "dp=2 --zero=3", "tp=2", "dp=2,tp=2 --zero=1", "cp=2 --context-parallel=ring",
         "dp=2 --zero=3 --precision=bf16", "pp=2 --microbatches=2", "pp=2,dp=2 --zero=1 --microbatches=2", "tp=2 --sequence-parallel --window=tp"]
EXPERTS = PLANS + ["ep=2", "dp=2,ep=2 --zero=3"]
OPTIMIZERS = ["adamw", "momentum", "muon", "lion", "adafactor"]
QUICK = [("gpt2", "adamw", "1", "states activations"), ("llama", "adamw", "dp=2 --zero=3 --precision=bf16", "states,masters parameters,activations"),
         ("llama-tied", "muon", "pp=2,dp=2 --zero=1 --microbatches=2", "states"), ("gpt2", "momentum", "dp=2,tp=2 --zero=1", "states:disk,parameters:disk"),
         ("llama", "lion", "cp=2 --context-parallel=ring", "states,activations"), ("gpt2", "adafactor", "dp=2 --zero=3", "states"), ("qwen3_moe", "adamw", "ep=2", "states,parameters,activations"),
         ("gpt2", "muon", "dp=2 --zero=2", "states"), ("llama", "adamw", "tp=2 --sequence-parallel --window=tp", "activations"),
         ("gpt2", "adamw", "tp=2 --group=*.bias:decay=0,lr=0.5x", "states")]
CUDA = " --target=cuda --arch=sm_90a --stand-in"
QUICK += [("gpt2", "adamw", "dp=2 --zero=3" + CUDA, "states:host,parameters:host,activations:host states:disk,parameters:host,activations:disk"),
          ("gemma3", "adamw", "dp=2 --zero=3" + CUDA, "activations:host"),  # carries between norms whose gradients share a kernel
          ("deepseek_v3-plain", "adamw", "pp=2,dp=2 --zero=1 --microbatches=2" + CUDA, "states:host")]  # one kernel updates tensors of three elements, or all tensors
MODELS = sorted(folder.name for folder in GOLDEN.iterdir() if (folder / "tokens.bin").exists())
MOMENTUM = """pc.optimizer "momentum" dims ["all"] states ["momentum_buffer"] scalars ["lr", "momentum"] settings {momentum = 0.9} {
^bb0(%w: tensor<?xf32>, %g: tensor<?xf32>, %old: tensor<?xf32>, %lr: tensor<f32>, %momentum: tensor<f32>):
  %kept = pc.einsum ", all -> all" %momentum, %old : (tensor<f32>, tensor<?xf32>) -> tensor<?xf32>
  %buffer = pc.add %kept, %g : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  %step = pc.einsum ", all -> all" %lr, %buffer : (tensor<f32>, tensor<?xf32>) -> tensor<?xf32>
  %new = pc.sub %w, %step : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  pc.yield %new, %buffer : tensor<?xf32>, tensor<?xf32>
}
"""
RUN = "--lr 1e-3 --weight-decay 0.1 --clip 1 --seed 1 --lr-steps 10".split()
FAULTS = BUILD / "test/Runtime/core/libcore-failing-writes.so"
CALLS = BUILD / "test/Runtime/core/libcore-failing-scratch.so"
# Plans whose calls fail: states, masters, parameters, activations, and states of 8 bits.
BROKEN = [("1", "states"), ("1 --precision=bf16", "masters"), ("dp=2 --zero=3", "parameters"), ("1", "activations"), ("1 --states=8bit", "states"),
          ("1 --precision=bf16 --states=8bit", "states,masters,activations"), ("1" + CUDA, "states:disk,activations:host")]


def ops_of(program):
    """Counts the ops and fusions of a scheduled program that compute. They are written without the names of values and without moves, casts of weights that are rounded again,
    and blocks that are joined again."""
    ops = Counter()
    program = re.sub(r' loc\((#loc\d*|".*?")\)', "", program)
    for text in re.findall(r"^ *%\S.* = (pc\.fusion .*\{\n(?: *[^} \n].*\n)*|pc\.[a-z].*)", program, re.M):
        names = {}
        head, *body = (re.sub(r"%\w+(#\d+)?", lambda match: names.setdefault(match[0], f"%{len(names)}"), line.strip()) for line in text.splitlines())
        if not re.match(r"pc\.(carry|wait|start|parameter|state|accumulate|insert|cast|constant)\b", head) and "#pc.space" not in head:
            ops["\n".join([head, *(" ".join(sorted(line.split(" : ")[0].split())) if line.startswith("pc.yield") else line for line in body)])] += 1
    return ops


def spaces_of(kind):
    return {"host" if one.endswith(":host") else "disk" for one in kind.split(",")}


class Offload(Case):
    def compile(self, *arguments):
        self.needs(*self.compiling(*arguments))

    def compiling(self, program, optimizer, plan, *flags):
        mesh, *own = plan.split()
        (self.work / "momentum.mlir").write_text(MOMENTUM)
        name = "momentum.mlir" if optimizer == "momentum" else optimizer
        return ["pc-compile", "model.mlir", "-o", program, *mesh_flags(mesh), *own, f"--optimizer={name}", *flags]

    def train(self, program, model, plan, steps, out, *flags, **environment):
        self.needs("pc-run", "-n", ranks_of(plan.split()[0]), f"./{program}", "--", *RUN, *data_flags(model), "--steps", steps, "--save", out,
                   "--check-replicas", 5, *flags, seconds=900, **environment)

    def run_plan(self, model, optimizer, plan, *kinds):
        """The same plan without offload, and with each of these values of --offload. A model may refuse the plan, with and without offload."""
        self.model(model, 4, 16)
        if "cuda" in plan:
            self.environment |= STAND_IN
        plain = self.call(*self.compiling("plain-train", optimizer, plan))
        if plain.code == 4:
            other = self.call(*self.compiling("disk-train", optimizer, plan, f"--offload={kinds[0]}"))
            self.check(f"{model} {plan} is refused", (other.code, other.said) == (4, plain.said), other.why(), plain.said.splitlines()[0])
            return
        if plain.code:
            return self.check(f"{model} {plan}: compiles", False, plain.why())
        self.train("plain-train", model, plan, 10, "plain", "--summary", "plain.summary", **UNCHECKED)
        self.check_accesses("plain-train", model, plan)
        for kind in kinds:
            self.run_kind(f"{model} {optimizer} {plan} {kind}", model, optimizer, plan, kind)

    def check_accesses(self, program, model, plan, *flags):
        """The stand-in checks what kernels, moves and library calls read and write."""
        if "cuda" in plan:
            self.train(program, model, plan, 2, "checked", *flags)

    def run_kind(self, name, model, optimizer, plan, kind):
        done = self.call(*self.compiling("disk-train", optimizer, plan, f"--offload={kind}", "--report=disk.json"))
        if done.code and "no layer keeps a value" in done.said:
            return self.check(f"{name}: nothing to keep elsewhere", kind.startswith("activations") and done.code == 4, done.why())
        if done.code:
            return self.check(f"{name}: compiles", False, done.why())
        disk = [] if spaces_of(kind) == {"host"} else ["--scratch", "."]
        self.train("disk-train", model, plan, 10, "disk", *disk, "--summary", "disk.summary", **UNCHECKED)
        self.check_accesses("disk-train", model, plan, *disk)
        self.check(f"{name}: the bits without offload", self.checkpoint_sums("disk") == self.checkpoint_sums("plain"), "model or state differs")
        if "moe" not in model:  # whose steps allocate memory, with and without offload
            self.compare(f"{name}: report and summary", "reports", "disk.json", "disk.summary")
        plain, counts = (json.loads((self.work / f"{one}.summary").read_text())["per_rank"] for one in ("plain", "disk"))
        arenas = {rank: group["arena_bytes"] for group in plain for rank in group["ranks"]}
        for counted in counts:
            self.check(f"{name}: bytes of a step", self.is_whole(kind, counted, arenas[counted["ranks"][0]]), counted)
        self.train("disk-train", model, plan, 4, "half", *disk, **UNCHECKED)
        self.train("plain-train", model, plan, 7, "more", "--load", "half", **UNCHECKED)
        self.train("disk-train", model, plan, 10, "whole", "--load", "more", *disk, **UNCHECKED)
        self.check(f"{name}: checkpoints move between both", self.checkpoint_sums("whole") == self.checkpoint_sums("plain"), "model or state differs")

    def kernels(self, rows):
        """The ops of a plan are fused as without offload, so results have the same bits."""
        for model, optimizer, plan, kinds in rows:
            self.model(model, 4, 16)
            flags = self.compiling("fused.mlir", optimizer, plan.removesuffix(" --stand-in"), "--to=scheduled")
            done = self.call(*flags)
            if done.code:  # run_plan() checks that the plan is refused with offload, too
                self.check(f"{model} {plan} is refused", done.code == 4, done.why())
                continue
            plain = ops_of((self.work / "fused.mlir").read_text())
            for kind in kinds.split():
                done = self.call(*flags, f"--offload={kind}")
                if done.code != 4 or "no layer keeps a value" not in done.said:
                    other = ops_of((self.work / "fused.mlir").read_text())
                    self.check(f"{model} {plan} {kind}: the fusions without offload", not done.code and plain == other != Counter(), done.why() if done.code else "\n".join((plain - other) + (other - plain)))

    def parts(self):
        """States of some parameters, and what does not fit into the bytes that stay on the device."""
        self.model("gpt2", 4, 16)
        self.compile("plain-train", "adamw", "dp=2 --zero=1")
        self.train("plain-train", "gpt2", "dp=2", 10, "plain")
        self.compile("disk-train", "adamw", "dp=2 --zero=1", "--offload=states,activations", "--emit-plan=whole.plan", "--report=whole.json")
        whole = json.loads((self.work / "whole.json").read_text())["per_rank"][0]["arena_bytes"]
        for name, options in [("match", ["match=h.0.*|wte.weight to=disk", "keep=8192"]), ("keep", ["keep=20000", "keep=1000000"])]:
            plan = (self.work / "whole.plan").read_text()
            for what, option in zip(("states", "activations"), options):
                plan = plan.replace(f"what={what} to=disk", f"what={what} {option}")
            (self.work / f"{name}.plan").write_text(plan)
            self.needs("pc-compile", "model.mlir", "-o", "disk-train", f"--plan={name}.plan", f"--report={name}.json")
            self.train("disk-train", "gpt2", "dp=2", 10, "disk", "--scratch", ".", "--summary", f"{name}.summary")
            self.check(f"{name}: the bits without offload", self.checkpoint_sums("disk") == self.checkpoint_sums("plain"), "model or state differs")
            self.compare(f"{name}: report and summary", "reports", f"{name}.json", f"{name}.summary")
            part = json.loads((self.work / f"{name}.json").read_text())["per_rank"][0]["arena_bytes"]
            self.check(f"{name}: less on disk, more on the device", 0 < part["disk"] < whole["disk"] and part["device"] > whole["device"], (part, whole))
        self.runs_again((self.work / "whole.plan").read_text(), whole)

    def runs_again(self, plan, whole):
        """pc-offload takes the activations that an earlier run of it has left, and no value twice. Later tactics may not change placements."""
        once = "pc-offload{what=activations to=disk}"
        for name, tactics, words in [("rest", once.replace("}", ' keep=20000}", "') + once, None), ("again", f'{once}", "{once}', "no layer keeps a value of a block or more"),
                                     ("early", once, "'pc-zero{axis=dp stage=1}' changes placements after 'pc-offload{what=states to=disk}'")]:
            text = plan.replace(once, tactics)
            if name == "early":
                text = text.replace('"pc-zero{axis=dp stage=1}", ', "").replace(f'"{once}"', f'"{once}", "pc-zero{{axis=dp stage=1}}"')
            (self.work / f"{name}.plan").write_text(text)
            self.holds(f"{name}: pc-offload in a plan", "pc-compile", "model.mlir", "-o", "again-train", f"--plan={name}.plan", "--report=again.json", code=4 if words else 0,
                       words=re.escape(words or ""))
        self.check("the rest: arenas", json.loads((self.work / "again.json").read_text())["per_rank"][0]["arena_bytes"] == whole)

    def is_whole(self, kind, counted, plain):
        """Whether a step reads back all that it writes; a stage of a pipeline may keep nothing elsewhere. `plain`: arenas without offload, as messages between stages are on the host."""
        links = {link: 0 for space in spaces_of(kind) for link in (f"{space}>device", f"device>{space}")}
        for row in counted["traffic"]:
            if "link" in row:
                links[row["link"]] += row["payload_bytes"]
        return all((links[f"{space}>device"] > 0) == (counted["arena_bytes"].get(space, 0) > plain.get(space, 0)) and links[f"device>{space}"] <= links[f"{space}>device"]
                   and (links[f"device>{space}"] == links[f"{space}>device"] or kind.removesuffix(":host").removesuffix(":disk") not in ("states", "activations")) for space in spaces_of(kind))

    def faults(self):
        self.model("gpt2", 4, 16)
        self.compile("train", "adamw", "1", "--offload=states:disk")
        self.compile("plain", "adamw", "1")
        run = ["./train", *RUN, "--data", GOLDEN / "gpt2/tokens.bin", "--steps", 4]
        self.holds("no directory", *run, code=2, words="keeps values on disk, so it needs --scratch DIR")
        self.holds("a directory that is not there", *run, "--scratch", "none", code=6, words="--scratch none: cannot make a file there: No such file")
        self.holds("needless", "./plain", *run[1:], "--scratch", ".", code=2, words="--scratch needs a program compiled with --offload")
        self.holds("a file system in memory", *run, "--scratch", "/dev/shm", words="warning: --scratch /dev/shm is in memory")
        self.holds("a snapshot in memory", "pc-run", "-n", 1, "./train", "--", *run[1:], "--scratch", ".", "--snapshot", 1, code=2, words="keeps part of its state on disk")
        (self.work / "scratch").mkdir()
        for number, words in [(5, "Input/output error"), (28, "No space left on device")]:
            self.holds(f"a write fails: {words}", *run, "--scratch", "scratch", code=6, words=rf"carry .*cannot write the scratch file in scratch at byte \d+: {words}",
                       LD_PRELOAD=str(FAULTS), FAIL_FILE="/scratch/", FAIL_ERROR=str(number), FAIL_FROM="5")
        self.check("nothing is left", not list((self.work / "scratch").iterdir()), list((self.work / "scratch").iterdir()))
        compile = ["pc-compile", "model.mlir", "-o", "none"]
        self.holds("another space", *compile, "--offload=states:host", code=4, words="--offload=states:host does not work with --target=cpu; use --offload=states:disk")
        self.holds("an unknown space", *compile, "--offload=states:tape", code=4, words="'states:tape' is not supported; expected states, masters, parameters or activations")
        self.holds("other values", *compile, "--offload=states,inputs", code=4, words="--offload=states,inputs: 'inputs' is not supported")
        self.holds("twice", *compile, "--offload=states,states", code=4, words="is not on the device already")
        self.holds("no masters", *compile, "--offload=masters", code=4, words="has no f32 masters of rounded parameters")
        self.holds("no training", *compile, "--offload=parameters", "--mode=eval", code=4, words="does not train")
        self.holds("no states", *compile, "--offload=states", "--optimizer=sgd", code=4, words="has no optimizer states")
        self.holds("local SGD", *compile, "--offload=states", "--mesh", "outer=2", "--local-sgd=outer:4", code=4, words="does not work with --local-sgd")

    def calls(self, plans, few):
        """From a checkpoint over two steps to the next one: all calls (`few` is 0), or `few` of them."""
        self.model("gpt2", 4, 16)
        self.environment |= STAND_IN
        (self.work / "scratch").mkdir()
        for plan, kind in plans:
            self.compile("train", "adamw", plan, f"--offload={kind}")
            run = ["pc-run", "-n", ranks_of(plan.split()[0]), "./train", "--", *RUN, "--data", GOLDEN / "gpt2/tokens.bin", "--scratch", "scratch"]
            self.needs(*run, "--steps", 1, "--save", "half")
            run += ["--load", "half", "--steps", 3]
            self.needs(*run, "--save", "whole", LD_PRELOAD=str(CALLS), FAIL_FILE="/scratch/", FAIL_COUNT="count")
            count = int((self.work / "count").read_text())
            chosen = range(1, count + 1)
            self.check(f"{plan}, {kind}: calls", count > 20, count, f"{count} calls")
            if few:
                chosen = sorted({1, 2, *(1 + i * (count - 1) // few for i in range(1, few + 1))})
            for number, words in [(5, "Input/output error"), (28, "No space left on device"), (4, None), (0, None)]:
                wrong = [why for at in chosen if (why := self.broken_call(run, at, number, words))]
                what = words or ("interrupted" if number else "short")
                self.check(f"{plan}, {kind}: {what} at {len(chosen)} calls", not wrong, "\n".join(wrong[:3]))
        self.check("nothing is left", not list((self.work / "scratch").iterdir()), list((self.work / "scratch").iterdir()))

    def broken_call(self, run, at, number, words):
        """What is wrong with a run in which call `at` fails; "" if it ends as it should. `words`: the error that ends it; the second call, which only finds out how to align
        memory, may fail."""
        done = self.call(*run, "--save", "broken", LD_PRELOAD=str(CALLS), FAIL_FILE="/scratch/", FAIL_AT=str(at), FAIL_ERROR=str(number))
        place = r"cannot (read|write) the scratch file in scratch at byte \d+: |--scratch scratch: cannot allocate the \d+ bytes that this rank keeps on disk; .*: "
        if words and at != 2:
            good = done.code == 6 and re.search(f"({place}){words}", done.said)
        else:
            good = done.code == 0 and self.checkpoint_sums("broken") == self.checkpoint_sums("whole")
        return "" if good else f"call {at}: {done.why()}"


def all_rows():
    rows = [(model, optimizer, plan, "states") for model in ("gpt2", "llama-tied", "qwen3_moe") for optimizer in OPTIMIZERS for plan in PLANS]
    rows += [(model, "adamw", plan, "states parameters activations" + " masters states,masters" * ("bf16" in plan))
             for model in MODELS for plan in (EXPERTS if "moe" in model else PLANS)]
    rows += [("gpt2", "adamw", plan + CUDA, "states:disk parameters:disk activations:disk") for plan in PLANS]
    return rows + [(model, "adamw", plan + CUDA, "states:host parameters:host activations:host" + " masters:host" * ("bf16" in plan)) for model in MODELS for plan in PLANS]


def main():
    which, *more = sys.argv[1:]
    case = Offload("offload/" + " ".join(sys.argv[1:]))
    rows = [(which, *more)] if more else QUICK if which == "quick" else all_rows()
    if which.startswith("all-"):
        rows = rows[int(which[4:])::8]

    def body():
        if which == "faults":
            return case.faults()
        if which == "kernels":
            return case.kernels(rows)
        if which.startswith("calls"):
            plans = [BROKEN[int(which[6:])]] if "-" in which else [row for row in BROKEN if CUDA not in row[0]]
            return case.calls(plans, few=3 if len(plans) > 1 else 12 if CUDA in plans[0][0] else 0)  # the stand-in is slow
        if which == "quick":
            case.parts()
            case.kernels(all_rows()[::53])
        for row in rows:
            case.run_plan(*row[:3], *row[3].split())
    case.run(body)


main()
