"""usage: check-page.py PAGE.html REPORT.json

Checks the data of a report's page against the report and against itself, and the elements that a browser draws."""
import json
import re
import sys

from browser import drawn

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
streams = data["report"].pop("streams")
assert abs(streams["microseconds"] / 1e6 / report["predicted"]["step_seconds"] - 1) < 1e-6, "not the step's end"
for row in streams["rows"]:
    ends = [start + length for _, start, length, _, _, _ in row["stretches"]]
    assert all(start >= end - 0.01 for end, (_, start, *_) in zip(ends, row["stretches"][1:])), "two at once in a row"
computes, *moves = [sum(count for *_, count, _ in row["stretches"]) for row in streams["rows"]]
sent = sum(traffic["count"] for traffic in report["per_rank"][0]["traffic"])
print("moves over", *[row["axis"] for row in streams["rows"][1:]], "as counted" if sum(moves) == sent else sent)
for width in (1280, 500):
    page = drawn(sys.argv[1], width)
    rows = set(re.findall(r'data-l="(\d+)"', page)) if page else set()
    print("drawn:", len(rows) if page else "not tried")
print("same report" if data["report"] == report else "another report")
