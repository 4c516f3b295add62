"""usage: pass-examples.py DIRECTORY [PC-OPT]
Runs the examples in the pass descriptions of DIRECTORY/include/pc/*/*Passes.td. An example is a fenced block:

    ```mlir
    // pc-opt FLAGS
    // input: NAME.mlir          (optional)
    IR before
    // becomes                   (or: // prints)
    IR after
    ```

pc-opt runs with FLAGS on the IR before, and the lines after "// becomes" must occur in its output, one after the other. With an input
line, it runs on Inputs/examples/NAME.mlir, and the IR before is an excerpt of that file. "..." stands for any text of a line or, on a
line of its own, for any lines. Names of values may differ, but one name stands for one value. Comments and blanks are ignored.
Files that FLAGS name are in Inputs/examples, too.
An example of a refusal ends with "// error: TEXT" instead: pc-opt must fail with this text.
"""
import glob, os, re, shlex, shutil, subprocess, sys

directory, pc_opt = sys.argv[1], shutil.which((sys.argv + ["pc-opt"])[2])
pc_opt = os.path.abspath(pc_opt or sys.exit("no pc-opt"))
inputs = os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs", "examples")


def clean(line):
    return " ".join(re.sub(r" *//.*", "", line).split())


def missing(wanted, text):
    """The first of the wanted lines that the text lacks, or None."""
    wanted = [line for line in map(clean, wanted) if line]
    have, furthest = [clean(line) for line in text.splitlines()], 0

    # Returns True if wanted[i:] matches the lines from have[at] on (or, with `anywhere`, from a later line). `values`
    # maps names to what they stand for.
    def matches(i, at, anywhere, values):
        nonlocal furthest
        if i == len(wanted):
            return True
        if wanted[i] == "...":
            return matches(i + 1, at, True, values)
        furthest = max(furthest, i)
        pattern, groups = "", {}
        for part in re.split(r"( ?\.\.\. ?|%\w+)", wanted[i]):
            if part.strip() == "...":
                pattern += ".*"
            elif not part.startswith("%"):
                pattern += re.escape(part)
            elif part in values:
                pattern += re.escape(values[part]) + r"\b"
            elif part in groups:
                pattern += rf"(?P={groups[part]})\b"
            else:
                groups[part] = f"v{len(groups)}"
                pattern += rf"(?P<{groups[part]}>%\w+)"
        for at in range(at, len(have) if anywhere else min(at + 1, len(have))):
            found = re.fullmatch(pattern, have[at])
            if found and matches(i + 1, at + 1, False, values | {name: found[group] for name, group in groups.items()}):
                return True
        return False

    return None if matches(0, 0, True, {}) else wanted[furthest]


def check(lines):
    """What is wrong with an example, or None."""
    flags = shlex.split(lines[0].removeprefix("// pc-opt"))
    ends = [i for i, line in enumerate(lines) if re.match(r"// (becomes|prints|error: .*)$", line)]
    if len(ends) != 1:
        return 'it needs one line "// becomes", "// prints" or "// error: TEXT"'
    before, end, after = lines[1 : ends[0]], lines[ends[0]], lines[ends[0] + 1 :]
    text = "\n".join(before)
    named = [line.removeprefix("// input: ") for line in before if line.startswith("// input: ")]
    if named:
        with open(os.path.join(inputs, named[0])) as file:
            text = file.read()
        if (line := missing(before, text)) is not None:
            return f"not in {named[0]} (or not at this place): {line}"
    run = subprocess.run([pc_opt, "-", *flags], input=text, capture_output=True, text=True, cwd=inputs)
    if end.startswith("// error: "):
        wanted = end.removeprefix("// error: ")
        return None if run.returncode and wanted in run.stderr else f"expected the error '{wanted}', got: {run.stderr or 'none'}"
    if run.returncode:
        return run.stderr
    if not any(map(clean, after)):
        return f'nothing follows "{end}"'
    line = missing(after, run.stdout)
    return line and f"not in the output (or not at this place): {line}\n{run.stdout}"


count = failed = 0
for path in sorted(glob.glob(os.path.join(directory, "include/pc/*/*Passes.td"))):
    room, here, name = os.path.relpath(path, directory), 0, ""
    with open(path) as file:
        text = file.read()
    for found in re.finditer(r'^def [^\n]*<"(pc-[a-z0-9-]+)"|^ *```mlir\n(.*?)^ *```$', text, re.M | re.S):
        if found[1]:
            name = found[1]
            continue
        lines = [line.strip() for line in found[2].splitlines()]
        here += 1
        wrong = check(lines) if lines[0].startswith("// pc-opt ") else 'the first line must be "// pc-opt FLAGS"'
        if not wrong and f"--{name}" not in re.split("[ =]", lines[0]):
            wrong = f"it does not run {name}"
        if wrong:
            print(f"{room}:{text.count(chr(10), 0, found.start()) + 1}: the example of {name} does not hold: {wrong}")
            failed += 1
    if not here:
        print(f"{room}: no pass has an example")
        failed += 1
    count += here
print(f"{count} examples, {failed} failed")
sys.exit(failed != 0)
