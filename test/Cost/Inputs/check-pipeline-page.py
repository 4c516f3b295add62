"""usage: check-pipeline-page.py PAGE.html REPORT.json: the data of a pipeline's page, and what a browser draws."""
import json
import os
import re
import shutil
import subprocess
import sys

page, report = open(sys.argv[1]).read(), json.load(open(sys.argv[2]))
data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S).group(1))
pipeline = report["pipeline"]
print(data["model"], data["batch"], "x", data["sequence"], "in", data["microbatches"], "microbatches,",
      pipeline["schedule"], "on", pipeline["stages"], "stages of", pipeline["chunks"], "chunks")
kinds = [event["cat"] for event in pipeline["traceEvents"] if event["ph"] == "X"]
print(kinds.count("forward"), "forward,", kinds.count("backward"), "backward;",
      "as in the report" if data["report"] == report else "another report")
browser = shutil.which("chromium")
if not browser:
    sys.exit(print("drawn: not tried"))
command = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--user-data-dir=" + sys.argv[1] + ".profile",
           "--enable-logging=stderr", "--dump-dom", "file://" + os.path.abspath(sys.argv[1])]
run = subprocess.run(command, capture_output=True, text=True, check=True)
assert "CONSOLE" not in run.stderr, run.stderr  # what scripts complain about
time = re.search(r'<svg id="time".*?</svg>', run.stdout, re.S).group(0)
tasks = set(re.findall(r'data-i="(\d+)"', time))
drawn = [text for text in re.findall(r"<text[^>]*>([^<]*)</text>", time) if text.startswith("stage")]
tasks = len(tasks) - sum(event.get("dur", 0) >= pipeline["step_seconds"] * 250 and "args" not in event
                         for event in pipeline["traceEvents"])
print("drawn:", tasks, "tasks,", ", ".join(drawn))
