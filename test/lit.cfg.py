import os
import lit.formats

config.name = "pc"
config.test_format = lit.formats.ShTest(True)
config.suffixes = [".mlir", ".test"]
config.excludes = ["EndToEnd", "Inputs", "golden"]
config.test_source_root = os.path.dirname(__file__)
config.environment["PATH"] = os.pathsep.join([config.pc_bin_dir, config.llvm_tools_dir, config.environment["PATH"]])
config.substitutions.append(("%examples", os.path.join(config.pc_source_dir, "examples")))
config.substitutions.append(("%docs", os.path.join(config.pc_source_dir, "docs")))
