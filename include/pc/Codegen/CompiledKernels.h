//===- CompiledKernels.h - The kernels of an object file, run by the compiler ---------------===//
// Kernels of a CPU program can be compared with their ops before there is an executable. An object file is loaded into
// this process, and each kernel runs in a child process, so that a crash or an endless loop is only an error.
//===-----------------------------------------------------------------------------===//
#ifndef PC_CODEGEN_COMPILEDKERNELS_H
#define PC_CODEGEN_COMPILEDKERNELS_H

#include "mlir/IR/OwningOpRef.h"
#include "pc/IR/PC.h"

#include <memory>
#include <vector>

namespace pc {

/// The kernels that were written for one op or for several equal ones. `op` is the first of these ops.
struct WrittenKernel {
  mlir::OwningOpRef<mlir::Operation *>
      op;                    ///< a copy of the op; its operands are values of `planned`, or of programs derived from it
  mlir::ModuleOp planned;    ///< the planned program
  std::string function;      ///< the function that contains the first op, for messages
  std::string program;       ///< the symbol of the program whose table lists the kernels
  std::vector<int64_t> rows; ///< the kernels' rows in that table, in the order in which they run
  bool hasF32Form = false;   ///< there is a form in f32 (pcrt_kernel::fn_f32)
};

/// All kernels that were written for an executable.
struct WrittenKernels {
  std::vector<mlir::OwningOpRef<mlir::Operation *>>
      programs; ///< programs derived from the planned one, whose values the ops refer to
  std::vector<WrittenKernel> kernels;
};

/// Says how to draw random elements for an operand of kernels.
/// * f32 and bf16: numbers in [-1, 1), or in [0.1, 0.9) if the op takes roots or logarithms.
/// * i32: numbers below `below`. If each element is the number of keys that a query sees (`ascending`), the numbers
///   never decrease.
/// * A mask of experts: the elements of a token are adjacent; of each `of` elements, `chosen` are 1 and the others 0.
struct KernelSample {
  int64_t below = 1;
  bool ascending = false;
  bool counts = false; ///< element i is i modulo `below`
  int64_t run = 0;     ///< if positive, element i is i / run, but at most `below` - 1
  bool positive = false;
  int64_t chosen = 0, of = 1;
};
/// Says which elements to draw for operand `operand` of `op`. No index is beyond the end of its table.
KernelSample sampleOf(mlir::Operation *op, unsigned operand);

/// Owns a JIT with one loaded object file. The input of a run is a kernel and the bytes of its operands; the result is
/// the bytes of its results, or the error. Runs do not affect each other, because each has its own process.
class CompiledKernels {
public:
  ~CompiledKernels();
  /// Loads an object file that `emitObject` wrote. Returns null after setting `error`.
  static std::unique_ptr<CompiledKernels> load(llvm::StringRef object, std::string &error);

  using Bytes = std::vector<char>;
  /// Runs a kernel on the bytes of its operands and writes the bytes of its results, or for an update, of the updated
  /// leaf. Results share buffers with operands as in the planned program. If `inF32` is true, runs the form in f32, if
  /// there is one. Returns "", or an error if the kernel
  /// * ended by a signal, or did not end within `seconds` of processor time;
  /// * refused its operands, or wrote outside of its results;
  /// * gave other bits when its items ran in another order.
  std::string run(const WrittenKernel &kernel, llvm::ArrayRef<Bytes> operands, bool inF32, unsigned seconds,
                  std::vector<Bytes> &results) const;

private:
  struct Loaded;
  explicit CompiledKernels(std::unique_ptr<Loaded> loaded);
  std::unique_ptr<Loaded> loaded;
};

} // namespace pc

#endif
