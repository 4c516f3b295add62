#!/usr/bin/env python3
"""usage: bench/proof.py [RUNS]     build/bin in PATH

Measures the cost of proving every phase of a compilation to `planned`: medians of RUNS (10) compilations with
--verify=full and as many with --verify=phase, in turns, in processor seconds of all threads, and the difference of
their peak memory. Fails if the proof takes more than a quarter of the compile time and more than 100 ms; more than 0.5
s or 256 MiB for Llama 405B; or if MT-NLG 530B takes more than 10 s in all."""
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROWS = """gpt2-124m 8 1024 --mesh=dp=2,tp=2
llama-3.1-405b 512 2048 --mesh=dp=128,tp=8 --zero=3 --sequence-parallel
llama-3.1-405b 512 2048 --mesh=dp=128,tp=8 --zero=3 --sequence-parallel --precision=bf16
llama-3.1-405b 2048 2048 --mesh=pp=16,dp=128,tp=8 --microbatches=16 --zero=1 --sequence-parallel --precision=bf16
llama-3.1-405b 2048 2048 --mesh=pp=16,dp=128,tp=8 --microbatches=16
mt-nlg-530b 320 2048 --mesh=pp=35,dp=8,tp=8 --microbatches=40 --stages=layers --precision=bf16 --recompute=full""".splitlines()


def compiled(model, flags, verify):
    """Processor seconds and MiB of a compile."""
    child = subprocess.Popen(["pc-compile", model, *flags, "--to=planned", f"--verify={verify}", "-o", os.devnull], stderr=subprocess.PIPE, text=True)
    said = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"{model} {flags}: {said}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main():
    runs, good = int(sys.argv[1]) if len(sys.argv) > 1 else 10, True
    print("| program | compile, s | with the proof, s | proof, s | % | memory, MiB |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as work:
        for row in ROWS:
            name, batch, sequence, *flags = row.split()
            model = pathlib.Path(work) / f"{name}-{batch}.mlir"
            if not model.exists():
                subprocess.run(["pc-import", ROOT / "examples" / name, "-o", model, "--batch", batch, "--seq", sequence], check=True, stderr=subprocess.DEVNULL)
            pairs = [(compiled(model, flags, "phase"), compiled(model, flags, "full")) for _ in range(runs)]
            without, full = (statistics.median(pair[i][0] for pair in pairs) for i in (0, 1))
            memory = statistics.median(pair[1][1] - pair[0][1] for pair in pairs)
            proof = full - without
            print(f"| {name} {' '.join(flags)} | {without:.2f} | {full:.2f} | {proof:.3f} | {100 * proof / without:.0f} | {memory:.0f} |", flush=True)
            good &= proof <= max(0.1, without / 4) and full < 10 and (not name.startswith("llama") or (proof <= 0.5 and memory <= 256))
    sys.exit(not good)


main()
