"""usage: limits.py WORK

Searches plans of WORK/m.mlir with --auto under random limits. No arena may be larger than its limit."""
import json
import random
import re
import subprocess
import sys

work, dice = sys.argv[1], random.Random(18)


def search(limit):
    command = ["pc-compile", work + "/m.mlir", "--auto", "--ranks=2", f"--memory-limit={limit}", "--to=planned", "-o", "/dev/null",
               f"--report={work}/r.json"]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    if done.returncode == 6:
        return int(re.search(r"smallest plan needs (\d+) bytes", done.stderr)[1])
    assert done.returncode == 0, done.stderr
    arenas = [rank["arena_bytes"]["device"] for rank in json.load(open(work + "/r.json"))["per_rank"]]
    assert max(arenas) <= limit, (arenas, limit)
    return None


least = search(1024)
assert least and search(least - 1) == least and search(least) is None
limits = [dice.randrange(least, 4 * least) for _ in range(3)]
assert all(search(limit) is None for limit in limits)
print(len(limits) + 3, "limits: never exceeded")
