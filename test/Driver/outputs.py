"""usage: outputs.py MODEL_DIRECTORY, with the tools on PATH, in an empty directory

Tries the flags of the tools and of a compiled program. A flag that names an output file must refuse every file that the
command reads (exit 2, nothing changed), and must be listed here. The file also tests the effect on existing files:
links, devices, failures and signals.
"""
import os
import re
import shutil
import signal
import subprocess
import sys
import time

# For each command, its flags that name files, as its --help lists them.
READ = {"pc-compile": {"--reference"}, "pc-meet": {"--replay"}, "pc-import": set(), "pc-opt": set(), "pc-kernels": set(), "program": {"--data", "--targets", "--routing", "--init", "--adapter", "--load", "--requests"}}
WRITTEN = {"pc-compile": {"-o", "--emit-plan", "--report"}, "pc-meet": {"--log"}, "pc-import": {"-o"}, "pc-opt": {"-o"}, "pc-kernels": {"-o"},
           "program": {"--save", "--checkpoint", "--metrics", "--tensorboard", "--summary", "--dump-grads", "--dump-logits", "--dump-routing", "--trace", "--answers"}}
# These flags in --help are MLIR's own.
UPSTREAM = re.compile("--(irdl|load-|log-|mlir-|dump-pass|output-split)")


def run(*command, code=0, words="", **more):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **more)
    said = done.stdout[-2000:] + done.stderr
    assert code is None or done.returncode == code, f"{command}: exit {done.returncode}, not {code}: {said}"
    assert words in said, f"{command}: no '{words}' in: {said}"
    return done


def contents(path):
    with open(path, "rb") as file:
        return file.read()


def files_in(directory):
    return sorted(os.path.join(folder, name) for folder, _, names in os.walk(directory) for name in names)


def check_flags(command, text):
    """Every flag of the help text that takes a file or a directory is in one of the lists. Files in --scratch have no names, so they replace none."""
    lists = READ[command] | WRITTEN[command] | {"--scratch"}
    for flag in re.findall(r"^ +(--?[a-z-]+)[ =](?:<?file(?:name)?>?|FILE|DIR|LOG|<model.mlir>)", text, re.M) + re.findall(r"; (--[a-z-]+) (?:FILE|DIR)", text):
        assert flag in lists or UPSTREAM.match(flag), f"{command} {flag}: say in outputs.py whether it is read or written"


def refuse(inputs, command, flag):
    """`command` with `flag` is a usage error for every file in `inputs`, by each of its names, and changes nothing."""
    for path in inputs:
        for name in (path, os.path.abspath(path), "alias"):
            if name == "alias":
                if os.path.lexists("alias"):
                    os.unlink("alias")
                os.symlink(path, "alias")
            before = contents(path)
            run(*command, flag, name, code=2)
            assert contents(path) == before, f"{command[0]} {flag} {name} changed it"


def tools(model):
    run("pc-import", model, "-o", "m.mlir", "--batch", "2", "--seq", "8")
    run("pc-compile", "m.mlir", "--to=step", "-o", "step.mlir")
    run("pc-compile", "m.mlir", "--emit-plan", "plan.mlir", "--to=step", "-o", "step.mlir")
    with open("machine.json", "w", encoding="utf-8") as file:
        file.write('{"like": "cpu"}')
    for tool in ("pc-compile", "pc-opt", "pc-import", "pc-kernels"):
        check_flags(tool, run(tool, "--help").stdout)
    check_flags("pc-meet", run("pc-meet", "--help").stdout)
    compiles = ["pc-compile", "m.mlir", "--plan=plan.mlir", "--machine=machine.json", "--reference=step.mlir"]
    for flag in WRITTEN["pc-compile"]:
        refuse(["m.mlir", "plan.mlir", "machine.json", "step.mlir"], compiles + ([] if flag == "-o" else ["-o", "x"]), flag)
    refuse(["m.mlir"], ["pc-opt", "m.mlir"], "-o")
    refuse(["m.mlir"], ["pc-kernels", "m.mlir"], "-o")
    refuse([os.path.join(model, "config.json")], ["pc-import", model, "--batch", "2", "--seq", "8"], "-o")
    with open("rounds", "w", encoding="utf-8") as file:
        file.write("{}\n")
    refuse(["rounds"], ["pc-meet", "--replay", "rounds"], "--log")
    run("pc-compile", "m.mlir", "-o", "x", "--report", "./x", code=2, words="-o")
    run("pc-opt", "-", "-o", "m.mlir", code=2, stdin=open("m.mlir", "rb"))


def program():
    run("pc-compile", "m.mlir", "-o", "x")
    check_flags("program", run("./x", "--help").stdout)
    with open("d.bin", "wb") as file:
        file.write(bytes(range(256)) * 8)
    train = ["./x", "--data", "text:d.bin", "--steps", "1"]
    run(*train, "--save", "w")
    weights = "w/model.safetensors"
    for flag in WRITTEN["program"] - {"--save", "--checkpoint", "--tensorboard", "--answers"}:
        refuse(["d.bin", "x"], train, flag)
        refuse([weights], train + ["--init", weights], flag)
        refuse([weights, "w/config.json"], train + ["--init", "w"], flag)
        refuse([weights, "w/trajectory.json"], train + ["--load", "w", "--steps", "2"], flag)
        if flag != "--trace":
            run(*train, flag, "one", "--trace", "./one", code=2, words="--trace")
        run(*train, flag, "new/config.json", "--save", "new", code=2, words="--save")
        assert not os.path.exists("one") and not os.path.exists("new")
    run("pc-compile", "m.mlir", "--mode=generate", "--slots=1", "-o", "generate")
    with open("requests", "w", encoding="utf-8") as file:
        file.write('{"id": 1, "prompt": [1], "max_tokens": 2}\n')
    refuse(["requests", "generate", weights, "w/config.json"], ["./generate", "--requests", "requests", "--init", "w"], "--answers")
    run("./generate", "--requests", "requests", "--init", "w", "--answers", "answers")
    # A run does not overwrite a checkpoint from which it did not continue.
    before = contents("w/trajectory.json")
    run(*train, "--save", "w", "--metrics", "metrics", code=2, words="--overwrite")
    run("./x", "--data", "text:m.mlir", "--steps", "2", "--load", "w", "--change", "data", "--save", "other")
    run("./x", "--data", "text:d.bin", "--steps", "2", "--save", "w", "--init", "other", code=2, words="--overwrite")
    assert contents("w/trajectory.json") == before and not os.path.exists("metrics")
    run("./x", "--data", "text:d.bin", "--steps", "2", "--load", "w", "--save", "w")
    run("./x", "--data", "text:d.bin", "--steps", "2", "--checkpoint", "series", "--save", "last")
    run("./x", "--data", "text:d.bin", "--steps", "3", "--checkpoint", "series", "--save", "last")
    assert contents("w/trajectory.json") != before
    # A checkpoint of a run that ended because numbers were not finite may be overwritten only by a run on the same
    # data.
    run("./x", "--data", "text:d.bin", "--steps", "9", "--lr", "1e38", "--save", "blown", code=10)
    run("./x", "--data", "text:m.mlir", "--steps", "3", "--load", "other", "--save", "blown", code=2, words="--overwrite")
    run("./x", "--data", "text:d.bin", "--steps", "3", "--load", "w", "--save", "blown")
    run(*train, "--save", "w", "--overwrite")
    assert contents("w/trajectory.json") == before
    # A dump exists only when it is complete.
    run(*train, "--dump-grads", "grads", "--dump-logits", "/dev/null")
    assert os.path.getsize("grads") > 0
    assert not [name for name in files_in(".") if ".tmp-" in name], files_in(".")


def replaced():
    """What was there stays unless a new file is whole."""
    old = contents("x")
    run("pc-compile", "m.mlir", "-o", "x", code=None, env={**os.environ, "TMPDIR": "/nonexistent"})
    assert contents("x") == old
    run("bash", "-c", "ulimit -f 100; exec pc-compile m.mlir -o x", code=6)
    assert contents("x") == old
    run("pc-compile", "m.mlir", "--mesh=dp=3", "-o", "x", code=4)
    assert contents("x") == old
    for signum in (signal.SIGTERM, signal.SIGINT):
        for delay in (0.05, 0.2, 0.4, 0.6):
            child = subprocess.Popen(["pc-compile", "m.mlir", "-o", "x", "--report=report.json"], stderr=subprocess.DEVNULL)
            time.sleep(delay)
            child.send_signal(signum)
            child.wait()
            run("./x", "--version")
    left = [name for name in files_in(".") if ".tmp-" in name]
    assert not left, left
    os.symlink("target", "link")
    run("pc-compile", "m.mlir", "--to=step", "-o", "link")
    assert os.path.islink("link") and contents("target") == contents("step.mlir")
    os.chmod("target", 0o640)
    run("pc-opt", "m.mlir", "-o", "link")
    assert os.path.islink("link") and os.stat("target").st_mode & 0o777 == 0o640
    device = os.lstat("/dev/null")
    run("pc-compile", "m.mlir", "-o", "/dev/null")
    assert os.lstat("/dev/null").st_ino == device.st_ino
    assert run("pc-compile", "m.mlir", "--to=step", "-o", "/dev/stdout").stdout == contents("step.mlir").decode()
    if os.geteuid():
        os.chmod("target", 0o440)
        run("pc-opt", "m.mlir", "-o", "target", code=6)
    # A file that is not a program does not run.
    for text, words in (("", "empty"), ("exit 0\n", "it is not a program")):
        with open("none", "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod("none", 0o755)
        run("pc-run", "-n", "2", "./none", code=2, words=words)


shutil.copytree(sys.argv[1], "model")
tools("model")
program()
replaced()
