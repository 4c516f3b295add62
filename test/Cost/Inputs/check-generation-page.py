"""usage: check-generation-page.py PAGE.html"""
import json
import re
import sys

from browser import drawn

data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', open(sys.argv[1]).read(), re.S).group(1))
assert not data["training"]
print(data["generation"])
print(*data["report"]["per_rank"][0]["weights"])
page = drawn(sys.argv[1])
if page:
    for part in ("tensorsText", "timeNote", "timeLegend", "legend"):
        text = re.search(rf'id="{part}">(.*?)</(?:p|div|span)>', page, re.S)[1]
        assert "optimizer" not in text, text
    bits = re.findall(r"<td>(\d+)</td>", re.search(r'<table id="weightsTable">.*?</table>', page, re.S)[0])
    print("drawn:", re.search(r'<h1 id="title">(.*?)</h1>', page)[1] + ",", *bits)
else:
    print("drawn: not tried")
