"""Compares pages of docs/rationale with those that a test makes, or writes them anew."""
import json
import re
import sys
from pathlib import Path

from cases import ROOT, Case


class Page(Case):
    """Compares the tables of NAME.md with the output of NAME.py, which fails if they differ. With --write it replaces the tables."""

    def __init__(self):
        super().__init__(Path(sys.argv[0]).stem)
        self.page = ROOT / "docs/rationale" / f"{self.name}.md"

    def load(self, batch, sequence, to="model", **config):
        """Imports a model of this config, without dropout."""
        (self.work / to).mkdir(exist_ok=True)
        (self.work / to / "config.json").write_text(json.dumps(config))
        self.model(self.work / to, batch, sequence, "--dropout=0", to=f"{to}.mlir")

    def report(self, *flags, model="model"):
        """Returns the compiler's report on the planned program, which stays in MODEL.planned."""
        self.needs("pc-compile", f"{model}.mlir", *flags, "--to=planned", "-o", f"{model}.planned", "--report=report.json")
        return json.loads((self.work / "report.json").read_text())

    def make(self, tables):
        """The page has the tables that tables() yields: text whose first line, its heading, is there once."""
        def body():
            for table in tables():
                page, heading = self.page.read_text(), table.split("\n")[0]
                if "--write" in sys.argv:
                    found = re.search(re.escape(heading) + r"\n\n?(\|.*\n)+", page)
                    page = page.replace(found[0], table)
                    self.page.write_text(page)
                self.check(f"the page has {heading}", page.count(heading) == 1 and table in page, f"--write makes it anew in {self.page}:\n{table}")
        self.run(body)


def table(columns, rows, heading=""):
    line = f"| {columns} |"
    return heading + "\n".join([line, "|---" * (line.count("|") - 1) + "|", *rows]) + "\n"
