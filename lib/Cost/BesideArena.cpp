//===- BesideArena.cpp - Device memory of a run outside of its arena -----------------------------===//
// Estimates, for the report, the device memory that NCCL and the runtime allocate outside of the arena: channel buffers
// of communicators and staging for moves. Communicators and bytes of staging are counted from the program; the bytes of
// NCCL are an estimate.
//===-----------------------------------------------------------------------------===//
#include "pc/Cost/Report.h"
#include "pc/IR/MoveRows.h"
#include "pc/IR/Rounds.h"
#include "pc/IR/Stages.h"

#include "llvm/Support/MathExtras.h"
#include <map>

using namespace mlir;
using namespace pc;

/// The bytes that NCCL allocates for a channel of a communicator in use: a receive buffer for each of its protocols, of
/// default size (Simple, LL128, LL).
static constexpr int64_t channelBytes = 4194304 + 4915200 + 524288;
/// Channels of a communicator. NCCL uses 2 to 32, depending on the topology.
static constexpr int64_t channels = 16;

/// Bytes of the runtime's staging memory for a move by NCCL between `members` ranks.
static int64_t stagingBytes(MoveOpInterface move, int64_t members) {
  if (isa<AllToAllRowsOp>(*move)) // rows are received at their places
    return 0;
  pcrt_move_shape shape = moveShape(move);
  auto type = cast<RankedTensorType>(move->getOperand(0).getType());
  return pcrt_staging_bytes_of_move(static_cast<int32_t>(move.getMoveKind()), &shape, members,
                                    llvm::divideCeil(type.getElementTypeBitWidth(), 8));
}

/// Groups with several ranks count, each once, over all stages. A communicator needs staging only for its largest move,
/// since its moves run one after another.
llvm::json::Object pc::besideArena(ModuleOp planned) {
  std::map<std::vector<StringRef>, bool> groups; ///< axes -> whether data moves
  int64_t staging = 0;
  for (ModuleOp program : programsOf(planned)) {
    MeshAttr mesh = meshOf(program);
    std::map<std::vector<StringRef>, int64_t> largest;
    auto count = [&](Operation *op) {
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
    };
    program.walk(count);
    if (OwningOpRef<func::FuncOp> round = buildRound(program))
      round->walk(count);
    int64_t sum = 0;
    for (auto &[axes, bytes] : largest)
      sum += llvm::alignTo(bytes, 512);
    staging = std::max(staging, sum);
  }
  int64_t used = llvm::count_if(groups, [](auto &group) { return group.second; });
  const bool connects = !groups.empty() || programsOf(planned).size() > 1;        // stages exchange messages
  return llvm::json::Object{{"communicators", int64_t(groups.size()) + connects}, // plus the communicator of all ranks
                            {"staging_bytes", staging},
                            {"nccl_bytes_estimated", used * channels * channelBytes}};
}
