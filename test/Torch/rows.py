"""usage: rows.py [--write]

Compares the table of docs/own-models.md with the rows of the package's op table, or writes it. PyTorch is not needed: a stand-in is imported."""
import sys
from pathlib import Path
from unittest.mock import MagicMock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
sys.dont_write_bytecode = True
for name in ("torch", "torch.fx", "torch.fx.node", "torch.export", "torch.nn", "torch.nn.functional"):
    sys.modules[name] = MagicMock()
from pc_torch import choices, ops_layers, ops_math, ops_views  # noqa: F401 - they fill the table
from pc_torch.table import ROWS

page = ROOT / "docs/own-models.md"
begin, end = "| ATen op | how |\n|---|---|\n", "\n\n"
text = page.read_text()
at = text.index(begin) + len(begin)
after = text.index(end, at)
by_how = {}
for names, how in ROWS:
    by_how.setdefault(how, []).extend(sorted({f"`{name.split('.')[-2]}`" for name in names.split()}))
table = "\n".join(f"| {', '.join(dict.fromkeys(names))} | {how.replace('|', chr(92) + '|')} |" for how, names in by_how.items())
if "--write" in sys.argv:
    page.write_text(text[:at] + table + text[after:])
elif text[at:after] != table:
    sys.exit("docs/own-models.md has another table than python/pc_torch/ops_*.py: run test/Torch/rows.py --write")
print(f"{sum(len(names.split()) for names, _ in ROWS)} ops in {len(by_how)} rows")
