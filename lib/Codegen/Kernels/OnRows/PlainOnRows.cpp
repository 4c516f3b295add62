//===- PlainOnRows.cpp - Simple routed einsums on rows, on a CPU ---------------------===//
// --check-kernels compares a device's kernels with these; programs for CPUs call the runtime instead. Rows are counted
// from the mask whenever they are needed.
//===-----------------------------------------------------------------------------===//
#include "OnRows.h"

using namespace mlir;
using namespace pc;
using namespace pc::kernels;

namespace {
/// Emits the CPU kernel of one grouped product. It favours plain loops over speed, since it is the reference.
class PlainOnRows {
public:
  PlainOnRows(Kernel &kernel, const RoutedBuffers &routed)
      : k(kernel), e(kernel.e), d(routed.grouped.desc), a(routed.operands[routed.grouped.a]),
        b(routed.operands[routed.grouped.b]), mask(routed.operands.back()), c(kernel.results[0]),
        weights(d, /*aligned=*/false, b, routed.scales) {}

  /// One function for each kind of grouped product.
  void emit() {
    switch (d.grouped) {
    case PCRT_GROUPED_PRODUCT:
      return product();
    case PCRT_GROUPED_GRADIENT:
      return gradient();
    case PCRT_GROUPED_PACK:
      if (d.a_lies == PCRT_LIES_TOKENS)
        return ofTokens(/*adds=*/false);
      return k.forItems(1, 1, /*reduces=*/false, [&](Num) {
        forRows([&](Num row, Num token, Num expert) { c.store(a.load(token * d.experts + expert), row); });
      });
    case PCRT_GROUPED_UNPACK:
      if (d.c_lies == PCRT_LIES_TOKENS)
        return ofTokens(/*adds=*/true);
      return k.forItems(1, 1, /*reduces=*/false, [&](Num) { unpack(); });
    }
  }

private:
  using Carried = Emitter::Carried;

  Num isChosen(Num token, Num expert) {
    Num entry = mask.load(token * d.experts + expert);
    return e.wrap(arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::UNE, entry.v, e.real(0).v));
  }
  Num one(Num condition) { return e.select(condition, e.integer(1), e.integer(0)); }
  /// Runs `body` for the rows of experts [first, end), with `before` rows before them; returns the number of rows up to
  /// their end.
  Num forRows(Num first, Num end, Num before, llvm::function_ref<void(Num, Num, Num)> body) {
    return e.loop(first, end, 1, {before}, [&](Num expert, const Carried &rows) {
      return e.loop(e.integer(0), e.integer(d.tokens), 1, rows, [&](Num token, const Carried &rows) {
        Num chosen = isChosen(token, expert);
        e.when(chosen, [&] { body(rows[0], token, expert); });
        return Carried{rows[0] + one(chosen)};
      });
    })[0];
  }
  void forRows(llvm::function_ref<void(Num, Num, Num)> body) {
    forRows(e.integer(0), e.integer(d.experts), e.integer(0), body);
  }
  int64_t widthFor(int64_t n) const {
    int64_t width = e.lanes;
    while (n % width)
      width /= 2;
    return width;
  }

  /// The result may overwrite the mask, so each entry is read before it is written, from last to first. Rows are
  /// counted from the entries that are not written yet.
  void unpack() {
    Num all = forRows(e.integer(0), e.integer(d.experts), e.integer(0), [](Num, Num, Num) {});
    e.loop(e.integer(0), e.integer(d.experts), 1, {all}, [&](Num before, const Carried &rows) {
      Num expert = e.integer(d.experts - 1) - before;
      return e.loop(e.integer(0), e.integer(d.tokens), 1, rows, [&](Num done, const Carried &rows) {
        Num token = e.integer(d.tokens - 1) - done, chosen = isChosen(token, expert), row = rows[0] - one(chosen);
        e.when(
            chosen, [&] { c.store(a.load(row), token * d.experts + expert); },
            [&] { c.store(e.real(0), token * d.experts + expert); });
        return Carried{row};
      });
    });
  }

  /// An item is a column: of the tokens' lines, which are copied to rows, or of the rows, which are added to the
  /// tokens' lines (`adds`).
  void ofTokens(bool adds) {
    k.forItems(d.n, 1, /*reduces=*/false, [&](Num column) {
      if (adds)
        e.loop(e.integer(0), e.integer(d.tokens), 1, [&](Num token) { c.store(e.real(0), token * d.n + column); });
      forRows([&](Num row, Num token, Num) {
        Num ofRow = row * d.n + column, ofToken = token * d.n + column;
        if (adds)
          c.store(c.load(ofToken) + a.load(ofRow), ofToken);
        else
          c.store(a.load(ofToken), ofRow);
      });
    });
  }

  /// An item is some columns of the result, for all rows. The rows of one token are added in the order of experts.
  void product() {
    const bool deep = d.b_n_stride != 1, byToken = d.c_lies == PCRT_LIES_TOKENS;
    const int64_t width = deep ? 1 : widthFor(d.n);
    k.forItems(d.n / width, 1, /*reduces=*/false, [&](Num item) {
      Num column = item * width;
      auto clear = [&](Num token) { c.store(e.zeros(width), token * d.n + column); };
      if (byToken)
        e.loop(e.integer(0), e.integer(d.tokens), 1, clear);
      forRows([&](Num row, Num token, Num expert) {
        Num from = (d.a_lies == PCRT_LIES_TOKENS ? token : row) * d.k;
        Num sum;
        if (deep && d.b_k_stride == 1)
          sum = e.splat(e.sums(d.k, 1,
                               [&](Num i, int64_t n) {
                                 return Carried{a.load(from + i, n) * weights.load(expert, i, column, n)};
                               })[0],
                        width);
        else
          sum = e.loop(e.integer(0), e.integer(d.k), 1, {e.zeros(width)}, [&](Num i, const Carried &sums) {
            return Carried{e.fma(e.splat(a.load(from + i), width), weights.load(expert, i, column, width), sums[0])};
          })[0];
        Num at = (byToken ? token : row) * d.n + column;
        c.store(byToken ? c.load(at, width) + sum : sum, at);
      });
    });
  }

  /// An item is some columns of one expert's weights. Its rows are found by counting the rows of earlier experts.
  void gradient() {
    const int64_t width = widthFor(d.n), blocks = d.n / width;
    k.forItems(d.experts * blocks, 1, /*reduces=*/false, [&](Num item) {
      Num expert = item / blocks, column = item % blocks * width, none = e.integer(0), last = e.integer(d.rows - 1);
      Num first = forRows(none, expert, none, [](Num, Num, Num) {});
      e.loop(none, e.integer(d.m), 1, [&](Num m) {
        auto sums =
            e.loop(none, e.integer(d.tokens), 1, {first, e.zeros(width)}, [&](Num token, const Carried &before) {
              Num chosen = isChosen(token, expert), row = e.min(before[0], last);
              auto lineOf = [&](int32_t lies) { return lies == PCRT_LIES_TOKENS ? token : row; };
              Num x = a.load(lineOf(d.a_lies) * d.m + m), y = b.load(lineOf(d.b_lies) * d.n + column, width);
              return Carried{before[0] + one(chosen),
                             e.select(chosen, e.fma(e.splat(x, width), y, before[1]), before[1])};
            });
        c.store(sums[1], expert * d.c_batch_stride + m * d.c_m_stride + column);
      });
    });
  }

  Kernel &k;
  Emitter &e;
  const pcrt_gemm_desc d;
  const Ptr a, b, mask, c;
  const Weights weights;
};
} // namespace

LogicalResult pc::kernels::emitPlainGrouped(EinsumOp op, Kernel &kernel) {
  std::optional<RoutedBuffers> routed = routedBuffers(op, kernel);
  if (!routed)
    return op->emitOpError() << "works on routed tokens, but is not a matrix product of them";
  emitPlainRouted(*routed, kernel);
  return success();
}

void pc::kernels::emitPlainRouted(const RoutedBuffers &routed, Kernel &kernel) {
  kernel.kind = "product";
  PlainOnRows(kernel, routed).emit();
}
