#!/usr/bin/env python3
"""usage: test/EndToEnd/nanogpt.py

Trains GPT-2 124M for 20 steps by pc-train and examples/gpt2-124m/nanogpt.toml, on one rank and by dp=2 with ZeRO-1, and
by PyTorch. The steps are of 4 sequences of 64 tokens that are read in order; all else is the recipe's."""
import json
import math

import torch
import transformers

from cases import ROOT, Case, ranks_of

BATCH, SEQUENCE, STEPS = 4, 64, 20
LR, LEAST, WARM, END = 6e-4, 6e-5, 2000, 600000
PLANS = {"1": [], "dp=2": ["--mesh", "dp=2", "--zero", "1"]}


def rate(step):
    if step < WARM:
        return LR * (step + 1) / WARM
    return LEAST + 0.5 * (LR - LEAST) * (1 + math.cos(math.pi * (step - WARM) / (END - WARM)))


class NanoGPT(Case):
    def losses(self, model, tokens):
        decayed = [p for p in model.parameters() if p.dim() >= 2]
        others = [p for p in model.parameters() if p.dim() < 2]
        optimizer = torch.optim.AdamW([dict(params=decayed, weight_decay=0.1), dict(params=others, weight_decay=0.0)], betas=(0.9, 0.95))
        model.train()
        found = []
        for step in range(STEPS):
            for group in optimizer.param_groups:
                group["lr"] = rate(step)
            rows = [tokens[i * SEQUENCE:(i + 1) * SEQUENCE + 1] for i in range(step * BATCH, (step + 1) * BATCH)]
            x, y = torch.stack([row[:-1] for row in rows]), torch.stack([row[1:] for row in rows])
            logits = model(input_ids=x).logits
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            found.append(loss.item())
        return found

    def body(self):
        torch.manual_seed(0)
        config = transformers.GPT2Config.from_pretrained(ROOT / "examples/gpt2-124m")
        model = transformers.GPT2LMHeadModel(config)
        model.save_pretrained(self.work / "model")
        text = (ROOT / "README.md").read_bytes()[:BATCH * SEQUENCE * STEPS + 1]
        (self.work / "text").write_bytes(text)
        recipe = (ROOT / "examples/gpt2-124m/nanogpt.toml").read_text()
        (self.work / "recipe.toml").write_text(recipe.replace("shuffle = true\n", "").replace('checkpoint = "nanogpt"\n', "lr-steps = 600000\n"))
        want = self.losses(model, torch.tensor(list(text)))
        self.environment = {"PCRT_CACHE_DIR": str(self.work / "cache")}
        for mesh, flags in PLANS.items():
            self.needs("pc-train", "model", "--config", "recipe.toml", "-n", ranks_of(mesh), *flags, "--data", "text:text", "--batch", BATCH, "--seq", SEQUENCE,
                       "--microbatches", 2, "--steps", STEPS, "--metrics", "losses.jsonl")
            got = [json.loads(line)["loss"] for line in (self.work / "losses.jsonl").read_text().splitlines() if '"loss"' in line][:STEPS]
            worst = max(abs(a - b) / b for a, b in zip(got, want, strict=True))
            self.check(f"{mesh}: {STEPS} losses", worst < 1e-5, f"differ by {worst:.1e}", f"largest difference {worst:.1e}")


if __name__ == "__main__":
    case = NanoGPT("nanogpt.py")
    case.run(case.body)
