"""usage: check-pipeline-page.py PAGE.html REPORT.json

Checks the data of a pipeline's page against the report, and the elements that a browser draws."""
import json
import re
import sys

from browser import drawn

page, report = open(sys.argv[1]).read(), json.load(open(sys.argv[2]))
data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S).group(1))
pipeline = report["pipeline"]
print(data["model"], data["batch"], "x", data["sequence"], "in", data["microbatches"], "microbatches,",
      pipeline["schedule"], "on", pipeline["stages"], "stages of", pipeline["chunks"], "chunks")
kinds = [event["cat"] for event in pipeline["traceEvents"] if event["ph"] == "X"]
print(kinds.count("forward"), "forward,", kinds.count("backward"), "backward;",
      "as in the report" if data["report"] == report else "another report")
page = drawn(sys.argv[1])
if not page:
    sys.exit(print("drawn: not tried"))
time = re.search(r'<svg id="time".*?</svg>', page, re.S).group(0)
tasks = set(re.findall(r'data-i="(\d+)"', time))
rows = [text for text in re.findall(r"<text[^>]*>([^<]*)</text>", time) if text.startswith("stage")]
tasks = len(tasks) - sum(event.get("dur", 0) >= pipeline["step_seconds"] * 250 and "args" not in event
                         for event in pipeline["traceEvents"])
print("drawn:", tasks, "tasks,", ", ".join(rows))
# Text keeps its size in a small window: a unit of the picture is a pixel.
narrow = re.search(r'<svg id="time"[^>]* viewBox="0 0 (\d+)', drawn(sys.argv[1], 500))
assert int(narrow.group(1)) < 500, narrow.group(0)
