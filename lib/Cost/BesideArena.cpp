//===- BesideArena.cpp - Device memory of a run beside its arena -----------------------------===//
#include "pc/Cost/Cost.h"
#include "pc/Cost/Report.h"
#include "pc/IR/Liveness.h"
#include "pc/IR/Stages.h"

#include "llvm/Support/MathExtras.h"
#include <map>

using namespace mlir;
using namespace pc;

/// What NCCL allocates for a channel of a communicator in use: a buffer to receive in for each of its protocols, of the
/// sizes that it takes by itself (Simple, LL128, LL).
static constexpr int64_t channelBytes = 4194304 + 4915200 + 524288;
/// Of a communicator; NCCL takes 2 to 32, by topology.
static constexpr int64_t channels = 16;

/// Bytes of the runtime's memory that a move of NCCL needs between `members` ranks, as
/// runtime/comm/nccl/NcclMoves.cpp does it: NCCL wants each member's block in one piece.
static int64_t stagingBytes(MoveOpInterface move, int64_t members) {
  MoveKind kind = move.getMoveKind();
  bool gathers = kind == MoveKind::AllGather || kind == MoveKind::Gather;
  bool scatters = kind == MoveKind::ReduceScatter || kind == MoveKind::Scatter;
  auto from = cast<RankedTensorType>(move->getOperand(0).getType());
  auto to = cast<RankedTensorType>(move->getResult(0).getType());
  auto product = [](ArrayRef<int64_t> sizes) {
    int64_t n = 1;
    for (int64_t size : sizes)
      n *= size;
    return n;
  };
  if (gathers || scatters) {
    RankedTensorType whole = gathers ? to : from;
    return product(whole.getShape().take_front(move.getMoveDim())) > 1 ? byteSize(whole) : 0;
  }
  if (kind != MoveKind::AllToAll)
    return 0;
  // [outer, split, middle, split, inner]: blocks are in one piece where no dim stands before what cuts them.
  int64_t low = std::min(move.getMoveDim(), move.getOtherDim()), high = std::max(move.getMoveDim(), move.getOtherDim());
  int64_t first = std::max(from.getDimSize(low), to.getDimSize(low)) / members;
  int64_t outer = product(from.getShape().take_front(low));
  int64_t middle = product(from.getShape().slice(low + 1, high - low - 1));
  return (int64_t(outer * first * middle > 1) + int64_t(outer > 1)) * byteSize(from);
}

llvm::json::Object pc::besideArena(ModuleOp planned) {
  std::map<std::vector<StringRef>, bool> groups; ///< axes -> whether data moves
  int64_t staging = 0;
  for (ModuleOp program : programsOf(planned)) {
    MeshAttr mesh = meshOf(program);
    std::map<std::vector<StringRef>, int64_t> largest;
    program.walk([&](Operation *op) {
      auto move = dyn_cast<MoveOpInterface>(op);
      SmallVector<StringAttr> axes = move ? SmallVector<StringAttr>(move.getMoveAxes()) : SmallVector<StringAttr>();
      if (auto offset = dyn_cast<BlockOffsetOp>(op))
        axes = axisList(offset.getAxes());
      if (axes.empty() || mesh.size(axes) == 1)
        return;
      std::vector<StringRef> key;
      for (StringAttr axis : axes)
        key.push_back(axis.getValue());
      groups[key] |= move && hasTraffic(move.getMoveKind());
      if (move)
        largest[key] = std::max(largest[key], stagingBytes(move, mesh.size(axes)));
    });
    int64_t sum = 0;
    for (auto &[axes, bytes] : largest)
      sum += llvm::alignTo(bytes, 512);
    staging = std::max(staging, sum);
  }
  int64_t used = llvm::count_if(groups, [](auto &group) { return group.second; });
  return llvm::json::Object{{"communicators", int64_t(groups.size()) + !groups.empty()}, // one of all ranks
                            {"staging_bytes", staging},
                            {"nccl_bytes_estimated", used * channels * channelBytes}};
}
