#!/usr/bin/env python3
"""usage: graphs.py check GRAPH.json < CHOICE       legal or why not, the cost, and the most that is used at a moment; from the contest's rules alone
       graphs.py make SEED NODES REACH             a graph at random, in the contest's format, on standard output
       graphs.py least GRAPH.json                  the least cost, by trying everything; of a chain without a limit, node by node

A graph of `make` has nodes in the order of time, whose edges go at most REACH nodes back; some strategies that meet are forbidden, and the limit is what
half of the way between the thriftiest and the most lavish choice uses, so that it matters. REACH 0 makes a chain without a limit."""
import itertools
import json
import random
import sys

FORBIDDEN = 10**18


def problem(path):
    with open(path) as file:
        return json.load(file)["problem"]


def cost_of(graph, choice):
    nodes, edges = graph["nodes"], graph["edges"]
    total = sum(costs[strategy] for costs, strategy in zip(nodes["costs"], choice))
    for ends, costs in zip(edges["nodes"], edges["costs"]):
        at = 0
        for node in ends:
            at = at * len(nodes["costs"][node]) + choice[node]
        total += costs[at]
    return total


def most_used(graph, choice):
    """By what is added and given back at each moment."""
    changes = {}
    for (begin, end), usages, strategy in zip(graph["nodes"]["intervals"], graph["nodes"]["usages"], choice):
        if begin < end:
            changes[begin] = changes.get(begin, 0) + usages[strategy]
            changes[end] = changes.get(end, 0) - usages[strategy]
    used = most = 0
    for moment in sorted(changes):
        used += changes[moment]
        most = max(most, used)
    return most


def why_illegal(graph, choice):
    costs = graph["nodes"]["costs"]
    if len(choice) != len(costs):
        return f"{len(choice)} strategies for {len(costs)} nodes"
    for node, strategy in enumerate(choice):
        if not 0 <= strategy < len(costs[node]):
            return f"node {node} has no strategy {strategy}"
    if most_used(graph, choice) > graph.get("usage_limit", float("inf")):
        return f"{most_used(graph, choice)} used, more than {graph['usage_limit']}"
    return None


def check(path):
    graph, choice = problem(path), json.load(sys.stdin)
    why = why_illegal(graph, choice)
    print(f"illegal: {why}" if why else f"legal, cost {cost_of(graph, choice)}, at most {most_used(graph, choice)} used")
    return why is not None


def least(path):
    graph = problem(path)
    costs, edges = graph["nodes"]["costs"], graph["edges"]
    if "usage_limit" not in graph and edges["nodes"] == [[node - 1, node] for node in range(1, len(costs))]:
        best = costs[0]  # by the strategy of the last node
        for node, table in enumerate(edges["costs"], 1):
            size = len(costs[node])
            best = [costs[node][i] + min(cost + table[before * size + i] for before, cost in enumerate(best)) for i in range(size)]
        print(min(best))
        return
    every = itertools.product(*(range(len(costs)) for costs in graph["nodes"]["costs"]))
    print(min((cost_of(graph, choice) for choice in every if not why_illegal(graph, choice)), default="none"))


def make(seed, nodes, reach):
    dice, count, reach = random.Random(int(seed)), int(nodes), int(reach)
    sizes = [dice.randint(1, 4) for _ in range(count)]
    graph = {"name": f"{seed}-{count}-{reach}",
             "nodes": {"intervals": [[begin, begin + dice.randint(0, 4)] for begin in range(count)],
                       "costs": [[dice.randrange(100) for _ in range(size)] for size in sizes],
                       "usages": [[dice.randrange(1, 50) for _ in range(size)] for size in sizes]},
             "edges": {"nodes": [], "costs": []}}
    for node in range(1, count):
        for other in {max(0, node - dice.randint(1, max(1, reach))) for _ in range(1 + (reach > 0) * dice.randrange(2))}:
            graph["edges"]["nodes"].append([other, node])
            graph["edges"]["costs"].append([FORBIDDEN if dice.random() < 0.1 else dice.randrange(100) for _ in range(sizes[other] * sizes[node])])
    if reach:
        ends = [most_used(graph, [usages.index(of(usages)) for usages in graph["nodes"]["usages"]]) for of in (min, max)]
        graph["usage_limit"] = sum(ends) // 2
    print(json.dumps({"problem": graph}))


if __name__ == "__main__":
    sys.exit({"check": check, "make": make, "least": least}[sys.argv[1]](*sys.argv[2:]))
