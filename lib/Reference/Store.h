//===- Store.h - Where the interpreter keeps values --------------------------------------===//
// Keeps a tensor per value and rank. In planned programs a value lies at its home in an arena per rank. A read returns
// the bytes that are there now, even if another value has overwritten them.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_REFERENCE_STORE_H
#define PC_LIB_REFERENCE_STORE_H

#include "pc/Reference/Ranks.h"

namespace pc {

/// State: the last tensors of every value and, with an arena, the current bytes of every rank.
class Store {
public:
  /// `arena` has the sizes of a planned program's arenas, and is null if values have no homes.
  Store(int64_t ranks, ArenaOp arena);

  bool hasArena() const { return arenaBytes >= 0; }
  /// The current elements of `value`, one tensor per rank. The reference is valid until the next `get` of the same
  /// value.
  const RankTensors &get(mlir::Value value);
  /// Sets `value`. Returns false if its home is outside of the arena.
  bool set(mlir::Value value, RankTensors tensors);
  /// Binds a block argument to an element of a stack. With an arena nothing is written, because the argument is part
  /// `index` of its operand.
  void setElement(mlir::Value argument, RankTensors tensors, int64_t index);
  /// The first byte of `value` in `arenas`, or -1.
  int64_t homeOf(mlir::Value value) const;

private:
  /// The arena of the host follows that of the device, and the one on disk follows both.
  int64_t deviceBytes = -1, withHostBytes = -1, arenaBytes = -1;
  llvm::DenseMap<mlir::Value, std::unique_ptr<RankTensors>>
      values; ///< with an arena: shapes, and copies of elements that `get` refreshes
  llvm::DenseMap<mlir::Value, int64_t> elementOffsets; ///< bytes from the home of a block argument
  std::vector<std::vector<double>> arenas;             ///< per rank; the element that begins at byte i is number i
};

} // namespace pc

#endif
