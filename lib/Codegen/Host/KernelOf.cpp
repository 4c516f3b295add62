//===- KernelOf.cpp - Selects the kernel of each op ------------------------------------------===//
// Chooses for each op the generator of its kernel: a special one (Kernels/), a row kernel (Rows/), or one of the plain
// loops in this file. An op without a kernel is an error that names its types.
//===-----------------------------------------------------------------------------===//
#include "../Emit/Kernel.h"
#include "../Emit/RowMath.h"
#include "../Fuse/RowSpace.h"
#include "../Kernels/Kernels.h"
#include "../Rows/RowProgram.h"
#include "pc/Cost/CudaWorkspace.h"
#include "pc/IR/Contraction.h"

using namespace mlir;
using namespace pc;
using kernels::Emitter;
using kernels::Num;

static int64_t elementsOf(Value value) { return cast<RankedTensorType>(value.getType()).getNumElements(); }

/// "b s f -> f": an item is a block of columns, in which it sums all rows in order.
static LogicalResult emitColumnReduction(EinsumOp op, Kernel &k) {
  Emitter &e = k.e;
  int64_t columns = elementsOf(op.getResult()), rows = elementsOf(op.getInputs()[0]) / columns;
  const int64_t lanes = e.lanes, block = 4 * lanes;
  k.kind = "reduction";
  k.items = llvm::divideCeil(columns, block);
  auto product = [&](Num index, int64_t width) {
    Num v = k.operands[0].load(index, width);
    for (kernels::Ptr operand : llvm::drop_begin(k.operands))
      v = v * operand.load(index, width);
    return v;
  };
  if (k.simt) {
    kernels::columnSums(
        k, rows, columns, 1,
        [&](Num row, Num column, int64_t width) { return Emitter::Carried{product(row * columns + column, width)}; },
        [&](Num column, const Emitter::Carried &totals) { k.results[0].store(totals[0], column); });
    return success();
  }
  // Sums one block of vectors with these widths, from column `first` on.
  auto sumBlock = [&](Num first, ArrayRef<int64_t> widths) {
    Emitter::Carried init;
    for (int64_t width : widths)
      init.push_back(e.splat(e.real(0), width));
    Emitter::Carried sums = e.loop(e.integer(0), e.integer(rows), 1, init, [&](Num row, const Emitter::Carried &sums) {
      Emitter::Carried next;
      int64_t at = 0;
      for (auto [width, sum] : llvm::zip(widths, sums)) {
        next.push_back(sum + product(row * columns + first + at, width));
        at += width;
      }
      return next;
    });
    int64_t at = 0;
    for (auto [width, sum] : llvm::zip(widths, sums)) {
      k.results[0].store(sum, first + at);
      at += width;
    }
  };
  // The last block may be narrower. It is emitted separately, so that full blocks have constant widths.
  int64_t full = columns / block;
  Num end = e.integer(full);
  e.loop(k.lo, e.min(k.hi, end), 1, [&](Num item) { sumBlock(item * block, {lanes, lanes, lanes, lanes}); });
  if (full < k.items) {
    SmallVector<int64_t> widths;
    for (int64_t left = columns - full * block; left > 0; left -= lanes)
      widths.push_back(std::min(left, lanes));
    e.when(end < k.hi, [&] { sumBlock(end * block, widths); });
  }
  return success();
}

/// Computes any einsum element by element. It is used for those that are neither a matrix product nor a row op.
static LogicalResult emitLoops(EinsumOp op, Kernel &k) {
  Emitter &e = k.e;
  FactorRule rule = op.getFactorRule();
  k.kind = "einsum";
  k.items = elementsOf(op.getResult());
  SmallVector<int> summed = Contraction(rule).summed;
  SmallVector<Num> index(rule.factors.size());
  auto product = [&] {
    Num value = e.real(1);
    for (auto [dims, buffer] : llvm::zip(rule.operands, k.operands)) {
      Num at = e.integer(0);
      for (int f : dims)
        at = at * rule.factors[f].size + index[f];
      value = value * buffer.load(at);
    }
    return value;
  };
  // A loop per summed factor, the first one outermost. `index` holds the loop variables when the innermost body is
  // emitted.
  std::function<Num(ArrayRef<int>)> sum = [&](ArrayRef<int> rest) -> Num {
    if (rest.empty())
      return product();
    return e.loop(e.integer(0), e.integer(rule.factors[rest[0]].size), 1, {e.real(0)},
                  [&](Num i, const Emitter::Carried &total) {
                    index[rest[0]] = i;
                    return Emitter::Carried{total[0] + sum(rest.drop_front())};
                  })[0];
  };
  k.forItems(k.items, 1, /*reduces=*/false, [&](Num item) {
    // The item is the number of an element of the result, row-major.
    Num left = item;
    for (int f : llvm::reverse(rule.results[0])) { // no factor occurs twice in the result (that would be a diagonal)
      index[f] = left % e.integer(rule.factors[f].size);
      left = left / e.integer(rule.factors[f].size);
    }
    k.results[0].store(sum(summed), item);
  });
  return success();
}

/// A GPU copies element by element, a CPU in blocks of 4096 elements.
static LogicalResult emitCopy(int64_t elements, Kernel &k) {
  constexpr int64_t block = 4096;
  k.kind = "copy";
  k.items = llvm::divideCeil(elements, block);
  Emitter &e = k.e;
  if (k.simt) {
    k.forItems(1, elements, /*reduces=*/false, [&](Num) {
      e.vectors(elements, [&](Num i, int64_t width) { k.results[0].store(k.operands[0].load(i, width), i); });
    });
    return success();
  }
  e.loop(k.lo, k.hi, 1, [&](Num item) {
    Num first = item * block;
    Num end = e.min(e.integer(elements), first + block);
    Num vectorEnd = end - (end - first) % e.integer(e.lanes);
    e.loop(first, vectorEnd, e.lanes, [&](Num i) { k.results[0].store(k.operands[0].load(i, e.lanes), i); });
    e.loop(vectorEnd, end, 1, [&](Num i) { k.results[0].store(k.operands[0].load(i), i); });
  });
  return success();
}

/// Writes the numbers from, from + 1, ..., plus the offset of the rank's block.
static LogicalResult emitIota(IotaOp op, Kernel &k) {
  k.kind = "index";
  const int64_t elements = elementsOf(op.getValue());
  Emitter &e = k.e;
  Num first = op.getOffset() ? k.operands[0].load(e.integer(0)) : kernels::integer32(e, op.getFrom());
  if (op.getOffset() && op.getFrom())
    first = first + kernels::integer32(e, op.getFrom());
  k.forItems(1, elements, /*reduces=*/false, [&](Num) {
    e.vectors(elements, [&](Num i, int64_t width) { k.results[0].store(kernels::indices(e, i, width) + first, i); });
  });
  return success();
}

static Num toI32(Num x) { return x.e->wrap(arith::TruncIOp::create(x.e->b, x.e->loc, x.e->b.getI32Type(), x.v)); }

/// Writes a number that changes at few positions, as the first value plus an addend at each position.
static LogicalResult emitPieces(IotaOp op, Kernel &k) {
  k.kind = "index";
  Emitter &e = k.e;
  ArrayRef<int64_t> pieces = *op.getPieces(), values = *op.getValues();
  k.forItems(elementsOf(op.getValue()), 1, /*reduces=*/false, [&](Num i) {
    Num index = op.getOffset() ? e.extend(k.operands[0].load(e.integer(0))) + i : i, value = e.integer(values[0]);
    for (size_t piece = 1; piece < pieces.size(); ++piece)
      value = e.select(index < e.integer(pieces[piece]), value, e.integer(values[piece]));
    k.results[0].store(toI32(value), i);
  });
  return success();
}

/// Writes the positions of a sequence in zigzag order.
static LogicalResult emitZigzagIota(IotaOp op, Kernel &k, int64_t ranks) {
  k.kind = "index";
  Emitter &e = k.e;
  auto program = *op->getParentOfType<ModuleOp>().getOps<ProgramOp>().begin();
  int64_t length = program.getSequence();
  k.forItems(elementsOf(op.getValue()), 1, /*reduces=*/false, [&](Num i) {
    Num first = op.getOffset() ? e.extend(k.operands[0].load(e.integer(0))) : e.integer(0);
    Num position = kernels::positionOf(e, first + i, length, ranks);
    k.results[0].store(toI32(op.getFrom() ? position + op.getFrom() : position), i);
  });
  return success();
}

/// Writes the number of keys that each query sees in the block of this step of the ring.
static LogicalResult emitKeyCounts(KeyCountsOp op, Kernel &k) {
  k.kind = "index";
  Emitter &e = k.e;
  int64_t ranks = op.getRanks(), block = elementsOf(op.getValue()), chunk = block / 2;
  k.forItems(block, 1, /*reduces=*/false, [&](Num i) {
    Num me = e.extend(k.operands[0].load(e.integer(0)));
    Num other = (me + (ranks - op.getShift() % ranks)) % e.integer(ranks);
    Num position = kernels::positionOf(e, me * block + i, ranks * block, ranks);
    // In zigzag order, a rank's block consists of two chunks with ascending positions; a query sees a prefix of each.
    auto seen = [&](Num first) { return e.min(e.max(position - first + 1, e.integer(0)), e.integer(chunk)); };
    k.results[0].store(toI32(seen(other * chunk) + seen((e.integer(2 * ranks - 1) - other) * chunk)), i);
  });
  return success();
}

/// An item is one query of one head; o: [b, s, heads, d], lse: [b, heads, s].
static LogicalResult emitMergeAttention(MergeAttentionOp op, Kernel &k) {
  ArrayRef<int64_t> shape = cast<RankedTensorType>(op.getO().getType()).getShape();
  int64_t s = shape[1], heads = shape[2] * shape[3], d = shape[4];
  k.kind = "attention";
  Emitter &e = k.e;
  k.forItems(shape[0] * s * heads, d, /*reduces=*/false, [&](Num item) {
    Num row = (item / (s * heads) * heads + item % heads) * s + item / heads % s;
    Num first = k.operands[1].load(row), second = k.operands[3].load(row), largest = e.max(first, second);
    // A query that sees no key of the second set has o = 0 there.
    auto weight = [&](Num logSum) { return e.exp(e.max(logSum - largest, e.real(-80))); };
    Num w1 = weight(first), w2 = weight(second), sum = w1 + w2;
    Num f1 = w1 / sum, f2 = w2 / sum;
    e.vectors(d, [&](Num j, int64_t width) {
      Num at = item * d + j;
      k.results[0].store(k.operands[0].load(at, width) * f1 + k.operands[2].load(at, width) * f2, at);
    });
    e.once([&] { k.results[1].store(largest + e.log(sum), row); });
  });
  return success();
}

unsigned pc::numKernels(Operation *op, bool simt) { return numSpecialKernels(op, simt); }

/// Special kernels come first, then row kernels, then loops for single ops.
LogicalResult pc::emitKernel(Operation *op, Kernel &kernel) {
  if (std::optional<LogicalResult> special = emitSpecialKernel(op, kernel))
    return *special;
  if (isa<FusionOp>(op))
    return emitRowKernel(op, kernel);
  if (auto update = dyn_cast<UpdateOp>(op))
    return emitCopy(elementsOf(update.getValue()), kernel);
  if (auto iota = dyn_cast<IotaOp>(op)) {
    if (iota.getPieces())
      return emitPieces(iota, kernel);
    int64_t ranks = zigzagRanks(op);
    return ranks ? emitZigzagIota(iota, kernel, ranks) : emitIota(iota, kernel);
  }
  if (auto counts = dyn_cast<KeyCountsOp>(op))
    return emitKeyCounts(counts, kernel);
  if (auto merge = dyn_cast<MergeAttentionOp>(op))
    return emitMergeAttention(merge, kernel);
  if (isa<SeedOp>(op)) {
    kernel.kind = "elementwise";
    kernel.forItems(1, 1, /*reduces=*/false, [&](Num i) { kernel.results[0].store(kernel.e.real(1), i); });
    return success();
  }
  // On a CPU, a kernel that only sums over rows works on blocks of columns (emitColumnReduction).
  const bool sumsColumns = !columnSumsOf(op).empty();
  for (Type type : op->getOperandTypes())
    if (getElementTypeOrSelf(type).isInteger(4))
      return op->emitOpError() << "reads codes of 4 bits, but is not a matrix product; use --weights=int8";
  if (rowSpace(op) && (kernel.simt || !sumsColumns))
    return emitRowKernel(op, kernel);
  if (auto einsum = dyn_cast<EinsumOp>(op)) {
    for (Value value : llvm::concat<const Value>(op->getOperands(), op->getResults()))
      if (Type element = cast<RankedTensorType>(value.getType()).getElementType();
          !element.isF32() && !element.isBF16())
        return op->emitOpError() << "has no CPU kernel for " << value.getType();
    FactorRule rule = einsum.getFactorRule();
    for (int f : rule.results[0])
      if (llvm::count(rule.results[0], f) > 1)
        return op->emitOpError() << "has no CPU kernel for a diagonal result";
    return sumsLeadingDims(einsum) ? emitColumnReduction(einsum, kernel) : emitLoops(einsum, kernel);
  }
  return op->emitOpError() << "has no CPU kernel for " << op->getOperandTypes() << " -> " << op->getResultTypes();
}
