//===- StageLink.cpp - Data that simulated stages exchange ---------------------------------===//
// Mailboxes between simulated stages: messages by flow, in order, and operands of collectives over the stage axis. A
// message must have the number and type that the receiver expects.
//===-----------------------------------------------------------------------------===//
#include "StageLink.h"

using namespace mlir;
using namespace pc;

MeshAttr StageLink::meshOfStage() const {
  SmallVector<int64_t> sizes(mesh.getSizes());
  sizes[mesh.index(axis)] = 1;
  return MeshAttr::get(mesh.getContext(), mesh.getNames(), sizes);
}

/// The runner calls this only if the flow has a message. Its number and type must be those of the receive.
FailureOr<RankTensors> StageLink::receive(int stage, ReceiveOp receive) {
  std::deque<Message> &messages = flows[StageFlow(stage, receive)];
  Message message = std::move(messages.front());
  messages.pop_front();
  if (message.send.getMessage() != receive.getMessage() ||
      withEncoding(message.send.getX().getType(), {}) != withEncoding(receive.getValue().getType(), {})) {
    InFlightDiagnostic error = receive.emitOpError()
                               << "expects message " << receive.getMessage() << " of type "
                               << receive.getValue().getType() << ", but the message has a different type";
    error.attachNote(message.send.getLoc())
        << "message " << message.send.getMessage() << " of type " << message.send.getX().getType() << " is sent here";
    return error;
  }
  return std::move(message.tensors);
}

void StageLink::contribute(int stage, MoveOpInterface move, int meeting, RankTensors tensors) {
  meetings[move] = meeting;
  parts[meeting][stage] = {move, std::move(tensors)};
}

/// Inserts the coordinate of the stage into the coordinates of a rank within a stage.
int64_t StageLink::rankOf(int stage, int64_t rankInStage) const {
  SmallVector<int64_t> coordinates = meshOfStage().coordinates(rankInStage);
  coordinates[mesh.index(axis)] = stage;
  int64_t rank = 0;
  for (auto [coordinate, size] : llvm::zip_equal(coordinates, mesh.getSizes()))
    rank = rank * size + coordinate;
  return rank;
}

/// All stages must run the same move. The move is applied on the whole mesh, and this stage gets its ranks' results.
FailureOr<RankTensors> StageLink::result(int stage, MoveOpInterface move) {
  RankTensors whole(mesh.numRanks());
  for (const auto &[other, part] : parts[meetings.lookup(move)]) {
    auto theirs = cast<MoveOpInterface>(part.first);
    bool same = theirs.getMoveKind() == move.getMoveKind() && theirs.getReduction() == move.getReduction() &&
                theirs.getMoveDim() == move.getMoveDim() && theirs.getOtherDim() == move.getOtherDim() &&
                withEncoding(theirs->getOperand(0).getType(), {}) == withEncoding(move->getOperand(0).getType(), {});
    if (!same) {
      InFlightDiagnostic error = move->emitOpError() << "is paired with a different move of stage " << other;
      error.attachNote(theirs.getLoc()) << "the other move is here";
      return error;
    }
    for (auto [rank, tensor] : llvm::enumerate(part.second))
      whole[rankOf(other, rank)] = tensor;
  }
  whole = Ranks(mesh).apply(move, whole);
  RankTensors own(meshOfStage().numRanks());
  for (auto [rank, tensor] : llvm::enumerate(own))
    tensor = whole[rankOf(stage, rank)];
  return own;
}

Operation *StageLink::leftOver() const {
  for (const auto &[key, messages] : flows)
    if (!messages.empty())
      return messages.front().send;
  return nullptr;
}
