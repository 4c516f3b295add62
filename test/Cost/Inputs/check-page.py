"""usage: check-page.py PAGE.html REPORT.json: what the page's data says, against the report and against itself."""
import json
import re
import sys

page, report = open(sys.argv[1]).read(), json.load(open(sys.argv[2]))
assert not re.search(r"""(src|href)\s*=\s*["']?http|@import|url\((?!#)""", page), "not self-contained"
data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S).group(1))
print(data["model"], data["batch"], "x", data["sequence"], "in", data["microbatches"], "microbatches")
print("phases", *[name for name, _, _ in data["phases"]])
for tensor in data["tensors"]:
    if tensor["name"].endswith("c_fc.weight"):
        print(f"tensor {tensor['name']} x {tensor['count']}: {tensor['whole']} -> {tensor['local']}")
most = max(data["memory"], key=lambda row: sum(row[1:7]))
assert sum(most[1:7]) == data["peak"]["bytes"] <= report["per_rank"][0]["arena_bytes"]["device"], most
kinds = ["parameters", "optimizer", "gradients", "activations", "communication"]
assert most[1:6] == [report["per_rank"][0]["memory"][kind] for kind in kinds], most
assert sum(work["flops"] for work in data["work"]) * 4 == report["flops_per_step"]
print("same report" if data["report"] == report else "another report")
