"""usage: iopddl.py BUILD WORK COUNT: bench-iopddl on graphs whose least costs are known."""
import io
import json
import re
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

build, work, count = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench/iopddl"))
import graphs  # noqa: E402

work.mkdir(parents=True, exist_ok=True)
# Two products and what adds their results up: the cheaper strategies do not fit together, one of them meets its user at no cost.
HAND = {"name": "hand", "nodes": {"intervals": [[0, 3], [1, 4], [2, 5]], "costs": [[10, 30], [10, 30], [20]], "usages": [[8, 2], [8, 2], [2]]},
        "edges": {"nodes": [[0, 2], [1, 2], [0, 1]], "costs": [[0, 20], [20, 0], [0, 0, 0, graphs.FORBIDDEN]]}, "usage_limit": 12}


def said(function, *arguments):
    with redirect_stdout(io.StringIO()) as text:
        function(*arguments)
    return text.getvalue().strip()


def solved(path):
    """The cost, as the checker has it, and the bound."""
    done = subprocess.run([build / "bench/bench-iopddl", path, "--rounds=4000"], capture_output=True, text=True)
    assert done.returncode == 0, (path, done.stderr)
    graph, choice = graphs.problem(path), json.loads(done.stdout)
    assert graphs.why_illegal(graph, choice) is None, (path, choice)
    told = re.search(r"cost (\d+), bound (\d+),", done.stderr)
    assert int(told[1]) == graphs.cost_of(graph, choice), (path, done.stderr)
    return int(told[1]), int(told[2]), choice


hand = work / "hand.json"
hand.write_text(json.dumps({"problem": HAND}))
cost, bound, choice = solved(hand)
print(f"by hand: legal, cost {cost}, at most {graphs.most_used(HAND, choice)} used")
assert bound == cost == int(said(graphs.least, hand))

limited = free = seed = 0
while limited < count or free < count:
    seed += 1
    for reach in (0, 3):
        path = work / "graph.json"
        path.write_text(said(graphs.make, seed, 6, reach))
        least = int(said(graphs.least, path))
        if least < graphs.FORBIDDEN and (limited if reach else free) < count:
            cost, bound, _ = solved(path)
            assert cost == bound == least, (seed, reach, cost, bound, least)
            limited, free = limited + (reach > 0), free + (reach == 0)
path.write_text(said(graphs.make, 2, 2000, 0))
least = int(said(graphs.least, path))
cost, bound, _ = solved(path)
assert cost == bound == least > graphs.FORBIDDEN, (cost, bound, least)  # some strategies cannot but meet
print(f"{limited} graphs with a limit, {free} without, a chain of 2000: least costs, and no bound is above")
