"""Models as users write them. Each build_X() returns (module, example inputs by name), as `python -m pc_torch` wants them."""

from . import gpt, llama, others

MODELS = {name[6:]: make for source in (gpt, llama, others) for name, make in vars(source).items() if name.startswith("build_")}
