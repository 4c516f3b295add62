"""usage: tokenizers.py PC_RUN PROGRAMS: the tokenizer's files beside the weights that a run starts from are in what it saves; files of others stay theirs."""
import json
import shutil

from harness import *

work_in("tokenizers.work")
FILES = {"tokenizer.json": b'{"model": "\xff"}', "vocab.json": b"{}", "chat_template.jinja": b"{{ x }}"}


def files(directory):
    """Those in a directory beside a checkpoint's own."""
    own = ["config.json", "model.safetensors", "training_state.safetensors", "trajectory.json"]
    return {name: read(f"{directory}/{name}") for name in os.listdir(directory) if name not in own}


def listed(directory):
    return sorted(name for name in json.load(open(f"{directory}/trajectory.json"))["files"] if name in FILES)


succeeds("weights", "1-1-1", "--steps", 1, "--save", "source")
good("none without a source", files("source") == {} and listed("source") == [])
for name, text in {**FILES, "README.md": b"not a tokenizer's", "tokenizer_config.json/x": b""}.items():
    write(f"source/{name}", text)
succeeds("from a directory", "2-1-1", "--init", "source", "--steps", 1, "--save", "out")
good("are saved", files("out") == FILES and listed("out") == sorted(FILES), files("out"))
succeeds("from a file in it", "1-1-1", "--init", "source/model.safetensors", "--steps", 1, "--save", "file")
good("are saved from there, too", files("file") == FILES)
succeeds("gone on with", "1-1-1", "--load", "out", "--steps", 2, "--save", "next")
good("and saved again", files("next") == FILES)
succeeds("in place", "1-1-1", "--load", "out", "--steps", 3, "--save", "out")
good("stay", files("out") == FILES)

# Somebody's file of that name stays what it is, and is not the checkpoint's.
write("theirs/vocab.json", b"theirs")
for step in [1, 2]:
    succeeds(f"beside theirs, {step}", "1-1-1", "--init", "source", "--steps", step, "--save", "theirs")
    good(f"theirs stays, {step}", files("theirs") == {**FILES, "vocab.json": b"theirs"} and "vocab.json" not in listed("theirs"))

# In a series they go with their checkpoint, and come from the newest one.
series = ["--checkpoint", "DIR", "--every", 1, "--keep", 2]
succeeds("a series", "1-1-1", "--init", "source", "--steps", 4, *series)
shutil.rmtree("source")
succeeds("goes on without the source", "1-1-1", "--steps", 6, *series)
good("old ones are removed", sorted(name for name in os.listdir("DIR") if name != "latest") == ["step-00000005", "step-00000006"], os.listdir("DIR"))
good("the newest has them", files("DIR/step-00000006") == FILES)
end()
