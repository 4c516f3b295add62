//===- RowProgram.cpp - Row ops expanded into the nodes of one kernel -----------------------===//
// Input: an op or a fusion of ops whose spaces agree (RowSpace.h). Result: a graph of nodes per row (RowGraph.h):
// loads, pointwise functions, reductions. RowSegments.cpp then writes the loops.
//===-----------------------------------------------------------------------------===//
#include "RowProgram.h"

#include "../Emit/RowMath.h"
#include "../Kernels/Dropping.h"
#include "RowGraph.h"
#include "pc/Cost/CudaWorkspace.h"
#include "pcrt/block_codes.h"
#include "pcrt/description.h"
#include "llvm/ADT/TypeSwitch.h"
#include <cmath>

using namespace mlir;
using namespace pc;
using namespace pc::rowprogram;

//===---------------------------------------------------------------------------===//
// Expansion of ops into nodes
//===---------------------------------------------------------------------------===//

/// The view maps a row and a column to an element of the buffer.
int RowProgram::load(Value value, View view, int64_t period) {
  Ptr buffer = buffers.lookup(value);
  int64_t c = columns;
  int n = add({}, [=, this](ArrayRef<Num>, const Position &at) {
    Num index = e.integer(0);
    switch (view) {
    case View::Full:
      index = at.row * c + at.column;
      break;
    case View::Periodic:
      index = (at.row % e.integer(period)) * c + at.column;
      break;
    case View::Column:
      index = at.column;
      break;
    case View::Row:
      return buffer.load(at.row);
    default:
      return buffer.load(index);
    }
    return buffer.load(index, at.width);
  });
  if (view == View::Full || view == View::Periodic)
    rowTypes.push_back(buffer.element);
  nodes[n].space = view == View::Scalar ? Space::Scalar : view == View::Row ? Space::Row : Space::Full;
  if (view == View::Full)
    nodes[n].loaded = buffer.element;
  return n;
}

/// A value from outside is loaded, with the view that its shape allows.
int RowProgram::node(Value value) {
  auto it = known.find(value);
  if (it != known.end())
    return it->second;
  auto type = cast<RankedTensorType>(value.getType());
  View view = View::Full;
  if (type.getShape() == ArrayRef(shape))
    view = View::Full;
  else if (type.getRank() == 0)
    view = View::Scalar;
  else if (type.getShape() == ArrayRef(shape).take_front(split))
    view = View::Row;
  int n = load(value, view);
  return known[value] = n;
}

/// A product of operands, which may be rows, columns or scalars, and a sum over the row or over all rows.
int RowProgram::einsum(EinsumOp op) {
  FactorRule rule = op.getFactorRule();
  // The dims of the space as factors of this op: the columns of its widest operand if it sums, otherwise the columns of
  // the result. An op whose shape is that of the rows reads its operands as Row or Scalar.
  SmallVector<int> space(rule.results[0].begin(), rule.results[0].end());
  for (ArrayRef<int> dims : rule.operands)
    if (dims.size() > space.size())
      space.assign(dims.begin(), dims.end());
  bool overRows = !columnSumsOf(op).empty();
  bool reduces = !overRows && space.size() > rule.results[0].size();
  bool rowsOnly = space.size() != shape.size() && static_cast<int64_t>(space.size()) == split && !reduces;
  SmallVector<int64_t> sizes;
  for (int f : space)
    sizes.push_back(rule.factors[f].size);
  int product = -1;
  for (auto [operand, dims] : llvm::zip(op.getInputs(), rule.operands)) {
    int n;
    auto it = known.find(operand);
    if (it != known.end()) {
      n = it->second;
    } else if (rowsOnly) {
      n = load(operand, dims.empty() ? View::Scalar : View::Row);
    } else {
      int64_t period = 1;
      View view = viewOf(dims, space, sizes, split, period);
      n = load(operand, view, period);
      if (view != View::Column && view != View::Periodic)
        known[operand] = n;
    }
    product = product < 0 ? n : binary('*', product, n);
  }
  if (overRows)
    return sumOverRows(product);
  if (reduces)
    return reduce(Reduction::Sum, product);
  if (!rowsOnly)
    return full(product);
  if (nodes[product].space == Space::Scalar) { // broadcast to rows
    product = add({product}, [](ArrayRef<Num> x, const Position &) { return x[0]; });
    nodes[product].space = Space::Row;
  }
  return product;
}

/// Indices are 32-bit integers, because vectors of these are cheap.
int RowProgram::columnIndex(Value offset) {
  int first =
      offset ? node(offset) : add({}, [this](ArrayRef<Num>, const Position &) { return kernels::integer32(e, 0); });
  int n = add({first},
              [this](ArrayRef<Num> a, const Position &at) { return kernels::indices(e, at.column, at.width) + a[0]; });
  nodes[n].space = Space::Full;
  nodes[n].recompute = true;
  return n;
}

/// Loads one element per row, without a pass over the columns. This needs logits that are in a buffer.
int RowProgram::pickFromMemory(PickOp op) {
  Ptr logits = buffers.lookup(op.getLogits());
  SmallVector<int> args = {node(op.getTargets())};
  if (op.getOffset())
    args.push_back(node(op.getOffset()));
  int n = add(args, [this, logits](ArrayRef<Num> a, const Position &at) {
    Num column = e.extend(a.size() > 1 ? a[0] - a[1] : a[0]), inside = e.inRange(column, e.integer(columns));
    Num index = at.row * columns + e.select(inside, column, e.integer(0));
    return e.select(inside, logits.load(index), e.real(0));
  });
  nodes[n].space = Space::Row;
  return n;
}

/// dx of a norm, and the nodes whose sums over rows are the gradients of its weights: rstd (g - mean(g) - h mean(g h))
/// with g = dy gamma and h the normalized x; rms_norm has no `mean`, and no mean(g).
void RowProgram::normGradient(Operation *op, Value mean, Value gamma) {
  double inverse = 1.0 / columns;
  int dy = node(op->getOperand(0)), x = node(op->getOperand(1)), rstd = node(op->getOperand(mean ? 3 : 2));
  int h = binary('*', mean ? binary('-', x, node(mean)) : x, rstd);
  int g = binary('*', dy, load(gamma, View::Column)), along = times(reduce(Reduction::Sum, binary('*', g, h)), inverse);
  int dx = binary('-', g, binary('*', h, along));
  if (mean)
    dx = binary('-', dx, times(reduce(Reduction::Sum, g), inverse));
  int dgamma = binary('*', dy, h);
  define(op->getResult(0), binary('*', dx, rstd));
  define(op->getResult(1), sumOverRows(dgamma));
  if (mean)
    define(op->getResult(2), sumOverRows(dy));
}

static bool isStored(Value result) { return llvm::any_of(result.getUsers(), llvm::IsaPred<YieldOp>); }

int RowProgram::rounded(int n) {
  return add({n},
             [this](ArrayRef<Num> x, const Position &) { return kernels::fromBf16(e, kernels::roundToBf16(x[0])); });
}

/// Whether `value` is the sum of a value from outside of the kernel and a bias, as it follows a product of codes.
static bool isBiasedSum(Value value) {
  auto isBias = [](Value addend) {
    auto broadcast = addend.getDefiningOp<EinsumOp>();
    return broadcast && broadcast.getInputs().size() == 1 && isa<BlockArgument>(broadcast.getInputs()[0]) &&
           cast<RankedTensorType>(broadcast.getInputs()[0].getType()).getRank() <
               broadcast.getResult().getType().getRank();
  };
  auto sum = value.getDefiningOp<AddOp>();
  return sum && ((isa<BlockArgument>(sum.getA()) && isBias(sum.getB())) ||
                 (isa<BlockArgument>(sum.getB()) && isBias(sum.getA())));
}

/// A bf16 result that is stored and also read in the kernel is also rounded for these readers. So is a product with its
/// bias, which libraries round and the first pass stores, but recomputation does not.
void RowProgram::define(Value result, int n) {
  if (getElementTypeOrSelf(result).isBF16() && (isStored(result) || isBiasedSum(result)) &&
      !llvm::all_of(result.getUsers(), llvm::IsaPred<YieldOp>))
    n = rounded(n);
  known[result] = n;
}

void RowProgram::expandOp(ConstantOp x) {
  int n = constant(x.getNumber().convertToDouble());
  define(x->getResult(0), cast<RankedTensorType>(x->getResult(0).getType()).getRank() ? full(n) : n);
}

/// Subtracting the maximum prevents overflow of the exponential.
void RowProgram::expandOp(SoftmaxOp x) {
  int in = node(x.getX()), max = reduce(Reduction::Max, in);
  int z = add({in, max}, [this](ArrayRef<Num> a, const Position &) { return e.exp(a[0] - a[1]); });
  define(x->getResult(0), binary('/', z, reduce(Reduction::Sum, z)));
}

/// A row that does not fit into registers would be read twice, for the maximum and for the sum. One pass computes both
/// and rescales the sum whenever the maximum grows.
void RowProgram::expandOp(SumExpOp x) {
  int logits = node(x.getLogits()), max = node(x.getMax());
  bool first = llvm::none_of(nodes, [](const Node &n) { return n.reduction == Reduction::SumExp; });
  if (k.simt && first && columns > kernels::SimtEmitter::longestKept && nodes[max].reduction == Reduction::Max &&
      nodes[max].args[0] == logits) {
    int n = reduce(Reduction::SumExp, logits);
    nodes[n].args.push_back(max);
    return define(x->getResult(0), n);
  }
  int z = add({logits, max}, [this](ArrayRef<Num> a, const Position &) { return kernels::expAny(e, a[0] - a[1]); });
  define(x->getResult(0), reduce(Reduction::Sum, z));
}

/// A sum with one nonzero term, which is in the target's column. The column may be on another rank. A pass over the
/// columns is needed only if the logits are computed in this kernel.
void RowProgram::expandOp(PickOp x) {
  auto logits = known.find(x.getLogits());
  if (logits == known.end() || nodes[logits->second].args.empty())
    return define(x->getResult(0), pickFromMemory(x));
  int hit =
      add({node(x.getLogits()), columnIndex(x.getOffset()), node(x.getTargets())},
          [this](ArrayRef<Num> a, const Position &) { return e.select(kernels::equal(a[1], a[2]), a[0], e.real(0)); });
  define(x->getResult(0), reduce(Reduction::Sum, hit));
}

/// Computes dnll (softmax - onehot(target)).
void RowProgram::expandOp(CrossEntropyGradOp x) {
  int scale = binary('/', node(x.getDnll()), node(x.getSumExp()));
  define(x->getResult(0), add({node(x.getLogits()), node(x.getMax()), scale, columnIndex(x.getOffset()),
                               node(x.getTargets()), node(x.getDnll())},
                              [this](ArrayRef<Num> a, const Position &) {
                                Num p = e.exp(a[0] - a[1]) * a[2];
                                return e.select(kernels::equal(a[3], a[4]), p - a[5], p);
                              }));
}

void RowProgram::expandOp(MaskPaddingOp x) {
  double fill = x.getValue().convertToDouble();
  int64_t valid = x.getValid();
  define(x->getResult(0),
         add({node(x.getX()), columnIndex(x.getOffset())}, [this, fill, valid](ArrayRef<Num> a, const Position &) {
           return e.select(a[1] < kernels::integer32(e, valid), a[0], e.real(fill));
         }));
}

/// On a CPU, a row node draws the bits of the whole row ahead into scratch memory.
void RowProgram::expandOp(DropoutOp x) {
  SmallVector<Ptr> offsets = llvm::map_to_vector(x.getOffsets(), [&](Value v) { return buffers.lookup(v); });
  kernels::Dropping dropping(e, x, buffers.lookup(x.getRandom()), offsets);
  const int64_t words = k.simt ? 0 : dropping.wordsAhead(columns), first = numDrawn;
  numDrawn += words;
  auto ahead = [this, words, first] {
    return words ? k.scratch.as(e.b.getI32Type()) + e.integer(scratchElements() + first) : Ptr();
  };
  int row = add({}, [this, dropping, words, ahead](ArrayRef<Num>, const Position &at) {
    Num row = dropping.row(at.row);
    if (words)
      dropping.drawAhead(row, e.integer(0), e.integer(columns), ahead());
    return row;
  });
  nodes[row].space = Space::Row;
  define(x->getResult(0),
         add({full(node(x.getX())), row}, [this, dropping, ahead](ArrayRef<Num> a, const Position &at) {
           return dropping.apply(a[0], a[1], ahead(), at.column, e.steps(std::max<int64_t>(at.width, 1)));
         }));
}

/// Mean and deviation are reductions over the row, and also results.
void RowProgram::expandOp(LayerNormOp x) {
  double inverse = 1.0 / columns, eps = x.getEps().convertToDouble();
  int in = node(x.getX()), mean = times(reduce(Reduction::Sum, in), inverse);
  int centered = binary('-', in, mean);
  int variance = times(reduce(Reduction::Sum, binary('*', centered, centered)), inverse);
  int rstd = add({variance}, [this, eps](ArrayRef<Num> a, const Position &) { return 1.0 / e.sqrt(a[0] + eps); });
  int scaled = binary('*', binary('*', centered, rstd), load(x.getGamma(), View::Column));
  define(x->getResult(0), binary('+', scaled, load(x.getBeta(), View::Column)));
  define(x->getResult(1), mean);
  define(x->getResult(2), rstd);
}

void RowProgram::expandOp(RMSNormOp x) {
  double inverse = 1.0 / columns, eps = x.getEps().convertToDouble();
  int in = node(x.getX()), square = times(reduce(Reduction::Sum, binary('*', in, in)), inverse);
  int rstd = add({square}, [this, eps](ArrayRef<Num> a, const Position &) { return 1.0 / e.sqrt(a[0] + eps); });
  define(x->getResult(0), binary('*', binary('*', in, rstd), load(x.getGamma(), View::Column)));
  define(x->getResult(1), rstd);
}

/// If the norm exceeds the limit or is NaN, the coefficient is NaN, and optimizers skip the step.
void RowProgram::expandOp(ClipCoefficientOp x) {
  Ptr hyper = buffers.lookup(x.getHyper());
  define(x->getResult(0), add({node(x.getNorm())}, [this, hyper](ArrayRef<Num> a, const Position &) {
           Num clip = hyper.load(e.integer(PCRT_HYPER_CLIP)), limit = hyper.load(e.integer(PCRT_HYPER_NORM_LIMIT)),
               factor = e.min(e.real(1), clip / (a[0] + 1e-6));
           return e.select(a[0] < limit, factor, e.real(NAN));
         }));
}

/// Histories have these magnitudes, which must not depend on whether the kernel also stores the value.
void RowProgram::expandOp(MaxMagnitudeOp x) {
  const bool isMade = isa<FusionOp>(x->getParentOp()) && !isa<BlockArgument>(x.getX());
  int of = node(x.getX());
  if (isMade && getElementTypeOrSelf(x.getX()).isBF16() && !isStored(x.getX()))
    of = rounded(of);
  int in = add({of}, [this](ArrayRef<Num> a, const Position &) { return e.max(a[0], 0.0 - a[0]); });
  define(x.getResult(), reduce(Reduction::Max, in));
}

/// A maximum that is not finite fails the comparison, also NaN.
void RowProgram::expandOp(Float8ScaleOp x) {
  define(x.getScale(), add({node(x.getLargest())}, [this, format = x.getFormat()](ArrayRef<Num> a, const Position &) {
           Num scale = kernels::float8Scale(a[0], format);
           scale = e.select(a[0] < e.real(PCRT_LEAST_SCALE), e.real(0), scale);
           return e.select(a[0] < e.real(INFINITY), scale, e.real(NAN));
         }));
}

/// A pointwise op is one node.
LogicalResult RowProgram::expandPointwise(Operation *op) {
  kernels::PointwiseMath math = kernels::pointwiseMath(op);
  if (!math)
    return op->emitOpError() << "has no row kernel";
  SmallVector<int> args;
  for (Value operand : op->getOperands())
    args.push_back(node(operand));
  define(op->getResult(0), add(args, [this, math](ArrayRef<Num> x, const Position &) { return math(e, x); }));
  return success();
}

/// Ops that are not pointwise become several nodes.
LogicalResult RowProgram::expand(Operation *op) {
  if (op->hasTrait<Pointwise>())
    return expandPointwise(op);
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case<ConstantOp, EinsumOp, ReduceMaxOp, MaxMagnitudeOp, SoftmaxOp, SumExpOp, PickOp, CrossEntropyGradOp,
            MaskPaddingOp, DropoutOp, LayerNormOp, RMSNormOp, LayerNormGradOp, RMSNormGradOp, ClipCoefficientOp,
            Float8ScaleOp>([&](auto x) {
        expandOp(x);
        return success();
      })
      .Default([](Operation *other) { return other->emitOpError() << "has no row kernel"; });
}

/// Collects the ops, chooses rows and columns, and expands the ops into nodes.
LogicalResult pc::emitRowKernel(Operation *op, Kernel &kernel) {
  auto fusion = dyn_cast<FusionOp>(op);
  SmallVector<Operation *> ops;
  if (fusion)
    for (Operation &inner : fusion.getBody().front().without_terminator())
      ops.push_back(&inner);
  else
    ops.push_back(op);
  // The space of the kernel is the largest one; ops of smaller spaces work on its rows.
  RowSpace space;
  for (Operation *inner : ops) {
    std::optional<RowSpace> s = rowSpace(inner);
    if (!s)
      return inner->emitOpError() << "is not a row op";
    for (Value operand : inner->getOperands())
      if (Operation *other = operand.getDefiningOp();
          fusion && other && other->getParentOp() == fusion && llvm::is_contained(columnSumsOf(other), operand))
        return inner->emitOpError() << "reads a sum over rows, which is complete only after the kernel has ended";
    if (s->shape.size() > space.shape.size() || inner == ops.front())
      space = *s;
    else if (s->shape == space.shape)
      space.splits &= s->splits;
  }
  for (Operation *inner : ops)
    if (std::optional<RowSpace> s = rowSpace(inner); s->shape.size() < space.shape.size() && !isa<ConstantOp>(inner))
      space.splits &= s->isPointwise() ? uint64_t(1) << s->shape.size() : 0;
  if (!space.splits)
    return op->emitOpError() << "mixes ops that split rows and columns differently";
  RowProgram program(kernel, space);
  ValueRange inputs = fusion ? ValueRange(fusion.getBody().getArguments()) : ValueRange(op->getOperands());
  // Buffers come first, since ops load values that no other op of the kernel computes.
  for (auto [value, buffer] : llvm::zip(inputs, kernel.operands))
    program.bind(value, buffer);
  kernel.kind = columnSumBytes(op) ? "reduction" : isa<CastOp>(op) ? "cast" : "elementwise";
  for (Operation *inner : ops) {
    if (isa<ActivationOp, ActivationGradOp, ClampOp, ClampGradOp>(inner))
      kernel.kind = "activation";
    if (isa<LayerNormOp, RMSNormOp, LayerNormGradOp, RMSNormGradOp>(inner))
      kernel.kind = "norm";
    if (isa<SumExpOp, CrossEntropyGradOp, PickOp>(inner))
      kernel.kind = "loss";
    if (failed(program.expand(inner)))
      return failure();
  }
  ValueRange outputs = fusion ? fusion.getBody().front().getTerminator()->getOperands() : ValueRange(op->getResults());
  for (auto [value, buffer] : llvm::zip(outputs, kernel.results))
    program.result(value, buffer);
  program.emit();
  return success();
}
