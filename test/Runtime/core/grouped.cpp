//===- grouped.cpp - Products on the rows of a mask -----------------------===//
// Random masks, with tokens that have few experts and experts without tokens, every layout of operands, in f32 and
// bf16, on memory that is poisoned where there are no rows, compared with loops over all of [token, expert].
//===----------------------------------------------------------------------===//
#include "Files.h"
#include "base/Types.h"
#include "cpu/Gemm.h"

#include <cmath>
#include <cstring>
#include <limits>

using namespace pcrt;

namespace {
using Floats = std::vector<float>;

bool isHalf = false; ///< operands are of bf16

Floats random(int64_t count) {
  Floats x(size_t(std::max<int64_t>(count, 1)));
  for (float &value : x) {
    value = float(int(randomBits() % 2001) - 1000) / 1000;
    if (isHalf)
      value = bf16ToFloat(floatToBf16(value));
  }
  return x;
}

/// Returns the bytes with which a program stores `x`.
std::vector<char> stored(const Floats &x, int32_t dtype) {
  std::vector<char> bytes(x.size() * size_t(elementBytes(dtype)));
  for (size_t i = 0; i < x.size(); ++i) {
    uint16_t half = floatToBf16(x[i]);
    memcpy(bytes.data() + i * size_t(elementBytes(dtype)),
           dtype == PCRT_BF16 ? static_cast<void *>(&half) : const_cast<float *>(&x[i]), size_t(elementBytes(dtype)));
  }
  return bytes;
}

Floats loaded(const std::vector<char> &bytes, int32_t dtype) {
  Floats x(bytes.size() / size_t(elementBytes(dtype)));
  for (size_t i = 0; i < x.size(); ++i) {
    uint16_t half = 0;
    memcpy(dtype == PCRT_BF16 ? static_cast<void *>(&half) : &x[i], bytes.data() + i * size_t(elementBytes(dtype)),
           size_t(elementBytes(dtype)));
    if (dtype == PCRT_BF16)
      x[i] = bf16ToFloat(half);
  }
  return x;
}

/// A mask and the rows that it has.
struct Mask {
  Mask(int64_t tokens, int64_t experts, int64_t most)
      : tokens(tokens), experts(experts), mask(size_t(tokens * experts)), rowOf(size_t(tokens * experts), -1) {
    int64_t favourite = pick(0, 2) ? -1 : pick(0, int(experts) - 1); // of all tokens
    for (int64_t token = 0; token < tokens; ++token)
      for (int64_t i = 0; i < most; ++i)
        if (pick(0, 3))
          mask[size_t(token * experts + (i || favourite < 0 ? pick(0, int(experts) - 1) : favourite))] = 1;
    for (int64_t expert = 0; expert < experts; ++expert)
      for (int64_t token = 0; token < tokens; ++token)
        if (has(token, expert))
          rowOf[size_t(token * experts + expert)] = count++;
  }
  bool has(int64_t token, int64_t expert) const { return mask[size_t(token * experts + expert)] != 0; }
  int64_t row(int64_t token, int64_t expert) const { return rowOf[size_t(token * experts + expert)]; }

  int64_t tokens, experts, count = 0;
  Floats mask;
  std::vector<int64_t> rowOf;
};

/// An operand of width `width` that is stored by row or by token; poison follows the last row.
struct Operand {
  Operand(const Mask &mask, int64_t rows, int64_t width, int32_t lies) : mask(mask), width(width), lies(lies) {
    x = random((lies == PCRT_LIES_ROWS ? rows : mask.tokens) * width);
    if (lies == PCRT_LIES_ROWS)
      std::fill(x.begin() + mask.count * width, x.end(), std::numeric_limits<float>::quiet_NaN());
  }
  double at(int64_t token, int64_t expert, int64_t i) const {
    return x[size_t((lies == PCRT_LIES_ROWS ? mask.row(token, expert) : token) * width + i)];
  }
  const Mask &mask;
  int64_t width;
  int32_t lies;
  Floats x;
};

void compare(const std::string &what, const Floats &found, const std::vector<double> &wanted, int32_t dtype) {
  double worst = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    double difference = std::fabs(found[i] - wanted[i]) - (dtype == PCRT_BF16 ? std::fabs(wanted[i]) / 256 : 0);
    worst = std::max(worst, std::isfinite(difference) ? difference : 1e9);
  }
  expect(worst <= 1e-4, what + " is off by " + std::to_string(worst));
}

int32_t ofToken() { return pick(0, 1) ? PCRT_LIES_ROWS : PCRT_LIES_TOKENS; }

void testOne(Pool &pool) {
  pcrt_gemm_desc d{};
  d.name = "test";
  d.tokens = pick(0, 19) ? pick(1, 60) : pick(300, 1500), d.experts = d.batch = pick(1, 9);
  int64_t most = pick(1, int(d.experts));
  d.rows = d.tokens * most;
  d.rest = -1;
  Mask mask(d.tokens, d.experts, most);
  const int64_t width = pick(1, 40), other = pick(1, 40);
  d.grouped = pick(PCRT_GROUPED_PRODUCT, PCRT_GROUPED_SUM);
  const bool isOfLines = d.grouped >= PCRT_GROUPED_SPREAD;
  const bool packs = d.grouped == PCRT_GROUPED_PACK || d.grouped == PCRT_GROUPED_UNPACK,
             isOfTokens = packs && pick(0, 1);
  isHalf = (!packs || isOfTokens) && pick(0, 1);
  d.a_dtype = d.b_dtype = isHalf ? PCRT_BF16 : PCRT_F32;
  d.c_dtype = (isHalf || isOfLines) && pick(0, 1) ? PCRT_BF16 : PCRT_F32;
  if (d.grouped == PCRT_GROUPED_PACK)
    d.c_dtype = d.a_dtype;
  Floats a, b, c;
  std::vector<double> wanted;
  bool byRows = false;
  auto all = [&](auto &&each) {
    for (int64_t token = 0; token < d.tokens; ++token)
      for (int64_t expert = 0; expert < d.experts; ++expert)
        if (mask.has(token, expert))
          each(token, expert);
  };
  if (d.grouped == PCRT_GROUPED_PRODUCT) {
    d.a_lies = ofToken(), d.b_lies = PCRT_LIES_EXPERTS, d.c_lies = ofToken();
    d.m = d.rows, d.k = width, d.n = other;
    d.a_m_stride = d.k, d.a_k_stride = 1, d.c_m_stride = d.n, d.c_n_stride = 1;
    // With `inside`, the dim of experts is between the others, as in "e n f".
    bool transposed = pick(0, 1), inside = transposed && pick(0, 1);
    d.b_k_stride = transposed ? 1 : d.n;
    d.b_n_stride = !transposed ? 1 : inside ? d.experts * d.k : d.k;
    d.b_batch_stride = inside ? d.k : d.k * d.n;
    Operand x(mask, d.rows, d.k, d.a_lies);
    a = x.x, b = random(d.experts * d.k * d.n);
    byRows = d.c_lies == PCRT_LIES_ROWS;
    wanted.resize(size_t((byRows ? mask.count : d.tokens) * d.n));
    all([&](int64_t token, int64_t expert) {
      for (int64_t n = 0; n < d.n; ++n)
        for (int64_t k = 0; k < d.k; ++k)
          wanted[size_t((byRows ? mask.row(token, expert) : token) * d.n + n)] +=
              x.at(token, expert, k) * b[size_t(expert * d.b_batch_stride + k * d.b_k_stride + n * d.b_n_stride)];
    });
    c = Floats(size_t((byRows ? d.rows : d.tokens) * d.n), std::numeric_limits<float>::quiet_NaN());
  } else if (d.grouped == PCRT_GROUPED_GRADIENT) {
    d.a_lies = ofToken(), d.b_lies = ofToken(), d.c_lies = PCRT_LIES_EXPERTS;
    d.m = width, d.n = other, d.k = d.rows;
    d.a_m_stride = 1, d.a_k_stride = d.m, d.b_n_stride = 1, d.b_k_stride = d.n;
    bool inside = pick(0, 1);
    d.c_n_stride = 1, d.c_m_stride = inside ? d.experts * d.n : d.n, d.c_batch_stride = inside ? d.n : d.m * d.n;
    Operand x(mask, d.rows, d.m, d.a_lies), y(mask, d.rows, d.n, d.b_lies);
    a = x.x, b = y.x;
    wanted.resize(size_t(d.experts * d.m * d.n));
    all([&](int64_t token, int64_t expert) {
      for (int64_t m = 0; m < d.m; ++m)
        for (int64_t n = 0; n < d.n; ++n)
          wanted[size_t(expert * d.c_batch_stride + m * d.c_m_stride + n)] +=
              x.at(token, expert, m) * y.at(token, expert, n);
    });
    c = Floats(wanted.size(), std::numeric_limits<float>::quiet_NaN());
  } else if (isOfLines) {
    byRows = d.grouped == PCRT_GROUPED_SPREAD;
    d.a_lies = d.b_lies = byRows ? PCRT_LIES_EXPERTS : PCRT_LIES_ROWS;
    d.c_lies = byRows ? PCRT_LIES_ROWS : PCRT_LIES_EXPERTS;
    d.m = d.rows, d.n = width, d.k = 1;
    Operand x(mask, d.rows, width, PCRT_LIES_ROWS);
    a = byRows ? random(d.experts * width) : x.x;
    b = a;
    wanted.resize(size_t((byRows ? mask.count : d.experts) * width));
    all([&](int64_t token, int64_t expert) {
      int64_t row = mask.row(token, expert);
      for (int64_t n = 0; n < width; ++n)
        wanted[size_t((byRows ? row : expert) * width + n)] += a[size_t((byRows ? expert : row) * width + n)];
    });
    c = Floats(size_t((byRows ? d.rows : d.experts) * width), std::numeric_limits<float>::quiet_NaN());
  } else if (isOfTokens) {
    byRows = d.grouped == PCRT_GROUPED_PACK;
    d.a_lies = d.b_lies = byRows ? PCRT_LIES_TOKENS : PCRT_LIES_ROWS;
    d.c_lies = byRows ? PCRT_LIES_ROWS : PCRT_LIES_TOKENS;
    d.m = d.rows, d.n = width + 1, d.k = 1; // a value with one number per token has one number per entry
    Operand x(mask, d.rows, d.n, d.a_lies);
    a = b = x.x;
    wanted.resize(size_t((byRows ? mask.count : d.tokens) * d.n));
    all([&](int64_t token, int64_t expert) {
      for (int64_t n = 0; n < d.n; ++n)
        wanted[size_t((byRows ? mask.row(token, expert) : token) * d.n + n)] += x.at(token, expert, n);
    });
    c = Floats(size_t((byRows ? d.rows : d.tokens) * d.n), std::numeric_limits<float>::quiet_NaN());
  } else {
    byRows = d.grouped == PCRT_GROUPED_PACK;
    d.a_lies = d.b_lies = byRows ? PCRT_LIES_ENTRIES : PCRT_LIES_ROWS;
    d.c_lies = byRows ? PCRT_LIES_ROWS : PCRT_LIES_ENTRIES;
    d.m = d.rows, d.n = d.k = 1;
    Operand x(mask, d.rows, 1, PCRT_LIES_ROWS);
    a = byRows ? random(d.tokens * d.experts) : x.x;
    b = a;
    wanted.resize(size_t(byRows ? mask.count : d.tokens * d.experts));
    all([&](int64_t token, int64_t expert) {
      int64_t entry = token * d.experts + expert, row = mask.row(token, expert);
      wanted[size_t(byRows ? row : entry)] = a[size_t(byRows ? entry : row)];
    });
    c = Floats(size_t(byRows ? d.rows : d.tokens * d.experts), std::numeric_limits<float>::quiet_NaN());
  }
  const char *problem = checkGemm(d);
  expect(!problem, problem ? problem : "");
  Gemms gemms(pool, &d, 1, pick(0, 1));
  const char *error = nullptr;
  std::vector<char> aAt = stored(a, d.a_dtype), bAt = stored(b, d.b_dtype), cAt = stored(c, d.c_dtype);
  expect(gemms.run(0, aAt.data(), bAt.data(), cAt.data(), nullptr, mask.mask.data(), &error), error ? error : "run");
  compare("kind " + std::to_string(d.grouped) + (isHalf ? " in bf16 of " : " of ") + std::to_string(d.tokens) +
              " tokens, " + std::to_string(d.experts) + " experts, " + std::to_string(mask.count) + " rows",
          loaded(cAt, d.c_dtype), wanted, d.c_dtype);
}

/// Numbers by entry must be f32, and values that go to rows are not rounded.
void testRefused() {
  pcrt_gemm_desc d{};
  d.tokens = 4, d.experts = d.batch = 3, d.rows = d.m = 4, d.n = 2, d.k = 1;
  d.grouped = PCRT_GROUPED_PACK, d.a_lies = d.b_lies = PCRT_LIES_TOKENS, d.c_lies = PCRT_LIES_ROWS;
  expect(!checkGemm(d), "numbers of tokens");
  d.c_dtype = PCRT_BF16;
  expect(checkGemm(d), "rows of another dtype");
  d.a_dtype = d.b_dtype = PCRT_BF16;
  expect(!checkGemm(d), "numbers of tokens in bf16");
  d.n = 1, d.a_lies = d.b_lies = PCRT_LIES_ENTRIES;
  expect(checkGemm(d), "entries in bf16");
}

/// A row's bits do not depend on the number of rows: equal rows of every number give the bits of one row.
void testRowsAlike(Pool &pool) {
  for (bool half : {false, true}) {
    isHalf = half;
    pcrt_gemm_desc d{};
    d.name = "test", d.grouped = PCRT_GROUPED_PRODUCT, d.experts = d.batch = 1, d.rest = -1;
    d.a_lies = d.c_lies = PCRT_LIES_ROWS, d.b_lies = PCRT_LIES_EXPERTS;
    d.a_dtype = d.b_dtype = half ? PCRT_BF16 : PCRT_F32, d.c_dtype = PCRT_F32;
    d.k = 40, d.n = 23;
    d.a_m_stride = d.b_n_stride = d.k, d.a_k_stride = d.b_k_stride = d.c_n_stride = 1, d.c_m_stride = d.n;
    d.b_batch_stride = d.k * d.n;
    Floats row = random(d.k), first;
    std::vector<char> b = stored(random(d.k * d.n), d.b_dtype);
    for (int64_t rows = 1; rows <= 60; ++rows) {
      d.tokens = d.rows = d.m = rows;
      Floats a, mask(size_t(rows), 1), c(size_t(rows * d.n));
      for (int64_t i = 0; i < rows; ++i)
        a.insert(a.end(), row.begin(), row.end());
      std::vector<char> aAt = stored(a, d.a_dtype);
      Gemms gemms(pool, &d, 1, /*nativeBf16=*/false);
      const char *error = nullptr;
      expect(gemms.run(0, aAt.data(), b.data(), c.data(), nullptr, mask.data(), &error), error ? error : "run");
      if (rows == 1)
        first = c;
      for (int64_t i = 0; i < rows; ++i)
        expect(!memcmp(first.data(), &c[size_t(i * d.n)], first.size() * sizeof(float)),
               "row " + std::to_string(i) + " of " + std::to_string(rows) + " has the bits of a single row");
    }
  }
}

/// A mask of too many rows is refused; nothing is written outside the rows.
void testTooMany(Pool &pool) {
  isHalf = false;
  pcrt_gemm_desc d{};
  d.name = "test";
  d.tokens = 4, d.experts = d.batch = 3, d.rows = d.m = 4, d.n = d.k = 1;
  d.grouped = PCRT_GROUPED_PACK, d.a_lies = d.b_lies = PCRT_LIES_ENTRIES, d.c_lies = PCRT_LIES_ROWS;
  Gemms gemms(pool, &d, 1, pick(0, 1));
  Floats mask(12, 1), c(4);
  const char *error = nullptr;
  expect(!gemms.run(0, mask.data(), mask.data(), c.data(), nullptr, mask.data(), &error) && error, "too many rows");
}
} // namespace

int main() {
  for (int threads : {1, 3}) {
    Pool pool(threads);
    for (int round = 0; round < 400; ++round)
      testOne(pool);
    testTooMany(pool);
    testRowsAlike(pool);
  }
  testRefused();
  return finishChecks();
}
