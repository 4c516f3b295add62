#!/usr/bin/env python3
"""usage: test/EndToEnd/saved_configs.py [--transformers] [MODEL...]

Checks the config.json that a run saves with its weights. It is that of the model's directory, with every number in its
spelling and in that order, except for the type of the weights, which is that of the file. The models are golden models
(all of them), with every float of config.json set to a whole number, which a JSON library may write without its point.
--transformers (torch and transformers from PyPI): transformers accepts it, reads the weights in the type of the file,
and computes the next loss that the run computes."""
import json
import sys

from cases import GOLDEN, Case, data_flags, import_flags

BATCH, SEQUENCE, STEPS, TOLERANCE = 4, 16, 2, 1e-5  # of make_golden.py
# The value of a key that is never read, with numbers that libraries write in different ways.
SPELLED = '[1e6, 1E-05, -0.0, 7.0, 0.10, 123456789012345678901234567890, "\\u00e9\\n", "é", {"b": 1.0, "a": [2.50]}]'


def whole(value, key=""):
    """`value` with whole floats. Nothing is dropped, and no fraction of a head is left out of rotation; what is off stays off."""
    if isinstance(value, dict):
        return {name: whole(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [whole(inner, key) for inner in value]
    if not isinstance(value, float):
        return value
    return 0.0 if "drop" in key or value == 0 else float(max(round(value), 1))


def spelled(text):
    """JSON with the order of keys, and numbers as they are written."""
    return json.loads(text, parse_float=lambda number: ("float", number), parse_int=lambda number: ("int", number), object_pairs_hook=lambda pairs: pairs)


def of_float32(pairs):
    keys = [key for key, _ in pairs]
    return [("dtype", "float32")] * ("dtype" not in keys) + [(key, "float32" if key in ("dtype", "torch_dtype") else value) for key, value in pairs]


class SavedConfigs(Case):
    def ours(self, number, model):
        folder = self.work / model
        folder.mkdir()
        (folder / "model.safetensors").symlink_to(GOLDEN / model / "model.safetensors")
        (folder / "additional_chat_templates").mkdir()
        for name in ("chat_template.json", "additional_chat_templates/tool.jinja"):
            (folder / name).write_text(f'"{name}"')
        config = whole(json.loads((GOLDEN / model / "config.json").read_text()))
        config.pop("dtype", None)
        # The config has the key that transformers 5 writes, that of version 4, both, or neither.
        config |= [{"dtype": "bfloat16"}, {"torch_dtype": "float16"}, {"torch_dtype": "bfloat16", "dtype": None}, {}][number % 4]
        text = json.dumps(config, indent=2)[:-2] + f',\n  "noted": {SPELLED}\n}}\n'
        (folder / "config.json").write_text(text)
        self.needs("pc-import", folder, "-o", "model.mlir", "--batch", BATCH, "--seq", SEQUENCE, *import_flags(model))
        self.needs("pc-compile", "model.mlir", "-o", "train")
        run = ["./train", *data_flags(model), "--lr", 1e-3, "--seed", 1]
        self.needs(*run, "--steps", STEPS, "--save", f"{model}/save")
        self.needs(*run, "--steps", STEPS + 1, "--metrics", f"{model}/metrics.jsonl")
        saved = (folder / "save/config.json").read_text()
        wanted = of_float32(spelled(text))
        self.check(f"{model}: config.json", spelled(saved) == wanted, f"{spelled(saved)}\nwanted {wanted}")
        for name in ("chat_template.json", "additional_chat_templates/tool.jinja"):
            copy = folder / "save" / name
            self.check(f"{model}: {name}", copy.exists() and copy.read_text() == f'"{name}"')
        return json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])["loss"]

    def theirs(self, model, ours):
        sys.path.append(str(GOLDEN))
        import make_golden  # pylint: disable=import-outside-toplevel
        save = self.work / model / "save"
        net, info = make_golden.auto_class(model).from_pretrained(save, attn_implementation="eager", output_loading_info=True)
        wrong = {what: sorted(map(str, names)) for what, names in info.items() if names}
        self.check(f"{model}: its tensors, all of them", not wrong, wrong)
        types = {str(parameter.dtype) for parameter in net.parameters()}
        self.check(f"{model}: in their type", types == {"torch.float32"}, types)
        net = make_golden.limit_experts(model, net)
        theirs = make_golden.forward(net.train(), make_golden.Stream.read(GOLDEN / model), STEPS)[1].item()
        apart = abs(ours - theirs) / theirs
        self.check(f"{model}: the next loss", apart <= TOLERANCE, f"{ours}, of transformers {theirs}", f"{ours}, {apart:.0e} apart")

    def body(self):
        models = [word for word in sys.argv[1:] if word != "--transformers"] or sorted(path.name for path in GOLDEN.iterdir() if path.is_dir())
        for number, model in enumerate(models):
            ours = self.ours(number, model)
            if "--transformers" in sys.argv:
                self.theirs(model, ours)


if __name__ == "__main__":
    case = SavedConfigs(" ".join(["saved_configs.py", *sys.argv[1:]]))
    case.run(case.body)
