"""usage: families.py DIRECTORY BATCH SEQUENCE MODEL...

Compiles the training steps of models in f32 and bf16 for sm_80, sm_90a and sm_100a, each with the project's own attention, and reads their PTX
(read.py). PTX that differs from one that was run only in the name of the architecture is assembled, but not run."""
import re
import subprocess
import sys
from pathlib import Path

import read

# Attention in f32, or by mma.sync, with an addend for each pair of positions spills some registers in heads of 64.
SPILLS = {"bloom-64": "_attention"}


def command(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def check(directory, name, arch, precision, seen):
    """One program; `seen` has the texts that were run, without their target. Returns what is wrong."""
    program, file = directory / "program", directory / f"{name}-{arch}-{precision}.ptx"
    command("pc-compile", directory / "model.mlir", "--target=cuda", f"--arch={arch}", f"--precision={precision}", "--attention=generated", "--stand-in",
            "--check-kernels", "-o", program)
    text = read.ptx_of(program)
    file.write_text(text)
    wrong, said = read.assemble(file), "the same PTX"
    if spilling := SPILLS.get(name):
        wrong = [line for line in wrong if not (spilling in line and "stack frame" in line)]
    body = re.sub(r"\.(version|target) .*", "", text)
    if body not in seen:
        seen.add(body)
        names, more = read.run(program, file)
        wrong, said = wrong + more, f"{len(names)} kernels read"
    print(f"{name} {arch} {precision}: {said}, {len(wrong)} findings", *wrong, sep="\n  ", flush=True)
    return wrong


def main():
    directory, batch, sequence, *models = sys.argv[1:]
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    count, wrong = 0, []
    for model in map(Path, models):
        flags = model / "import-flags"
        command("pc-import", model, "--batch", batch, "--seq", sequence, "-o", directory / "model.mlir",
                *(flags.read_text().split() if flags.exists() else []))
        seen = set()
        for precision in ("f32", "bf16"):
            for arch in ("sm_80", "sm_90a", "sm_100a"):
                count += 1
                wrong += check(directory, model.name, arch, precision, seen)
    print(f"{count} programs, {len(wrong)} findings")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
