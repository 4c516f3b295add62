"""usage: page.py PAGE

The page of a searched plan must show each compiled plan as a point."""
import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../Cost/Inputs"))
from browser import drawn  # noqa: E402

data = re.search(r'id="data">(.*?)</script>', open(sys.argv[1]).read(), re.S)
plans = len(json.loads(data[1])["report"]["search"]["candidates"])
page = drawn(sys.argv[1])
points = plans if page is None else len(re.findall("<circle ", page[page.index('id="plans"'):page.index('id="nextPlans"')]))
print(f"{'as many points as plans' if points == plans > 1 else f'{points} points for {plans} plans'}")
