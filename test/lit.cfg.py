# Configures lit for the tests of this folder. lit.site.cfg.py of the build sets the paths in `config`.
import os
import shutil
import subprocess
import lit.formats

config.name = "pc"
config.test_format = lit.formats.ShTest(True)
config.suffixes = [".mlir", ".test"]
config.excludes = ["Inputs", "golden"]
config.test_source_root = os.path.dirname(__file__)
config.environment["PATH"] = os.pathsep.join([config.pc_bin_dir, config.llvm_tools_dir, config.environment["PATH"]])
config.substitutions.append(("%examples", os.path.join(config.pc_source_dir, "examples")))
config.substitutions.append(("%same-step", os.path.join(config.test_source_root, "tools", "same-step")))
config.substitutions.append(("%each", os.path.join(config.test_source_root, "tools", "each")))
config.substitutions.append(("%scripts", os.path.join(config.pc_source_dir, "scripts")))
config.substitutions.append(("%{build}", os.path.dirname(config.pc_bin_dir)))
config.substitutions.append(("%libstandin", os.path.join(config.pc_bin_dir, "..", "lib", "libpc_standin.so")))
config.substitutions.append(("%kept", os.path.join(config.test_source_root, "kept")))
config.substitutions.append(("%docs", os.path.join(config.pc_source_dir, "docs")))

# Tests of kernels in the device's code need ptxas of the CUDA toolkit; without it lit skips them and names them.
cuda = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT")] + ["/usr/local/cuda"]
cuda = [home for home in cuda if home and os.path.exists(os.path.join(home, "bin", "ptxas"))]
if cuda or shutil.which("ptxas"):
    config.available_features.add("ptxas")
    config.environment["CUDA_HOME"] = cuda[0] if cuda else os.path.dirname(os.path.dirname(os.path.realpath(shutil.which("ptxas"))))

# Tests that take minutes run with scripts/test --long.
if os.environ.get("PC_LONG"):
    config.available_features.add("long")
    config.environment["PC_LONG"] = "1"
    # The packages must be those of the python3 in PATH, for example of a virtual environment.
    for feature, names in (("transformers", ("torch", "transformers")), ("sentencepiece", ("sentencepiece",)), ("openai", ("openai",)), ("jax", ("jax", "flax", "equinox", "optax"))):
        found = f"import importlib.util, sys; sys.exit(not all(map(importlib.util.find_spec, {names})))"
        if subprocess.run(["python3", "-c", found]).returncode == 0:
            config.available_features.add(feature)

if os.path.exists("/usr/local/cuda/lib64/libcudnn.so.9"):
    config.available_features.add("cudnn")

# CUDA programs run on the stand-in of the driver and its libraries, if it was built.
standin = os.path.join(os.path.dirname(config.pc_bin_dir), "lib", "libpc_standin.so")
config.substitutions.append(("%standin", "env PCRT_CUDA_LIBRARIES=standin:" + standin))
config.substitutions.append(("%ptx", "python3 " + os.path.join(config.test_source_root, "tools", "ptx-reader", "read.py")))
if os.path.exists(standin):
    config.available_features.add("cuda-stand-in")
