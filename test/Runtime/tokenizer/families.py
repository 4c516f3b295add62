#!/usr/bin/env python3
"""usage: families.py DIRECTORY

Writes a tokenizer.json of each family to DIRECTORY/FAMILY, with the normalizers, pre-tokenizers, templates and decoders of the
published ones, and a vocabulary that the package `tokenizers` trains here on generated text.
"""
import json
import os
import random
import sys
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK = [
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
]
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
WORDS = (
    "the of and to in is that it's don't WE'LL I'M they'Re model Tensor parallel 2024 3.14159 1000000 def main(): return x_1 naïve Zürich "
    "Straße déjà ﬁne Ⅷ ½ ﷺ ㍿ カタカナ 漢字 한국어 עברית العربية हिन्दी ไทย Ελλάδα Русский İstanbul ǅungla e\u0301 a\u0308\u0323 \u1e9b\u0323"
).split()
KNOWN = [c for c in map(chr, range(1, 0x110000)) if not 0xD800 <= ord(c) < 0xE000 and unicodedata.category(c) not in ("Cn", "Co")]
BY_CATEGORY = {}
for one in KNOWN:
    BY_CATEGORY.setdefault(unicodedata.category(one), []).append(one)
SPACES = [" ", "\n", "\t", "\r\n", "\r", "\u00a0", "\u2003", "\u3000", "\u0085", "\u2028", "\x1c", "\x0b", "\u180e", "\u200b", "\u200d", "\ufeff", "▁"]
EMOJI = ["😀", "👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇩🇪", "1️⃣", "❤️"]


def text(rng, specials):
    """A random text: words, spaces of every kind, punctuation, special tokens, contractions, numbers, emoji, all of Unicode."""
    out = []
    for _ in range(rng.randint(1, 30)):
        kind = rng.random()
        if kind < 0.42:
            out.append(rng.choice(["", " ", " ", "  "]) + rng.choice(WORDS))
        elif kind < 0.55:
            out.append(rng.choice(SPACES) * rng.randint(1, 4))
        elif kind < 0.64:
            out.append(rng.choice("!?.,;:()[]{}<>/\\|@#$%^&*-_=+'\"`~") * rng.randint(1, 4))
        elif kind < 0.70:
            out.append(rng.choice([" ", ""]) + rng.choice(specials) + rng.choice([" ", "", "x", "\n"]))
        elif kind < 0.75:
            out.append("'" + rng.choice(["s", "S", "ſ", "re", "RE", "ll", "LL", "d", "D", "ſt", "t", "K"]))
        elif kind < 0.80:
            out.append(str(rng.randint(0, 10 ** rng.randint(1, 9))))
        elif kind < 0.84:
            out.append(rng.choice(EMOJI))
        elif kind < 0.94:
            out.append("".join(rng.choice(BY_CATEGORY[rng.choice(sorted(BY_CATEGORY))]) for _ in range(rng.randint(1, 4))))
        elif kind < 0.96:
            out.append(rng.choice("aeoAEOcñ") + "".join(rng.choice(BY_CATEGORY["Mn"]) for _ in range(rng.randint(1, 4))))
        else:
            points = (rng.choice([rng.randrange(1, 0x110000), rng.randrange(1, 0x3000), rng.randrange(0x10000, 0x20000)]) for _ in range(3))
            out.append("".join(chr(c) for c in points if not 0xD800 <= c < 0xE000))
    return "".join(out).replace("\0", "")


def corpus():
    rng = random.Random(7)
    return [text(rng, ["."]) for _ in range(600)]


def few_characters():
    rng = random.Random(7)
    return [" ".join(rng.choice(WORDS) for _ in range(12)) for _ in range(400)]


def special(*names):
    return [AddedToken(name, normalized=False, special=True) for name in names]


def byte_level(patterns, normalizer=None, prefix_space=False, names=("<|endoftext|>",), ignore_merges=False, template=None, size=1500):
    t = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer:
        t.normalizer = normalizer
    if patterns is None:
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    else:
        splits = [pre_tokenizers.Split(Regex(p), "isolated") for p in patterns]
        t.pre_tokenizer = pre_tokenizers.Sequence(splits + [pre_tokenizers.ByteLevel(add_prefix_space=prefix_space, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=list(names), show_progress=False)
    t.train_from_iterator(corpus(), trainer)
    if template:
        t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template(t)])
    return t


def visible(normalizer=None, splits=()):
    """Byte-level tokens of normalized text, so that each character of it is seen."""
    t = byte_level(None, normalizer=normalizer, size=300)
    t.pre_tokenizer = pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    return t


def before(name):
    return lambda t: processors.TemplateProcessing(single=f"{name} $A", pair=f"{name} $A {name} $B:1", special_tokens=[(name, t.token_to_id(name))])


def spm(style, names=("<unk>", "<s>", "</s>"), byte_fallback=True, size=1200):
    """A SentencePiece-like BPE: U+2581 for spaces, bytes for what has no token."""
    t = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=byte_fallback, fuse_unk=True))
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    pieces = list(names) + (["<0x%02X>" % b for b in range(256)] if byte_fallback else [])
    t.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=size, special_tokens=pieces, limit_alphabet=200, show_progress=False))
    model = json.loads(t.to_str())["model"]
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in model["merges"]]
    t = Tokenizer(models.BPE(model["vocab"], merges, unk_token="<unk>", byte_fallback=byte_fallback, fuse_unk=True))
    if style == "llama2":
        t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    elif style == "mistral":
        t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    elif style == "gemma":
        t.normalizer = normalizers.Replace(" ", "▁")
        t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    strip = [] if style == "gemma" else [decoders.Strip(" ", 1, 0)]
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()] + strip)
    t.add_special_tokens(special(*names))
    t.post_processor = before(names[1])(t)
    return t


def bert(lowercase):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=lowercase)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    t.train_from_iterator(corpus(), trainers.WordPieceTrainer(vocab_size=2500, special_tokens=names, limit_alphabet=600, show_progress=False))
    t.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[(n, t.token_to_id(n)) for n in ("[CLS]", "[SEP]")]
    )
    t.decoder = decoders.WordPiece(prefix="##")
    return t


def charsmap():
    """The character map of NMT NFKC, which SentencePiece gives its models."""
    import io

    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(["a b c d e f g"] * 9), model_writer=model, vocab_size=12, minloglevel=9)
    data = model.getvalue()
    # Field 3 of the model is its normalizer, whose field 2 is the map.
    def fields(data):
        at = 0
        def number():
            nonlocal at
            value = shift = 0
            while True:
                byte = data[at]
                at += 1
                value |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    return value
        while at < len(data):
            key = number()
            if key & 7 == 2:
                size = number()
                yield key >> 3, data[at : at + size]
                at += size
            elif key & 7 == 0:
                yield key >> 3, number()
            else:
                at += 4
    normalizer = next(value for field, value in fields(data) if field == 3)
    return next(value for field, value in fields(normalizer) if field == 2)


def unigram(style):
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()])
    scheme = "always" if style == "xlmr" else "first"
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    names = ["<pad>", "</s>", "<unk>"] if style == "t5" else ["<s>", "<pad>", "</s>", "<unk>"]
    t.train_from_iterator(few_characters(), trainers.UnigramTrainer(vocab_size=400, special_tokens=names, unk_token="<unk>", show_progress=False))
    if style == "albert":
        steps = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Precompiled(charsmap())]
        steps.append(normalizers.Replace(Regex(" {2,}"), " "))
    elif style == "t5":
        steps = [normalizers.Precompiled(charsmap()), normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), "▁")]
    else:
        steps = [normalizers.Precompiled(charsmap())]
    t.normalizer = normalizers.Sequence(steps)
    ms = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), ms]) if style == "xlmr" else ms
    t.decoder = decoders.Metaspace(prepend_scheme=scheme)
    t.add_tokens([AddedToken("<mask>", lstrip=True, special=True, normalized=True), AddedToken("Straße", single_word=True), AddedToken("<extra_id_0>", rstrip=True)])
    t.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", t.token_to_id("</s>"))])
    return t


def roberta():
    t = byte_level(None, names=("<s>", "<pad>", "</s>", "<unk>"), prefix_space=False)
    t.post_processor = processors.RobertaProcessing(("</s>", t.token_to_id("</s>")), ("<s>", t.token_to_id("<s>")))
    t.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
    return t


def clip():
    t = Tokenizer(models.BPE(unk_token="<|endoftext|>", continuing_subword_prefix="", end_of_word_suffix="</w>"))
    t.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    pattern = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "removed", invert=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.train_from_iterator(
        corpus(), trainers.BpeTrainer(vocab_size=1200, special_tokens=["<|startoftext|>", "<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), end_of_word_suffix="</w>", show_progress=False)
    )
    t.decoder = decoders.ByteLevel()
    return t


def word_level():
    t = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    t.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.Strip(), normalizers.StripAccents()])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.Punctuation("contiguous")])
    t.train_from_iterator(corpus(), trainers.WordLevelTrainer(vocab_size=900, special_tokens=["[UNK]"], show_progress=False))
    return t


FAMILIES = {
    "gpt2": lambda: byte_level(None),
    "llama3": lambda: byte_level([LLAMA3], names=("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"), ignore_merges=True, template=before("<|begin_of_text|>")),
    "qwen2": lambda: byte_level([QWEN2], normalizer=normalizers.NFC(), names=("<|endoftext|>", "<|im_start|>", "<|im_end|>")),
    "o200k": lambda: byte_level([O200K]),
    "deepseek": lambda: byte_level(DEEPSEEK),
    "bloom": lambda: byte_level([BLOOM], prefix_space=False),
    "roberta": roberta,
    "clip": clip,
    "nfkc": lambda: visible(normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])),
    "nfd": lambda: visible(normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()])),
    "nmt": lambda: visible(normalizers.Sequence([normalizers.Nmt(), normalizers.NFKD(), normalizers.Strip()])),
    "bert-bytes": lambda: visible(normalizers.BertNormalizer(), [pre_tokenizers.BertPreTokenizer()]),
    "charsmap": lambda: visible(normalizers.Precompiled(charsmap())),
    "classes": lambda: visible(None, [pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Punctuation()]),
    "llama2": lambda: spm("llama2"),
    "mistral": lambda: spm("mistral"),
    "gemma": lambda: spm("gemma", names=("<unk>", "<bos>", "<eos>", "<pad>", "<start_of_turn>")),
    "spm-without-bytes": lambda: spm("llama2", byte_fallback=False),
    "bert-uncased": lambda: bert(True),
    "bert-cased": lambda: bert(False),
    "word-level": word_level,
    "t5": lambda: unigram("t5"),
    "xlmr": lambda: unigram("xlmr"),
    "albert": lambda: unigram("albert"),
}

if __name__ == "__main__":
    for name, make in FAMILIES.items():
        os.makedirs(os.path.join(sys.argv[1], name), exist_ok=True)
        make().save(os.path.join(sys.argv[1], name, "tokenizer.json"))
