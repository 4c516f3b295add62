//===- RowProgram.cpp - Row ops expanded into the nodes of one kernel -----------------------===//
#include "RowProgram.h"

#include "RowGraph.h"
#include "RowMath.h"
#include "llvm/ADT/TypeSwitch.h"
#include <cmath>

using namespace mlir;
using namespace pc;
using namespace pc::rowprogram;
using kernels::Emitter;

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
    // What the kernel stores in bf16 is rounded for its readers in the kernel, too.
    Value result = op->getResult(i);
    auto yielded = [](Operation *user) { return isa<YieldOp>(user); };
    if (cast<RankedTensorType>(result.getType()).getElementType().isBF16() &&
        llvm::any_of(result.getUsers(), yielded) && !llvm::all_of(result.getUsers(), yielded))
      n = add({n},
              [this](ArrayRef<Num> x, const Position &) { return kernels::fromBf16(e, kernels::roundToBf16(x[0])); });
    known[result] = n;
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
      .Case([&](CastOp x) { // stores round; inside a kernel everything is f32
        return define(0, add({node(x.getX())}, [this](ArrayRef<Num> a, const Position &) {
                        return a[0].isFloat() ? a[0] : e.toReal(a[0]);
                      }));
      })
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
                        Num clip = hyper.load(e.integer(7)), factor = e.min(e.real(1), clip / (a[0] + 1e-6));
                        return e.select(a[0] < e.real(INFINITY), factor, e.real(NAN)); // a norm is no less than 0
                      }));
      })
      .Default([](Operation *other) { return other->emitOpError() << "has no row kernel"; });
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
