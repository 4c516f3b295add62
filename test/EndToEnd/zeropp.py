#!/usr/bin/env python3
"""usage: test/EndToEnd/zeropp.py quick|all|refused

Less communication of ZeRO (ZeRO++). An outer axis of ZeRO-3 (--zero-outer) gives the bits of the plan that gathers over both axes at each use, and sends the bytes of one
gather per step over it."""
import hashlib
import json
import sys

from cases import mesh_flags, ranks_of
from states import States

FREE = ["--clip", "1e9"]  # norms of gradients are added in another order, so they must not change updates
NODES = "node=2,gpu=2"
HPZ = f"{NODES} --zero=3:gpu --zero-outer=node"


class ZeroPlus(States):
    def program(self, out, plan="1", *flags):
        mesh, *own = plan.split()
        self.said = self.needs("pc-compile", "model.mlir", *mesh_flags(mesh), *own, *flags, f"--report={out}.json", "-o", out).said
        return self.runs(out, mesh)

    def runs(self, out, mesh):
        return ["pc-run", "-n", ranks_of(mesh), f"./{out}", "--", *"--lr 3e-3 --weight-decay 0.1 --clip 1 --seed 1 --data tokens.bin".split()]

    def sums(self, folder):
        """The tensors of a checkpoint, without metadata, which names the plan."""
        def sum_of(content):
            end = 8 + int.from_bytes(content[:8], "little")
            header = json.loads(content[8:end])
            return hashlib.sha256(b"".join(name.encode() + content[end + entry["data_offsets"][0] : end + entry["data_offsets"][1]]
                                           for name, entry in sorted(header.items()) if name != "__metadata__")).hexdigest()
        return [sum_of((self.work / folder / file).read_bytes()) for file in ("model.safetensors", "training_state.safetensors")]

    def traffic(self, summary, move, axis):
        """Payload bytes of rank 0 per step in moves of a kind over an axis."""
        rows = json.loads((self.work / summary).read_text())["per_rank"][0]["traffic"]
        return sum(row["payload_bytes"] for row in rows if row.get("axis") == axis and row["move"] == move)

    def outer(self, plans):
        """With and without --zero-outer. The plan without it is in a file, which differs only in how often parameters are gathered over the outer axis."""
        for flags in plans:
            hpz = self.program("outer", HPZ, *flags.split(), "--emit-plan=outer.plan")
            plan = (self.work / "outer.plan").read_text()
            self.check(f"hpZ {flags}: the plan", '"pc-zero{axis=gpu stage=3}", "pc-zero{axis=node stage=3 keep=*}"' in plan, plan)
            (self.work / "each.plan").write_text(plan.replace(" keep=*", ""))
            self.needs("pc-compile", "model.mlir", "--plan=each.plan", "-o", "each", "--report=each.json")
            each = self.runs("each", NODES)
            for name, command in (("outer", hpz), ("each", each)):
                self.needs(*command, *FREE, "--steps", 5, "--save", f"{name}-after", "--summary", f"{name}.summary", "--check-replicas", 5)
                self.compare(f"hpZ {flags}: report and summary of {name}", "reports", f"{name}.json", f"{name}.summary")
            self.check(f"hpZ {flags}: the bits of gathers at each use", self.sums("outer-after") == self.sums("each-after"))
            sent = {name: self.traffic(f"{name}.summary", "all_gather", "node") for name in ("outer", "each")}
            self.check(f"hpZ {flags}: fewer bytes over the outer axis", 0 < sent["outer"] < 0.7 * sent["each"], sent, sent)
            self.needs(*hpz, *FREE, "--steps", 2, "--save", "part")
            self.needs(*hpz, *FREE, "--load", "part", "--steps", 5, "--save", "resumed")
            self.check(f"hpZ {flags}: a run that continues has the same bits", self.sums("resumed") == self.sums("outer-after"))


    def refused(self):
        compile = ["pc-compile", "model.mlir", "-o", "none"]
        self.holds("without ZeRO-3", *compile, "--mesh", NODES, "--zero=1:gpu", "--zero-outer=node", code=2, words="--zero-outer needs --zero=3")
        self.holds("the same axis", *compile, "--mesh", NODES, "--zero=3:gpu", "--zero-outer=gpu", code=2, words="is the axis of --zero already")
        self.holds("no such axis", *compile, "--mesh", "gpu=2", "--zero=3:gpu", "--zero-outer=node", code=2, words="--zero-outer needs the mesh axis 'node'; add node=N")


def main():
    which = sys.argv[1]
    case = ZeroPlus("zeropp/" + " ".join(sys.argv[1:]))

    def body():
        case.begin()
        if which == "refused":
            return case.refused()
        case.outer(["--microbatches=2"] if which == "quick" else ["", "--microbatches=2", "--precision=bf16 --microbatches=2"])

    case.run(body)


if __name__ == "__main__":
    main()
