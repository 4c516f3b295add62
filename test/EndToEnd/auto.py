#!/usr/bin/env python3
"""usage: test/EndToEnd/auto.py golden MODEL... | examples NAME... | limits SEED COUNT RUNS | pins MODEL

Tests pc-compile --auto. Golden models and examples must end in a program that computes what one rank computes. No arena
may exceed a limit: COUNT limits are drawn at random, and RUNS of these programs run. If no plan fits, exit 6 must state
the least sufficient limit and the flag that prevents it."""
import json
import random
import re
import sys

from cases import GOLDEN, ROOT, Case, data_flags, file_name, import_flags

# These cores are so slow that moves cost almost nothing, so every split of the work is faster.
SLOW = {"like": "cpu", "f32_flops": 1e8, "bf16_flops": 1e8, "memory_bandwidth": 1e8, "move_seconds": 0, "collective_seconds": 0}
# Flags that a search gets, drawn at random.
PINS = [[], [], ["--precision=bf16"], ["--microbatches=2"], ["--zero=1"], ["--zero=3"], ["--recompute=full"], ["--tensor-parallel"], ["--target=cuda"],
        ["--target=cuda", "--precision=bf16"], ["--auto=pp,microbatches,pipeline"], ["--auto=tp,sequence-parallel"], ["--auto=cp,context-parallel"]]
# Strategy flags. A search gets one of them at a time.
PINNED = ["--mesh=dp=2", "--mesh=pp=2", "--mesh=cp=2", "--mesh=dp=?", "--zero=0", "--zero=1", "--recompute=none", "--recompute=full", "--microbatches=1",
          "--microbatches=4", "--pipeline=1f1b", "--tensor-parallel=1d", "--context-parallel=ring", "--data-parallel=naive", "--precision=f32",
          "--auto=dp", "--auto=cp,recompute"]
IMPOSSIBLE = {"t5": ["--context-parallel=ring"]}  # its attention has a bias
LARGE = {"gpt3-175b": (1024, 1024, "h100"), "llama-3.1-405b": (1024, 1024, "h100"), "mt-nlg-530b": (1920, 2240, "a100")}
STEPS = ["--steps", 5, "--lr", "1e-3", "--weight-decay", "0.1", "--clip", "1.0", "--seed", 1]


class Auto(Case):
    def compile(self, model, *flags, to="planned"):
        return self.call("pc-compile", model, *(["--to=planned", "-o", "/dev/null"] if to == "planned" else ["-o", to]),
                         "--report=report.json", *flags, seconds=1200)

    def search(self, model, ranks, *flags, **more):
        auto = [] if any(flag.startswith("--auto") for flag in flags) else ["--auto"]
        return self.compile(model, *auto, f"--ranks={ranks}", *flags, **more)

    def bytes(self):
        """Returns the bytes of the fullest rank, with those outside of the arena on a device."""
        report = json.loads((self.work / "report.json").read_text())
        beside = report.get("beside_arena", {})
        return max(rank["arena_bytes"]["device"] for rank in report["per_rank"]) + beside.get("staging_bytes", 0) + beside.get("nccl_bytes_estimated", 0)

    def least(self, done):
        """What exit 6 says would do."""
        found = re.search(r"the smallest plan needs (\d+) bytes: ", done.said)
        if not self.check("exit 6 with the least that would do", done.code == 6 and found, done.why()):
            return None
        return int(found[1])

    def equals_one_rank(self, name, model, ranks, data, flags=()):
        """Compares the program `train` that the search made with the program of one rank, which is made once."""
        one = "one-" + file_name(" ".join([model.name, *map(str, flags)]))
        if not (self.work / one).exists():
            (self.work / one).mkdir()
            self.needs("pc-compile", model, "-o", f"{one}/train", *flags)
            self.needs("pc-run", f"{one}/train", "--", *data, *STEPS, "--metrics", f"{one}/metrics.jsonl")
        self.needs("pc-run", "-n", ranks, "./train", "--", *data, *STEPS, "--metrics", "metrics.jsonl")
        self.compare(name, "losses", f"{one}/metrics.jsonl", "metrics.jsonl", "--tolerance", 5e-3 if "--precision=bf16" in flags else 1e-4)

    def chosen(self, done):
        return re.search(r"^chosen .*?iB  (.*?)  products", done.said, re.M)[1]

    def both(self, name, model, data):
        """Tests searches for two and four ranks, on the built-in machine and on slow cores."""
        (self.work / "slow.json").write_text(json.dumps(SLOW))
        for ranks in (2, 4):
            for flags in ([], ["--machine=slow.json"]):
                done = self.search(model, ranks, *flags, to="train")
                if not done.code:
                    self.equals_one_rank(f"{name}, {self.chosen(done)}", model, ranks, data)
                else:
                    self.check(f"{name} on {ranks} ranks", False, done.why())

    def golden(self, *models):
        for name in models:
            self.both(name, self.model(name, to=f"{name}.mlir"), [*data_flags(name), "--init", GOLDEN / name])

    def examples(self, *names):
        """Those that are too large to run are proved, phase by phase, to compute what their step computes."""
        for name in names:
            data, folder = ["--data", f"text:{ROOT / 'README.md'}"], ROOT / "examples" / name
            if (folder / "model.mlir").exists():
                (self.work / "tokens.bin").write_bytes(bytes([1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0] * 4))
                self.three_ranks(name, folder / "model.mlir", ["--data", "tokens.bin"])
            elif name in LARGE:
                batch, ranks, machine = LARGE[name]
                done = self.search(self.model(folder, batch, 2048), ranks, f"--machine={machine}", "--precision=bf16", "--search-compositions=80")
                self.check(name, done.code == 0, done.why(), done.code or self.chosen(done))
            else:
                self.both(name, self.model(folder, 4, 32, to=f"{name}.mlir"), data)

    def three_ranks(self, name, model, data):
        done = self.search(model, 3, to="train")
        if self.check(f"{name} on 3 ranks", done.code == 0, done.why()):
            self.equals_one_rank(f"{name}, {self.chosen(done)}", model, 3, data)

    def limits(self, seed, count, runs):
        dice, accepted, count, runs = random.Random(int(seed)), 0, int(count), int(runs)
        models = sorted(path.name for path in GOLDEN.iterdir() if path.is_dir())
        while accepted < count and not self.failed:
            name, ranks, pins = dice.choice(models), dice.choice((2, 2, 2, 3, 4)), dice.choice(PINS)
            model = self.model(name, 12 if ranks == 3 else 4, to=f"{name}-{ranks}.mlir")
            none = self.search(model, ranks, *pins, "--memory-limit=1")
            text = f"{name} {ranks} {' '.join(pins)}".strip()
            if none.code == 4:  # such flags go with no plan of this model
                self.check(text, none.err.strip(), none.why(), "no plan")
                continue
            least = self.least(none)
            for turn in range(min(10, count - accepted) if least else 0):
                limit = least if turn == 0 else int(least * dice.uniform(1, dice.choice((1.3, 4))))
                # The runs are spread evenly over all plans that are accepted.
                runs_now = (accepted + 1) * runs // count > accepted * runs // count and "--target=cuda" not in pins
                done = self.search(model, ranks, *pins, f"--memory-limit={limit}", **({"to": "train"} if runs_now else {}))
                accepted += self.check(f"{text}, {limit} bytes", done.code == 0 and self.bytes() <= limit, done.why() if done.code else self.bytes())
                if runs_now and not done.code:
                    self.equals_one_rank("and runs", model, ranks, data_flags(name) + ["--init", GOLDEN / name],
                                         [flag for flag in pins if flag.startswith("--precision")])

    def pins(self, name):
        """Tests each flag with a limit just below the bytes of the best plan with it. If plans without the flag need
        fewer bytes, the message names the flag, and these plans fit."""
        model = self.model(name)
        free = self.least(self.search(model, 2, "--memory-limit=1"))
        for flag in PINNED:
            done = self.search(model, 2, flag, "--memory-limit=1")
            if flag in IMPOSSIBLE.get(name, []):
                self.check(f"{flag} goes with no plan", done.code == 4 and "no plan is legal" in done.said, done.why())
                continue
            least = self.least(done)
            fits = self.search(model, 2, flag, f"--memory-limit={least}")
            self.check(f"{flag}: {least} bytes do", fits.code == 0 and self.bytes() == least, fits.why())
            done = self.search(model, 2, flag, f"--memory-limit={least - 1}")
            said = re.search(rf"without {re.escape(flag)} a plan fits, with (\d+) bytes: ", done.said)
            if free < least:
                self.check(f"{flag} prevents it", self.least(done) == least and said and int(said[1]) < least, done.why(), said and said[0])
            else:
                self.check(f"{flag} prevents nothing", self.least(done) == least and not said and "no plan fits without these flags either" in done.said, done.why())
        done = self.search(model, 2, "--mesh=dp=2", "--zero=0", f"--memory-limit={free}")
        self.check("two flags", re.search(r"; without (--\S+|these flags) a plan fits", done.said), done.why(), done.said.split("; ")[-1].strip())


auto = Auto("auto-" + "-".join(sys.argv[1:]))
auto.run(lambda: getattr(auto, sys.argv[1])(*sys.argv[2:]))
