//===- CompiledKernels.h - The kernels of an object file, run by the compiler ---------------===//
// What a CPU program's kernels compute can be compared with their ops before there is an executable: an object file is
// loaded into this process, and each kernel runs in a child of it, so that a crash or a loop without end is an error.
//===-----------------------------------------------------------------------------===//
#ifndef PC_CODEGEN_COMPILEDKERNELS_H
#define PC_CODEGEN_COMPILEDKERNELS_H

#include "mlir/IR/OwningOpRef.h"
#include "pc/IR/PC.h"

#include <memory>
#include <vector>

namespace pc {

/// The kernels of an op, and the first op that runs them.
struct WrittenKernel {
  mlir::OwningOpRef<mlir::Operation *>
      op;                    ///< a copy; its operands are values of the program, or of programs made from it
  mlir::ModuleOp planned;    ///< that program
  std::string function;      ///< of the first of them, for messages
  std::string program;       ///< the symbol in whose table they are
  std::vector<int64_t> rows; ///< of that table, in the order in which they run
  bool hasF32Form = false;   ///< pcrt_kernel::fn_f32
};

/// All of an executable.
struct WrittenKernels {
  std::vector<mlir::OwningOpRef<mlir::Operation *>> programs; ///< made of the planned one, which ops refer to
  std::vector<WrittenKernel> kernels;
};

/// Sampled elements of an operand of kernels: of an i32 tensor those below `below`, each at least the one before where
/// they say how many keys queries see (`ascending`), else numbers in [-1, 1), or in [0.1, 0.9) where the op has roots
/// or logarithms. Of a mask of experts, those of a token lie side by side: `chosen` of each `of` are 1, the others 0.
struct KernelSample {
  int64_t below = 1;
  bool ascending = false;
  bool positive = false;
  int64_t chosen = 0, of = 1;
};
/// What to draw for operand `operand` of `op`, so that no index is beyond its table.
KernelSample sampleOf(mlir::Operation *op, unsigned operand);

/// Owns a JIT with one loaded object file. Input of each run: a kernel and the bytes of its operands; result: the bytes
/// of its results, or the error. Runs do not affect each other, since each has a process of its own.
class CompiledKernels {
public:
  ~CompiledKernels();
  /// Those of an object file that `emitObject` wrote; null after setting `error`.
  static std::unique_ptr<CompiledKernels> load(llvm::StringRef object, std::string &error);

  using Bytes = std::vector<char>;
  /// Runs a kernel on the operands' bytes, results sharing their buffers as in the planned program, and gives those of
  /// the results (of an update: what it sets). Then what is wrong, or "": it ended by a signal, in `seconds` of
  /// the processor not at all, refused its operands, wrote outside of its results, or gave other bits when its items
  /// were run in another order. `inF32`: in the f32 form, where there is one.
  std::string run(const WrittenKernel &kernel, llvm::ArrayRef<Bytes> operands, bool inF32, unsigned seconds,
                  std::vector<Bytes> &results) const;

private:
  struct Loaded;
  explicit CompiledKernels(std::unique_ptr<Loaded> loaded);
  std::unique_ptr<Loaded> loaded;
};

} // namespace pc

#endif
