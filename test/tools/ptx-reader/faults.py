"""usage: faults.py DIRECTORY [TEXT]

Plants faults in the PTX of two programs, one at a time (those whose description has TEXT): attention by wgmma on sm_90a and by mma.sync on sm_80. Says
which of these found each fault:
  read      the reader, when it read the text
  reader    the reader, when a kernel did what PTX does not define
  results   the comparison with the CPU's kernels
  stand-in  the stand-in (which runs other code), where it left out the same barrier, wait or fence
Fails if a fault is found by none of them, or if there is no place for it."""
import json
import re
import subprocess
import sys
from pathlib import Path

import read
from families import command

INPUTS = Path(__file__).resolve().parents[2] / "Codegen" / "cuda" / "Inputs"
BIG, SMALL = "wgmma", "mma"  # the programs
ARCHS = {BIG: "sm_90a", SMALL: "sm_80"}
FORWARD, QUERIES, KEYS, NORM = r"attention_\d+", r"attention_grad_\d+", r"attention_grad_\d+:2", r"layer_norm_grad_\d+"
ADAMW, CLIP, SQUARES, LOSS, GELU, TABLE = "adamw_all", "clip_coefficient", r"squares_\d+", "cross_entropy_grad", "activation_grad", "embedding_grad"
PRODUCT = r"(mma_async\S+ \{[^}]*\}, )"

# (program, kernel, what, pattern, replacement[, which of the places[, the stand-in's words for the place]])
FAULTS = [
    # operands of products
    (BIG, FORWARD, "registers of A exchanged", PRODUCT + r"\{(%r\d+), (%r\d+)", r"\1{\3, \2"),
    (BIG, FORWARD, "sums exchanged", r"(mma_async\S+ )\{(%r\d+), (%r\d+)", r"\1{\3, \2"),
    (BIG, QUERIES, "B of another piece", PRODUCT + r"(\{[^}]*\}), (%rd\d+)(.*\n.*, )(%rd\d+)(, adds)", r"\1\2, \5\4\5\6"),
    (BIG, FORWARD, "the first product adds", r", sets, 1, 1", ", adds, 1, 1"),
    (BIG, FORWARD, "the second product forgets the first", r"(sets, 1, 1.*\n.*), adds,", r"\1, sets,"),
    (BIG, FORWARD, "A negated", r"adds, 1, 1", "adds, -1, 1"),
    (BIG, FORWARD, "B not transposed", r"(adds, 1, 1), 1;", r"\1, 0;"),
    (BIG, FORWARD, "B transposed", r"(sets, 1, 1), 0;", r"\1, 1;"),
    (SMALL, FORWARD, "registers of A exchanged", r"(mma.sync[^}]*\}[^}]*)\{(%r\d+), (%r\d+)", r"\1{\3, \2"),
    (SMALL, FORWARD, "registers of B exchanged", r"(mma.sync[^}]*\}[^}]*\}[^}]*)\{(%r\d+), (%r\d+)", r"\1{\3, \2"),
    (SMALL, QUERIES, "sums exchanged", r"(mma.sync\S+\s+)\{(%r\d+), (%r\d+)", r"\1{\3, \2"),
    (SMALL, FORWARD, "ldmatrix transposed", r"(ldmatrix.*x4).shared", r"\1.trans.shared"),
    (SMALL, FORWARD, "ldmatrix not transposed", r"x4.trans", "x4"),
    (SMALL, KEYS, "registers of ldmatrix exchanged", r"(ldmatrix\S+\s+)\{(%r\d+), (%r\d+)", r"\1{\3, \2"),
    # descriptors
    (BIG, FORWARD, "no swizzle", r"(or.b64 .*, )46116862\d+", lambda m: m[1] + str(descriptor(m) ^ 1 << 62)),
    (BIG, FORWARD, "a swizzle of 64 bytes", r"(or.b64 .*, )46116862\d+", lambda m: m[1] + str(descriptor(m) ^ 3 << 62)),
    (BIG, FORWARD, "stride offset of 512 bytes", r"(or.b64 .*, )46116862\d+", lambda m: m[1] + str(descriptor(m) ^ 96 << 32)),
    (BIG, FORWARD, "stride offset of zero", r"(or.b64 .*, )46116862\d+", lambda m: m[1] + str(descriptor(m) ^ 64 << 32), 1),
    (BIG, FORWARD, "a base offset", r"(or.b64 .*, )46116862\d+", lambda m: m[1] + str(descriptor(m) ^ 1 << 49)),
    (BIG, FORWARD, "an unused bit", r"(or.b64 .*, )46116862\d+", lambda m: m[1] + str(descriptor(m) ^ 1 << 46)),
    (BIG, FORWARD, "an address in units of 32 bytes", r"(shr.u64 .*), 4;(\s+and.b64 .*, 16320)", r"\1, 5;\2"),
    (BIG, KEYS, "the next 16 bytes", r"(or.b64 .*, )46116862\d+", lambda m: m[1] + str(descriptor(m) ^ 1)),
    # the places of tiles
    (BIG, FORWARD, "no swizzle of copies", r"xor.b64 (\s*%rd\d+), (%rd\d+), %rd\d+;", r"mov.b64 \1, \2;"),
    (BIG, QUERIES, "a swizzle of other rows", r"(xor.b64 \s*%rd\d+, %rd\d+, )(%rd\d+);", r"shl.b64 \2, \2, 1;\n\t\1\2;"),
    (BIG, FORWARD, "a copy 16 bytes too far", r"(cp.async.cg\S* \[%rd\d+)\+16384\]", r"\1+16400]"),
    (BIG, FORWARD, "a copy over another one", r"(cp.async.cg\S* \[%rd\d+)\+16384\]", r"\1]"),
    (BIG, FORWARD, "a copy of 8 bytes", r"cp.async.cg(.*), 16;", r"cp.async.ca\1, 8;"),
    (SMALL, FORWARD, "a copy from the next row", r"(cp.async.cg.shared.global \[[^]]*\], \[%rd\d+)\]", r"\1+256]"),
    (SMALL, FORWARD, "a stride of a row less 16 bytes", r"(cp.async.cg\S* \[%rd\d+)\+2304\]", r"\1+2288]"),
    (SMALL, KEYS, "ldmatrix of the next 8 columns", r"(ldmatrix.*, \[%rd\d+)\+32\]", r"\1+48]"),
    (SMALL, FORWARD, "ldmatrix at no multiple of 16 bytes", r"(ldmatrix.*, \[%rd\d+)\+32\]", r"\1+40]"),
    # waits, fences, barriers
    (BIG, FORWARD, "no wgmma.fence", r"wgmma.fence.sync.aligned;", "", 0, "wgmma fence"),
    (BIG, KEYS, "no wgmma.fence", r"wgmma.fence.sync.aligned;", "", 2, "wgmma fence"),
    (BIG, FORWARD, "no commit of products", r"wgmma.commit_group.sync.aligned;", ""),
    (BIG, FORWARD, "no wait for products", r"wgmma.wait_group.sync.aligned 0;", "", 0, "wait for wgmma"),
    (BIG, QUERIES, "no wait for products", r"wgmma.wait_group.sync.aligned 0;", "", 1, "wait for wgmma"),
    (BIG, KEYS, "a wait for all products but the last", r"wgmma.wait_group.sync.aligned 0;", "wgmma.wait_group.sync.aligned 1;"),
    (BIG, KEYS, "no wait for the scores", r"wgmma.wait_group.sync.aligned 1;", "", 0, "wait for wgmma"),
    (BIG, FORWARD, "no fence of the asynchronous proxy", r"fence.proxy.async\S*;", "", 0, "fence of the asynchronous proxy"),
    (BIG, FORWARD, "the fence after the barrier", r"(fence.proxy.async\S*;)([^;]*)(bar.sync\s+0;)", r"\3\2\1"),
    (BIG, FORWARD, "no barrier", r"bar.sync\s+0;", "", 0, "barrier"),
    (BIG, FORWARD, "no wait for copies", r"cp.async.wait_group\s+0;", "", 0, "wait for copies"),
    (BIG, FORWARD, "no commit of copies", r"cp.async.commit_group;", ""),
    (SMALL, FORWARD, "no wait for copies", r"cp.async.wait_group\s+0;", "", 0, "wait for copies"),
    (SMALL, FORWARD, "a wait for all copies but the last", r"(cp.async.wait_group\s+)0;", r"\g<1>1;"),
    (SMALL, FORWARD, "no barrier", r"bar.sync\s+0;", "", 0, "barrier"),
    (SMALL, KEYS, "no barrier", r"bar.sync\s+0;", "", 0, "barrier"),
    (SMALL, NORM, "no barrier after stores", r"bar.sync\s+0;", "", 0, "barrier"),
    (SMALL, NORM, "no barrier before the next stores", r"bar.sync\s+0;", "", 1, "barrier"),
    (SMALL, NORM, "a barrier for some threads", r"(bar.sync\s+0;)", r"@%p2 \1"),
    (SMALL, SQUARES, "no barrier", r"bar.sync\s+0;", "", 0, "barrier"),
    # predicates
    (BIG, FORWARD, "a mask with one key less", r"setp.gt.u64", "setp.ge.u64"),
    (SMALL, FORWARD, "a loop with one round more", r"setp.ge.u64", "setp.gt.u64"),
    (SMALL, FORWARD, "a branch the other way", r"@(%p\d+) bra", r"@!\1 bra", 1),
    (SMALL, NORM, "a row more than there are", r"(setp.lt.u64 .*), 150;", r"\1, 151;"),
    (SMALL, NORM, "lanes without elements add them", r"(selp.f32 \s*%r\d+, (%r\d+), )0f00000000", r"\1\2"),
    (SMALL, LOSS, "a choice the other way", r"(selp\S+ \s*%\w+), (%\w+), (%?\w+), (%p)", r"\1, \3, \2, \4"),
    # strides, addresses and widths
    (SMALL, NORM, "the next row", r"(shl.b64 .*, 7;)", r"\1\n\tadd.s64 %rd29, %rd29, 128;"),
    (SMALL, NORM, "a row of twice the elements", r"(shl.b64 .*), 7;", r"\1, 8;"),
    (SMALL, ADAMW, "a vector at half its alignment", r"(ld.global.v4.b32 .*\[%rd\d+)\]", r"\1+8]"),
    (SMALL, NORM, "an offset of one element", r"(ld.global.v4.b32 .*\[%rd\d+)\+16\]", r"\1+32]"),
    (SMALL, GELU, "halves of a pair exchanged", r"(cvt.rn.bf16x2.f32 \s*%r\d+), (%r\d+), (%r\d+)", r"\1, \3, \2"),
    (SMALL, NORM, "a shuffle over 8 lanes twice", r"(shfl.sync.bfly.b32 .*), 16, 31", r"\1, 8, 31"),
    (SMALL, NORM, "a shuffle of half a warp", r"(shfl.sync.bfly.b32 .*, 16, 31), -1;", r"\1, 65535;"),
    (SMALL, NORM, "a store past its variable", r"st.shared.v4.b32\s+\[(%rd\d+)\]", r"st.shared.v4.b32 [\1+6144]"),
    # arithmetic
    (SMALL, NORM, "factors and addend exchanged", r"(fma.rn.f32 \s*%r\d+), (%r\d+), (%r\d+), (%r\d+)", r"\1, \4, \3, \2"),
    (SMALL, NORM, "a difference the other way", r"(sub.f32 \s*%r\d+), (%r\d+), (%r\d+)", r"\1, \3, \2"),
    (SMALL, NORM, "a maximum for a minimum", r"min.u64", "max.u64"),
    (SMALL, ADAMW, "a sum for a product", r"mul.rn.f32", "add.rn.f32"),
    (SMALL, CLIP, "a quotient the other way", r"(div.rn.f32 \s*%r\d+), (%r\d+), (%r\d+)", r"\1, \3, \2"),
    (SMALL, ADAMW, "a root without its root", r"sqrt.rn.f32|sqrt.approx.f32", "mov.b32"),
    # what is no PTX
    (SMALL, NORM, "a register that is not declared", r"add.f32 \s*%r\d+", "add.f32 %r9999"),
    (SMALL, NORM, "an instruction that there is not", r"add.f32 ", "add.rx.f32 "),
    (SMALL, FORWARD, "a label that there is not", r"bra\s+(\$L\w+);", r"bra \1_none;"),
    (BIG, FORWARD, "sums of another shape", r"m64n64k16", "m64n128k16"),
    (SMALL, NORM, "a register that nothing sets", r"mov.u32 \s*%r\d+, %tid.x;", ""),
]


def descriptor(match):
    return int(match[0].split()[-1])


def kernel_range(text, kernel):
    """Where the text of a kernel is; "name:2" is the second of that name."""
    name, _, number = kernel.partition(":")
    entries = list(re.finditer(r"\.entry (\w+)\(", text))
    found = [i for i, entry in enumerate(entries) if re.search(name, entry[1]) and not ("grad" in entry[1] and "grad" not in name)]
    if len(found) < int(number or 1):
        return None
    first = found[int(number or 1) - 1]
    return entries[first][1], entries[first].start(), entries[first + 1].start() if first + 1 < len(entries) else len(text)


def plant(text, fault):
    """The text with the fault and the kernel; None if there is no such place."""
    _, kernel, _, pattern, replacement, *rest = fault
    if not (where := kernel_range(text, kernel)):
        return None
    name, start, end = where
    places = list(re.finditer(pattern, text[start:end]))
    if len(places) <= (rest[0] if rest else 0):
        return None
    place = places[rest[0] if rest else 0]
    new = replacement(place) if callable(replacement) else place.expand(replacement)
    return name, text[:start + place.start()] + new + text[start + place.end():]


def run_reader(program, file):
    """Stops at the first wrong result. Returns the finder and what it says."""
    process = read.start(program, file)
    for line in process.stdout:
        case = json.loads(line)
        if not case.get("ok", True):
            process.kill()
            process.communicate()
            return "results", f"{case['kernel']} is off by {case['error']}"
    errors = process.stderr.read()
    process.wait()
    if not process.returncode:
        return "", ""
    said = re.sub(r"(line \d+) \(.*\): ", r"\1: ", read.explain(process.returncode, errors))
    return "reader" if process.returncode == read.FAULT else "read", said


def run_stand_in(program, site):
    """Whether the stand-in reports that a site is left out."""
    done = subprocess.run([program, "--check-kernels"], env=read.environment("libpc_standin", PC_STANDIN_FAULT=f"site:{site}"), capture_output=True,
                          text=True)
    return done.returncode != 0 and "kernel" in done.stderr


def build(directory, name):
    """Compiles a program; returns its PTX and the sites of its host image."""
    model, program = directory / "model.mlir", directory / name
    flags = [model, "--target=cuda", f"--arch={ARCHS[name]}", "--precision=bf16", "--attention=generated", "--check-kernels"]
    command("pc-import", INPUTS / "heads64", "--batch", 1, "--seq", 150, "-o", model)
    command("pc-compile", *flags, "--stand-in", "-o", program)
    command("pc-compile", *flags, "--to=kernels", "-o", directory / "kernels.mlir")
    sites = command("pc-kernels", directory / "kernels.mlir", f"--arch={ARCHS[name]}", "--emit=sites")
    return read.ptx_of(program), [json.loads(line) for line in sites.splitlines()]


def main():
    directory, chosen = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""
    directory.mkdir(parents=True, exist_ok=True)
    built, counts, missed = {}, {}, 0
    faults = [fault for fault in FAULTS if chosen in fault[2]]
    for fault in faults:
        name, _, what, *_ = fault
        if name not in built:
            built[name] = build(directory, name)
        text, sites = built[name]
        planted = plant(text, fault)
        if not planted:
            print(f"{name}: {what}: there is no place for this fault", flush=True)
            missed += 1
            continue
        kernel, changed = planted
        file = directory / "fault.ptx"
        file.write_text(changed)
        finder, said = run_reader(directory / name, file)
        finders = [finder] if finder else []
        if len(fault) > 6:
            places = [site["site"] for site in sites if site["kernel"] == kernel and site["text"].startswith(fault[6] + " #")]
            if run_stand_in(directory / name, places[fault[5]]):
                finders.append("stand-in")
        for finder in finders:
            counts[finder] = counts.get(finder, 0) + 1
        missed += not finders
        print(f"{name} {kernel}: {what}: {' and '.join(finders) or 'NOT FOUND'}{': ' if said else ''}{said}", flush=True)
    print(f"{len(faults)} faults, {missed} missed; found by", ", ".join(f"{finder}: {n}" for finder, n in sorted(counts.items())))
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
