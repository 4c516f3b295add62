//===- StageRunner.h - Runs the programs of all stages together ----------------------------===//
// Every stage continues until it has to wait for another one: for room in a flow, for a message, or until all stages
// have come to a collective over their axis. What an op does (take time, add up, compute) is its visitor's business.
// Knows nothing of schedules, so that what checks them may use it.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_STAGERUNNER_H
#define PC_IR_STAGERUNNER_H

#include "pc/IR/PC.h"
#include "llvm/ADT/DenseMap.h"

#include <compare>
#include <map>

namespace pc {

/// A queue of messages from one stage to another; `number` distinguishes those of two stages.
struct StageFlow {
  int64_t from = 0, to = 0, number = 0;
  /// The flow of an op of stage `self`.
  StageFlow(int64_t self, SendOp send) : from(self), to(send.getStage()), number(send.getFlow()) {}
  StageFlow(int64_t self, ReceiveOp receive) : from(receive.getStage()), to(self), number(receive.getFlow()) {}
  friend auto operator<=>(const StageFlow &, const StageFlow &) = default;
};

/// Input: one block per stage and a visitor. Result: every op has been visited in an order that respects messages,
/// slots and collectives, or the run has stopped; waitingAt() then shows the deadlock. One object runs once.
class StageRunner {
public:
  /// What runs the ops. The runner calls it in one thread; failure() from a visit ends the run.
  class Visitor {
  public:
    virtual ~Visitor() = default;
    /// `stage` puts `input` into `move`, a collective over the axis of stages, of which it has come to the op itself or
    /// to its start; before `visit`, once for every move. The n-th call over the same axes of every stage belong
    /// together: they are one `meeting`, a number of its own.
    virtual void arrive(int stage, MoveOpInterface move, mlir::Value input, int meeting) = 0;
    /// Runs an op of `stage`; what it waits for has happened: messages are received in the order in which they were
    /// sent, and all stages have arrived at the move, or at those that a wait is for.
    virtual mlir::LogicalResult visit(int stage, mlir::Operation *op) = 0;
  };

  /// `axis`: of stages; null, with one program: nothing waits.
  explicit StageRunner(mlir::StringAttr axis) : axis(axis) {}

  /// Runs the programs of all stages, in turns, until each is at its end or none can continue. Fails where `visitor`
  /// does.
  mlir::LogicalResult run(llvm::ArrayRef<mlir::Block *> programs, Visitor &visitor);
  /// The op that `stage` waits at; null at the end of its program.
  mlir::Operation *waitingAt(int stage) const { return at[stage]; }

  /// The meeting of a move that its stage has come to; -1 of any other.
  int meetingOf(MoveOpInterface move) const;

private:
  bool canRun(int stage, mlir::Operation *op, Visitor &visitor);
  void arrive(int stage, MoveOpInterface move, mlir::Value input, Visitor &visitor);
  bool isComplete(MoveOpInterface move) const;

  mlir::StringAttr axis;
  llvm::SmallVector<mlir::Operation *> at;                      ///< per stage: the next op
  std::map<StageFlow, uint64_t> underWay;                       ///< messages
  llvm::DenseMap<mlir::Operation *, int> meetings;              ///< by move
  std::vector<int> arrived;                                     ///< by meeting: how many stages
  std::map<std::string, llvm::SmallVector<int>> meetingsOfAxes; ///< in the order of calls
  std::map<std::pair<int, std::string>, size_t> calls;          ///< of a stage, by axes: so far
};

} // namespace pc

#endif
