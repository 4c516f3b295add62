"""Shared by the tests of checkpoints: functions that run the hand-written programs, and the count of passed and failed
checks."""
import os
import random
import signal
import struct
import subprocess
import sys
import time

PC_RUN, PROGRAMS = (os.path.abspath(path) for path in sys.argv[1:3])
LONG = bool(os.environ.get("PC_LONG"))
passed = failed = 0


def work_in(name):
    """Begins in an empty directory, with 500 tokens below 32 in tokens.bin."""
    work = os.path.join(PROGRAMS, name)
    subprocess.run(["rm", "-rf", work], check=True)
    os.makedirs(work)
    os.chdir(work)
    draw = random.Random(1)
    write("tokens.bin", b"".join(struct.pack("<H", draw.randrange(32)) for _ in range(500)))


def write(path, data):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "wb") as file:
        file.write(data if isinstance(data, bytes) else data.encode())


def read(path):
    with open(path, "rb") as file:
        return file.read()


def good(name, holds, detail=""):
    global passed, failed
    if holds:
        passed += 1
    else:
        failed += 1
        print(f"FAILED {name}", detail, flush=True)
    return holds


def program(mesh):
    return os.path.join(PROGRAMS, f"core-program-{mesh}")


def command(mesh, *flags, launcher=()):
    """The command line of a run on the mesh "dp-tp-microbatches"; a later flag overrides an earlier one."""
    dp, tp, _ = mesh.split("-")
    start = [PC_RUN, *launcher, "-n", str(int(dp) * int(tp[0])), program(mesh), "--"]
    return start + ["--data", "tokens.bin", "--seed", "3", "--lr", "0.01", "--clip", "0.3", *map(str, flags)]


def start(arguments, **environment):
    if "--save" in arguments:  # where an earlier run of the test has saved
        arguments = [*arguments, "--overwrite"]
    return subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                            env={**os.environ, **environment})


def finish(process, seconds=240):
    """The exit code and what was said. A run that takes longer hangs; eight ranks on two busy cores take more than a minute."""
    try:
        said = process.communicate(timeout=seconds)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        said = "did not end in time: " + process.communicate()[1]
    return process.returncode, said


def run(mesh, *flags, launcher=(), **environment):
    return finish(start(command(mesh, *flags, launcher=launcher), **environment))


def succeeds(name, mesh, *flags, **more):
    code, said = run(mesh, *flags, **more)
    return good(name, code == 0, f"exit {code}: {said}")


def refused(name, code, words, mesh, *flags, **more):
    """The run ends with this code and one error message that has all of the words."""
    got, said = run(mesh, *flags, **more)
    errors = [line for line in said.splitlines() if "error: " in line]
    fits = got == code and len(errors) == 1 and all(word in errors[0] for word in words)
    return good(name, fits, f"exit {got}, not {code}, or not one message with {words}: {said}")


def tensors(directory):
    """Returns the bits of a checkpoint's files except trajectory.json; None if a file is missing."""
    names = ["config.json", "model.safetensors", "training_state.safetensors"]
    if not all(os.path.exists(f"{directory}/{name}") for name in names):
        return None
    return [read(f"{directory}/{name}") for name in names]


def wait_for(condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.002)
    return condition()


def end():
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed or not passed else 0)
