//===- Grouped.cpp - Products on the rows that a mask chooses, on the CPU -===//
// findRows numbers the chosen rows by expert, then by token. A product cuts its rows over the threads; a gradient cuts
// the rows of its matrices, and adds up its addends in the order of the tokens. Sizes that depend on the mask are
// padded with zeros up to a tile.
//===----------------------------------------------------------------------===//
#include "cpu/Grouped.h"
#include "base/Types.h"
#include "cpu/Allocations.h"
#include "cpu/CodedProduct.h"
#include "cpu/Tile.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <oneapi/dnnl/dnnl.hpp>
#include <oneapi/dnnl/dnnl_debug.h>
#include <sys/mman.h>

using namespace pcrt;

/// oneDNN computes six rows at a time, and adds in another order for one to three rows that are left over and, with
/// AVX-512, for fewer than 16 rows. A row's result must not depend on the number of rows, so rows that are left over
/// are computed with the six rows before them, padded to these.
static constexpr int64_t fewestRows = 16, rowsAtATime = 6;
/// CodedProduct adds in another order for fewer rows.
static constexpr int64_t fewestCoded = 3;
/// The number of rows of a tile in bf16; missing rows are zeros. Larger tiles are no faster, and they cost more if an
/// expert has few rows.
static constexpr int64_t rowsOfTile = 16;
/// The numbers of rows of an expert whose products a gradient adds up in one call, largest first.
static constexpr int64_t depths[] = {512, 128, 32};

/// Returns true if operands are bf16.
static bool isHalf(const pcrt_gemm_desc &d) { return d.a_dtype == PCRT_BF16; }

const char *pcrt::checkGrouped(const pcrt_gemm_desc &d) {
  if (d.grouped < PCRT_GROUPED_PRODUCT || d.grouped > PCRT_GROUPED_SUM)
    return "an unknown kind of routed tokens";
  if (d.experts <= 0 || d.tokens <= 0 || d.rows <= 0 || d.rows > d.tokens * d.experts || d.rows > INT32_MAX)
    return "an impossible number of routed tokens";
  bool isProduct = d.grouped == PCRT_GROUPED_PRODUCT || d.grouped == PCRT_GROUPED_GRADIENT;
  bool isOfLines = d.grouped == PCRT_GROUPED_SPREAD || d.grouped == PCRT_GROUPED_SUM;
  bool isOfTokens = !isProduct && !isOfLines && (d.a_lies == PCRT_LIES_TOKENS || d.c_lies == PCRT_LIES_TOKENS);
  bool halves = d.a_dtype == PCRT_BF16 || d.c_dtype == PCRT_BF16;
  const bool hasCodes = isCode(d.b_dtype) && d.grouped == PCRT_GROUPED_PRODUCT;
  for (int32_t dtype : {d.a_dtype, d.c_dtype, hasCodes ? d.a_dtype : d.b_dtype})
    if (dtype != PCRT_F32 && dtype != PCRT_BF16)
      return "routed tokens with a dtype that is neither f32 nor bf16";
  if (const char *why = checkCodes(d))
    return why;
  if ((!hasCodes && d.a_dtype != d.b_dtype) || (halves && !isProduct && !isOfLines && !isOfTokens) ||
      ((isProduct || isOfTokens) && d.a_dtype == PCRT_F32 && d.c_dtype != PCRT_F32) ||
      (d.grouped == PCRT_GROUPED_PACK && d.a_dtype != d.c_dtype) || d.accumulate || d.epilogue != PCRT_EPILOGUE_NONE)
    return "routed tokens with a dtype or an epilogue that is not supported for them";
  auto isOfToken = [](int32_t lies) { return lies == PCRT_LIES_ROWS || lies == PCRT_LIES_TOKENS; };
  bool good = true;
  if (d.grouped == PCRT_GROUPED_PRODUCT)
    good = isOfToken(d.a_lies) && d.b_lies == PCRT_LIES_EXPERTS && isOfToken(d.c_lies) && d.a_k_stride == 1 &&
           d.a_m_stride == d.k && d.c_n_stride == 1 && d.c_m_stride == d.n &&
           (d.b_n_stride == 1 || d.b_k_stride == 1) &&
           (!hasCodes ||
            (d.b_batch_stride % d.group == 0 && (d.b_k_stride != 1 || d.n == 1 || d.b_n_stride % d.group == 0)));
  else if (d.grouped == PCRT_GROUPED_GRADIENT)
    good = isOfToken(d.a_lies) && isOfToken(d.b_lies) && d.c_lies == PCRT_LIES_EXPERTS && d.c_n_stride == 1;
  else if (isOfLines)
    good = d.n > 0 && d.a_lies == (d.grouped == PCRT_GROUPED_SUM ? PCRT_LIES_ROWS : PCRT_LIES_EXPERTS) &&
           d.c_lies == (d.grouped == PCRT_GROUPED_SUM ? PCRT_LIES_EXPERTS : PCRT_LIES_ROWS);
  else
    good = d.n == 1 ? true
                    : (d.a_lies == PCRT_LIES_TOKENS) != (d.c_lies == PCRT_LIES_TOKENS) && isOfToken(d.a_lies) &&
                          isOfToken(d.c_lies);
  return good ? nullptr : "operands with an unsupported layout";
}

/// The state of one thread for a product in bf16, or with codes.
struct GroupedProducts::Part {
  std::unique_ptr<CodedProduct> coded;
  std::unique_ptr<Tile> product; ///< the product of rowsOfTile rows of one expert
  std::unique_ptr<Tile> first[std::size(depths)],
      more[std::size(depths)]; ///< the tiles of a gradient, by depth: `first` sets c, `more` adds to c

  template <typename F> void forEach(F f) const {
    for (Tile *tile :
         {product.get(), first[0].get(), first[1].get(), first[2].get(), more[0].get(), more[1].get(), more[2].get()})
      if (tile)
        f(*tile);
  }
  int64_t scratchBytes() const {
    int64_t bytes = 0;
    forEach([&](const Tile &tile) { bytes = std::max(bytes, tile.scratchBytes()); });
    return bytes;
  }
  int plainTiles() const {
    int count = 0;
    forEach([&](const Tile &tile) { count += tile.isPlain(); });
    return count;
  }
};

/// A product of the program with the parts of its threads.
struct GroupedProducts::Plan {
  pcrt_gemm_desc desc;
  std::vector<Part> parts; ///< one part for each thread; empty in f32 without codes
};

/// The granularity by which the rows of a gradient's matrix are distributed over threads.
static constexpr int64_t unit = 16;

GroupedProducts::GroupedProducts(Pool &pool, int firstRegion, bool nativeBf16)
    : pool(pool), firstRegion(firstRegion), nativeBf16(nativeBf16), statuses(size_t(pool.size())) {}

int GroupedProducts::add(const pcrt_gemm_desc &d) {
  Plan &plan = *plans.emplace_back(std::make_unique<Plan>());
  plan.desc = d;
  bool sumsTokens = d.grouped == PCRT_GROUPED_GRADIENT;
  auto most = [](int64_t &sofar, int64_t bytes) { sofar = std::max(sofar, (bytes + 63) / 64 * 64); };
  most(bytes.rows, d.rows * 4);
  experts = std::max(experts, d.experts);
  if (d.c_lies == PCRT_LIES_TOKENS && d.c_dtype == PCRT_BF16)
    most(bytes.sums, d.tokens * d.n * 4);
  if (d.grouped > PCRT_GROUPED_GRADIENT)
    return int(plans.size()) - 1;
  if (d.a_lies == PCRT_LIES_TOKENS)
    most(bytes.a, d.rows * (sumsTokens ? d.m : d.k) * elementBytes(d.a_dtype));
  if (d.b_lies == PCRT_LIES_TOKENS)
    most(bytes.b, d.rows * d.n * elementBytes(d.b_dtype));
  if (d.c_lies == PCRT_LIES_TOKENS)
    most(bytes.made, d.rows * d.n * 4);
  if (isCode(d.b_dtype)) {
    pcrt_gemm_desc ofExpert = d;
    ofExpert.m = CodedTask::mostRows, ofExpert.batch = 1;
    if (d.c_lies == PCRT_LIES_TOKENS)
      ofExpert.c_dtype = PCRT_F32;
    plan.parts.resize(size_t(pool.size()));
    for (Part &part : plan.parts)
      part.coded = std::make_unique<CodedProduct>(ofExpert, 0);
    most(bytes.pad, fewestCoded * (d.k + d.n) * 4);
    return int(plans.size()) - 1;
  }
  if (!isHalf(d)) {
    if (d.grouped == PCRT_GROUPED_PRODUCT)
      most(bytes.pad, fewestRows * (d.k + d.n) * 4);
    return int(plans.size()) - 1;
  }
  pcrt_gemm_desc tile = d;
  tile.grouped = PCRT_GROUPED_NONE;
  const int64_t units = (d.m + unit - 1) / unit;
  const int parts = sumsTokens ? int(std::min<int64_t>(units, pool.size())) : pool.size();
  plan.parts.resize(size_t(pool.size()));
  for (int thread = 0; thread < parts; ++thread) {
    Part &part = plan.parts[size_t(thread)];
    if (!sumsTokens) {
      tile.m = rowsOfTile;
      if (d.c_lies == PCRT_LIES_TOKENS)
        tile.c_dtype = PCRT_F32;
      part.product = std::make_unique<Tile>(tile, nativeBf16);
      most(bytes.pad, rowsOfTile * (2 * d.k + 4 * d.n));
    } else {
      int64_t lo = Pool::cut(units, parts, thread) * unit;
      tile.m = std::min(Pool::cut(units, parts, thread + 1) * unit, d.m) - lo;
      if (d.c_dtype == PCRT_BF16) {
        tile.c_dtype = PCRT_F32;
        tile.c_m_stride = d.n;
        most(bytes.sum, tile.m * d.n * 4);
      }
      for (size_t i = 0; i < std::size(depths); ++i) {
        tile.k = depths[i];
        if (i + 1 < std::size(depths) && depths[i] > d.rows)
          continue;
        tile.accumulate = 0;
        part.first[i] = std::make_unique<Tile>(tile, nativeBf16);
        tile.accumulate = 1;
        part.more[i] = std::make_unique<Tile>(tile, nativeBf16);
      }
      most(bytes.pad, depths[std::size(depths) - 1] * 2 * (d.m + d.n));
    }
    most(bytes.scratch, part.scratchBytes());
    numPlain += part.plainTiles();
  }
  return int(plans.size()) - 1;
}

void GroupedProducts::allocate() {
  if (plans.empty())
    return;
  int64_t ofThread = bytes.pad + bytes.sum + bytes.scratch;
  totalBytes = bytes.rows + bytes.a + bytes.b + bytes.made + bytes.sums + ofThread * pool.size();
  void *mapped =
      mmap(nullptr, size_t(totalBytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED)
    throw std::bad_alloc();
  memory = static_cast<char *>(mapped);
  tokenOf = static_cast<int32_t *>(mapped);
  gatheredA = memory + bytes.rows;
  gatheredB = gatheredA + bytes.a;
  made = reinterpret_cast<float *>(gatheredB + bytes.b);
  sums = made + bytes.made / 4;
  threads = reinterpret_cast<char *>(sums + bytes.sums / 4);
  firstRow.resize(size_t(experts) + 1);
  nextRow.resize(size_t(experts));
}

GroupedProducts::~GroupedProducts() {
  if (memory)
    munmap(memory, size_t(totalBytes));
}

/// Numbers the rows of a mask in the order of experts, and the rows of one expert in the order of tokens.
const char *GroupedProducts::findRows(const pcrt_gemm_desc &d, const float *mask) {
  std::fill(nextRow.begin(), nextRow.end(), 0);
  for (int64_t token = 0; token < d.tokens; ++token)
    for (int64_t expert = 0; expert < d.experts; ++expert)
      nextRow[size_t(expert)] += mask[token * d.experts + expert] != 0;
  int64_t row = 0;
  for (int64_t expert = 0; expert < d.experts; ++expert) {
    firstRow[size_t(expert)] = row;
    row += nextRow[size_t(expert)];
    nextRow[size_t(expert)] = firstRow[size_t(expert)];
  }
  firstRow[size_t(d.experts)] = row;
  if (row > d.rows)
    return "a token has more experts than the program allows";
  for (int64_t token = 0; token < d.tokens; ++token)
    for (int64_t expert = 0; expert < d.experts; ++expert)
      if (mask[token * d.experts + expert] != 0)
        tokenOf[nextRow[size_t(expert)]++] = int32_t(token);
  return nullptr;
}

/// Returns rows [lo, hi) of x, each of `bytes` bytes. If x holds one row per token, gathers them into `to`; otherwise
/// returns a pointer into x.
const char *GroupedProducts::gather(int32_t lies, const char *x, int64_t bytes, char *to, int64_t lo, int64_t hi) {
  if (lies == PCRT_LIES_ROWS)
    return x;
  for (int64_t row = lo; row < hi; ++row)
    memcpy(to + row * bytes, x + tokenOf[row] * bytes, size_t(bytes));
  return to;
}

/// Computes c = a b for `rows` rows of the expert whose matrix is b.
void GroupedProducts::multiply(int thread, const pcrt_gemm_desc &d, const float *a, const float *b, float *c,
                               int64_t rows) {
  bool transposed = d.b_n_stride != 1;
  int64_t stride =
      transposed ? std::max(d.b_n_stride, d.k) : std::max(d.b_k_stride, d.n); // for an extent of 1, any stride fits
  float *pad = reinterpret_cast<float *>(ofThread(thread)), *padC = pad + fewestRows * d.k;
  const int64_t over = rows % rowsAtATime, leftOver = over >= 1 && over <= 3 ? over + rowsAtATime : 0;
  const int64_t whole = rows < fewestRows ? 0 : std::max(fewestRows, rows - leftOver), padded = rows - whole;
  LibraryCall library(firstRegion < 0 ? -1 : firstRegion + thread);
  auto call = [&](int64_t count, const float *from, float *to) {
    pass(thread, dnnl_sgemm('N', transposed ? 'T' : 'N', count, d.n, d.k, 1.0f, from, d.k, b, stride, 0.0f, to, d.n));
  };
  if (whole)
    call(whole, a, c);
  if (!padded)
    return;
  memcpy(pad, a + whole * d.k, size_t(padded * d.k) * sizeof(float));
  memset(pad + padded * d.k, 0, size_t((fewestRows - padded) * d.k) * sizeof(float));
  call(fewestRows, pad, padC);
  memcpy(c + whole * d.n, padC, size_t(padded * d.n) * sizeof(float));
}

/// Computes c = a b in bf16, tile by tile. c has the dtype of the tile.
void GroupedProducts::multiply(int thread, Part &part, const pcrt_gemm_desc &d, const char *a, const char *b, char *c,
                               int32_t dtype, int64_t rows) {
  const int64_t ofA = d.k * elementBytes(d.a_dtype), ofC = d.n * elementBytes(dtype);
  char *pad = ofThread(thread), *padC = pad + rowsOfTile * ofA, *scratch = scratchOf(thread);
  LibraryCall library(firstRegion < 0 ? -1 : firstRegion + thread);
  pass(thread, part.product->setB(b, scratch));
  for (int64_t row = 0; row < rows; row += rowsOfTile) {
    const int64_t count = std::min(rowsOfTile, rows - row);
    if (count == rowsOfTile) {
      pass(thread, part.product->run(a + row * ofA, c + row * ofC, scratch));
      continue;
    }
    memcpy(pad, a + row * ofA, size_t(count * ofA));
    memset(pad + count * ofA, 0, size_t((rowsOfTile - count) * ofA));
    pass(thread, part.product->run(pad, padC, scratch));
    memcpy(c + row * ofC, padC, size_t(count * ofC));
  }
}

/// Computes c = a b for the rows of the expert whose codes are b. c has the dtype of the part.
void GroupedProducts::multiplyCodes(int thread, Part &part, const pcrt_gemm_desc &d, const char *a, const char *b,
                                    char *c, const float *scales, int64_t rows) {
  if (rows >= fewestCoded)
    return part.coded->run(a, b, c, nullptr, scales, rows);
  const int64_t ofA = d.k * elementBytes(d.a_dtype), ofC = d.n * elementBytes(part.coded->result());
  char *pad = ofThread(thread), *padC = pad + fewestCoded * ofA;
  memcpy(pad, a, size_t(rows * ofA));
  memset(pad + rows * ofA, 0, size_t((fewestCoded - rows) * ofA));
  part.coded->run(pad, b, padC, nullptr, scales, fewestCoded);
  memcpy(c, padC, size_t(rows * ofC));
}

void GroupedProducts::product(Plan &plan, const char *a, const char *b, char *c, const float *scales) {
  const pcrt_gemm_desc &d = plan.desc;
  const int64_t rows = firstRow[size_t(d.experts)], ofA = d.k * elementBytes(d.a_dtype);
  const bool addsUp = d.c_lies == PCRT_LIES_TOKENS;
  const int32_t dtype = addsUp ? int32_t(PCRT_F32) : d.c_dtype;
  const int64_t ofC = d.n * elementBytes(dtype);
  char *to = addsUp ? reinterpret_cast<char *>(made) : c;
  pool.ranges(rows, [&](int thread, int64_t lo, int64_t hi) {
    const char *from = gather(d.a_lies, a, ofA, gatheredA, lo, hi);
    for (int64_t expert = 0; expert < d.experts; ++expert) {
      int64_t first = std::max(lo, firstRow[size_t(expert)]), last = std::min(hi, firstRow[size_t(expert) + 1]);
      if (first >= last)
        continue;
      const char *matrix = b + bytesOf(d.b_dtype, expert * d.b_batch_stride);
      if (isCode(d.b_dtype))
        multiplyCodes(thread, plan.parts[size_t(thread)], d, from + first * ofA, matrix, to + first * ofC,
                      scales + expert * d.b_batch_stride / d.group, last - first);
      else if (isHalf(d))
        multiply(thread, plan.parts[size_t(thread)], d, from + first * ofA, matrix, to + first * ofC, dtype,
                 last - first);
      else
        multiply(thread, d, reinterpret_cast<const float *>(from + first * ofA),
                 reinterpret_cast<const float *>(matrix), reinterpret_cast<float *>(to + first * ofC), last - first);
    }
  });
  if (addsUp)
    toTokens(d, PCRT_F32, made, c);
}

/// Computes rows [lo, lo + count) of the gradient of one expert's matrix in bf16: sums over `depth` rows of a and b.
void GroupedProducts::addUp(int thread, Part &part, const pcrt_gemm_desc &d, const char *a, const char *b, char *c,
                            int64_t lo, int64_t count, int64_t depth) {
  constexpr int64_t fewest = depths[std::size(depths) - 1];
  char *padA = ofThread(thread), *padB = padA + fewest * d.m * 2, *scratch = scratchOf(thread);
  LibraryCall library(firstRegion < 0 ? -1 : firstRegion + thread);
  for (int64_t row = 0; row < depth;) {
    size_t way = 0;
    while (way + 1 < std::size(depths) && (depth - row < depths[way] || !part.first[way]))
      ++way;
    const int64_t rows = std::min(depths[way], depth - row);
    Tile &tile = *(row ? part.more : part.first)[way];
    const char *fromA = a + row * d.m * 2 + lo * 2, *fromB = b + row * d.n * 2;
    if (rows < depths[way]) {
      for (int64_t i = 0; i < fewest; ++i) {
        char *to = padA + i * d.m * 2 + lo * 2;
        if (i < rows)
          memcpy(to, fromA + i * d.m * 2, size_t(count) * 2);
        else
          memset(to, 0, size_t(count) * 2);
      }
      memcpy(padB, fromB, size_t(rows * d.n) * 2);
      memset(padB + rows * d.n * 2, 0, size_t((fewest - rows) * d.n) * 2);
      fromA = padA + lo * 2, fromB = padB;
    }
    pass(thread, tile.setB(fromB, scratch));
    pass(thread, tile.run(fromA, c, scratch));
    row += rows;
  }
}

void GroupedProducts::gradient(Plan &plan, const char *a, const char *b, char *c) {
  const pcrt_gemm_desc &d = plan.desc;
  const int64_t rows = firstRow[size_t(d.experts)], element = elementBytes(d.a_dtype), ofC = elementBytes(d.c_dtype);
  const char *fromA = a, *fromB = b;
  if (d.a_lies == PCRT_LIES_TOKENS || d.b_lies == PCRT_LIES_TOKENS)
    pool.ranges(rows, [&](int, int64_t lo, int64_t hi) {
      gather(d.a_lies, a, d.m * element, gatheredA, lo, hi);
      gather(d.b_lies, b, d.n * element, gatheredB, lo, hi);
    });
  if (d.a_lies == PCRT_LIES_TOKENS)
    fromA = gatheredA;
  if (d.b_lies == PCRT_LIES_TOKENS)
    fromB = gatheredB;
  pool.ranges((d.m + unit - 1) / unit, [&](int thread, int64_t loUnit, int64_t hiUnit) {
    int64_t lo = loUnit * unit, count = std::min(hiUnit * unit, d.m) - lo;
    for (int64_t expert = 0; expert < d.experts; ++expert) {
      int64_t first = firstRow[size_t(expert)], depth = firstRow[size_t(expert) + 1] - first;
      char *to = c + (expert * d.c_batch_stride + lo * d.c_m_stride) * ofC;
      const char *aAt = fromA + first * d.m * element, *bAt = fromB + first * d.n * element;
      if (!depth) {
        for (int64_t row = 0; row < count; ++row)
          memset(to + row * d.c_m_stride * ofC, 0, size_t(d.n * ofC));
      } else if (!isHalf(d)) {
        LibraryCall library(firstRegion < 0 ? -1 : firstRegion + thread);
        pass(thread,
             dnnl_sgemm('T', 'N', count, d.n, depth, 1.0f, reinterpret_cast<const float *>(aAt) + lo, d.m,
                        reinterpret_cast<const float *>(bAt), d.n, 0.0f, reinterpret_cast<float *>(to), d.c_m_stride));
      } else if (d.c_dtype == PCRT_F32) {
        addUp(thread, plan.parts[size_t(thread)], d, aAt, bAt, to, lo, count, depth);
      } else {
        char *sum = ofThread(thread) + bytes.pad;
        addUp(thread, plan.parts[size_t(thread)], d, aAt, bAt, sum, lo, count, depth);
        for (int64_t row = 0; row < count; ++row)
          toBf16(reinterpret_cast<float *>(sum) + row * d.n, reinterpret_cast<uint16_t *>(to) + row * d.c_m_stride,
                 d.n);
      }
    }
  });
}

/// Convert `count` numbers of a dtype to f32 (load) and from it (store).
static void load(int32_t dtype, const char *from, float *to, int64_t count) {
  if (dtype == PCRT_F32)
    memcpy(to, from, size_t(count) * 4);
  else
    toFloats(reinterpret_cast<const uint16_t *>(from), to, count);
}
static void store(int32_t dtype, const float *from, char *to, int64_t count) {
  if (dtype == PCRT_F32)
    memcpy(to, from, size_t(count) * 4);
  else
    toBf16(from, reinterpret_cast<uint16_t *>(to), count);
}

/// Copies each expert's line to all of its rows, or adds up its rows in a line. Threads share the columns.
void GroupedProducts::lines(const pcrt_gemm_desc &d, const char *a, char *c) {
  const int64_t ofA = elementBytes(d.a_dtype), ofC = elementBytes(d.c_dtype);
  pool.ranges((d.n + unit - 1) / unit, [&](int, int64_t loUnit, int64_t hiUnit) {
    for (int64_t lo = loUnit * unit; lo < std::min(hiUnit * unit, d.n); lo += unit) {
      const int64_t count = std::min(unit, d.n - lo);
      for (int64_t expert = 0; expert < d.experts; ++expert) {
        float sum[unit] = {}, each[unit];
        if (d.grouped == PCRT_GROUPED_SPREAD)
          load(d.a_dtype, a + (expert * d.n + lo) * ofA, sum, count);
        for (int64_t row = firstRow[size_t(expert)]; row < firstRow[size_t(expert) + 1]; ++row) {
          if (d.grouped == PCRT_GROUPED_SPREAD) {
            store(d.c_dtype, sum, c + (row * d.n + lo) * ofC, count);
            continue;
          }
          load(d.a_dtype, a + (row * d.n + lo) * ofA, each, count);
          for (int64_t i = 0; i < count; ++i)
            sum[i] += each[i];
        }
        if (d.grouped == PCRT_GROUPED_SUM)
          store(d.c_dtype, sum, c + (expert * d.n + lo) * ofC, count);
      }
    }
  });
}

const char *GroupedProducts::run(int index, const void *a, const void *b, void *c, const float *mask,
                                 const float *scales) {
  Plan &plan = *plans[size_t(index)];
  const pcrt_gemm_desc &d = plan.desc;
  if (const char *problem = findRows(d, mask))
    return problem;
  auto *numbers = static_cast<const float *>(a);
  auto *made = static_cast<float *>(c);
  switch (d.grouped) {
  case PCRT_GROUPED_PRODUCT:
    tally.add(firstRow[size_t(d.experts)]);
    product(plan, static_cast<const char *>(a), static_cast<const char *>(b), static_cast<char *>(c), scales);
    break;
  case PCRT_GROUPED_GRADIENT:
    gradient(plan, static_cast<const char *>(a), static_cast<const char *>(b), static_cast<char *>(c));
    break;
  case PCRT_GROUPED_SPREAD:
  case PCRT_GROUPED_SUM:
    lines(d, static_cast<const char *>(a), static_cast<char *>(c));
    break;
  case PCRT_GROUPED_PACK:
    if (d.a_lies == PCRT_LIES_TOKENS) {
      toRows(d, static_cast<const char *>(a), static_cast<char *>(c));
      break;
    }
    for (int64_t expert = 0; expert < d.experts; ++expert)
      for (int64_t row = firstRow[size_t(expert)]; row < firstRow[size_t(expert) + 1]; ++row)
        made[row] = numbers[tokenOf[row] * d.experts + expert];
    break;
  case PCRT_GROUPED_UNPACK:
    if (d.c_lies == PCRT_LIES_TOKENS) {
      toTokens(d, d.a_dtype, a, c);
      break;
    }
    // c may be the mask, which has been read
    memset(made, 0, size_t(d.tokens * d.experts) * sizeof(float));
    for (int64_t expert = 0; expert < d.experts; ++expert)
      for (int64_t row = firstRow[size_t(expert)]; row < firstRow[size_t(expert) + 1]; ++row)
        made[tokenOf[row] * d.experts + expert] = numbers[row];
    break;
  }
  for (int status : statuses)
    if (status != dnnl_success)
      return dnnl_status2str(static_cast<dnnl_status_t>(status));
  return nullptr;
}

void GroupedProducts::warmUp(int index, void *zeros, int64_t size) {
  Plan &plan = *plans[size_t(index)];
  const pcrt_gemm_desc &d = plan.desc;
  int64_t rows = std::min<int64_t>(d.rows, 4 * fewestRows), most = std::max({d.m, d.n, d.k, rows, depths[0]});
  if (d.grouped > PCRT_GROUPED_GRADIENT || isCode(d.b_dtype) || size < 4 * most * most)
    return;
  if (isHalf(d))
    return pool.onAll([&](int thread) {
      plan.parts[size_t(thread)].forEach([&](Tile &tile) {
        if (tile.setB(zeros, scratchOf(thread)) == dnnl_success)
          tile.run(zeros, zeros, scratchOf(thread));
      });
    });
  auto *x = static_cast<float *>(zeros);
  pool.onAll([&](int) {
    if (d.grouped == PCRT_GROUPED_PRODUCT)
      dnnl_sgemm('N', d.b_n_stride != 1 ? 'T' : 'N', fewestRows, d.n, d.k, 1.0f, x, d.k, x,
                 d.b_n_stride != 1 ? d.k : d.n, 0.0f, x, d.n);
    else
      dnnl_sgemm('T', 'N', std::min<int64_t>(d.m, fewestRows), d.n, rows, 1.0f, x, d.m, x, d.n, 0.0f, x, d.n);
  });
}
