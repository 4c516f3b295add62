#!/usr/bin/env python3
"""Writes generations.json: what transformers generates from the golden models, token by token.

usage: make_generations.py      (torch, transformers and numpy from PyPI)

By model, a list of {"prompt", "tokens", "logprobs", "margins"}: ids, the most probable continuation that `generate` gives
without sampling, the logarithms of its tokens' probabilities, and how much the best logit is above the second one. Computed
in double precision from the stored f32 weights."""
import json
import sys
from pathlib import Path

import numpy as np
import torch
import transformers

HERE = Path(__file__).parent
sys.path.append(str(HERE))
from make_golden import MODELS  # pylint: disable=wrong-import-position

# These models are not decoders that see only the past of one sequence: they have an encoder, or a capacity over the
# whole sequence.
OTHERS = {"bert", "t5", "t5-gated", "mixtral-capacity"}


def main():
    generations = {}
    for number, name in enumerate(MODELS):
        if name in OTHERS or name.endswith(("-packed", "-targets", "-dropout")):
            continue
        net = transformers.AutoModelForCausalLM.from_pretrained(HERE / name, attn_implementation="eager", experts_implementation="eager").double().eval()
        config = net.config
        context = min(64, next((n for n in (getattr(config, key, None) for key in ("max_position_embeddings", "n_positions", "seq_length")) if n), 64))
        random = np.random.default_rng(number)
        rows = []
        for length in (1, 3, 8, 6, context - 30 if context > 40 else 10):
            prompt = random.integers(0, config.vocab_size, length).tolist()
            made = net.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, length, dtype=torch.long), max_new_tokens=min(24, context - length),
                                do_sample=False, eos_token_id=-1, pad_token_id=0, return_dict_in_generate=True, output_logits=True)
            tokens = made.sequences[0, length:].tolist()
            logits = torch.cat(made.logits)
            best = logits.topk(2).values
            rows.append({"prompt": prompt, "tokens": tokens,
                         "logprobs": [round(x, 7) for x in logits.log_softmax(-1).gather(1, torch.tensor(tokens)[:, None])[:, 0].tolist()],
                         "margins": [round(x, 7) for x in (best[:, 0] - best[:, 1]).tolist()]})
        generations[name] = {"context": context, "requests": rows}
        print(name, context, flush=True)
    lines = [f'"{name}": {json.dumps(made)}' for name, made in generations.items()]
    (HERE / "generations.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
