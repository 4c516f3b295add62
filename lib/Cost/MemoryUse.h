//===- MemoryUse.h - The contents of the arena over time --------------------------------------===//
// Values at the same offset whose lifetimes touch count as one buffer, because the planner let them share it.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_COST_MEMORYUSE_H
#define PC_LIB_COST_MEMORYUSE_H

#include "pc/IR/Liveness.h"
#include <array>

namespace pc {

/// The purpose of a buffer (Report.h describes each one). A buffer that holds values of several kinds has the last of
/// their kinds.
enum class MemoryKind { Workspace, Activation, Communication, Gradient, Parameter, Optimizer, Cache };
constexpr int numMemoryKinds = 7;
/// "workspace", "activations", "communication", "gradients", "parameters", "optimizer", "caches".
llvm::StringRef memoryKindName(MemoryKind kind);

/// Bytes by kind.
using MemoryUse = std::array<int64_t, numMemoryKinds>;

/// A home: its first value, its place in the arena, and its lifetime (positions of Liveness).
struct PlacedBuffer {
  mlir::Value value;
  int64_t offset = 0, bytes = 0;
  Lifetime life;
  MemoryKind kind = MemoryKind::Workspace;
};

/// The arena of a planned step over time.
class MemoryProfile {
public:
  /// `body` is the block of a planned step.
  explicit MemoryProfile(mlir::Block &body);

  llvm::ArrayRef<PlacedBuffer> buffers() const { return placed; }
  const Liveness &liveness() const { return lives; }
  /// The bytes that are live at a position.
  MemoryUse at(int64_t position) const;
  /// The position at which the most bytes are live.
  int64_t peak() const { return fullest; }
  /// The most live bytes of each kind, at any position.
  const MemoryUse &atMost() const { return most; }
  /// The contents of an arena of `arenaBytes` at the peak. Gaps count as workspace, so that the figures add up to the
  /// size of the arena.
  MemoryUse atPeak(int64_t arenaBytes) const;

private:
  Liveness lives;
  llvm::SmallVector<PlacedBuffer> placed;
  int64_t fullest = 0;
  MemoryUse most = {};
};

} // namespace pc

#endif
