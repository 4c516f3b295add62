//===- Rounds.h - Local SGD in a program ---------------------------------------------------===//
// Each coordinate on the axis of local SGD is a replica, which runs its own program. No op of the step works over the
// axis, and values may differ between replicas. Once per round, which has several steps, the replicas' parameters are
// averaged. Then an outer optimizer updates the parameters that all replicas share (DiLoCo, arXiv:2311.08105). The
// function @round, which has the same leaves as the step, does this.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_ROUNDS_H
#define PC_IR_ROUNDS_H

#include "pc/IR/PC.h"

#include "pcrt/description.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace pc {

/// The module attribute "pc.rounds".
struct Rounds {
  mlir::StringAttr axis;
  int64_t every = 1;                 ///< steps per round
  double rate = 0.7, momentum = 0.9; ///< the outer optimizer: SGD with Nesterov momentum
  bool codes = false;                ///< replicas send each other codes of 8 bits (pcrt/codes.h)

  /// Reads the attribute of `program`, the module of a step; std::nullopt if it has no rounds.
  static std::optional<Rounds> of(mlir::ModuleOp program);
  void set(mlir::ModuleOp program) const;
};

/// Whether `state` is one of the two states that rounds give each parameter: the value that all replicas share, and the
/// outer optimizer's momentum.
inline bool isOfRounds(StateOp state) {
  return state.getName() == PCRT_SHARED || state.getName() == PCRT_OUTER_MOMENTUM;
}

/// Adds @round to `program`, which is planned. Its values are in the bytes of the arena that no leaf uses
/// (`roundBytes`). For each parameter p, it computes the following ops one by one, and rounds each result:
///   d = average(shared - p); u' = momentum u + d; shared' = shared - rate (d + momentum u'); p' = shared'
/// The average sums in the order of the coordinates. If replicas send codes, it sums the values of the codes. Returns
/// null if the program has no rounds.
mlir::func::FuncOp buildRound(mlir::ModuleOp program);

/// Bytes of the arena that @round needs after the leaves; 0 without rounds.
int64_t roundBytes(mlir::ModuleOp program);

/// Returns the offset in the arena of the codes that @round sums; 0 if replicas do not send codes.
int64_t codesHome(mlir::ModuleOp program);

} // namespace pc

#endif
