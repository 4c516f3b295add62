//===- CheckCases.h - Tests of a CUDA program's kernels against the CPU's --------------===//
// With pc-compile --check-kernels, a program contains a test case for every distinct device kernel: CPU kernels of the
// same ops, and buffers for both. The program's flag --check-kernels then compares the two and times them on the
// device. Matrix products also have cases.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_HOST_CHECKCASES_H
#define PC_LIB_CODEGEN_HOST_CHECKCASES_H

#include "KernelSet.h"
#include "pc/IR/PC.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/JSON.h"

namespace pc {

/// Collects the cases of one program as JSON for its description. State: the CPU kernels that were written for the
/// cases, and the keys of kernels that already have a case.
class CheckCases {
public:
  /// A kernel of the program's table, and the arena offsets of its buffers.
  struct Launch {
    int64_t kernel;
    llvm::SmallVector<int64_t> offsets;
  };
  using OffsetOf = llvm::function_ref<int64_t(mlir::Value)>;
  /// Adds a CPU kernel to the program's table and returns its index.
  using AddToTable = llvm::function_ref<int64_t(llvm::StringRef name, const KernelSet::Info &)>;

  /// Writes CPU kernels to `output`, for any CPU with AVX2.
  explicit CheckCases(mlir::ModuleOp output) : reference(output, {/*cuda=*/false, /*lanes=*/8}) {}

  /// Records `key` (a kernel's name, or a product's shape) and returns whether it is new.
  bool isNew(llvm::StringRef key) { return known.insert(key).second; }

  /// Adds a case, which compares `launches` on the device with the CPU kernels of `ops`, one after another. If there is
  /// only one op and its results are not at their homes, `results` has the offsets of its results.
  llvm::LogicalResult add(llvm::StringRef name, llvm::StringRef kind, llvm::ArrayRef<mlir::Operation *> ops,
                          llvm::ArrayRef<Launch> launches, OffsetOf offsetOf, llvm::ArrayRef<int64_t> results,
                          AddToTable addToTable);
  /// Adds a case for product `index` of the program's table. `offsets` are those of a, b, c, bias and aux; -1 if the
  /// product has no such matrix.
  void addProduct(llvm::StringRef name, int64_t index, llvm::ArrayRef<mlir::Value> inputs,
                  llvm::ArrayRef<int64_t> offsets, OffsetOf offsetOf);

  llvm::json::Array take() { return std::move(cases); }

private:
  KernelSet reference;
  llvm::StringSet<> known;
  llvm::json::Array cases;
};

} // namespace pc

#endif
