#!/usr/bin/env python3
"""usage: test/EndToEnd/traffic.py [--write]

Compiles one small Llama under every form of data and tensor parallelism, the rows of docs/rationale/traffic.md, and
compares the bytes that a rank sends in a step, as the compiler's report counts them, with the published formulas of
that page. --write makes the numbers anew.
"""
import re

from pages import Page, table

L, b, s, h, f, v = 2, 16, 8, 128, 256, 256  # layers, batch, sequence, width, ffn, vocabulary; kv heads as query heads
CONFIG = dict(model_type="llama", vocab_size=v, hidden_size=h, intermediate_size=f, num_hidden_layers=L, num_attention_heads=8,
              num_key_value_heads=8, head_dim=h // 8, tie_word_embeddings=False)
U, W = 4 * h * h + 3 * h * f + 2 * h, L * (4 * h * h + 3 * h * f) + h * v
SIZES = dict(L=L, h=h, f=f, v=v, T=b * s, E=v * h, N=(2 * L + 1) * h, U=U, W=W, P=W + v * h + (2 * L + 1) * h)


def elements(formula, plan):
    """Evaluates a formula of the page for a plan. In formulas products have no sign, and powers have ^."""
    sizes = [int(size) for size in re.findall(r"=(\d+)", plan.split()[0])]
    microbatches = re.search(r"--microbatches=(\d+)", plan)
    python = re.sub(r"(?<=[\w)]) ?(?=[(A-Za-z])", "*", formula).replace("^", "**")
    return eval(python, SIZES | dict(n=sizes[0], d=sizes[0], q=sizes[-1], M=int(microbatches[1]) if microbatches else 1))


def rows(test):
    """The rows of the page with the numbers as they come out."""
    test.load(b, s, **CONFIG)
    for form, plan, formula, source in re.findall(r"(?m)^\| (.*) \| `(.*)` \| (.*) \| (.*) \| \d+ \| \d+ \|$", test.page.read_text()):
        # Scalars (the loss, the norm of the gradient) are left out. They have less than 16 bytes each.
        count = sum(t["wire_bytes"] for t in test.report("--mesh", *plan.split())["per_rank"][0]["traffic"]
                    if t["payload_bytes"] > 16 * t["count"])
        predicted = 4 * elements(formula, plan)
        test.check(f"{form} {plan}", count == predicted, f"predicted {predicted}, counted {count}")
        yield f"| {form} | `{plan}` | {formula} | {source} | {int(predicted)} | {count} |"


def tables():
    found = list(rows(test))
    test.check("29 plans", len(found) == 29, found)
    yield table("form | plan | formula | source | predicted | counted", found)
    test.check("parameters in the text", f"P = {SIZES['P']} parameters" in test.page.read_text(), SIZES["P"])


test = Page()
test.make(tables)
