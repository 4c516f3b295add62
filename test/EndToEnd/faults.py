#!/usr/bin/env python3
"""usage: test/EndToEnd/faults.py MESH|PRECISION...      (minutes)

How strong the stand-in's checkers are: programs for CUDA devices run once without each of their waits, event records and graph edges, with each two
neighbouring collectives exchanged on one rank (test/Runtime/standin/faults.sh), and (PRECISION) without each barrier of their kernels. Every fault
must be named, or change nothing."""
import sys

from cases import BIN, BUILD, ROOT, STAND_IN, Case, mesh_flags, ranks_of

CUDA = ["--target=cuda", "--arch=sm_90a"]
DATA = ROOT / "README.md"


class Faults(Case):
    def of_waits(self, mesh):
        # Small buckets: many moves under way at a time.
        model = self.model(ROOT / "examples/tour")
        self.needs("pc-compile", model, "-o", mesh, "--bucket-bytes=2000", *mesh_flags(mesh), *CUDA, "--stand-in")
        self.holds(mesh, ROOT / "test/Runtime/standin/faults.sh", BUILD / "lib/libpc_standin.so", BIN / "pc-run", ranks_of(mesh), f"./{mesh}",
                   "--data", f"text:{DATA}", "--steps", 2, "--seed", 1, seconds=7200)

    def of_barriers(self, precision):
        # Several tiles of positions: barriers between them are needed.
        flags = [f"--precision={precision}", "--optimizer=sgd", *CUDA] + ["--attention=generated"] * (precision == "bf16")
        model = self.model(ROOT / "examples/tour", sequence=128)
        self.needs("pc-compile", model, "-o", "barriers", *flags, "--stand-in")
        self.needs("pc-compile", model, "-o", "barriers.mlir", *flags, "--to=kernels")
        self.needs("pc-kernels", "barriers.mlir", "--arch=sm_90a", "--emit=sites", "-o", "barriers.sites")
        self.holds(f"barriers {precision}", ROOT / "test/Codegen/gpu/without-each-barrier", "./barriers", "barriers.sites", DATA, seconds=7200)

    def body(self):
        self.environment = dict(STAND_IN)
        for what in sys.argv[1:]:
            (self.of_waits if "=" in what else self.of_barriers)(what)


faults = Faults("faults-" + "-".join(sys.argv[1:]))
faults.run(faults.body)
