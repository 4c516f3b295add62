#!/usr/bin/env python3
"""usage: bench/local_sgd.py [NAME] [--steps N] [--warm N] [--inner N] [--batch N] [--seq N]
                          [--mbit N] [--slow-steps N] [--lr F] [--momentum F]

Compares local SGD with data parallelism on two machines of two ranks with a slow cable between them. The machines are
two network namespaces; this needs ip, tc, mpirun and root, and without them the script says that seconds are not
measured.

Losses: examples/gpt2-14m trains on the text of the LLVM headers, from the parameters after a few steps (--warm). Both
methods make as many steps of as many tokens at the full speed of the machine, since speed does not change losses. The
last loss on held-out samples is compared. Tokens per second are measured over the cable: a few steps of data
parallelism, and a round of local SGD with deltas of f32 and of 8 bits.

Training makes checkpoints, and build/bench/NAME.json keeps finished measurements: a second call continues. Writes
results/NAME.json."""
import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import json_runs

ROOT = Path(__file__).resolve().parents[1]
BIN = ROOT / "build/bin"
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("name", nargs="?", default="local_sgd")
for flag, value in (("steps", 512), ("warm", 100), ("inner", 32), ("batch", 8), ("seq", 64), ("mbit", 100), ("slow-steps", 3)):
    parser.add_argument(f"--{flag}", type=int, default=value)
for flag, value in (("lr", 4e-4), ("momentum", 0.7)):
    parser.add_argument(f"--{flag}", type=float, default=value)
options = parser.parse_args()
work = ROOT / "build/bench" / options.name
notes = work / "done.json"
ROUNDS = ["--mesh", "outer=2,dp=2", f"--local-sgd=outer:{options.inner}", "--outer-rate=0.7", f"--outer-momentum={options.momentum}"]
PLANS = {"ddp": (options.batch, ["--mesh", "dp=4"]),
         "f32": (options.batch // 2, ROUNDS), "int8": (options.batch // 2, [*ROUNDS, "--outer-deltas=int8"])}
FLAGS = ["--data", "text:text", "--shuffle", "--validation", "1/100", "--seed", "1", "--lr", str(options.lr), "--clip", "1.0", "--lr-warmup", "20"]
DECAY = ["--lr-decay", "cosine", "--min-lr", "6e-5"]
ONE, TWO = f"pc-bench-{os.getpid()}-1", f"pc-bench-{os.getpid()}-2"
environment = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "PCRT_THREADS": "1"}


def call(*command, **more):
    done = subprocess.run([str(word) for word in command], cwd=work, env=environment, text=True, capture_output=True, **more)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\nexit {done.returncode}: {done.stdout[-500:]}{done.stderr[-2000:]}")
    return done


def cable():
    """Two namespaces with a cable between them, as slow at both ends; False where this machine does not let us."""
    def does(command):
        return subprocess.run(command.split(), capture_output=True).returncode == 0
    commands = [f"ip netns add {ONE}", f"ip netns add {TWO}", f"ip link add pcb1 netns {ONE} type veth peer name pcb2 netns {TWO}"]
    for i, space in (1, ONE), (2, TWO):
        commands += [f"ip -n {space} addr add 10.213.9.{i}/24 dev pcb{i}", f"ip -n {space} link set pcb{i} up", f"ip -n {space} link set lo up",
                     f"ip netns exec {space} tc qdisc add dev pcb{i} root tbf rate {options.mbit}mbit burst 512kb limit 20mb"]
    return all(shutil.which(tool) for tool in ("ip", "tc", "mpirun")) and all(does(command) for command in commands)


def over_cable(program, *flags):
    agent = work / "agent"
    agent.write_text(f'#!/bin/sh\nshift\nexec ip netns exec {TWO} unshare --uts sh -c "hostname 10.213.9.2; $*"\n')
    agent.chmod(0o755)
    net = "10.213.9.0/24"
    # Machines are called by their addresses, by which ranks find rank 0.
    return call("ip", "netns", "exec", ONE, "unshare", "--uts", "sh", "-c", 'hostname 10.213.9.1; exec "$@"', "sh", "mpirun", "-q", "--host", "10.213.9.1:2,10.213.9.2:2", "-n", 4, "--map-by", "slot", "--bind-to", "none", "--mca", "btl", "tcp,self", "--mca", "pml", "ob1",
                "--mca", "btl_tcp_if_include", net, "--mca", "oob_tcp_if_include", net, "--mca", "plm_rsh_agent", agent, f"./{program}", *flags, timeout=3600)


def once(name, measure):
    """Its figure, measured unless that has been done."""
    done = json.loads(notes.read_text()) if notes.exists() else {}
    if name not in done:
        done[name] = measure()
        notes.write_text(json.dumps(done, indent=1) + "\n")
        print(f"{name}: {done[name]}", flush=True)
    return done[name]


def trained(plan):
    """Returns the loss on the held-out samples after the last step."""
    call(BIN / "pc-run", "-n", 4, f"./{plan}", "--", *FLAGS, *DECAY, "--init", "warm", "--steps", options.steps, "--checkpoint", f"of-{plan}", "--every", "50", "--keep", "1",
         "--eval-every", options.steps, "--eval-batches", "16", "--metrics", f"{plan}.jsonl")
    return [line["validation_loss"] for line in map(json.loads, open(work / f"{plan}.jsonl")) if "validation_loss" in line][-1]


def speed(plan, steps):
    """Tokens per second over the cable, without the first step, which waits for the program's pages."""
    over_cable(plan, *FLAGS, "--init", "warm", "--steps", steps + 1, "--metrics", "slow.jsonl")
    lines = [json.loads(line) for line in open(work / "slow.jsonl")][1:]
    return sum(line["tokens"] for line in lines) / sum(line["step_seconds"] for line in lines)


def main():
    about = {key: value for key, value in vars(options).items() if key != "name"}
    work.mkdir(parents=True, exist_ok=True)
    if once("options", lambda: about) != about:
        raise SystemExit(f"{notes} is of other flags; give another NAME")
    if not (work / "text").exists():
        files = sorted(Path("/usr/lib/llvm-22/include/llvm").rglob("*.h"))
        (work / "text").write_bytes(b"".join(path.read_bytes() for path in files))
    for plan, (batch, flags) in PLANS.items():
        call(BIN / "pc-import", ROOT / "examples/gpt2-14m", "-o", f"{plan}.mlir", f"--batch={batch}", f"--seq={options.seq}")
        call(BIN / "pc-compile", f"{plan}.mlir", *flags, "-o", plan)
    if not (work / "warm/model.safetensors").exists():
        call(BIN / "pc-run", "-n", 4, "./ddp", "--", *FLAGS, "--steps", options.warm, "--save", "warm")
    speeds = {}
    if cable():
        for plan in PLANS:
            speeds[plan] = once(f"tokens a second over {options.mbit} Mbit/s, {plan}", lambda plan=plan: speed(plan, options.slow_steps if plan == "ddp" else options.inner))
    else:
        print(f"tokens per second were not measured: ip netns, tc (tbf) and mpirun are needed, and root", file=sys.stderr)
    losses = {plan: once(f"loss after {options.steps} steps, {plan}", lambda plan=plan: trained(plan)) for plan in PLANS}
    (ROOT / "bench/results" / f"{options.name}.json").write_text(json_runs.text({**about, "tokens_per_second": speeds, "validation_losses": losses}))
    for plan in ("f32", "int8"):
        faster = f"{speeds[plan] / speeds['ddp']:.1f} times the tokens per second of data parallelism, " if speeds else ""
        print(f"local SGD, deltas of {plan}: {faster}loss {losses[plan]:.4f} beside {losses['ddp']:.4f} ({100 * (losses[plan] / losses['ddp'] - 1):+.1f} %)")


try:
    main()
finally:
    for space in ONE, TWO:
        subprocess.run(["ip", "netns", "del", space], capture_output=True) if shutil.which("ip") else None
