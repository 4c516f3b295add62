#!/usr/bin/env python3
"""usage: test/EndToEnd/next_loss.py [MODEL...]      (torch and transformers from PyPI)

Checks that saved checkpoints are directories of transformers. For every golden model it loads the checkpoint of four
ranks after three steps, with no tensor missing, left over or of another shape, and its loss of the next batch is that
of the run that continues."""
import json
import sys

from cases import GOLDEN, Case, data_flags, import_flags

sys.path.append(str(GOLDEN))
import make_golden  # pylint: disable=wrong-import-position

STEPS, TOLERANCE = 3, 1e-5
TRAIN = "--lr 1e-3 --weight-decay 0.1 --clip 1.0 --seed 1".split()


class NextLoss(Case):
    def ours(self, model):
        """Writes model/save; returns the loss of the step after it."""
        self.needs("pc-import", GOLDEN / model, "-o", f"{model}.mlir", "--batch", make_golden.BATCH, "--seq", make_golden.SEQUENCE, *import_flags(model))
        self.needs("pc-compile", f"{model}.mlir", "--mesh", "dp=2,tp=2", "-o", "train")
        run = ["pc-run", "-n", 4, "./train", "--", *data_flags(model), *TRAIN]
        self.needs(*run, "--init", GOLDEN / model, "--steps", STEPS, "--save", f"{model}/save")
        self.needs(*run, "--load", f"{model}/save", "--steps", STEPS + 1, "--metrics", f"{model}/metrics.jsonl")
        return json.loads((self.work / model / "metrics.jsonl").read_text().splitlines()[-1])["loss"]

    def theirs(self, model):
        net, info = make_golden.auto_class(model).from_pretrained(self.work / model / "save", attn_implementation="eager", dtype=make_golden.torch.float32,
                                                                  output_loading_info=True)
        wrong = {what: sorted(map(str, names)) for what, names in info.items() if names}
        self.check(f"{model}: its tensors, all of them", not wrong, wrong)
        net = make_golden.limit_experts(model, net)
        return make_golden.forward(net.train(), make_golden.Stream.read(GOLDEN / model), STEPS)[1].item()

    def body(self):
        for model in sys.argv[1:] or make_golden.MODELS:
            ours, theirs = self.ours(model), self.theirs(model)
            apart = abs(ours - theirs) / theirs
            self.check(f"{model}: the next loss", apart <= TOLERANCE, f"{ours}, of transformers {theirs}", f"{ours}, {apart:.0e} apart")


if __name__ == "__main__":
    case = NextLoss(" ".join(["next_loss.py", *sys.argv[1:]]))
    case.run(case.body)
