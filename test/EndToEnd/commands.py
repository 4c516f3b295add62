"""Runs rows "FILE SECTION [ARGUMENT]" that follow "# check: commands": each is a section of Inputs/FILE.txt. Commands
run one after another, by bash, in a folder of their own:

    ## NAME...                          a section; if it has several names, $name is the chosen one; $argument
    % TEXT                              precedes every later command; before the first section, in all sections
    $ COMMAND                           must succeed
    = COMMAND                           the same, in an empty folder, from which its files are copied; the quick run
                                        keeps it until a tool is rebuilt
    CODE | PATTERN | NAME | COMMAND     a check: it must exit with this code and one clear message with the pattern
    ? COMMAND                           if it fails, the section ends here, without a failure
    ! COMMAND                           runs last, whatever happened

A line that begins with four blanks continues the previous one (in the middle of a word, if that ends with \\); "- "
before a line keeps it for the long run. {{a|b}} makes two lines of one; in a check's pattern and name {} is the choice.
commands.sh has the functions and variables that commands share."""
import hashlib
import os
import re
import shlex
import shutil

from cases import BIN, BUILD, GOLDEN, HERE, LONG, MPI, ROOT, Case, Failed, shared


def lines_of(text):
    """Yields lines with their continuations, without comments. The quick run also leaves out the lines of the long run."""
    for line in re.split(r"\n(?!    )", re.sub(r"\\\n +", "", text)):
        if line and line[0] != "#" and (LONG or not line.startswith("- ")):
            yield line.removeprefix("- ").replace("\n    ", "\n")


def choices(line):
    """A line for every choice that {{a|b}} leaves, and what was chosen."""
    if not (found := re.search(r"\{\{(.*?)\}\}", line, re.S)):
        return [(line, [])]
    return [(rest, [choice, *others]) for choice in found[1].split("|") for rest, others in choices(line.replace(found[0], choice))]


class Commands(Case):
    def __init__(self, table, row):
        super().__init__(f"{table}/{row}", shlex.join(["run.py", table, row]))
        file, self.section, *arguments = row.split()
        self.text = (HERE / f"Inputs/{file}.txt").read_text()
        self.before, self.last = [f". {HERE}/commands.sh"], []
        self.environment = MPI | {"PATH": f"{BIN}:{os.environ['PATH']}", "root": str(ROOT), "build": str(BUILD), "here": str(HERE),
                                  "golden": str(GOLDEN), "name": self.section, "argument": " ".join(arguments),
                                  "port": str(20000 + os.getpid() % 10000)}

    def bash(self, command, cwd=None):
        return self.call("bash", "-c", "\n".join([*self.before, command]), seconds=7200 if LONG else 120, cwd=cwd)

    def needs_bash(self, command, cwd=None):
        if (done := self.bash(command, cwd)).code:
            self.check(command, False, done.why())
            raise Failed

    def kept(self, command):
        if LONG:
            return self.needs_bash(command)
        text = "\n".join([self.name, *self.before, command])
        folder = shared(f"commands/{hashlib.sha256(text.encode()).hexdigest()[:16]}", lambda folder: self.needs_bash(command, folder))
        shutil.copytree(folder, self.work, dirs_exist_ok=True, ignore=shutil.ignore_patterns("lock", "done"))

    def expect(self, code, pattern, name, command):
        """A check: the command ends with the code and says the pattern, in one clear message: no crash, no dump, no control characters."""
        done = self.bash(command)
        errors = len(re.findall(r"\berror: ", done.err, re.I))
        wrong = [why for good, why in (
            (done.code == int(code), f"exit {done.code}, not {code}"), (re.search(pattern, done.err, re.I | re.M), f"no message with: {pattern}"),
            (errors <= 1, f"{errors} error messages"), (done.err.count("\n") <= 20, "more than 20 lines of messages"),
            (not re.search("Stack dump|PLEASE submit|Assertion|Segmentation|terminate called|Sanitizer", done.err), "crashed"),
            (not re.search("[\x01-\x08\x0b-\x1f\x7f]", done.err), "control characters in a message")) if not good]
        self.check(name, not wrong, f"{'; '.join(wrong)}\n$ {command}\n{done.said[:2000]}", done.last()[:150])

    def line(self, line, chosen):
        """One line, carried out; false where the section ends."""
        mark, _, command = line.partition(" ")
        if mark == "%":
            self.before.append(command)
        elif mark == "!":
            self.last.append(command)
        elif mark == "?":
            if (done := self.bash(command)).code:
                print(f"not here, and so not tested: {done.why()}")
                return False
        elif mark == "$":
            self.needs_bash(command)
        elif mark == "=":
            self.kept(command)
        else:
            code, pattern, name, command = line.split(" | ", 3)
            named = [text.replace("{}", chosen[0]) if chosen else text for text in (pattern, name)]
            self.expect(code, named[0], ", ".join([named[1], *chosen]) if named[1] == name else named[1], command)
        return True

    def body(self):
        shared, *sections = re.split(r"(?m)^## ", self.text)
        section = next(text for text in sections if self.section in text.partition("\n")[0].split())
        try:
            for text in (shared, section.partition("\n")[2]):
                if not all(self.line(*choice) for line in lines_of(text) for choice in choices(line)):
                    break
        finally:
            for command in self.last:
                self.bash(command)
