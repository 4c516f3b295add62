"""usage: tokenizers.py PC_RUN PROGRAMS

Tests that a checkpoint contains the tokenizer's files of the directory whose weights the run starts from, and that
other files in the checkpoint's directory remain unchanged."""
import json

from harness import *

work_in("tokenizers.work")
FILES = {name: name.encode() + b"\xff" for name in [
    "added_tokens.json", "additional_chat_templates/rag.jinja", "additional_chat_templates/tool use.jinja", "chat_template.jinja",
    "chat_template.json", "generation_config.json", "merges.txt", "preprocessor_config.json", "processor_config.json", "qwen.tiktoken",
    "source.spm", "special_tokens_map.json", "spiece.model", "tokenizer.4.0.0.json", "tokenizer.json", "tokenizer.model",
    "tokenizer.model.v3", "vocab.json", "vocab.txt"]}
OTHERS = ["README.md", "additional_chat_templates/notes.txt", "additional_chat_templates/deep/x.jinja", "more/tokenizer.json", ".model",
          "additional_chat_templates/.jinja", "tokenizer_config.json/x"]


def files(directory):
    """Returns the files of a directory that are not a checkpoint's own."""
    own = ["config.json", "model.safetensors", "training_state.safetensors", "trajectory.json"]
    names = [os.path.relpath(os.path.join(folder, name), directory) for folder, _, names in os.walk(directory) for name in names]
    return {name: read(f"{directory}/{name}") for name in names if name not in own}


def listed(directory):
    return sorted(name for name in json.load(open(f"{directory}/trajectory.json"))["files"] if name in FILES)


succeeds("weights", "1-1-1", "--steps", 1, "--save", "source")
good("none without a source", files("source") == {} and listed("source") == [])
for name, text in {**FILES, **dict.fromkeys(OTHERS, b"not a tokenizer's")}.items():
    write(f"source/{name}", text)
succeeds("from a directory", "2-1-1", "--init", "source", "--steps", 1, "--save", "out")
good("are saved", files("out") == FILES and listed("out") == sorted(FILES), files("out"))
succeeds("from a file in it", "1-1-1", "--init", "source/model.safetensors", "--steps", 1, "--save", "file")
good("are saved from there, too", files("file") == FILES)
succeeds("gone on with", "1-1-1", "--load", "out", "--steps", 2, "--save", "next")
good("and saved again", files("next") == FILES)
succeeds("in place", "1-1-1", "--load", "out", "--steps", 3, "--save", "out")
good("stay", files("out") == FILES)

# A user's file of that name stays as it is, and does not become part of the checkpoint.
theirs = {"vocab.json": b"theirs", "additional_chat_templates/rag.jinja": b"their rag", "additional_chat_templates/a/b": b"deep"}
for name, text in theirs.items():
    write(f"theirs/{name}", text)
for step in [1, 2]:
    succeeds(f"beside theirs, {step}", "1-1-1", "--init", "source", "--steps", step, "--save", "theirs")
    good(f"theirs stays, {step}", files("theirs") == {**FILES, **theirs} and not set(theirs) & set(listed("theirs")))
write("instead/additional_chat_templates", b"no directory")
os.makedirs("instead-linked/elsewhere")
os.symlink("elsewhere", "instead-linked/additional_chat_templates")
plain = {name: text for name, text in FILES.items() if "/" not in name}
for step in [1, 2]:
    succeeds(f"a file for the directory, {step}", "1-1-1", "--init", "source", "--steps", step, "--save", "instead")
    good(f"stays a file, {step}", files("instead") == {**plain, "additional_chat_templates": b"no directory"})
    succeeds(f"a link for the directory, {step}", "1-1-1", "--init", "source", "--steps", step, "--save", "instead-linked")
    good(f"leads to nothing new, {step}", os.listdir("instead-linked/elsewhere") == [] and files("instead-linked") == plain)

# In a series, each checkpoint has its tokenizer files, and a run reads those of the newest one.
series = ["--checkpoint", "DIR", "--every", 1, "--keep", 2]
succeeds("a series", "1-1-1", "--init", "source", "--steps", 4, *series)
os.rename("source", "away")
succeeds("goes on without the source", "1-1-1", "--steps", 6, *series)
good("old ones are removed", sorted(name for name in os.listdir("DIR") if name != "latest") == ["step-00000005", "step-00000006"], os.listdir("DIR"))
good("the newest has them", files("DIR/step-00000006") == FILES)

os.rename("away", "source")

# A file that cannot be copied is reported before the first step.
write("source/tokenizer.json", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n")
refused("a pointer of Git LFS", 9, ["source/tokenizer.json", "git lfs pull"], "1-1-1", "--init", "source", "--save", "no")
os.remove("source/tokenizer.json")
os.symlink("../blobs/gone", "source/tokenizer.json")
refused("a link to nothing", 9, ["source/tokenizer.json", "'../blobs/gone', which does not exist"], "1-1-1", "--init", "source", "--save", "no")
succeeds("which a run without --save does not mind", "1-1-1", "--init", "source", "--steps", 1)
end()
