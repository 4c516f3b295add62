//===- Recurrence.cpp - Linear recurrences and their gradients ----------------------------===//
// An item walks along the recurrent dim, with the state in f32 in registers. On a CPU it computes a block of
// neighbouring recurrences, on a GPU only one. If a lacks dims of b, a second kernel sums its gradient over them.
//===-------------------------------------------------------------------------------------===//
#include "Kernels.h"

using namespace mlir;
using namespace pc;
using namespace pc::kernels;

namespace {
/// A dim, and the distances between its elements in b (or h) and in a. The latter is 0 if a lacks the dim.
struct Dim {
  int64_t size, stride, strideOfA;
};

/// The positions of elements of b and of a.
struct At {
  Num b, a;
  At operator+(At more) const { return {b + more.b, a + more.a}; }
};

/// The dims of a recurrence: the recurrent one, the lanes, and the others. Lanes are the last dims of b whose elements
/// are neighbours in b. They are also neighbours in a, unless a lacks all of them.
struct Dims {
  Dims(const FactorRule &rule, int along);

  Dim recurrent = {};
  SmallVector<Dim> others;
  int64_t lanes = 1;
  bool oneA = true; ///< a has one element for all lanes
};

/// The steps of a walk, from the first or the last index on.
struct Walk {
  int64_t steps;
  bool descends;
};
} // namespace

static int64_t sizeOf(ArrayRef<Dim> dims) {
  int64_t size = 1;
  for (const Dim &dim : dims)
    size *= dim.size;
  return size;
}

/// Strides follow from the sizes of the dims after each dim.
Dims::Dims(const FactorRule &rule, int along) {
  ArrayRef<int> a = rule.operands[0], b = rule.operands[1];
  auto strideIn = [&](ArrayRef<int> dims, int factor) {
    const auto *at = llvm::find(dims, factor);
    int64_t stride = at == dims.end() ? 0 : 1;
    for (; at != dims.end() && std::next(at) != dims.end(); ++at)
      stride *= rule.factors[*std::next(at)].size;
    return stride;
  };
  bool growing = true; // the lanes
  for (int factor : llvm::reverse(b)) {
    Dim dim{rule.factors[factor].size, strideIn(b, factor), strideIn(a, factor)};
    growing &= factor != along;
    if (growing && lanes == 1)
      oneA = dim.strideOfA != 1;
    growing &= dim.strideOfA == (oneA ? 0 : lanes);
    if (growing)
      lanes *= dim.size;
    else if (factor == along)
      recurrent = dim;
    else
      others.insert(others.begin(), dim);
  }
}

/// The `number`-th element of `dims`, row major.
static At elementOf(Emitter &e, ArrayRef<Dim> dims, Num number) {
  At at{e.integer(0), e.integer(0)};
  for (const Dim &dim : llvm::reverse(dims)) {
    Num index = number % dim.size;
    number = number / dim.size;
    at = at + At{index * dim.stride, index * dim.strideOfA};
  }
  return at;
}

static Num load(Ptr from, Num index, int64_t width) { return width ? from.load(index, width) : from.load(index); }

/// Divides `lanes` into blocks and runs `body` for each block of each element of `dims`. The arguments of `body` are
/// the element's number, the start of the block, and the widths of its vectors (0: a scalar).
static void forBlocks(Kernel &kernel, ArrayRef<Dim> dims, int64_t lanes, bool oneA,
                      llvm::function_ref<void(Num, At, ArrayRef<int64_t>)> body) {
  Emitter &e = kernel.e;
  const int64_t block = kernel.simt ? 1 : 4 * e.lanes, full = lanes / block, blocks = llvm::divideCeil(lanes, block);
  kernel.forItems(sizeOf(dims) * blocks, 1, /*reduces=*/false, [&](Num item) {
    Num element = item / blocks, number = item % blocks;
    At first = elementOf(e, dims, element);
    auto run = [&](int64_t width) {
      SmallVector<int64_t> widths;
      for (int64_t left = width; left > 0; left -= e.lanes)
        widths.push_back(kernel.simt ? 0 : std::min(left, e.lanes));
      Num lane = number * block;
      body(element, first + At{lane, oneA ? e.integer(0) : lane}, widths);
    };
    if (full == blocks)
      run(block);
    else if (!full)
      run(lanes);
    else
      e.when(number < e.integer(full), [&] { run(block); }, [&] { run(lanes - full * block); });
  });
}

/// Walks along the recurrent dim, and calls body(where, number of steps from there on, state) for steps that are
/// `stride` apart. On a GPU a thread has the operands of several steps in flight.
using Body = llvm::function_ref<Emitter::Carried(At, At stride, int64_t count, Emitter::Carried)>;
/// A GPU reads eight steps together, before it computes them.
static Emitter::Carried walk(Kernel &kernel, At first, const Dim &dim, Walk how, Emitter::Carried state, Body body) {
  Emitter &e = kernel.e;
  const int64_t together = kernel.simt ? 8 : 1, full = how.steps / together * together;
  const int64_t sign = how.descends ? -1 : 1, begin = how.descends ? dim.size - 1 : 0;
  auto at = [&](Num step) {
    Num index = step * sign + begin;
    return first + At{index * dim.stride, index * dim.strideOfA};
  };
  At stride{e.integer(sign * dim.stride), e.integer(sign * dim.strideOfA)};
  state = e.loop(e.integer(0), e.integer(full), together, state,
                 [&](Num step, const Emitter::Carried &state) { return body(at(step), stride, together, state); });
  return full < how.steps ? body(at(e.integer(full)), stride, how.steps - full, state) : state;
}

/// The elements of `from` for `count` steps: vectors of these widths, or one scalar for all.
static Emitter::Carried loadSteps(Ptr from, Num at, Num stride, int64_t count, ArrayRef<int64_t> widths,
                                  bool one = false) {
  Emitter::Carried values;
  for (int64_t step = 0; step < count; ++step, at = at + stride) {
    Num scalar = one ? from.load(at) : Num(), next = at;
    for (int64_t width : widths) {
      values.push_back(!one ? load(from, next, width) : width ? from.e->splat(scalar, width) : scalar);
      next = next + std::max<int64_t>(width, 1);
    }
  }
  return values;
}

static Num zero(Emitter &e, int64_t width) { return width ? e.zeros(width) : e.real(0); }

static Emitter::Carried zeros(Emitter &e, ArrayRef<int64_t> widths) {
  return llvm::map_to_vector(widths, [&](int64_t width) { return zero(e, width); });
}

/// h is kept in registers along the recurrence.
LogicalResult pc::kernels::emit(RecurrenceOp op, Kernel &kernel) {
  FactorRule rule = op.getFactorRule();
  const Dims dims(rule, rule.find(op.getAlong()));
  Emitter &e = kernel.e;
  Ptr a = kernel.operands[0], b = kernel.operands[1], h = kernel.results[0];
  kernel.kind = "recurrence";
  forBlocks(kernel, dims.others, dims.lanes, dims.oneA, [&](Num, At first, ArrayRef<int64_t> widths) {
    walk(kernel, first, dims.recurrent, {dims.recurrent.size, op.getReverse()}, zeros(e, widths),
         [&](At at, At stride, int64_t count, Emitter::Carried state) {
           Emitter::Carried factors = loadSteps(a, at.a, stride.a, count, widths, dims.oneA);
           Emitter::Carried addends = loadSteps(b, at.b, stride.b, count, widths);
           for (int64_t step = 0, i = 0; step < count; ++step, at.b = at.b + stride.b) {
             Num next = at.b;
             for (auto [width, value] : llvm::zip_equal(widths, state)) {
               value = e.fma(factors[i], value, addends[i]);
               h.store(value, next);
               next = next + std::max<int64_t>(width, 1), ++i;
             }
           }
           return state;
         });
  });
  return success();
}

/// Writes db. Also writes da if a has all dims, because then each element of da has only one term.
static void emitWalkBack(RecurrenceGradOp op, const Dims &dims, bool withA, Kernel &kernel) {
  // The gradient of h_t is g_t = dh_t + a_(t+1) g_(t+1): the same recurrence, walked in the other direction.
  // db_t = g_t, and da_t = g_t h_(t-1).
  Emitter &e = kernel.e;
  Ptr a = kernel.operands[0], h = kernel.operands[1], dh = kernel.operands[2], da = kernel.results[0],
      db = kernel.results[1];
  kernel.kind = "recurrence";
  forBlocks(kernel, dims.others, dims.lanes, dims.oneA, [&](Num, At first, ArrayRef<int64_t> widths) {
    // The state is the amount that the steps so far add to the gradient of the next element of h.
    auto steps = [&](At at, At stride, int64_t count, Emitter::Carried state, bool hasBefore) {
      Emitter::Carried factors = loadSteps(a, at.a, stride.a, count, widths, dims.oneA), before;
      Emitter::Carried addends = loadSteps(dh, at.b, stride.b, count, widths);
      if (withA && hasBefore)
        before = loadSteps(h, at.b + stride.b, stride.b, count, widths);
      for (int64_t step = 0, i = 0; step < count; ++step, at = at + stride) {
        At next = at;
        for (auto [width, value] : llvm::zip_equal(widths, state)) {
          Num gradient = addends[i] + value;
          db.store(gradient, next.b);
          if (withA)
            da.store(hasBefore ? gradient * before[i] : zero(e, width), next.a);
          value = factors[i] * gradient;
          Num more = e.integer(std::max<int64_t>(width, 1));
          next = next + At{more, more}, ++i;
        }
      }
      return state;
    };
    const int64_t last = dims.recurrent.size - 1;
    Emitter::Carried state = walk(kernel, first, dims.recurrent, {last, !op.getReverse()}, zeros(e, widths),
                                  [&](At at, At stride, int64_t count, Emitter::Carried state) {
                                    return steps(at, stride, count, state, /*hasBefore=*/true);
                                  });
    Num end = e.integer(op.getReverse() ? last : 0); // the first step of the recurrence has nothing before it
    At at = first + At{end * dims.recurrent.stride, end * dims.recurrent.strideOfA};
    steps(at, {e.integer(0), e.integer(0)}, 1, state, /*hasBefore=*/false);
  });
}

/// totals + the sum over all elements of `dims` of terms(where).
static Emitter::Carried sumOver(Emitter &e, ArrayRef<Dim> dims, Num at, Emitter::Carried totals,
                                llvm::function_ref<Emitter::Carried(Num)> terms) {
  if (dims.empty()) {
    for (auto [total, term] : llvm::zip_equal(totals, terms(at)))
      total = total + term;
    return totals;
  }
  return e.loop(e.integer(0), e.integer(dims[0].size), 1, totals, [&](Num index, const Emitter::Carried &totals) {
    return sumOver(e, dims.drop_front(), at + index * dims[0].stride, totals, terms);
  });
}

/// Writes da, whose elements are sums of g_t h_{t-1} over the dims that a lacks.
static void emitSums(RecurrenceGradOp op, const Dims &dims, Kernel &kernel) {
  Emitter &e = kernel.e;
  Ptr h = kernel.operands[1], da = kernel.results[0], g = kernel.results[1];
  const Dim &t = dims.recurrent;
  // The distance from an element of h to the element of the previous step.
  const int64_t before = op.getReverse() ? t.stride : -t.stride;
  SmallVector<Dim> kept, summed;
  for (const Dim &dim : dims.others)
    (dim.strideOfA ? kept : summed).push_back(dim);
  const int64_t perStep = sizeOf(kept);
  // The first step has no previous h, so it has no term. A sum over steps leaves the step out; otherwise, the step's
  // own h is read but not used.
  if (t.strideOfA)
    kept.insert(kept.begin(), t);
  else
    summed.push_back({t.size - 1, t.stride, 0});
  auto isFirst = [&](Num element) {
    Num step = element / perStep;
    return op.getReverse() ? e.integer(t.size - 2) < step : step < e.integer(1);
  };
  using Terms = llvm::function_ref<Emitter::Carried(Num at, Num distance)>;
  auto sum = [&](Num element, Num at, Emitter::Carried zeros, Terms terms) {
    Num distance = e.integer(before);
    if (t.strideOfA)
      distance = e.select(isFirst(element), e.integer(0), distance);
    else if (!op.getReverse())
      at = at + t.stride;
    return sumOver(e, summed, at, zeros, [&](Num at) { return terms(at, distance); });
  };
  auto store = [&](Num element, Num total, Num zero, Num at) {
    da.store(t.strideOfA ? e.select(isFirst(element), zero, total) : total, at);
  };
  auto product = [&](Num at, Num distance, int64_t width) {
    return load(g, at, width) * load(h, at + distance, width);
  };

  kernel.kind = "reduction";
  // If all lanes share one element of da, an item sums over the lanes. Otherwise, each lane has its own element.
  if (dims.oneA && dims.lanes > 1) {
    kernel.forItems(sizeOf(kept), dims.lanes, /*reduces=*/true, [&](Num element) {
      At first = elementOf(e, kept, element);
      Num total = e.sums(dims.lanes, 1, [&](Num lane, int64_t width) {
        return sum(element, first.b + lane, {e.zeros(width)},
                   [&](Num at, Num distance) { return Emitter::Carried{product(at, distance, width)}; });
      })[0];
      e.once([&] { store(element, total, e.real(0), first.a); });
    });
    return;
  }
  forBlocks(kernel, kept, dims.lanes, dims.oneA, [&](Num element, At first, ArrayRef<int64_t> widths) {
    Emitter::Carried none = zeros(e, widths);
    Emitter::Carried totals = sum(element, first.b, none, [&](Num at, Num distance) {
      Emitter::Carried terms;
      for (int64_t width : widths) {
        terms.push_back(product(at, distance, width));
        at = at + std::max<int64_t>(width, 1);
      }
      return terms;
    });
    Num at = first.a;
    for (auto [width, total, zero] : llvm::zip_equal(widths, totals, none)) {
      store(element, total, zero, at);
      at = at + std::max<int64_t>(width, 1);
    }
  });
}

/// The first kernel computes da and db; a second one sums da over the dims that a lacks.
LogicalResult pc::kernels::emit(RecurrenceGradOp op, Kernel &kernel) {
  FactorRule rule = op.getFactorRule();
  const Dims dims(rule, rule.find(op.getAlong()));
  const bool hasAllDims = recurrenceGradParts(op) == 1;
  if (kernel.part)
    emitSums(op, dims, kernel);
  else
    emitWalkBack(op, dims, hasAllDims, kernel);
  return success();
}

unsigned pc::kernels::recurrenceGradParts(RecurrenceGradOp op) {
  auto rankOf = [](Value value) { return cast<RankedTensorType>(value.getType()).getRank(); };
  return rankOf(op.getA()) == rankOf(op.getH()) ? 1 : 2;
}
