//===- StageRunner.h - Runs the programs of all stages together ----------------------------===//
// Every stage continues until it has to wait for another one: for space in a flow, for a message, or until all stages
// have reached a collective over their axis. A visitor decides what an op does (take time, count, compute). This file
// knows nothing about schedules, so that checkers of schedules may use it.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_STAGERUNNER_H
#define PC_IR_STAGERUNNER_H

#include "pc/IR/PC.h"
#include "llvm/ADT/DenseMap.h"

#include <compare>
#include <map>

namespace pc {

/// A queue of messages from one stage to another. `number` distinguishes the queues between the same two stages.
struct StageFlow {
  int64_t from = 0, to = 0, number = 0;
  /// The flow of a send of stage `self`.
  StageFlow(int64_t self, SendOp send) : from(self), to(send.getStage()), number(send.getFlow()) {}
  StageFlow(int64_t self, ReceiveOp receive) : from(receive.getStage()), to(self), number(receive.getFlow()) {}
  friend auto operator<=>(const StageFlow &, const StageFlow &) = default;
};

/// Input: one block per stage and a visitor. Result: every op has been visited in an order that respects messages,
/// slots and collectives, or the run has stopped and waitingAt() shows the deadlock. One object runs once.
class StageRunner {
public:
  /// Runs the ops. If a visit returns failure(), the run ends.
  class Visitor {
  public:
    virtual ~Visitor() = default;
    /// `stage` has reached `move`, a collective over the axis of stages, or its start, and contributes `input`. Called
    /// before `visit`, once for every move. The n-th calls of all stages over the same axes are one collective;
    /// `meeting` is its number.
    virtual void arrive(int stage, MoveOpInterface move, mlir::Value input, int meeting) = 0;
    /// Runs an op of `stage`. Everything that the op waits for has happened: messages are received in the order in
    /// which they were sent, and all stages have arrived at the move, or at the moves that a wait is for.
    virtual mlir::LogicalResult visit(int stage, mlir::Operation *op) = 0;
  };

  /// `axis` is the axis of stages. It is null if there is only one program, which never waits.
  explicit StageRunner(mlir::StringAttr axis) : axis(axis) {}

  /// Runs the programs of all stages, in turns, until each is at its end or none can continue. Fails if `visitor`
  /// fails.
  mlir::LogicalResult run(llvm::ArrayRef<mlir::Block *> programs, Visitor &visitor);
  /// The op that `stage` waits at; null at the end of its program.
  mlir::Operation *waitingAt(int stage) const { return at[stage]; }

  /// The number of the collective that a move belongs to, once its stage has reached it; otherwise -1.
  int meetingOf(MoveOpInterface move) const;

private:
  bool canRun(int stage, mlir::Operation *op, Visitor &visitor);
  void arrive(int stage, MoveOpInterface move, mlir::Value input, Visitor &visitor);
  bool isComplete(MoveOpInterface move) const;

  mlir::StringAttr axis;
  llvm::SmallVector<mlir::Operation *> at;                      ///< the next op of each stage
  std::map<StageFlow, uint64_t> underWay;                       ///< the number of messages in flight
  llvm::DenseMap<mlir::Operation *, int> meetings;              ///< the number of each collective
  std::vector<int> arrived;                                     ///< how many stages have reached each collective
  std::map<std::string, llvm::SmallVector<int>> meetingsOfAxes; ///< collectives over these axes, as called
  std::map<std::pair<int, std::string>, size_t> calls;          ///< calls of a stage over these axes so far
};

} // namespace pc

#endif
