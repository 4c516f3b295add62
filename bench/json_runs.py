"""Writes JSON results with one line per run, so that git shows which runs changed."""
import json


def holds_runs(value):
    """Whether `value` is a list of objects (the runs), or an object with such a list."""
    if isinstance(value, dict):
        return any(map(holds_runs, value.values()))
    return isinstance(value, list) and bool(value) and all(isinstance(one, dict) for one in value)


def text(value):
    """JSON with a line for each run; results without runs are one line."""
    def lines(value, indent):
        if not holds_runs(value):
            return json.dumps(value)
        inner = indent + " "
        if isinstance(value, dict):
            parts = [f"{json.dumps(key)}: {lines(one, inner)}" for key, one in value.items()]
            opening, closing = "{", "}"
        else:
            parts = [json.dumps(one) for one in value]
            opening, closing = "[", "]"
        return opening + "\n" + ",\n".join(inner + part for part in parts) + "\n" + indent + closing
    return lines(value, "") + "\n"
