//===- Store.h - Where the interpreter keeps values --------------------------------------===//
// A tensor per value and rank. In planned programs a value lives where its type says, in an arena per rank: reading it
// gives what is there now, even if something else has been written over it.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_REFERENCE_STORE_H
#define PC_LIB_REFERENCE_STORE_H

#include "pc/Reference/Ranks.h"

namespace pc {

class Store {
public:
  /// `arenaBytes` of a planned program; -1 where values have no homes.
  Store(int64_t ranks, int64_t arenaBytes);

  bool hasArena() const { return arenaBytes >= 0; }
  /// What `value` is now, one tensor per rank. The reference holds until the next `get` of the same value.
  const RankTensors &get(mlir::Value value);
  /// Sets `value`; returns false where its home is outside of the arena.
  bool set(mlir::Value value, RankTensors tensors);
  /// Binds an element of a stack to a block argument. In an arena nothing is written: the argument is part `index` of
  /// its operand.
  void setElement(mlir::Value argument, RankTensors tensors, int64_t index);
  /// The first byte of `value` in the arena, or -1.
  int64_t homeOf(mlir::Value value) const;

private:
  int64_t arenaBytes;
  llvm::DenseMap<mlir::Value, std::unique_ptr<RankTensors>>
      values;                                          ///< with an arena: the shapes, and a copy of the elements
  llvm::DenseMap<mlir::Value, int64_t> elementOffsets; ///< bytes from the home of a block argument
  std::vector<std::vector<double>> arenas;             ///< per rank; the element that begins at byte i is number i
};

} // namespace pc

#endif
