//===- Parts.h - The parameters in a packed parameter -----------------------===//
// A packed parameter holds several imported ones: q, k and v of one product, or the experts of a layer. Names, keys of
// random numbers and checkpoint tensors remain those of the parts, so checkpoints do not depend on packing.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_PARTS_H
#define PC_IR_PARTS_H

#include "pc/IR/PC.h"
#include "pcrt/float8.h"

namespace pc {

/// An imported parameter that was packed into a larger one, and its position there. Padding does not count.
struct ParameterPart {
  llvm::StringRef name;
  int64_t key; ///< its number among all imported parameters; may be -1 (not known) if the parameter is not packed
  SourceAttr source;
  llvm::SmallVector<int64_t> start, size;
};

/// The shape of a parameter without padding, on all ranks together.
llvm::ArrayRef<int64_t> validShape(ParameterOp parameter);

/// The parts of a packed parameter, in order. A parameter that is not packed is its only part.
llvm::SmallVector<ParameterPart> partsOf(ParameterOp parameter);

/// The number of imported parameters that this one consists of.
int64_t numParts(ParameterOp parameter);

/// States of operands in fp8: a vector with the largest magnitudes of the last steps, the last one first, for each part
/// of the parameter. Zeros stand for steps before the first one. The names of such states end with this suffix, and the
/// runtime accepts checkpoints without them.
inline constexpr llvm::StringRef historySuffix = PCRT_HISTORY, historyDim = "history";
inline constexpr int64_t float8History = 16;

/// Returns true if `state` is such a history. It has one dim, which is not a dim of the parameter.
bool isHistory(StateOp state);

/// Returns the dims of `parameter` that its state `state` has, in order. A state names its dims like the parameter;
/// "embed#1" names dim 1 if an earlier dim has the same name. A state with all dims may have one element for each block
/// of the parameter (`blockOfState`). A history has none. Returns std::nullopt if the state does not fit the parameter.
std::optional<llvm::SmallVector<int64_t>> dimsOfState(StateOp state, ParameterOp parameter);

/// If the state has one element, a scale, for each block of the parameter, returns the sizes of a block. Returns
/// std::nullopt if each element of the parameter has its own state element, or if the state does not have all dims.
std::optional<llvm::SmallVector<int64_t>> blockOfState(StateOp state, ParameterOp parameter);

/// The dim of the state that is dim `dim` of the parameter; -1 if there is none.
int64_t dimInState(StateOp state, ParameterOp parameter, int64_t dim);

/// The names of a state over these dims of a parameter.
mlir::ArrayAttr namesOfState(ParameterOp parameter, llvm::ArrayRef<int64_t> dims);

/// The shape without padding of a state over these dims of a parameter.
llvm::SmallVector<int64_t> validShapeOfState(ParameterOp parameter, llvm::ArrayRef<int64_t> dims);

/// Returns the parts of a checkpoint for a state over these dims of a parameter. Each part of the parameter gives a
/// part with the same name, whose tensor has size 1 in the dims that the state does not have. If a box covers only a
/// part of the tensor along such a dim, it keeps its place there, so that states of different boxes have different
/// elements. Returns std::nullopt if a dim of the tensor consists of dims that the state has and dims that it does not
/// have.
std::optional<llvm::SmallVector<ParameterPart>> partsOfState(ParameterOp parameter, llvm::ArrayRef<int64_t> dims);

/// Returns the parts of a checkpoint for a state with one element for each block of a parameter. The size of each
/// tensor is that of the parameter's tensor divided by that of a block. Returns std::nullopt if blocks of the parameter
/// are not blocks of its tensors.
std::optional<llvm::SmallVector<ParameterPart>> partsOfBlocks(ParameterOp parameter, llvm::ArrayRef<int64_t> block);

/// Returns the parts of a checkpoint for a state, by its dims or by its blocks. For a history, they are those of a
/// state without dims, with a last dim of steps. Returns std::nullopt if the state does not fit the parameter.
std::optional<llvm::SmallVector<ParameterPart>> partsOfState(StateOp state, ParameterOp parameter);

/// Like partsOfState(state, parameter), but returns std::nullopt also if the state has the shape of its parameter,
/// because it then has the parts of the parameter.
std::optional<llvm::SmallVector<ParameterPart>> ownPartsOfState(StateOp state, ParameterOp parameter);

} // namespace pc

#endif
