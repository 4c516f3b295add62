"""usage: update-forms.py REPORT.json   prints a line for each row of update_forms, and the optimizer's traffic"""
import json
import sys

report = json.load(open(sys.argv[1]))
for row in report.get("update_forms", []):
    ways = [f"{name} {row[name] and row[name]['wire_bytes']}" for name in ("duplicated", "gram_sums", "owners")]
    assert row["owners"] is None or row["owners"]["seconds"] < row["duplicated"]["seconds"]
    print(row["axis"], row["matrices"], row["shape"], *([f"stages {row['stages']}"] if "stages" in row else []), *ways, "chosen", row["chosen"])
for move in report["per_rank"][0]["traffic"]:
    if move["phase"] == "optimizer":
        print(move["axis"], move["move"], move["wire_bytes"])
