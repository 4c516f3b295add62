//===- CudaWorkspace.cpp - Memory that library calls of a CUDA program need -------------------===//
// Computes the bytes that kernels and library calls of a CUDA program need in addition to their operands, and the
// offsets of tables in them. Compiler and runtime must agree, so sizes depend only on the ops and the flags. All calls
// share one workspace at the end of the arena, which has the size of the largest one.
//===-----------------------------------------------------------------------------===//
#include "pc/Cost/CudaWorkspace.h"
#include "pc/IR/Codes.h"
#include "pc/IR/Contraction.h"
#include "pc/IR/Generation.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace pc;

static RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }
static int64_t floatBytes(Value value) { return llvm::alignTo(typeOf(value).getNumElements() * 4, cudaAlignment); }

CudaLibraries::CudaLibraries(StringRef attention, ArrayRef<std::string> archs)
    : attention(attention == "library"),
      hopperOnly(!archs.empty() && llvm::all_of(archs, [](StringRef arch) { return arch.starts_with("sm_90"); })) {}

/// Returns true if cuDNN's kernels of flash attention support the heads of `q`.
static bool isForCudnn(Value q) {
  int64_t d = typeOf(q).getShape().back();
  return typeOf(q).getElementType().isBF16() && d % 8 == 0 && d <= 128;
}
/// Attention with a dropout, or as a step of a ring, is not a call of cuDNN.
bool CudaLibraries::takes(Operation *op) const {
  return llvm::TypeSwitch<Operation *, bool>(op)
      .Case<AttentionOp, AttentionGradOp>([&](auto op) {
        return attention && !op.getSees() && !op.getDropAttr() && op.isPlain() && isForCudnn(op.getQ());
      })
      // The distance between heads must be constant.
      .Case<PackedAttentionOp, PackedAttentionGradOp>([&](auto op) {
        return attention && isForCudnn(op.getQkv()) &&
               (typeOf(op.getO()).getDimSize(2) == 1 || typeOf(op.getO()).getDimSize(3) == 1);
      })
      .Default([](Operation *) { return false; });
}

/// The result of an attention or of its gradient that has the shape of q, and the log-sum-exp of the scores.
static std::pair<Value, Value> resultsOf(Operation *op) {
  return llvm::TypeSwitch<Operation *, std::pair<Value, Value>>(op)
      .Case<AttentionOp, AttentionGradOp, PackedAttentionOp, PackedAttentionGradOp>(
          [](auto op) { return std::pair<Value, Value>(op.getO(), op.getLse()); });
}

constexpr int64_t otherScratchBytes = 512;

/// The gradient needs memory for addends of dq, and for dk and dv if several query heads share a key head.
int64_t pc::attentionScratchBytes(Operation *op, CudaLibraries libraries) {
  if (!isAttentionGrad(op))
    return otherScratchBytes;
  Value o = resultsOf(op).first;
  bool shared = typeOf(o).getDimSize(3) > 1; // b s k g d: g query heads share key head k
  return otherScratchBytes + (int64_t(shared) + !libraries.hopperOnly) * floatBytes(o);
}

AttentionWorkspace::AttentionWorkspace(Operation *op, CudaLibraries libraries) {
  auto [o, lse] = resultsOf(op);
  doDotO = dqAccumulator + floatBytes(o);
  scratch = doDotO + floatBytes(lse);
  bytes = scratch + attentionScratchBytes(op, libraries);
}

bool pc::isForTensorCores(Value q) {
  int64_t d = typeOf(q).getShape().back();
  return typeOf(q).getElementType().isBF16() && d % 16 == 0 && d <= 128;
}

bool pc::isAttentionGrad(Operation *op) { return isa<AttentionGradOp, PackedAttentionGradOp>(op); }

int64_t pc::attentionDotsBytes(Operation *op) {
  return isAttentionGrad(op) && isForTensorCores(op->getOperand(0)) ? floatBytes(resultsOf(op).second) : 0;
}

int64_t pc::cachedScoresBytes(Operation *op) {
  auto cached = dyn_cast<CachedAttentionOp>(op);
  if (!cached)
    return 0;
  RankedTensorType o = typeOf(cached.getO()); // of all parts
  const int64_t queries = o.getNumElements() / o.getShape().back();
  const int64_t row = CacheSizes(typeOf(cached.getKeys()).getShape()).context + 2;
  return llvm::alignTo(queries * row * 4, cudaAlignment);
}

/// A second kernel for the sums pays off only if there are many more rows than columns.
SmallVector<Value> pc::columnSumsOf(Operation *op) {
  if (isa<LayerNormGradOp, RMSNormGradOp>(op))
    return llvm::to_vector_of<Value>(op->getResults().drop_front());
  // Threads keep the sums of a row in registers. Sums over fewer rows than `fewestRows` are not divided.
  constexpr int64_t mostColumns = 32768, fewestRows = 32;
  auto sum = dyn_cast<EinsumOp>(op);
  if (!sum || !sumsLeadingDims(sum))
    return {};
  int64_t columns = typeOf(sum.getResult()).getNumElements();
  bool suits = columns <= mostColumns && typeOf(sum.getInputs()[0]).getNumElements() >= fewestRows * columns;
  return suits ? SmallVector<Value>{sum.getResult()} : SmallVector<Value>();
}

int64_t pc::columnSumBytes(Operation *op) {
  int64_t bytes = 0;
  op->walk([&](Operation *inner) {
    for (Value sum : columnSumsOf(inner))
      bytes += columnSumBlocks * typeOf(sum).getNumElements() * 4;
  });
  return bytes;
}

/// Tables follow each other, each with the length of the padded list of ids. The partial sums of long runs come last.
EmbeddingSort::EmbeddingSort(EmbeddingGradOp op) {
  const int64_t ids = typeOf(op.getIds()).getNumElements(), width = op.getWidth();
  tile = std::clamp<int64_t>(llvm::PowerOf2Ceil(ids), chunk, 1024);
  padded = llvm::alignTo(ids, tile);
  tilePlaces = tileIds + padded;
  places = tilePlaces + padded;
  numbers = places + padded;
  lengths = numbers + padded;
  longRuns = lengths + padded;
  sums = llvm::alignTo(longRuns + padded / chunk, cudaAlignment / 4);
  bytes = 4 * (sums + padded / chunk * 2 * width);
}

/// Tables follow each other. The rows of a product whose result is by token come last.
RowTables::RowTables(EinsumOp op) {
  FactorRule rule = op.getFactorRule();
  ArrayRef<int> mask = rule.operands.back(), result = rule.results[0];
  experts = rule.factors[mask.back()].size;
  tokens = typeOf(op.getMask()).getNumElements() / experts;
  rows = mostRows(op);
  // With tensor cores, tiles of 128 rows read half as many bytes from memory as tiles of 64, if an expert has that many
  // rows.
  const bool half = llvm::any_of(op.getInputs(), [](Value v) { return typeOf(v).getElementType().isBF16(); });
  tile = half && rows >= 128 * experts ? 128 : 64;
  tiles = rows / tile + experts;
  firstRows = counts + experts * llvm::divideCeil(tokens, chunk);
  tokenOf = firstRows + experts + 1;
  rowOf = tokenOf + rows;
  tileExperts = rowOf + tokens * experts;
  tileRows = tileExperts + tiles;
  made = llvm::alignTo(tileRows + tiles, cudaAlignment / 4);
  bool addsRows = op.getInputs().size() == 3 && !rowsOf(op.getResult()) && !llvm::is_contained(result, mask.back());
  bytes = 4 * (made + (addsRows ? rows * rule.factors[result.back()].size : 0));
}

/// A product with codes is in a fusion with the ops that compute its matrix, and is the last op there.
bool pc::isOnRows(Operation *op) {
  auto einsum = dyn_cast<EinsumOp>(op);
  if (auto fusion = dyn_cast<FusionOp>(op)) {
    auto ops = fusion.getBody().front().without_terminator();
    einsum = dyn_cast<EinsumOp>(*std::prev(ops.end()));
    auto decodes = [](Operation &inner) { return inner.getNumResults() == 1 && decodingOf(inner.getResult(0)); };
    if (llvm::hasSingleElement(ops) || !llvm::all_of(llvm::make_range(ops.begin(), std::prev(ops.end())), decodes))
      return false;
  }
  return einsum && einsum.getMask() && hasRows(einsum);
}

/// Without rows in the types, a token has at most as many rows as experts that it may choose.
int64_t pc::mostRows(EinsumOp op) {
  for (Value value : llvm::concat<const Value>(llvm::to_vector(op->getOperands()), llvm::to_vector(op->getResults())))
    if (RowsAttr rows = rowsOf(value))
      return rows.getCount();
  RankedTensorType mask = typeOf(op.getMask());
  int64_t experts = mask.getShape().back(), tokens = mask.getNumElements() / experts;
  return tokens * std::min<int64_t>(static_cast<int64_t>(*op.getRouted()), experts);
}

/// Ops run one after another, so the workspace has the size that the op with the largest workspace needs.
int64_t pc::libraryWorkspaceBytes(Operation *step, CudaLibraries libraries) {
  int64_t bytes = 0;
  step->walk([&](Operation *op) {
    if (isa<EinsumOp>(op))
      bytes = std::max(bytes, productScratchBytes);
    if (!libraries.takes(op))
      bytes = std::max(bytes, attentionDotsBytes(op));
    else
      bytes = std::max(bytes, isAttentionGrad(op) ? AttentionWorkspace(op, libraries).bytes
                                                  : attentionScratchBytes(op, libraries));
    if (auto embedding = dyn_cast<EmbeddingGradOp>(op))
      bytes = std::max(bytes, EmbeddingSort(embedding).bytes);
    bytes = std::max(bytes, cachedScoresBytes(op));
    if (isa<EinsumOp>(op) && isOnRows(op)) // also in a fusion
      bytes = std::max(bytes, RowTables(cast<EinsumOp>(op)).bytes);
    if (isa<FusionOp>(op) || !columnSumsOf(op).empty())
      bytes = std::max(bytes, columnSumBytes(op));
  });
  return llvm::alignTo(bytes, cudaAlignment);
}
