//===- Gemm.cpp - The matrix products of a program on the CPU -------------===//
// A distinct product has a plan; a plan has one part for each thread. A part runs dnnl_sgemm, a primitive, ThinProduct
// or the plain loop, whichever `prepare` has chosen by the measurements in its comment.
//===----------------------------------------------------------------------===//
#include "cpu/Gemm.h"
#include "base/Types.h"
#include "cpu/Allocations.h"
#include "cpu/CodedProduct.h"
#include "cpu/Matmul.h"
#include "cpu/PlainGemm.h"
#include "cpu/ThinProduct.h"

#include <cstdlib>
#include <cstring>
#include <oneapi/dnnl/dnnl_debug.h>
#include <sys/mman.h>

using namespace pcrt;

static bool hasBias(const pcrt_gemm_desc &d) { return d.epilogue == PCRT_EPILOGUE_BIAS; }

const char *pcrt::checkGemm(const pcrt_gemm_desc &d) {
  if (d.grouped)
    return checkGrouped(d);
  if (d.batch < 0 || d.m < 0 || d.n < 0 || d.k < 0)
    return "a negative extent";
  for (int32_t dtype : {d.a_dtype, d.b_dtype, d.c_dtype})
    if (dtype != PCRT_F32 && dtype != PCRT_BF16 && !isCode(dtype))
      return "a dtype other than f32, bf16, i8 or i4";
  for (int64_t stride : {d.a_batch_stride, d.a_m_stride, d.a_k_stride, d.b_batch_stride, d.b_k_stride, d.b_n_stride,
                         d.c_batch_stride, d.c_m_stride, d.c_n_stride})
    if (stride < 0)
      return "a negative stride";
  if (d.epilogue != PCRT_EPILOGUE_NONE && d.epilogue != PCRT_EPILOGUE_BIAS)
    return "an epilogue that is not supported on CPUs";
  return checkCodes(d);
}

static bool sameProduct(pcrt_gemm_desc a, pcrt_gemm_desc b) {
  a.name = b.name = nullptr;
  // The struct has no padding inside: a pointer, int64s, then int32s. So the comparison covers the bytes up to the last
  // member.
  return memcmp(&a, &b, offsetof(pcrt_gemm_desc, epilogue) + sizeof a.epilogue) == 0;
}

namespace {

/// The share of one thread in a product: a block of rows and columns of the batch entries [batchLo, batchHi).
struct Share {
  pcrt_gemm_desc block; ///< As many rows as one call computes, as a separate product of one batch entry.
  int64_t batchLo = 0, batchHi = 0, rowLo = 0, columnLo = 0;
  int64_t rows = 0; ///< If this is not a multiple of the block's rows, the last two calls overlap.
};

/// The transposed product: c^T = b^T a^T.
pcrt_gemm_desc transposed(const pcrt_gemm_desc &d) {
  pcrt_gemm_desc t = d;
  std::swap(t.m, t.n);
  t.a_batch_stride = d.b_batch_stride, t.a_m_stride = d.b_n_stride, t.a_k_stride = d.b_k_stride;
  t.b_batch_stride = d.a_batch_stride, t.b_k_stride = d.a_k_stride, t.b_n_stride = d.a_m_stride;
  t.c_m_stride = d.c_n_stride, t.c_n_stride = d.c_m_stride;
  t.a_dtype = d.b_dtype, t.b_dtype = d.a_dtype;
  return t;
}

/// The arguments of dnnl_sgemm for a product; each call passes all of them.
struct Sgemm {
  char transposeA; ///< 'T' or 'N'; rows of b are contiguous.
  int64_t m, n, k, aStride, bStride, cStride;
};

} // namespace

/// Computes c = a b, or c += a b.
static dnnl_status_t multiply(const Sgemm &product, const char *a, const char *b, char *c, bool accumulate) {
  return dnnl_sgemm(product.transposeA, 'N', product.m, product.n, product.k, 1.0f, reinterpret_cast<const float *>(a),
                    product.aStride, reinterpret_cast<const float *>(b), product.bStride, accumulate ? 1.0f : 0.0f,
                    reinterpret_cast<float *>(c), product.cStride);
}

/// A thread's share of a product, and the way in which the thread computes it.
struct Gemms::Part {
  Share share;
  enum class How { PlainLoop, Sgemm, Primitive, Thin, Coded } how = How::PlainLoop;
  bool swapped = false; ///< The library computes the transposed product.
  ::Sgemm sgemm;
  std::optional<Matmul> primitive;
  std::optional<ThinProduct> thin;
  std::optional<CodedProduct> coded;
  std::unique_ptr<Part> expanded; ///< With codes and many rows: the product of some columns in f32.

  /// Computes a block of a product without codes.
  dnnl_status_t run(const char *a, const char *b, char *c, const float *bias, void *scratch,
                    const dnnl::stream &stream);
  /// Computes all rows of a product with codes.
  dnnl_status_t runCoded(const char *a, const void *b, char *c, const float *bias, const float *scales, void *scratch,
                         const dnnl::stream &stream);
};

/// A product of the program with its shares.
struct Gemms::Plan {
  pcrt_gemm_desc desc;
  std::vector<std::unique_ptr<Part>> parts; ///< Part t belongs to thread t; null if the thread has nothing to do.
  int grouped = -1;                         ///< The number among the grouped products; -1: it is not one of them.
};

/// The oneDNN state of one thread; only this thread uses it.
struct Gemms::ThreadState {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  int64_t scratchBytes = 0;
  void *scratch = nullptr;
  dnnl_status_t status = dnnl_success;
};

/// Share `thread` of `threads` of a product: cut over the batch if that keeps all threads busy, otherwise over rows,
/// otherwise over columns. With `keepsRows` it is not cut over rows.
static Share cutProduct(const pcrt_gemm_desc &d, int thread, int threads, bool keepsRows) {
  constexpr int64_t tile = 16;
  int64_t lo[3] = {0, 0, 0}, hi[3] = {d.batch, d.m, d.n};
  int dim = d.batch >= threads ? 0 : !keepsRows && (d.m >= threads * tile || d.m >= d.n) ? 1 : 2;
  int64_t unit = dim == 0 ? 1 : tile, extent = hi[dim], units = (extent + unit - 1) / unit;
  lo[dim] = std::min(extent, Pool::cut(units, threads, thread) * unit);
  hi[dim] = std::min(extent, Pool::cut(units, threads, thread + 1) * unit);
  Share share{d, lo[0], hi[0], lo[1], lo[2], hi[1] - lo[1]};
  share.block.batch = 1;
  share.block.m = share.rows;
  share.block.n = hi[2] - lo[2];
  return share;
}

/// Sets every row of c to `bias`, or adds it to c if the product accumulates.
static void startFromBias(const pcrt_gemm_desc &d, float *c, const float *bias) {
  for (int64_t row = 0; row < d.m; ++row) {
    float *at = c + row * d.c_m_stride;
    if (d.accumulate)
      for (int64_t column = 0; column < d.n; ++column)
        at[column] += bias[column];
    else
      memcpy(at, bias, d.n * sizeof(float));
  }
}

/// Chooses how a part is computed, and prepares it; it stays a plain loop if oneDNN does not support the product.
/// oneDNN has two ways in f32: dnnl_sgemm packs both operands and is 3 to 15 % faster if the rows of b are contiguous,
/// the primitive is up to 10 % faster if they are not (both on a Zen 4, GPT-2's products at 256 and 512 rows).
/// The primitive packs b again for every few rows of c. If c has many rows and a is transposed, as in the gradients of
/// weights, packing b once before is 3 to 18 % faster (bf16, c of 3072 to 50257 rows and 768 to 4096 columns).
template <typename Part> static void prepare(Part &part, bool nativeBf16, const dnnl::engine &engine) {
  pcrt_gemm_desc d = part.share.block;
  if (d.k == 0)
    return;
  // oneDNN wants the rows of c contiguous.
  if (d.c_n_stride != 1 && d.n != 1) {
    if (hasBias(d) || (d.c_m_stride != 1 && d.m != 1))
      return;
    d = transposed(d);
    part.swapped = true;
  }
  std::optional<Operands> of = operandsOf(d);
  if (!of)
    return;
  if (d.a_dtype == PCRT_F32 && d.b_dtype == PCRT_F32 && d.c_dtype == PCRT_F32 && !of->b.isTransposed()) {
    part.sgemm = {of->a.isTransposed() ? 'T' : 'N',
                  d.m,
                  d.n,
                  d.k,
                  of->a.leadingStride(),
                  of->b.leadingStride(),
                  of->c.leadingStride()};
    part.how = Part::How::Sgemm;
    return;
  }
  try {
    part.primitive.emplace(d, *of, of->a.isTransposed() && d.m > d.n, nativeBf16, engine);
    part.how = Part::How::Primitive;
  } catch (const dnnl::error &) {
    part.swapped = false;
  }
}

dnnl_status_t Gemms::Part::run(const char *a, const char *b, char *c, const float *bias, void *scratch,
                               const dnnl::stream &stream) {
  if (how == How::PlainLoop) {
    plainGemm(share.block, a, b, c, bias);
    return dnnl_success;
  }
  if (how == How::Thin) {
    thin->run(a, b, c, bias);
    return dnnl_success;
  }
  if (swapped)
    std::swap(a, b);
  if (how == How::Sgemm) {
    if (hasBias(share.block))
      startFromBias(share.block, reinterpret_cast<float *>(c), bias);
    return multiply(sgemm, a, b, c, share.block.accumulate || hasBias(share.block));
  }
  dnnl_status_t status = primitive->setB(b, scratch, stream);
  return status != dnnl_success ? status : primitive->run(a, c, bias, scratch, stream);
}

/// The block of b, the result and the rows of a are at the start of the scratch memory, and that of the product in f32
/// follows. The last block of columns may begin before the end of the block before it.
dnnl_status_t Gemms::Part::runCoded(const char *a, const void *b, char *c, const float *bias, const float *scales,
                                    void *scratch, const dnnl::stream &stream) {
  if (!expanded) {
    coded->run(a, b, c, bias, scales, share.block.m);
    return dnnl_success;
  }
  const pcrt_gemm_desc &d = expanded->share.block;
  const int64_t m = share.rows, all = share.block.n;
  auto *columns = static_cast<float *>(scratch), *result = columns + d.n * d.k, *rows = result + m * d.n;
  float *rest = columns + ((d.n + m) * d.k + m * d.n + 15) / 16 * 16;
  coded->widen(a, m, rows);
  for (int64_t from = 0; from < all; from += d.n) {
    const int64_t begin = std::min(from, all - d.n);
    coded->expand(b, scales, begin, d.n, columns);
    for (int64_t row = 0; row < m; row += d.m) {
      const int64_t first = std::min(row, m - d.m);
      dnnl_status_t status =
          expanded->run(reinterpret_cast<char *>(rows + first * d.k), reinterpret_cast<char *>(columns),
                        reinterpret_cast<char *>(result + first * d.n), nullptr, rest, stream);
      if (status != dnnl_success)
        return status;
    }
    coded->store(result + (from - begin), m, d.n, c, from, begin + d.n - from, bias, scales);
  }
  return dnnl_success;
}

/// The number of elements from the first to the last one that a strided operand covers.
static int64_t reach(std::initializer_list<std::pair<int64_t, int64_t>> extentsAndStrides) {
  int64_t last = 0;
  for (auto [extent, stride] : extentsAndStrides)
    last += std::max<int64_t>(extent - 1, 0) * stride;
  return last + 1;
}

/// Returns true if all rows of a block are computed in the same way, so that equal rows of a give equal rows of c. For
/// the last one to three rows of a product, oneDNN 2.6 adds in another order. A few columns show it.
template <typename Part>
static bool computesRowsAlike(pcrt_gemm_desc block, bool nativeBf16, const dnnl::engine &engine) {
  block.n = std::min<int64_t>(block.n, 64);
  if (block.b_n_stride == 1)
    block.b_k_stride = block.n;
  if (block.c_n_stride == 1)
    block.c_m_stride = block.n;
  Part part;
  part.share.block = block;
  prepare(part, nativeBf16, engine);
  if (part.how == Part::How::PlainLoop)
    return true;
  uint32_t state = 1;
  auto fill = [&](std::vector<float> &memory, int32_t dtype, int64_t at) {
    state = state * 1664525 + 1013904223;
    float value = float(int32_t(state)) * 0x1p-31f;
    if (dtype == PCRT_BF16)
      reinterpret_cast<uint16_t *>(memory.data())[at] = floatToBf16(value);
    else
      memory[size_t(at)] = value;
  };
  std::vector<float> a(size_t(reach({{block.m, block.a_m_stride}, {block.k, block.a_k_stride}})));
  std::vector<float> b(size_t(reach({{block.k, block.b_k_stride}, {block.n, block.b_n_stride}})));
  std::vector<float> c(size_t(reach({{block.m, block.c_m_stride}, {block.n, block.c_n_stride}})));
  std::vector<float> bias(size_t(block.n));
  for (int64_t k = 0; k < block.k; ++k) {
    for (int64_t n = 0; n < block.n; ++n)
      fill(b, block.b_dtype, k * block.b_k_stride + n * block.b_n_stride);
    const uint32_t before = state;
    for (int64_t m = 0; m < block.m; ++m)
      state = before, fill(a, block.a_dtype, m * block.a_m_stride + k * block.a_k_stride);
  }
  dnnl::stream stream(engine);
  std::vector<char> scratch(part.primitive ? size_t(part.primitive->scratchBytes()) + 64 : 64);
  void *aligned = scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64);
  LibraryCall library(-1);
  auto bytes = [](std::vector<float> &memory) { return reinterpret_cast<char *>(memory.data()); };
  if (part.run(bytes(a), bytes(b), bytes(c), bias.data(), aligned, stream) != dnnl_success)
    return false;
  const int64_t size = elementBytes(block.c_dtype);
  for (int64_t m = 1; m < block.m; ++m)
    for (int64_t n = 0; n < block.n; ++n) {
      const char *first = bytes(c) + n * block.c_n_stride * size;
      if (memcmp(first, first + m * block.c_m_stride * size, size_t(size)) != 0)
        return false;
    }
  return true;
}

/// Chooses the number of rows of each call, so that all rows are computed in the same way, with as few calls as
/// possible, and then with as few rows as possible that two calls compute. Calls that accumulate cannot share rows.
template <typename Part>
static int64_t rowsOfCall(const pcrt_gemm_desc &block, bool nativeBf16, const dnnl::engine &engine) {
  for (int64_t calls = 1, most = block.m; calls < block.m; ++calls) {
    const int64_t least = (block.m + calls - 1) / calls;
    for (int64_t rows = least; rows <= most; ++rows) {
      pcrt_gemm_desc d = block;
      d.m = rows;
      if ((!d.accumulate || block.m % rows == 0) && computesRowsAlike<Part>(d, nativeBf16, engine))
        return rows;
    }
    most = least - 1;
  }
  return 1;
}

std::unique_ptr<Gemms::Plan> Gemms::makePlan(const pcrt_gemm_desc &desc, bool nativeBf16) {
  auto plan = std::make_unique<Plan>();
  plan->desc = desc;
  plan->parts.resize(pool.size());
  if (desc.grouped) {
    plan->grouped = grouped.add(desc);
    return plan;
  }
  for (int thread = 0; thread < pool.size(); ++thread) {
    const bool isCoded = isCode(desc.b_dtype);
    Share share = cutProduct(desc, thread, pool.size(), rowsAlike || isCoded);
    if (share.block.m <= 0 || share.block.n <= 0 || share.batchLo >= share.batchHi)
      continue;
    auto part = std::make_unique<Part>();
    const bool isThin = rowsAlike && !isCoded && ThinProduct::takes(share.block);
    if (rowsAlike && !isThin && !isCoded)
      share.block.m = rowsOfCall<Part>(share.block, nativeBf16, threads[thread]->engine);
    part->share = share;
    if (isCoded) {
      part->coded.emplace(share.block, share.columnLo);
      part->how = Part::How::Coded;
      if (std::optional<pcrt_gemm_desc> wide = part->coded->wide()) {
        const int64_t numbers = wide->n * wide->k + wide->m * (wide->n + wide->k) + 16;
        wide->m = rowsOfCall<Part>(*wide, nativeBf16, threads[thread]->engine);
        part->expanded = std::make_unique<Part>();
        part->expanded->share.block = *wide;
        prepare(*part->expanded, nativeBf16, threads[thread]->engine);
        const auto &inner = part->expanded->primitive;
        threads[thread]->scratchBytes =
            std::max(threads[thread]->scratchBytes, numbers * 4 + (inner ? inner->scratchBytes() : 0));
      }
    } else if (isThin) {
      part->thin.emplace(share.block);
      part->how = Part::How::Thin;
    } else {
      prepare(*part, nativeBf16, threads[thread]->engine);
    }
    if (part->how == Part::How::PlainLoop) {
      ++numPlain;
    } else if (part->how == Part::How::Primitive) {
      ThreadState &state = *threads[thread];
      state.scratchBytes = std::max(state.scratchBytes, part->primitive->scratchBytes());
    }
    plan->parts[thread] = std::move(part);
  }
  return plan;
}

Gemms::Gemms(Pool &pool, const pcrt_gemm_desc *descs, int count, bool nativeBf16, bool rowsAlike)
    : pool(pool), rowsAlike(rowsAlike), firstRegion(reserveLibraryMemory(pool.size())),
      grouped(pool, firstRegion, nativeBf16) {
  pool.onAll([](int) { workAlone(); });
  for (int thread = 0; thread < pool.size(); ++thread)
    threads.push_back(std::make_unique<ThreadState>());
  for (int index = 0; index < count; ++index) {
    Plan *found = nullptr;
    for (auto &plan : plans)
      if (sameProduct(plan->desc, descs[index]))
        found = plan.get();
    if (!found) {
      plans.push_back(makePlan(descs[index], nativeBf16));
      found = plans.back().get();
    }
    planOf.push_back(found);
  }
  grouped.allocate();
  for (auto &state : threads) {
    if (!state->scratchBytes)
      continue;
    totalScratch += state->scratchBytes;
    void *memory =
        mmap(nullptr, state->scratchBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
      throw std::bad_alloc();
    state->scratch = memory;
  }
}

Gemms::~Gemms() {
  for (auto &state : threads)
    if (state->scratch)
      munmap(state->scratch, state->scratchBytes);
}

void Gemms::warmUp(void *zeros, int64_t bytes) {
  warmingUp = true;
  for (size_t index = 0; index < planOf.size(); ++index) {
    if (std::find(planOf.begin(), planOf.begin() + index, planOf[index]) != planOf.begin() + index)
      continue;
    const pcrt_gemm_desc &d = planOf[index]->desc;
    if (d.grouped) {
      grouped.warmUp(planOf[index]->grouped, zeros, bytes);
      continue;
    }
    int64_t a = reach({{d.batch, d.a_batch_stride}, {d.m, d.a_m_stride}, {d.k, d.a_k_stride}});
    int64_t b = reach({{d.batch, d.b_batch_stride}, {d.k, d.b_k_stride}, {d.n, d.b_n_stride}});
    int64_t c = reach({{d.batch, d.c_batch_stride}, {d.m, d.c_m_stride}, {d.n, d.c_n_stride}});
    const char *ignored = nullptr;
    const int64_t scales = d.group ? d.n * d.k / d.group : d.n;
    if (std::max({a * elementBytes(d.a_dtype), b * elementBytes(d.b_dtype), c * elementBytes(d.c_dtype), scales * 4}) <=
        bytes)
      run(int(index), zeros, zeros, zeros, hasBias(d) ? zeros : nullptr, d.group ? zeros : nullptr, &ignored);
  }
  warmingUp = false;
}

bool Gemms::run(int index, const void *a, const void *b, void *c, const void *bias, const void *aux,
                const char **error) {
  Plan &plan = *planOf[index];
  if (plan.desc.grouped) {
    *error = grouped.run(plan.grouped, a, b, c, static_cast<const float *>(aux), static_cast<const float *>(bias));
    return !*error;
  }
  auto runPart = [&](int thread) {
    Part *part = plan.parts[thread].get();
    if (!part)
      return;
    const pcrt_gemm_desc &d = plan.desc;
    const Share &share = part->share;
    ThreadState &state = *threads[thread];
    const int64_t rows = share.block.m;
    for (int64_t batch = share.batchLo; batch < share.batchHi; ++batch)
      for (int64_t from = 0; from < share.rows; from += rows) {
        int64_t row = share.rowLo + std::min(from, share.rows - rows);
        int64_t aOffset = batch * d.a_batch_stride + row * d.a_m_stride;
        int64_t bOffset = batch * d.b_batch_stride + share.columnLo * d.b_n_stride;
        int64_t cOffset = batch * d.c_batch_stride + row * d.c_m_stride + share.columnLo * d.c_n_stride;
        auto *aAt = static_cast<const char *>(a) + aOffset * elementBytes(d.a_dtype);
        auto *bAt = static_cast<const char *>(b) + bOffset * elementBytes(d.b_dtype);
        auto *cAt = static_cast<char *>(c) + cOffset * elementBytes(d.c_dtype);
        auto *biasAt = bias ? static_cast<const float *>(bias) + share.columnLo : nullptr;
        LibraryCall library(warmingUp || firstRegion < 0 ? -1 : firstRegion + thread);
        dnnl_status_t status = part->coded ? part->runCoded(aAt, b, cAt, biasAt, static_cast<const float *>(aux),
                                                            state.scratch, state.stream)
                                           : part->run(aAt, bAt, cAt, biasAt, state.scratch, state.stream);
        if (status != dnnl_success)
          state.status = status;
      }
  };
  pool.onAll(runPart);
  for (auto &state : threads)
    if (state->status != dnnl_success) {
      *error = dnnl_status2str(state->status);
      return false;
    }
  return true;
}
