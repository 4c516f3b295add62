//===- Safetensors.h - Headers of safetensors files --------------------------------===//
// Input: a directory. Result: an index from a tensor's name to its dtype, shape and place in a file. The data are not
// loaded.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_IMPORT_SAFETENSORS_H
#define PC_LIB_IMPORT_SAFETENSORS_H

#include "mlir/IR/Diagnostics.h"
#include "pc/IR/PC.h"
#include "llvm/ADT/StringMap.h"

namespace pc {

/// The data of one tensor in a header. `bytes` fits `dtype` and `shape`, and [begin, begin + bytes) is within the file.
struct TensorEntry {
  std::string dtype;
  llvm::SmallVector<int64_t> shape;
  std::string file;              ///< the file with its data
  uint64_t begin = 0, bytes = 0; ///< the offset and the size of its data
};
using TensorIndex = llvm::StringMap<TensorEntry>;

/// The tensors of `directory`: model.safetensors, or the shards of model.safetensors.index.json; empty if there is
/// neither. Checks every header (length, offsets in range and without overlap, sizes that fit shape and dtype); fails
/// with an error that names the file.
llvm::FailureOr<TensorIndex>
readTensorIndex(llvm::StringRef directory,
                llvm::function_ref<mlir::InFlightDiagnostic(llvm::StringRef file)> emitError);

/// Whether two tensors are equal, byte for byte.
bool areEqual(const TensorEntry &a, const TensorEntry &b);

/// In a `directory` without safetensors to read: the first file, by name, that holds weights in another format;
/// otherwise empty.
std::string otherWeights(llvm::StringRef directory);

} // namespace pc

#endif
