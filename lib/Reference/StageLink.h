//===- StageLink.h - What simulated stages hand to each other ------------------------------===//
// Flows of messages with room for as many as they say, and moves over the axis of stages. Nothing blocks here: a stage
// asks whether it can go on.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_REFERENCE_STAGELINK_H
#define PC_LIB_REFERENCE_STAGELINK_H

#include "pc/Reference/Ranks.h"
#include <deque>
#include <map>

namespace pc {

class StageLink {
public:
  /// `mesh`: of all stages.
  StageLink(MeshAttr mesh, mlir::StringAttr axis) : mesh(mesh), axis(axis), stages(mesh.size(axis)) {}

  /// The mesh without the stages: that of one stage's ranks.
  MeshAttr meshOfStage() const;
  bool isOver(MoveOpInterface move) const { return llvm::is_contained(move.getMoveAxes(), axis); }

  bool canSend(int stage, SendOp send) { return flow(stage, send).size() < send.getSlots(); }
  bool canReceive(int stage, ReceiveOp receive) { return !flow(receive.getStage(), stage, receive.getFlow()).empty(); }
  void send(int stage, SendOp send, RankTensors tensors) { flow(stage, send).push_back({send, std::move(tensors)}); }
  /// Fails after an error if the message that is there is another one.
  mlir::FailureOr<RankTensors> receive(int stage, ReceiveOp receive);

  /// A stage's part of a move over stages. The n-th call over the same axes of every stage belong together; returns n.
  size_t contribute(int stage, MoveOpInterface move, RankTensors tensors);
  /// Whether all stages have contributed to it.
  bool isComplete(MoveOpInterface move, size_t call);
  /// What the complete move gives `stage`; fails after an error if stages call it differently.
  mlir::FailureOr<RankTensors> result(int stage, MoveOpInterface move, size_t call);

  /// A message in a flow that nobody received, or null.
  mlir::Operation *leftOver() const;

private:
  struct Message {
    SendOp send;
    RankTensors tensors;
  };
  struct Call {
    std::map<int, std::pair<mlir::Operation *, RankTensors>> parts; ///< by stage
  };
  std::deque<Message> &flow(int from, int to, int number) { return flows[{from, to, number}]; }
  std::deque<Message> &flow(int stage, SendOp send) { return flow(stage, send.getStage(), send.getFlow()); }
  static std::string keyOf(MoveOpInterface move);
  /// The rank in the whole mesh.
  int64_t rankOf(int stage, int64_t rankInStage) const;

  MeshAttr mesh;
  mlir::StringAttr axis;
  int64_t stages;
  std::map<std::tuple<int, int, int>, std::deque<Message>> flows;
  std::map<std::string, std::vector<Call>> calls; ///< by axes
};

} // namespace pc

#endif
