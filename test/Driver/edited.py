#!/usr/bin/env python3
"""usage: edited.py GOLDEN WORK

Tests the warning that a program was edited, so that its checkpoints have the config.json of another model. A program
edited by hand gets it in every phase, whatever was edited and whatever checks the compilation makes. A program as the
tools write it does not get it, with any flags, moved weights, other names or locations of its ops."""
import re
import shutil
import subprocess
import sys
from pathlib import Path

GOLDEN, WORK = (Path(argument).resolve() for argument in sys.argv[1:3])
PHASES = ["model", "step", "placed", "local", "scheduled", "planned", "kernels"]
bad = checked = 0


def run(*command):
    return subprocess.run([str(word) for word in command], cwd=WORK, capture_output=True, text=True, check=False)


def needs(*command):
    done = run(*command)
    if done.returncode:
        sys.exit(f"{command}: {done.stderr}")
    return done


def expect(what, told, done, codes=(0,)):
    global bad, checked
    checked += 1
    says = "warning: this program was edited" in done.stderr
    if says != told or done.returncode not in codes:
        bad += 1
        print(f"{what}: exit {done.returncode}, told: {says}, not {told}: {done.stderr}")


def edit(name, old, new):
    """A copy of program `name` with the first match replaced."""
    text = (WORK / f"{name}.mlir").read_text()
    changed = re.sub(old, new, text, count=1)
    if changed == text:
        sys.exit(f"{name} has no {old}")
    (WORK / "edited.mlir").write_text(changed)
    return "edited.mlir"


def compile_to(phase, program, *flags):
    return run("pc-compile", program, f"--to={phase}", "-o", "further.mlir" if program == "out.mlir" else "out.mlir", *flags)


shutil.rmtree(WORK, ignore_errors=True)
WORK.mkdir(parents=True)
needs("pc-import", GOLDEN / "llama", "-o", "model.mlir", "--batch", 4, "--seq", 16)
FLAGS = ["--mesh=dp=2,tp=2", "--zero=1", "--microbatches=2"]
for phase in PHASES[1:]:
    done = compile_to(phase, "model.mlir", *FLAGS)
    expect(f"model to {phase}", False, done)
    shutil.copy(WORK / "out.mlir", WORK / f"{phase}.mlir")
    after = PHASES[PHASES.index(phase) + 1:] or ["kernels"]
    expect(f"{phase} to {after[0]}", False, compile_to(after[0], f"{phase}.mlir"))
for flags in [["--precision=bf16", "--pack-products"], ["--pipeline=1f1b", "--mesh=pp=2", "--microbatches=4"], ["--optimizer=sgd"], ["--mode=eval"],
              ["--target=cuda"], ["--auto", "--ranks=2"]]:
    done = compile_to("planned", "model.mlir", *flags)
    expect(" ".join(flags), False, done)
    expect(" ".join(flags) + ", on", False, compile_to("kernels", "out.mlir"))

# These changes do not count as edits of the program.
for phase in ["model", "step", "placed"]:
    text = (WORK / f"{phase}.mlir").read_text()
    (WORK / "edited.mlir").write_text("// A comment.\n" + text.replace("\n    ", "\n\n  "))
    expect(f"{phase} in other lines", False, compile_to("planned", "edited.mlir"))
    expect(f"{phase}, weights elsewhere", False, compile_to("planned", edit(phase, r' weights "[^"]*"', ' weights "/elsewhere"'), "--verify=none"))
    expect(f"{phase}, no weights", False, compile_to("planned", edit(phase, r' weights "[^"]*"', ""), "--verify=none"))
    needs("pc-opt", f"{phase}.mlir", "-o", "edited.mlir", "--canonicalize", "--cse", "--mlir-print-op-generic")
    expect(f"{phase} through pc-opt", False, compile_to("planned", "edited.mlir"))
needs("pc-opt", "model.mlir", "-o", "edited.mlir", "--pc-phase-step")
expect("the phase step in pc-opt", False, compile_to("planned", "edited.mlir"))
(WORK / "edited.mlir").write_text((WORK / "model.mlir").read_text().replace("%0", "%renamed"))
expect("names of values", False, compile_to("planned", "edited.mlir"))

# These changes count as edits. The proof also refuses edits of later phases, so two messages report them; without a
# proof, only the message tested here does.
for phase in PHASES:
    changes = {"config": (r"\\22vocab_size\\22", r"\\22vocab_SIZE\\22")} if phase != "kernels" else {"a number": (r"1\.000000e-03|9\.99999974E-6|1\.0+e\+00", "2.000000e+00")}
    if phase in ("model", "step", "placed", "local"):
        changes |= {"an epsilon": (r" eps [0-9.e-]+", " eps 0.25"), "a scale": (r"(pc.attention .* scale )[0-9.e-]+", r"\g<1>0.25"),
                    "a tensor's name": (r'source <"model.norm.weight"', 'source <"model.other.weight"')}
    for what, (old, new) in changes.items():
        edited = edit(phase, old, new)
        for verify in ["full", "none"]:
            done = compile_to("kernels" if phase == "kernels" else "planned", edited, f"--verify={verify}")
            expect(f"{what} of {phase}, {verify}", True, done, (0, 5))
            if what == "config" and done.returncode == 0:
                expect(f"{what} of {phase}, {verify}, on", True, compile_to("kernels", "out.mlir", "--verify=none"))
    needs("pc-opt", edited, "-o", "out.mlir")
    expect(f"{phase} through pc-opt", True, compile_to("kernels", "out.mlir", "--verify=none"))
expect("no digest", True, compile_to("planned", edit("model", "pc.digest = [^,}]*", "")))

# A program that did not come from a config.json cannot disagree with one.
shutil.copy(WORK / edit("model", "pc.digest = [^,}]*", ""), WORK / "bare.mlir")
expect("written by hand", False, compile_to("planned", edit("bare", r'config "[^"]*"', 'config "{}"')))
print(f"{checked} programs, {bad} are wrong")
