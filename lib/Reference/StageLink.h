//===- StageLink.h - Data that simulated stages exchange -----------------------------------===//
// The messages of flows, and the operands of moves over the stage axis. Nothing blocks here, because a StageRunner
// calls these functions only when data is available.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_REFERENCE_STAGELINK_H
#define PC_LIB_REFERENCE_STAGELINK_H

#include "pc/IR/StageRunner.h"
#include "pc/IR/Stages.h"
#include "pc/Reference/Ranks.h"

#include <deque>
#include <map>

namespace pc {

/// State: messages that were sent and not received, by flow in order, and the operands of collectives over the stage
/// axis, by the number of the collective.
class StageLink {
public:
  /// `mesh` is the mesh of all stages.
  StageLink(MeshAttr mesh, mlir::StringAttr axis) : mesh(mesh), axis(axis) {}

  /// The mesh without the axis of stages, which is the mesh of one stage's ranks.
  MeshAttr meshOfStage() const;
  bool isOver(MoveOpInterface move) const { return isOverStages(move, axis); }

  /// Never waits, because the runner has checked that a slot is free.
  void send(int stage, SendOp send, RankTensors tensors) {
    flows[StageFlow(stage, send)].push_back({send, std::move(tensors)});
  }
  /// Fails after an error if the next message of the flow is not the expected one.
  mlir::FailureOr<RankTensors> receive(int stage, ReceiveOp receive);

  /// Keeps a stage's operand of a move over the stage axis.
  void contribute(int stage, MoveOpInterface move, int meeting, RankTensors tensors);
  /// The result on `stage` of a move that all stages have contributed to; fails after an error if the stages' moves
  /// differ.
  mlir::FailureOr<RankTensors> result(int stage, MoveOpInterface move);

  /// A message in a flow that no stage received, or null.
  mlir::Operation *leftOver() const;

private:
  /// The tensors that a send has sent, from all ranks of its stage.
  struct Message {
    SendOp send;
    RankTensors tensors;
  };
  /// The rank in the whole mesh.
  int64_t rankOf(int stage, int64_t rankInStage) const;

  MeshAttr mesh;
  mlir::StringAttr axis;
  std::map<StageFlow, std::deque<Message>> flows;
  llvm::DenseMap<mlir::Operation *, int> meetings; ///< by move
  /// The move and its operand, by the number of the meeting and the stage.
  std::map<int, std::map<int, std::pair<mlir::Operation *, RankTensors>>> parts;
};

} // namespace pc

#endif
