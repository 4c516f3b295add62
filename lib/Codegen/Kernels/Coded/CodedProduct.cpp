//===- CodedProduct.cpp - Products with a matrix of codes ------------------------------===//
// On a GPU, a product of few rows is limited by memory. Its kernel reads each code and each scale once, for all rows.
// If the codes of a column are contiguous, a warp computes a few columns; otherwise a thread computes a few columns
// over a part of k. A product of more rows is computed like the product of one expert (OnRows).
//===-----------------------------------------------------------------------------===//
#include "CodedProduct.h"
#include "../../Fuse/Gemm.h"
#include "../OnRows/OnRows.h"
#include "pc/IR/Codes.h"

using namespace mlir;
using namespace pc;
using namespace pc::kernels;
using Carried = Emitter::Carried;

/// The most rows of a product that reads codes once for all of them. Their sums are in registers.
static constexpr int64_t mostThinRows = 16;

namespace {
/// A product with codes: its descriptor without name and types, and its buffers.
struct CodedProduct {
  pcrt_gemm_desc d{};
  Ptr a, codes, scales, c;

  CodedProduct(FusionOp fusion, Kernel &kernel);
};
} // namespace

CodedProduct::CodedProduct(FusionOp fusion, Kernel &kernel) : c(kernel.results[0]) {
  FusedProduct fused = *asFusedProduct(fusion, kernel.simt != nullptr);
  Gemm gemm = *asGemm(fused.product);
  auto bufferOf = [&](Value outside) {
    return kernel.operands[std::distance(fusion.getInputs().begin(), llvm::find(fusion.getInputs(), outside))];
  };
  a = bufferOf(fused.a), codes = bufferOf(fused.b), scales = bufferOf(fused.aux);
  d.m = gemm.m, d.n = gemm.n, d.k = gemm.k;
  d.b_k_stride = gemm.bK, d.b_n_stride = gemm.bN;
  d.a_lies = PCRT_LIES_ROWS, d.c_lies = PCRT_LIES_ROWS;
  d.group = fused.group;
}

/// The sum of the products of two vectors.
static Num dot(Emitter &e, Num x, Num y) {
  auto element = [&](Num v, int64_t i) {
    return e.wrap(vector::ExtractOp::create(e.b, e.loc, v.v, ArrayRef<int64_t>{i}));
  };
  Num sum = element(x, 0) * element(y, 0);
  for (int64_t i = 1; i < x.width(); ++i)
    sum = e.fma(element(x, i), element(y, i), sum);
  return sum;
}

/// The lanes of a warp share k. They read 16 bytes of codes each, if rows consist of such vectors.
static void emitByColumns(const CodedProduct &p, const Weights &weights, Kernel &kernel) {
  SimtEmitter &e = *kernel.simt;
  const pcrt_gemm_desc &d = p.d;
  constexpr int64_t warp = 32, warps = 4;
  // The columns of a warp share the loaded elements of the rows.
  int64_t columns = d.m > 4 ? 4 : 2;
  while (d.n % columns)
    columns /= 2;
  e.setWidest(8);
  const int64_t width = e.widthFor(d.k);
  e.teams(d.n / columns, warp, warps, [&](Num item) {
    Num first = item * columns;
    Carried none(d.m * columns, e.real(0));
    Carried sums = e.unrolled(e.rank * width, d.k, warp * width, none, [&](Num k, const Carried &before) {
      Carried numbers, next;
      for (int64_t column = 0; column < columns; ++column)
        numbers.push_back(weights.load(e.integer(0), k, first + column, width));
      for (int64_t row = 0; row < d.m; ++row) {
        Num x = p.a.load(k + row * d.k, width);
        for (int64_t column = 0; column < columns; ++column)
          next.push_back(before[row * columns + column] + dot(e, x, numbers[column]));
      }
      return next;
    });
    sums = e.across(SmallVector<bool>(sums.size(), false), sums);
    e.once([&] {
      for (int64_t row = 0; row < d.m; ++row)
        for (int64_t column = 0; column < columns; ++column)
          p.c.store(sums[row * columns + column], first + (row * d.n + column));
    });
  });
}

/// The codes of a row of b are contiguous, so each thread has some columns.
static void emitByRows(const CodedProduct &p, const Weights &weights, Kernel &kernel) {
  SimtEmitter &e = *kernel.simt;
  const pcrt_gemm_desc &d = p.d;
  e.setWidest(d.m > 8 ? 2 : 4); // the sums of a block must fit into shared memory
  columnSums(
      kernel, d.k, d.n, d.m,
      [&](Num k, Num column, int64_t width) {
        Num numbers = weights.load(e.integer(0), k, column, width);
        Carried terms;
        for (int64_t row = 0; row < d.m; ++row)
          terms.push_back(p.a.load(k + row * d.k) * numbers);
        return terms;
      },
      [&](Num column, const Carried &totals) {
        for (auto [row, total] : llvm::enumerate(totals))
          p.c.store(total, column + static_cast<int64_t>(row) * d.n);
      });
}

/// An item is a column.
static void emitPlain(const CodedProduct &p, const Weights &weights, Kernel &kernel) {
  Emitter &e = kernel.e;
  const pcrt_gemm_desc &d = p.d;
  kernel.forItems(d.n, 1, /*reduces=*/false, [&](Num column) {
    e.loop(e.integer(0), e.integer(d.m), 1, [&](Num row) {
      Num sum = e.loop(e.integer(0), e.integer(d.k), 1, {e.real(0)}, [&](Num k, const Carried &sums) {
        return Carried{e.fma(p.a.load(row * d.k + k), weights.load(e.integer(0), k, column), sums[0])};
      })[0];
      p.c.store(sum, row * d.n + column);
    });
  });
}

bool pc::kernels::isCodedProduct(FusionOp fusion) {
  if (asCodedExperts(fusion))
    return true;
  std::optional<FusedProduct> product = asFusedProduct(fusion, /*cuda=*/true);
  return product && product->group && product->epilogue == PCRT_EPILOGUE_NONE && !product->sum;
}

LogicalResult pc::kernels::emitCodedProduct(FusionOp fusion, Kernel &kernel) {
  if (asCodedExperts(fusion)) {
    (kernel.simt ? emitRouted : emitPlainRouted)(*routedBuffers(fusion, kernel), kernel);
    return success();
  }
  CodedProduct p(fusion, kernel);
  Weights weights(p.d, /*aligned=*/kernel.simt != nullptr, p.codes, p.scales);
  kernel.kind = "product";
  if (!kernel.simt) {
    emitPlain(p, weights, kernel);
  } else if (p.d.m <= mostThinRows) {
    (p.d.b_k_stride == 1 ? emitByColumns : emitByRows)(p, weights, kernel);
  } else {
    OnRows on(p.d, kernel, p.a, p.codes, p.scales);
    (suitsTensorCores(on) ? emitProductByTensorCores : emitProductByNumbers)(on);
  }
  return success();
}
