//===- Rounds.h - Local SGD: what a program says of it -------------------------------------===//
// On the axis of local SGD each coordinate is a replica with a program of its own: no op of the step works over the
// axis, so that every value of the step varies over it, and none is meant to be the same. Once per round of steps the
// replicas' parameters are averaged and an outer optimizer moves the parameters that all share (DiLoCo,
// arXiv:2311.08105); that is the function @round, of the same leaves.
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
  int64_t every = 1;                 ///< steps
  double rate = 0.7, momentum = 0.9; ///< of SGD with Nesterov's momentum
  bool codes = false;                ///< replicas send each other codes of 8 bits (pcrt/codes.h)

  /// What `program`, the module of a step, says; none: it has no rounds.
  static std::optional<Rounds> of(mlir::ModuleOp program);
  void set(mlir::ModuleOp program) const;
};

/// The states of a parameter for rounds: its value that all replicas share, and the outer optimizer's momentum.
inline bool isOfRounds(StateOp state) {
  return state.getName() == PCRT_SHARED || state.getName() == PCRT_OUTER_MOMENTUM;
}

/// Adds @round to `program`, which is planned, in the bytes of the arena that no leaf takes (`roundBytes`): of each
/// parameter p, with k replicas,
///   d = average(shared - p); u' = momentum u + d; shared' = shared - rate (d + momentum u'); p' = shared'
/// one op after the other, each rounded, the sum in the order of the coordinates; with codes, of what these mean. Null:
/// the program has no rounds.
mlir::func::FuncOp buildRound(mlir::ModuleOp program);

/// Bytes of the arena that @round needs after the leaves; 0 without rounds.
int64_t roundBytes(mlir::ModuleOp program);

/// Where in the arena the sums of @round have their codes; 0: there are none.
int64_t codesHome(mlir::ModuleOp program);

} // namespace pc

#endif
