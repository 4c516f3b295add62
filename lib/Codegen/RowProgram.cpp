//===- RowProgram.cpp - One kernel for a group of row ops -----------------------------------===//
#include "RowProgram.h"

#include "RowMath.h"
#include "RowSpace.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/TypeSwitch.h"
#include <functional>

using namespace mlir;
using namespace pc;
using kernels::Emitter;
using kernels::Num;
using kernels::Ptr;

namespace {

/// Where a vector of the row stands: the row, its first column and its width (0: a scalar, outside of any column loop).
struct Position {
  Num row, column;
  int64_t width = 0;
};

/// Level of a node's value: known before the rows, per row, or per element.
enum class Space { Scalar, Row, Full };
enum class Reduction { None, Sum, Max };

struct Node {
  Space space;
  SmallVector<int> args;
  std::function<Num(ArrayRef<Num>, const Position &)> eval;
  Reduction reduction = Reduction::None;
  int segment = 0;         ///< the column loop that computes it (Full and reductions), or after which it is known (Row)
  SmallVector<Ptr> stores; ///< results that this node is
  int scratch = -1;        ///< scratch row that keeps it for later segments
  bool recompute = false;  ///< so cheap that later segments compute it again
};

class RowProgram {
public:
  RowProgram(Kernel &kernel, RowSpace space) : k(kernel), e(kernel.e), shape(space.shape), split(space.choose()) {
    for (auto [d, n] : llvm::enumerate(shape))
      (static_cast<int64_t>(d) < split ? rows : columns) *= n;
  }

  LogicalResult expand(Operation *op);
  void bind(Value value, Ptr buffer) { buffers[value] = buffer; }
  void result(Value value, Ptr buffer) { nodes[node(value)].stores.push_back(buffer); }
  void emit();

private:
  using Eval = std::function<Num(ArrayRef<Num>, const Position &)>;

  int add(SmallVector<int> args, Eval eval) {
    Node n;
    n.space = Space::Scalar;
    for (int arg : args)
      n.space = std::max(n.space, nodes[arg].space);
    n.args = std::move(args);
    n.eval = std::move(eval);
    nodes.push_back(std::move(n));
    return nodes.size() - 1;
  }
  int reduce(Reduction kind, int arg) {
    int n = add({full(arg)}, [](ArrayRef<Num> x, const Position &) { return x[0]; });
    nodes[n].space = Space::Row;
    nodes[n].reduction = kind;
    return n;
  }
  int full(int arg) {
    if (nodes[arg].space == Space::Full)
      return arg;
    int n = add({arg}, [](ArrayRef<Num> x, const Position &) { return x[0]; });
    nodes[n].space = Space::Full;
    return n;
  }
  int binary(char op, int a, int b) {
    return add({a, b},
               [op](ArrayRef<Num> x, const Position &) { return Num{x[0].e, kernels::emitBinary(x[0], x[1], op)}; });
  }
  int times(int a, double c) {
    return add({a}, [c](ArrayRef<Num> x, const Position &) { return x[0] * c; });
  }
  int constant(double c) {
    return add({}, [this, c](ArrayRef<Num>, const Position &) { return e.real(c); });
  }

  /// A node that loads `value` under `view`.
  int load(Value value, View view, int64_t period = 1);
  /// The node of an operand that has the shape of the space, of its rows, or is a scalar.
  int node(Value value);
  int einsum(EinsumOp op);
  int activation(ActivationKind kind, int x);
  int activationGrad(ActivationKind kind, int dy, int x);
  int pickFromMemory(PickOp op);
  int columnIndex(Value offset); ///< i32 vector of global column numbers

  void schedule();
  void emitRow(Num row);
  void emitSegment(int segment, Num row);
  Num value(int n, const Position &at, SmallVectorImpl<Num> &cache, int segment);

  Kernel &k;
  Emitter &e;
  SmallVector<int64_t> shape;
  int64_t split, rows = 1, columns = 1;
  std::vector<Node> nodes;
  llvm::DenseMap<Value, int> known;
  llvm::DenseMap<Value, Ptr> buffers;
  SmallVector<Num> rowValues; ///< per node: its value, once known for this row (or for all rows)
  int numScratch = 0;
};

} // namespace

//===---------------------------------------------------------------------------===//
// Expansion of ops into nodes
//===---------------------------------------------------------------------------===//

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
  nodes[n].space = view == View::Scalar ? Space::Scalar : view == View::Row ? Space::Row : Space::Full;
  return n;
}

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

int RowProgram::einsum(EinsumOp op) {
  FactorRule rule = op.getFactorRule();
  // The dims of the space in this op's factors: the widest operand where something is summed, else the result. An op on
  // rows only (shape of the rows) sees everything as Row or Scalar.
  SmallVector<int> space(rule.results[0].begin(), rule.results[0].end());
  for (ArrayRef<int> dims : rule.operands)
    if (dims.size() > space.size())
      space.assign(dims.begin(), dims.end());
  bool reduces = space.size() > rule.results[0].size();
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

int RowProgram::activation(ActivationKind kind, int x) {
  return add({x}, [this, kind](ArrayRef<Num> a, const Position &) -> Num {
    Num x = a[0];
    switch (kind) {
    case ActivationKind::GeluTanh: { // x / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3)
      Num u = x * (x * x * 0.044715 + 1.0) * 0.7978845608028654;
      return kernels::gate(e, x, u * 2.0);
    }
    case ActivationKind::Gelu:
      return x * (kernels::erf(e, x * 0.70710678118654752) + 1.0) * 0.5;
    case ActivationKind::Silu:
      return kernels::gate(e, x, x);
    case ActivationKind::Relu:
      return e.max(e.real(0), x); // keeps NaN
    }
    llvm_unreachable("unknown activation");
  });
}

int RowProgram::activationGrad(ActivationKind kind, int dy, int x) {
  return add({dy, x}, [this, kind](ArrayRef<Num> a, const Position &) -> Num {
    Num dy = a[0], x = a[1];
    Num one = e.real(1);
    switch (kind) {
    case ActivationKind::GeluTanh: { // s = sigmoid(2u): d = s + x s (1 - s) 2 u'
      Num square = x * x;
      Num u = x * (square * 0.044715 + 1.0) * 0.7978845608028654;
      Num s = kernels::gate(e, one, u * 2.0);
      Num du = (square * 0.134145 + 1.0) * 0.7978845608028654;
      return dy * (s + x * s * (one - s) * du * 2.0);
    }
    case ActivationKind::Gelu: { // Phi(x) + x phi(x)
      Num phi = e.exp(x * x * -0.5) * 0.3989422804014327;
      return dy * ((kernels::erf(e, x * 0.70710678118654752) + 1.0) * 0.5 + x * phi);
    }
    case ActivationKind::Silu: {
      Num s = kernels::gate(e, one, x);
      return dy * (s + x * s * (one - s));
    }
    case ActivationKind::Relu:
      return e.select(e.real(0) < x, dy, e.real(0));
    }
    llvm_unreachable("unknown activation");
  });
}

int RowProgram::columnIndex(Value offset) {
  int first =
      offset ? node(offset) : add({}, [this](ArrayRef<Num>, const Position &) { return kernels::integer32(e, 0); });
  int n = add({first},
              [this](ArrayRef<Num> a, const Position &at) { return kernels::indices(e, at.column, at.width) + a[0]; });
  nodes[n].space = Space::Full;
  nodes[n].recompute = true;
  return n;
}

/// One element a row instead of a pass over the columns, where the logits lie in memory.
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

LogicalResult RowProgram::expand(Operation *op) {
  auto define = [&](unsigned i, int n) {
    known[op->getResult(i)] = n;
    return success();
  };
  auto unary = [&](Num (Emitter::*f)(Num)) {
    return define(
        0, add({node(op->getOperand(0))}, [this, f](ArrayRef<Num> x, const Position &) { return (e.*f)(x[0]); }));
  };
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](AddOp x) { return define(0, binary('+', node(x.getA()), node(x.getB()))); })
      .Case([&](SubOp x) { return define(0, binary('-', node(x.getA()), node(x.getB()))); })
      .Case([&](ScaleOp x) { return define(0, times(node(x.getX()), x.getFactor().convertToDouble())); })
      .Case([&](CopyOp x) { return define(0, times(node(x.getX()), 1.0)); })
      .Case([&](ConstantOp x) {
        int n = constant(x.getNumber().convertToDouble());
        return define(0, shape.empty() ? n : full(n));
      })
      .Case([&](LogOp) { return unary(&Emitter::log); })
      .Case([&](ExpOp x) {
        return define(
            0, add({node(x.getX())}, [this](ArrayRef<Num> a, const Position &) { return kernels::expAny(e, a[0]); }));
      })
      .Case([&](SqrtOp) { return unary(&Emitter::sqrt); })
      .Case([&](RecipOp x) {
        return define(0, add({node(x.getX())}, [](ArrayRef<Num> a, const Position &) { return 1.0 / a[0]; }));
      })
      .Case([&](ActivationOp x) { return define(0, activation(x.getKind(), node(x.getX()))); })
      .Case([&](ActivationGradOp x) { return define(0, activationGrad(x.getKind(), node(x.getDy()), node(x.getX()))); })
      .Case([&](EinsumOp x) { return define(0, einsum(x)); })
      .Case([&](ReduceMaxOp x) { return define(0, reduce(Reduction::Max, node(x.getX()))); })
      .Case([&](SumExpOp x) {
        int z = add({node(x.getLogits()), node(x.getMax())},
                    [this](ArrayRef<Num> a, const Position &) { return kernels::expAny(e, a[0] - a[1]); });
        return define(0, reduce(Reduction::Sum, z));
      })
      .Case([&](PickOp x) {
        auto logits = known.find(x.getLogits());
        if (logits == known.end() || nodes[logits->second].args.empty())
          return define(0, pickFromMemory(x));
        int hit = add({node(x.getLogits()), columnIndex(x.getOffset()), node(x.getTargets())},
                      [this](ArrayRef<Num> a, const Position &) {
                        return e.select(kernels::equal(a[1], a[2]), a[0], e.real(0));
                      });
        return define(0, reduce(Reduction::Sum, hit));
      })
      .Case([&](CrossEntropyGradOp x) {
        int scale = binary('/', node(x.getDnll()), node(x.getSumExp()));
        return define(0, add({node(x.getLogits()), node(x.getMax()), scale, columnIndex(x.getOffset()),
                              node(x.getTargets()), node(x.getDnll())},
                             [this](ArrayRef<Num> a, const Position &) {
                               Num p = e.exp(a[0] - a[1]) * a[2];
                               return e.select(kernels::equal(a[3], a[4]), p - a[5], p);
                             }));
      })
      .Case([&](MaskPaddingOp x) {
        double fill = x.getValue().convertToDouble();
        int64_t valid = x.getValid();
        return define(0, add({node(x.getX()), columnIndex(x.getOffset())},
                             [this, fill, valid](ArrayRef<Num> a, const Position &) {
                               return e.select(a[1] < kernels::integer32(e, valid), a[0], e.real(fill));
                             }));
      })
      .Case([&](LayerNormOp x) {
        double inverse = 1.0 / columns, eps = x.getEps().convertToDouble();
        int in = node(x.getX()), mean = times(reduce(Reduction::Sum, in), inverse);
        int centered = binary('-', in, mean);
        int variance = times(reduce(Reduction::Sum, binary('*', centered, centered)), inverse);
        int rstd = add({variance}, [this, eps](ArrayRef<Num> a, const Position &) { return 1.0 / e.sqrt(a[0] + eps); });
        int scaled = binary('*', binary('*', centered, rstd), load(x.getGamma(), View::Column));
        (void)define(0, binary('+', scaled, load(x.getBeta(), View::Column)));
        (void)define(1, mean);
        return define(2, rstd);
      })
      .Case([&](RMSNormOp x) {
        double inverse = 1.0 / columns, eps = x.getEps().convertToDouble();
        int in = node(x.getX()), square = times(reduce(Reduction::Sum, binary('*', in, in)), inverse);
        int rstd = add({square}, [this, eps](ArrayRef<Num> a, const Position &) { return 1.0 / e.sqrt(a[0] + eps); });
        (void)define(0, binary('*', binary('*', in, rstd), load(x.getGamma(), View::Column)));
        return define(1, rstd);
      })
      .Case([&](ClipCoefficientOp x) {
        Ptr hyper = buffers.lookup(x.getHyper());
        return define(0, add({node(x.getNorm())}, [this, hyper](ArrayRef<Num> a, const Position &) {
                        Num clip = hyper.load(e.integer(7));
                        return e.min(e.real(1), clip / (a[0] + 1e-6));
                      }));
      })
      .Default([](Operation *other) { return other->emitOpError() << "has no row kernel"; });
}

//===---------------------------------------------------------------------------===//
// Segments
//===---------------------------------------------------------------------------===//

void RowProgram::schedule() {
  for (Node &n : nodes) {
    for (int a : n.args) {
      const Node &arg = nodes[a];
      // A reduction is known one segment later than the loop that computes it; so is all that is made of it per row.
      n.segment = std::max(n.segment, arg.segment + (arg.reduction != Reduction::None ? 1 : 0));
    }
  }
  // What a later segment reads of an element is kept: in a result where it is one, else in a scratch row. Loads are
  // repeated.
  for (Node &n : nodes)
    for (int a : n.args) {
      Node &arg = nodes[a];
      if (n.space != Space::Full && n.reduction == Reduction::None)
        continue;
      if (arg.space == Space::Full && arg.segment < n.segment && !arg.args.empty() && !arg.recompute &&
          arg.stores.empty() && arg.scratch < 0)
        arg.scratch = numScratch++;
    }
}

/// The value of node n inside the column loop of `segment`.
Num RowProgram::value(int n, const Position &at, SmallVectorImpl<Num> &cache, int segment) {
  Node &nd = nodes[n];
  if (nd.space != Space::Full)
    return rowValues[n];
  if (cache[n].v)
    return cache[n];
  if (nd.segment < segment && !nd.args.empty() && !nd.recompute) {
    if (!nd.stores.empty())
      return cache[n] = nd.stores[0].load(at.row * columns + at.column, at.width);
    return cache[n] = k.scratch.load(at.column + nd.scratch * columns, at.width);
  }
  SmallVector<Num> args;
  for (int a : nd.args)
    args.push_back(value(a, at, cache, segment));
  Num v = nd.eval(args, at);
  if (v.isFloat() && !v.width() && at.width)
    v = e.splat(v, at.width);
  return cache[n] = v;
}

void RowProgram::emitSegment(int segment, Num row) {
  SmallVector<int> reductions, stored;
  for (auto [i, n] : llvm::enumerate(nodes)) {
    if (n.segment != segment)
      continue;
    if (n.reduction != Reduction::None)
      reductions.push_back(i);
    else if (n.space == Space::Full && (!n.stores.empty() || n.scratch >= 0))
      stored.push_back(i);
  }
  auto body = [&](Num column, int64_t width) {
    Position at{row, column, width};
    SmallVector<Num> cache(nodes.size());
    SmallVector<std::pair<int, Num>> values;
    for (int n : stored)
      values.push_back({n, value(n, at, cache, segment)});
    Emitter::Carried addends;
    for (int r : reductions)
      addends.push_back(value(nodes[r].args[0], at, cache, segment));
    for (auto [n, v] : values) { // after all loads: a result may lie where an operand lies
      for (Ptr to : nodes[n].stores)
        to.store(v, row * columns + column);
      if (nodes[n].scratch >= 0)
        k.scratch.store(v, column + nodes[n].scratch * columns);
    }
    return addends;
  };
  if (reductions.empty()) {
    if (!stored.empty())
      e.vectors(columns, [&](Num column, int64_t width) { body(column, width); });
    return;
  }
  SmallVector<bool> isMax;
  for (int r : reductions)
    isMax.push_back(nodes[r].reduction == Reduction::Max);
  for (auto [r, total] : llvm::zip(reductions, kernels::reductions(e, columns, isMax, body)))
    rowValues[r] = total;
}

void RowProgram::emitRow(Num row) {
  int segments = 0;
  for (const Node &n : nodes)
    segments = std::max(segments, n.segment);
  Position at{row, e.integer(0), 0};
  SmallVector<Num> saved(rowValues);
  for (int s = 0; s <= segments; ++s) {
    for (auto [i, n] : llvm::enumerate(nodes)) {
      if (n.space != Space::Row || n.reduction != Reduction::None || n.segment != s)
        continue;
      SmallVector<Num> args;
      for (int a : n.args)
        args.push_back(rowValues[a]);
      rowValues[i] = n.eval(args, at);
    }
    emitSegment(s, row);
  }
  for (auto [i, n] : llvm::enumerate(nodes))
    if (n.space == Space::Row)
      for (Ptr to : n.stores)
        to.store(rowValues[i], row);
  rowValues = saved;
}

void RowProgram::emit() {
  // A space without dims has one row, and everything is on it.
  if (shape.empty())
    for (Node &n : nodes)
      n.space = Space::Row;
  schedule();
  k.items = rows;
  k.scratchBytes = numScratch * columns * 4;
  rowValues.resize(nodes.size());
  Position nowhere{e.integer(0), e.integer(0), 0};
  for (auto [i, n] : llvm::enumerate(nodes))
    if (n.space == Space::Scalar) {
      SmallVector<Num> args;
      for (int a : n.args)
        args.push_back(rowValues[a]);
      rowValues[i] = n.eval(args, nowhere);
    }
  e.loop(k.lo, k.hi, 1, [&](Num row) { emitRow(row); });
}

LogicalResult pc::emitRowKernel(Operation *op, Kernel &kernel) {
  auto fusion = dyn_cast<FusionOp>(op);
  SmallVector<Operation *> ops;
  if (fusion)
    for (Operation &inner : fusion.getBody().front().without_terminator())
      ops.push_back(&inner);
  else
    ops.push_back(op);
  // The widest space rules; ops on its rows have no constraint of their own.
  RowSpace space;
  for (Operation *inner : ops) {
    std::optional<RowSpace> s = rowSpace(inner);
    if (!s)
      return inner->emitOpError() << "is not a row op";
    if (s->shape.size() > space.shape.size() || inner == ops.front())
      space = *s;
    else if (s->shape == space.shape)
      space.splits &= s->splits;
  }
  for (Operation *inner : ops)
    if (std::optional<RowSpace> s = rowSpace(inner); s->shape.size() < space.shape.size())
      space.splits &= s->isPointwise() ? uint64_t(1) << s->shape.size() : 0;
  if (!space.splits)
    return op->emitOpError() << "mixes ops that split rows and columns differently";
  RowProgram program(kernel, space);
  ValueRange inputs = fusion ? ValueRange(fusion.getBody().getArguments()) : ValueRange(op->getOperands());
  for (auto [value, buffer] : llvm::zip(inputs, kernel.operands))
    program.bind(value, buffer);
  kernel.kind = "elementwise";
  for (Operation *inner : ops) {
    if (isa<LayerNormOp, RMSNormOp>(inner))
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
