//===- Cost.cpp - Operations, bytes and traffic of one op -----------------------------------===//
// This file has the costs that all other estimates use: FLOPs (from factor rules), bytes (from types), traffic (from
// the facts of moves), and seconds (from a MachineModel). The time of an op is the maximum of its times for computing
// and for memory traffic; for a move, also for sending. Formulas of collectives follow NCCL's rings and trees;
// docs/rationale/machines.md has the measurements.
//===-----------------------------------------------------------------------------===//
#include "pc/Cost/Cost.h"
#include "pc/Cost/CudaWorkspace.h"
#include "pc/IR/BlockCodes.h"
#include "pc/IR/Contraction.h"
#include "pc/IR/Generation.h"
#include "pc/IR/Liveness.h"
#include "pcrt/messages.h"

#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"
#include <cmath>
#include <limits>
#include <map>
#include <set>

using namespace mlir;
using namespace pc;

/// The number of points of the op's iteration space, without the factors `except`.
static double points(const FactorRule &rule, ArrayRef<int> except = {}) {
  double product = 1;
  for (auto [i, factor] : llvm::enumerate(rule.factors))
    if (!llvm::is_contained(except, static_cast<int>(i)))
      product *= static_cast<double>(factor.size);
  return product;
}

/// FLOPs of an op under `rule`, whose factors may be smaller than the op's.
static double flopsOf(Operation *op, const FactorRule &rule) {
  if (isa<AttentionOp, AttentionGradOp>(op)) // products over b s k g d and t, the dims of q and k
    return (isa<AttentionOp>(op) ? 2 : 5) * 2 * points(rule, {rule.find("w"), rule.find("r")});
  if (isa<CachedAttentionOp>(op)) // each token sees one slot
    return 2 * 2 * points(rule, {rule.find("n"), rule.find("w")});
  auto einsum = dyn_cast<EinsumOp>(op);
  if (!einsum)
    return 0;
  double share = 1; // the share of the terms that count
  ArrayRef<SmallVector<int, 6>> operands = rule.operands;
  if (einsum.getMask()) {
    const auto most = static_cast<double>(rule.factors[operands.back().back()].size);
    share = std::min(static_cast<double>(*einsum.getRouted()), most) / most;
    if (isOnRows(op)) // experts may have a capacity
      share = static_cast<double>(mostRows(einsum)) /
              static_cast<double>(cast<RankedTensorType>(einsum.getMask().getType()).getNumElements());
    operands = operands.drop_back();
  }
  auto isSummed = [&](int factor) { return !llvm::is_contained(rule.results[0], factor); };
  bool contracts = operands.size() > 1 && !rule.results.empty() &&
                   llvm::any_of(operands, [&](ArrayRef<int> dims) { return llvm::any_of(dims, isSummed); });
  return contracts ? share * static_cast<double>(operands.size()) * points(rule) : 0;
}

double pc::flopsOf(Operation *op) {
  if (auto fusion = dyn_cast<FusionOp>(op)) {
    double sum = 0;
    for (Operation &inner : fusion.getBody().front())
      sum += flopsOf(&inner);
    return sum;
  }
  auto factored = dyn_cast<FactorOpInterface>(op);
  auto packed = [](Value o) { // one product over the square of scores, with the same number of keys and queries
    auto type = cast<RankedTensorType>(o.getType());
    return static_cast<double>(type.getNumElements()) * static_cast<double>(type.getDimSize(1));
  };
  if (auto attention = dyn_cast<PackedAttentionOp>(op))
    return 2 * 2 * packed(attention.getO());
  if (auto gradient = dyn_cast<PackedAttentionGradOp>(op))
    return 5 * 2 * packed(gradient.getO());
  if (!factored || !isa<EinsumOp, AttentionOp, AttentionGradOp, CachedAttentionOp>(op))
    return 0;
  return ::flopsOf(op, factored.getFactorRule());
}

std::string pc::axesText(MoveOpInterface move) {
  if (auto carry = dyn_cast<CarryOp>(*move))
    return carry.getLink().str();
  SmallVector<StringAttr> axes = move.getMoveAxes();
  return llvm::join(llvm::map_range(axes, [](StringAttr axis) { return axis.getValue(); }), "+");
}

std::optional<bool> pc::isCausalAttention(Operation *op) {
  return llvm::TypeSwitch<Operation *, std::optional<bool>>(op)
      .Case<AttentionOp, AttentionGradOp, PackedAttentionOp, PackedAttentionGradOp>(
          [](auto attention) { return attention.getCausal(); })
      .Default([](Operation *) { return std::nullopt; });
}

int64_t pc::bytesOf(Operation *op) {
  if (auto write = dyn_cast<CacheWriteOp>(op)) // only the rows of the tokens are touched
    return 2 * byteSize(write.getX().getType());
  int64_t sum = 0;
  for (Type type : llvm::concat<const Type>(op->getOperandTypes(), op->getResultTypes()))
    sum += isa<TicketType>(type) ? 0 : byteSize(type);
  return sum;
}

// Traffic is computed twice on purpose: runtime/metrics/Summary.cpp counts that of a run from the compiled tables, and
// end-to-end tests compare the two. Therefore the rows of pcrt/moves.h do not contain it.
Traffic pc::trafficOf(MoveOpInterface move, MeshAttr mesh, bool isRoot) {
  MoveKind kind = move.getMoveKind();
  bool takes = takesBlocks(kind), makes = makesBlocks(kind), blocks = takes || makes;
  int64_t n = mesh ? mesh.size(move.getMoveAxes()) : 1;
  int64_t operand = byteSize(move->getOperand(0).getType()), result = byteSize(move->getResult(0).getType());
  int64_t whole = takes && !makes ? result : operand;
  // For values by rows, counts existing rows. All rows of a rank's tokens exist. If every expert is chosen equally
  // often, the rank's experts have the same number of rows.
  if (rowsOf(move->getOperand(0)))
    operand = std::min(operand, result);
  switch (factsOf(kind).way) {
  case PCRT_WAY_RING: // without blocks: first to blocks, then from blocks
    return {whole, (blocks ? 1 : 2) * (n - 1) * whole / n};
  case PCRT_WAY_ROOTED: {
    int64_t members = isRoot ? n - 1 : 1;
    return {whole, blocks ? members * whole / n : members * whole};
  }
  case PCRT_WAY_PAIRS:
    if (blocks)
      return {n * operand, (n - 1) * operand / n};
    // In one of the n permutes of a windowed move, a rank keeps its own block. The permute in which this happens
    // depends on the rank, so the cost leaves out the permute with shift 0.
    return {n * operand, move.getMoveShift() ? operand : 0};
  case PCRT_WAY_LINK:
    return {operand, operand};
  case PCRT_WAY_LOCAL:
    return {};
  }
  llvm_unreachable("a row of pcrt/moves.h without a way");
}

/// The distribution over nodes of ranks with numbers base + offsets, for all bases. Only the bases' remainders modulo
/// the ranks of a node matter; these are `residues`.
static NodeSpread spreadOf(ArrayRef<int64_t> offsets, const std::set<int64_t> &residues, int64_t nodeRanks) {
  NodeSpread spread;
  spread.fewest = static_cast<int64_t>(offsets.size());
  std::vector<int64_t> nodes(offsets.size());
  // The distribution of a group over nodes depends only on the position of its first rank in its node.
  for (int64_t base : residues) {
    llvm::transform(offsets, nodes.begin(), [&](int64_t offset) { return (base + offset) / nodeRanks; });
    llvm::sort(nodes);
    spread.inNode &= nodes.front() == nodes.back();
    for (auto it = nodes.begin(); it != nodes.end();) {
      auto next = std::upper_bound(it, nodes.end(), *it);
      spread.fewest = std::min<int64_t>(spread.fewest, next - it);
      it = next;
    }
  }
  return spread;
}

/// The ranks on a node of `mesh`; 0: all.
static int64_t nodeRanksOf(MeshAttr mesh, const MachineModel &machine) {
  return mesh && mesh.numRanks() > machine.nodeRanks ? machine.nodeRanks : 0;
}

/// Distances between ranks that differ by one on an axis.
static SmallVector<int64_t> stridesOf(MeshAttr mesh) {
  SmallVector<int64_t> strides(mesh.getSizes().size(), 1);
  for (size_t axis = strides.size() - 1; axis > 0; --axis)
    strides[axis - 1] = strides[axis] * mesh.getSizes()[axis];
  return strides;
}

/// The ranks whose coordinates on `axes` are 0, modulo `modulus`.
static std::set<int64_t> basesOf(MeshAttr mesh, ArrayRef<StringAttr> axes, int64_t modulus) {
  std::set<int64_t> bases{0};
  for (auto [name, size, stride] : llvm::zip_equal(mesh.getNames(), mesh.getSizes(), stridesOf(mesh))) {
    if (llvm::is_contained(axes, name) || stride % modulus == 0)
      continue;
    std::set<int64_t> more;
    for (int64_t base : bases)
      for (int64_t i = 0; i < std::min(size, modulus); ++i)
        more.insert((base + i * stride) % modulus);
    bases = std::move(more);
  }
  return bases;
}

/// An axis whose stride is a multiple of the ranks of a node connects different nodes. The other axes give the offsets
/// of a group's ranks.
NodeSpread NodeSpread::ofGroups(MeshAttr mesh, ArrayRef<StringAttr> axes, const MachineModel &machine) {
  int64_t nodeRanks = nodeRanksOf(mesh, machine);
  if (!nodeRanks)
    return {true, mesh ? mesh.size(axes) : 1};
  SmallVector<int64_t> strides = stridesOf(mesh), offsets{0};
  bool isInNode = true;
  for (StringAttr axis : axes) {
    int64_t stride = strides[mesh.index(axis)], size = mesh.size(axis);
    if (stride % nodeRanks == 0) { // the axis connects different nodes; all groups are spread in the same way
      isInNode &= size == 1;
      continue;
    }
    SmallVector<int64_t> more;
    for (int64_t offset : offsets)
      for (int64_t i = 0; i < size; ++i)
        more.push_back(offset + i * stride);
    offsets = std::move(more);
  }
  NodeSpread spread = spreadOf(offsets, basesOf(mesh, axes, nodeRanks), nodeRanks);
  spread.inNode &= isInNode;
  return spread;
}

/// If the whole mesh is on one node, both stages are on that node. Otherwise, compares the nodes of their ranks.
NodeSpread NodeSpread::between(MeshAttr mesh, StringAttr axis, int64_t from, int64_t to, const MachineModel &machine) {
  int64_t nodeRanks = nodeRanksOf(mesh, machine);
  if (!nodeRanks)
    return {true, 2};
  int64_t stride = stridesOf(mesh)[mesh.index(axis)];
  return spreadOf({from * stride, to * stride}, basesOf(mesh, axis, nodeRanks), nodeRanks);
}

double pc::messageSeconds(double bytes, const NodeSpread &spread, const MachineModel &machine) {
  const Link &link = spread.inNode ? machine.node : machine.network;
  double bandwidth = link.bandwidth * machine.linkShare;
  if (machine.multiprocessors) // a device, on which NCCL uses few blocks for a message
    bandwidth = std::min(bandwidth, pcrt_blocks_of_message(static_cast<int64_t>(bytes)) * pcrt_block_bandwidth);
  return machine.moveSeconds + link.latency + bytes / bandwidth;
}

/// Seconds of the hops of a ring of n ranks, with `here` of them on a node. An all_reduce passes twice around the ring,
/// or up and down a tree of nodes.
static double ringLatency(MoveKind kind, int64_t n, int64_t here, const MachineModel &machine) {
  int64_t nodes = llvm::divideCeil(n, here), rounds = kind == MoveKind::AllReduce ? 2 : 1;
  auto seconds = [&](int64_t inNode, double between, double hop) {
    return static_cast<double>(inNode) * machine.nodeHopSeconds + between * hop;
  };
  double ring =
      static_cast<double>(rounds) * seconds(n - nodes, static_cast<double>(nodes - 1), machine.networkHopSeconds);
  if (kind != MoveKind::AllReduce)
    return ring;
  return std::min(ring, 2 * seconds(here - 1, std::log2(static_cast<double>(nodes)), machine.treeHopSeconds));
}

namespace {

/// The seconds of a move: its latency, and the time of its bytes.
struct MoveTime {
  double latency, sending;
  double seconds() const { return latency + sending; }
};

} // namespace

/// The seconds for latency and sending of one move of `wire` bytes per rank, on the slowest link that its groups cross.
static MoveTime moveTime(MoveKind kind, double wire, MeshAttr mesh, ArrayRef<StringAttr> axes,
                         const MachineModel &machine) {
  if (!mesh)
    return {machine.moveSeconds, 0};
  NodeSpread spread = NodeSpread::ofGroups(mesh, axes, machine);
  double bandwidth = machine.node.bandwidth * (kind == MoveKind::AllReduce ? machine.allReduceSpeed : 1);
  // A ring uses as many network adapters of a node as it has members there. Moves between two ranks use one.
  bool rings = factsOf(kind).way == PCRT_WAY_RING;
  if (!spread.inNode)
    bandwidth = std::min(bandwidth, static_cast<double>(rings ? spread.fewest : 1) * machine.network.bandwidth);
  int64_t n = mesh.size(axes);
  double sending = wire / (bandwidth * machine.linkShare);
  if (rings)
    return {machine.collectiveSeconds + ringLatency(kind, n, spread.inNode ? n : spread.fewest, machine), sending};
  auto hops = static_cast<double>(llvm::Log2_64_Ceil(static_cast<uint64_t>(n)));
  return {machine.moveSeconds + hops * (spread.inNode ? machine.node : machine.network).latency, sending};
}

double pc::moveSeconds(MoveKind kind, double wire, MeshAttr mesh, ArrayRef<StringAttr> axes,
                       const MachineModel &machine) {
  return moveTime(kind, wire, mesh, axes, machine).seconds();
}

double pc::copySeconds(double wire, double seconds, const MachineModel &machine) {
  return std::min(seconds, wire / (machine.node.bandwidth * machine.linkShare));
}

double pc::productSeconds(const ProductWork &work, const MachineModel &machine) {
  double share = machine.productShare * (work.bf16 && work.unaligned ? machine.unalignedShare : 1);
  const bool fp8 = work.fp8 && machine.fp8Flops > 0;
  double rate = (fp8 ? machine.fp8Flops : work.bf16 ? machine.bf16Flops : machine.f32Flops) * share;
  bool hasTiles = work.m * work.n > 1; // otherwise it is a sum of products, which does not use tensor cores
  if (machine.multiprocessors == 0 || machine.productTiles.empty() || !hasTiles)
    return 2 * work.count * work.m * work.n * work.k / rate;
  auto all = static_cast<double>(machine.multiprocessors);
  double best = std::numeric_limits<double>::infinity();
  for (const ProductTile &tile : machine.productTiles) {
    auto rows = static_cast<double>(tile.rows), columns = static_cast<double>(tile.columns);
    // Whole waves of tiles run on all multiprocessors, the last one partly idle. Few tiles may be cut along k, as
    // split-k kernels do.
    double tiles = work.count * std::ceil(work.m / rows) * std::ceil(work.n / columns);
    for (double cuts : {1.0, 2.0, 4.0, 8.0}) {
      if (cuts > 1 && (work.k / cuts < 1024 || tiles * cuts > 4 * all))
        break;
      // A start and an end take the same time at any rate, and a step along k half of it with operands of 8 bits.
      double steps = work.k / cuts + machine.productRamp * (fp8 ? 2 : 1);
      best = std::min(best, std::ceil(tiles * cuts / all) * all * 2 * rows * columns * steps / (rate * tile.share));
    }
  }
  return best;
}

// The rates of cuDNN on a B200 in Dao-AILab/flash-attention#2605, with heads of 64 elements and 1024, 2048, 4096, 8192
// and 16384 tokens, are 979, 1069, 1113, 1147 and 1157 Tflop/s; causal, 627, 827, 977, 1072 and 1120. Both are 1165 n /
// (n + 185) where n is the mean number of keys per query; in a causal head, a group of 256 queries skips only keys that
// none of them sees (within 9 %). Heads of 64 reach 0.69 of the rate of heads of 128.
double pc::attentionSeconds(const AttentionWork &work, const MachineModel &machine) {
  double share = machine.attentionShare, flops = work.causal ? work.flops / 2 : work.flops;
  if (machine.attentionKeys > 0) {
    constexpr double together = 256, best = 128;
    auto keys = static_cast<double>(work.keys), dim = static_cast<double>(work.headDim);
    double seen = work.causal ? keys / 2 : keys;
    share *= std::min(1.0, 2 * dim / (dim + best)) * seen / (seen + machine.attentionKeys);
    share *= work.causal ? keys / (keys + together) : 1;
  }
  return flops / ((work.bf16 ? machine.bf16Flops : machine.f32Flops) * share);
}

AttentionWork pc::attentionWork(Operation *op) {
  Value keys = llvm::TypeSwitch<Operation *, Value>(op)
                   .Case<AttentionOp, AttentionGradOp>([](auto attention) { return attention.getK(); })
                   .Case<PackedAttentionOp, PackedAttentionGradOp>([](auto attention) { return attention.getQkv(); });
  ArrayRef<int64_t> shape = cast<RankedTensorType>(keys.getType()).getShape();
  return {flopsOf(op), shape[1], shape.back(), *isCausalAttention(op), getElementTypeOrSelf(keys).isBF16()};
}

/// Returns true if the rows of a matrix of the product are not multiples of 16 bytes. A row has the trailing dims that
/// are in one group.
static bool isUnaligned(EinsumOp op, const FactorRule &rule) {
  Contraction groups(rule);
  const SmallVector<int> *all[] = {&groups.batch, &groups.m, &groups.n, &groups.k, &groups.alone};
  auto groupOf = [&](int factor) {
    return llvm::find_if(all, [&](const auto *group) { return llvm::is_contained(*group, factor); });
  };
  auto hasOddRows = [&](ArrayRef<int> dims, Value value) {
    int64_t bytes = getElementTypeOrSelf(value).getIntOrFloatBitWidth() / 8;
    for (int factor : llvm::reverse(dims)) {
      if (groupOf(factor) != groupOf(dims.back()))
        break;
      bytes *= rule.factors[factor].size;
    }
    return bytes % 16 != 0;
  };
  for (auto [dims, operand] : llvm::zip_equal(rule.operands, op.getInputs()))
    if (hasOddRows(dims, operand))
      return true;
  return hasOddRows(rule.results[0], op.getResult());
}

/// An einsum of two or more operands as matrix products. Factors outside of the groups of a product multiply the number
/// of products.
static ProductWork workOf(EinsumOp op, const FactorRule &rule, double flops) {
  Contraction groups(rule);
  auto sizeOf = [&](ArrayRef<int> factors) {
    double size = 1;
    for (int factor : factors)
      size *= static_cast<double>(rule.factors[factor].size);
    return size;
  };
  ProductWork work{1, sizeOf(groups.m), sizeOf(groups.n), sizeOf(groups.k), false, isUnaligned(op, rule)};
  work.bf16 = getElementTypeOrSelf(op->getOperand(0)).isBF16();
  work.fp8 = multipliesCodes(op);
  work.count = flops / (2 * work.m * work.n * work.k);
  return work;
}

/// The extra seconds if a product adds its result to a sum in f32; 0 for an einsum that is not a product.
static double secondsOfAdding(EinsumOp op, const MachineModel &machine) {
  if (op.getInputs().size() < 2 || !getElementTypeOrSelf(op->getOperand(0)).isBF16() ||
      !getElementTypeOrSelf(op.getResult()).isF32())
    return 0;
  return static_cast<double>(op.getResult().getType().getNumElements()) * machine.accumulateSeconds;
}

/// The product of a fusion that `op` in it adds to an operand of the fusion; null if it does not.
static EinsumOp addedProduct(Operation *op) {
  auto add = dyn_cast<AddOp>(op);
  if (!add || !isa<FusionOp>(op->getParentOp()))
    return {};
  for (auto [product, sum] : {std::pair(add.getA(), add.getB()), std::pair(add.getB(), add.getA())})
    if (auto einsum = product.getDefiningOp<EinsumOp>(); einsum && isa<BlockArgument>(sum))
      return einsum;
  return {};
}

/// Seconds of the matrix products in `op`, at the rate for the dtype of their operands, and of their sums.
static double secondsOfProducts(Operation *op, const MachineModel &machine) {
  double sum = 0;
  if (auto fusion = dyn_cast<FusionOp>(op))
    for (Operation &inner : fusion.getBody().front())
      sum += secondsOfProducts(&inner, machine);
  else if (EinsumOp product = addedProduct(op))
    return secondsOfAdding(product, machine);
  else if (isCausalAttention(op))
    return attentionSeconds(attentionWork(op), machine);
  else if (auto einsum = dyn_cast<EinsumOp>(op)) {
    FactorRule rule = einsum.getFactorRule();
    if (double flops = ::flopsOf(op, rule))
      return productSeconds(workOf(einsum, rule, flops), machine);
  }
  return sum;
}

double pc::secondsOfPart(Operation *op, const FactorRule &part, double bytes, const MachineModel &machine) {
  double products = 0;
  if (double flops = ::flopsOf(op, part)) {
    bool bf16 = getElementTypeOrSelf(op->getOperand(0)).isBF16();
    auto sizeOf = [&](StringRef factor) { return part.factors[part.find(factor)].size; };
    products = isa<EinsumOp>(op)
                   ? productSeconds(workOf(cast<EinsumOp>(op), part, flops), machine)
                   : attentionSeconds({flops, sizeOf("t"), sizeOf("d"), *isCausalAttention(op), bf16}, machine);
  }
  return std::max(products, bytes / (machine.memoryBandwidth * machine.streamShare));
}

/// Seconds of an op without sending. `move` is true if the op is a move.
static double secondsOnDevice(Operation *op, bool move, const MachineModel &machine) {
  double reading =
      static_cast<double>(bytesOf(op)) / (machine.memoryBandwidth * (move ? machine.memoryShare : machine.streamShare));
  return machine.opSeconds + std::max(secondsOfProducts(op, machine), reading);
}

double pc::secondsOfSum(Value yielded, bool isFirst, const MachineModel &machine) {
  Value made = yielded;
  if (auto fusion = yielded.getDefiningOp<FusionOp>())
    made = fusion.getBody().front().getTerminator()->getOperand(cast<OpResult>(yielded).getResultNumber());
  if (auto product = made.getDefiningOp<EinsumOp>(); product && product.getInputs().size() > 1)
    return isFirst ? 0 : secondsOfAdding(product, machine);
  double bytes = (isFirst ? 2 : 3) * static_cast<double>(byteSize(yielded.getType()));
  return machine.opSeconds + bytes / (machine.memoryBandwidth * machine.streamShare);
}

/// The time of a move with traffic.
static MoveTime moveTime(MoveOpInterface move, const MachineModel &machine) {
  MeshAttr mesh = meshOf(move);
  auto wire = static_cast<double>(trafficOf(move, mesh).wire);
  if (auto carry = dyn_cast<CarryOp>(*move))
    return {machine.moveSeconds,
            wire / (carry.getOutside() == Space::Host ? machine.hostBandwidth : machine.diskBandwidth)};
  return moveTime(move.getMoveKind(), wire, mesh, move.getMoveAxes(), machine);
}

double pc::secondsOf(Operation *op, const MachineModel &machine) {
  auto move = dyn_cast<MoveOpInterface>(op);
  double device = secondsOnDevice(op, static_cast<bool>(move), machine);
  if (!move || !hasTraffic(move.getMoveKind()))
    return device;
  return std::max(device, moveTime(move, machine).seconds());
}

/// Moves that are not rings are priced one by one.
SmallVector<double> pc::secondsOfMoves(StartOp start, const MachineModel &machine) {
  SmallVector<double> seconds;
  SmallVector<std::pair<SmallVector<StringAttr>, double>> paid; // by ring: the longest latency so far
  for (MoveOpInterface move : start.getMoves()) {
    if (!hasTraffic(move.getMoveKind()) || factsOf(move.getMoveKind()).way != PCRT_WAY_RING) {
      seconds.push_back(secondsOf(move, machine));
      continue;
    }
    MoveTime time = moveTime(move, machine);
    SmallVector<StringAttr> axes = move.getMoveAxes();
    auto *ring = llvm::find_if(paid, [&](const auto &one) { return one.first == axes; });
    if (ring == paid.end())
      ring = paid.insert(paid.end(), {axes, 0.0});
    // Rings that are started together pay the latency once, because their hops overlap.
    double more = std::max(time.latency - ring->second, 0.0);
    ring->second += more;
    seconds.push_back(std::max(secondsOnDevice(move, true, machine), more + time.sending));
  }
  return seconds;
}
