#!/usr/bin/env python3
"""What PEFT makes of an adapter of a golden model.

usage: lora_reference.py MODEL ADAPTER OUT [MERGED]      (torch, transformers, safetensors, numpy and peft from PyPI)

Trains the adapter in the directory ADAPTER for 20 steps of AdamW, as make_golden.py trains models, in f32. OUT.json gets the losses and the loss
of the merged model, OUT.safetensors `logits` and `grad.<tensor>` of the first step and `after.<tensor>`; the directory MERGED gets the model with
the given adapter merged."""
import json
import sys
from pathlib import Path

import torch
from make_golden import LR, STEPS, WEIGHT_DECAY, Stream, auto_class, forward, train
from peft import PeftModel
from safetensors.torch import save_file

HERE = Path(__file__).resolve().parent


def load(name, adapter):
    model = auto_class(name).from_pretrained(HERE / name, dtype=torch.float32, attn_implementation="eager").eval() # without dropout
    return PeftModel.from_pretrained(model, adapter, is_trainable=True)


def adapters(model):
    """Parameters by their names in PEFT's files."""
    return {name.replace(".default", ""): parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def main():
    name, adapter, out = sys.argv[1:4]
    stream = Stream.read(HERE / name)
    made = {}
    model = load(name, adapter)
    logits, loss = forward(model.get_base_model(), stream, 0)
    loss.backward()
    made["logits"] = logits
    made |= {"grad." + tensor: parameter.grad for tensor, parameter in adapters(model).items()}
    model = load(name, adapter)
    optimizer = torch.optim.AdamW(adapters(model).values(), lr=LR, weight_decay=WEIGHT_DECAY)
    losses = train(model.get_base_model(), stream, optimizer, STEPS)
    made |= {"after." + tensor: parameter for tensor, parameter in adapters(model).items()}
    save_file({tensor: value.detach().clone().contiguous() for tensor, value in made.items()}, out + ".safetensors")
    merged = load(name, adapter).merge_and_unload()
    if sys.argv[4:]:
        merged.save_pretrained(sys.argv[4])
    Path(out + ".json").write_text(json.dumps({"losses": losses.tolist(), "merged": forward(merged, stream, 0)[1].item()}))


if __name__ == "__main__":
    main()
