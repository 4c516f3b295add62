//===- codes.cpp - Products with codes, and how weights become codes -------===//
// Random products with codes of 8 and 4 bits in both layouts, with and without bias and sums, and for the rows of
// experts, on several threads, compared with loops over scales times codes. Every row of equal numbers must have equal
// bits.
//===----------------------------------------------------------------------===//
#include "Files.h"
#include "base/Types.h"
#include "cpu/Gemm.h"

#include <cmath>

using namespace pcrt;

namespace {

/// A product with random codes and scales.
struct Random {
  pcrt_gemm_desc d{};
  std::vector<int8_t> codes; ///< [k, n], each in a byte
  std::vector<float> scales, bias;

  explicit Random(int64_t m) {
    d.name = "test", d.batch = 1, d.m = m, d.n = pick(1, 90);
    d.b_dtype = pick(0, 1) ? PCRT_I8 : PCRT_I4;
    d.k = d.b_dtype == PCRT_I8 ? pick(1, 90) : 32 * pick(1, 5);
    d.group = d.b_dtype == PCRT_I8 ? d.k : d.k % 64 == 0 && pick(0, 1) ? 64 : 32;
    d.a_dtype = pick(0, 1) ? PCRT_F32 : PCRT_BF16;
    d.c_dtype = pick(0, 1) ? PCRT_F32 : d.a_dtype;
    d.a_m_stride = d.k + pick(0, 3), d.a_k_stride = 1;
    d.c_m_stride = d.n + pick(0, 3), d.c_n_stride = 1;
    const bool byColumns = pick(0, 1);
    d.b_k_stride = byColumns ? 1 : d.n, d.b_n_stride = byColumns ? d.k : 1;
    d.accumulate = pick(0, 1);
    d.epilogue = pick(0, 1) ? PCRT_EPILOGUE_BIAS : PCRT_EPILOGUE_NONE;
    fill();
  }
  /// Another matrix for the same product.
  explicit Random(const pcrt_gemm_desc &d) : d(d) { fill(); }

  void fill() {
    const int most = d.b_dtype == PCRT_I8 ? 127 : 7;
    for (int64_t i = 0; i < d.k * d.n; ++i)
      codes.push_back(int8_t(pick(-most, most)));
    for (int64_t i = 0; i < d.k / d.group * d.n; ++i)
      scales.push_back(float(pick(0, 100)) / float(100 * most));
    for (int64_t i = 0; i < d.n; ++i)
      bias.push_back(float(pick(-100, 100)) / 100);
  }

  bool byColumns() const { return d.b_k_stride == 1; }
  int64_t groups() const { return d.k / d.group; }
  float element(int64_t k, int64_t n) const {
    const int64_t group = k / d.group;
    return float(codes[size_t(k * d.n + n)]) * scales[size_t(byColumns() ? n * groups() + group : group * d.n + n)];
  }

  /// Returns b as it lies in memory. Codes i and i + group / 2 of a group of 4 bits share a byte.
  std::vector<int8_t> stored() const {
    std::vector<int8_t> bytes(size_t(bytesOf(d.b_dtype, d.k * d.n)));
    for (int64_t k = 0; k < d.k; ++k)
      for (int64_t n = 0; n < d.n; ++n) {
        const int code = codes[size_t(k * d.n + n)];
        if (d.b_dtype == PCRT_I8) {
          bytes[size_t(k * d.b_k_stride + n * d.b_n_stride)] = int8_t(code);
          continue;
        }
        const int64_t half = d.group / 2, row = k / d.group * half + k % half, rows = d.k / 2;
        int8_t &both = bytes[size_t(byColumns() ? n * rows + row : row * d.n + n)];
        both = int8_t(both | (k % d.group < half ? code & 15 : code << 4));
      }
    return bytes;
  }
};

float numberAt(const std::vector<char> &bytes, int32_t dtype, int64_t i) {
  if (dtype == PCRT_F32)
    return reinterpret_cast<const float *>(bytes.data())[i];
  return bf16ToFloat(reinterpret_cast<const uint16_t *>(bytes.data())[i]);
}

/// Rows of random numbers; if `alike`, all rows are equal.
std::vector<char> rows(int64_t count, int64_t width, int64_t stride, int32_t dtype, bool alike) {
  std::vector<char> bytes(size_t(count * stride * elementBytes(dtype)));
  for (int64_t i = 0; i < width; ++i) {
    float number = 0;
    for (int64_t row = 0; row < count; ++row) {
      if (row == 0 || !alike)
        number = float(pick(-1000, 1000)) / 1000;
      const uint16_t half = floatToBf16(number);
      memcpy(&bytes[size_t((row * stride + i) * elementBytes(dtype))],
             dtype == PCRT_F32 ? static_cast<const void *>(&number) : &half, size_t(elementBytes(dtype)));
    }
  }
  return bytes;
}

void testProducts(int threads) {
  Pool pool(threads);
  for (int round = 0; round < 300; ++round) {
    const bool alike = round % 2;
    Random random(pick(1, 40));
    const pcrt_gemm_desc &d = random.d;
    auto a = rows(d.m, d.k, d.a_m_stride, d.a_dtype, alike), c = rows(d.m, d.n, d.c_m_stride, d.c_dtype, alike);
    const auto before = c;
    const auto b = random.stored();
    expect(!checkGemm(d), checkGemm(d) ? checkGemm(d) : "");
    Gemms gemms(pool, &d, 1, /*nativeBf16=*/false, /*rowsAlike=*/pick(0, 1));
    const char *error = nullptr;
    expect(gemms.run(0, a.data(), b.data(), c.data(), d.epilogue ? random.bias.data() : nullptr, random.scales.data(),
                     &error),
           error ? error : "run");
    double worst = 0;
    for (int64_t m = 0; m < d.m; ++m)
      for (int64_t n = 0; n < d.n; ++n) {
        double sum = d.accumulate ? numberAt(before, d.c_dtype, m * d.c_m_stride + n) : 0;
        sum += d.epilogue ? random.bias[size_t(n)] : 0;
        for (int64_t k = 0; k < d.k; ++k)
          sum += double(numberAt(a, d.a_dtype, m * d.a_m_stride + k)) * random.element(k, n);
        const double found = numberAt(c, d.c_dtype, m * d.c_m_stride + n);
        const double difference = std::fabs(found - sum) / std::max(1.0, std::fabs(sum));
        worst = std::max(worst, std::isfinite(difference) ? difference : 1e9);
        const int64_t bytes = elementBytes(d.c_dtype);
        if (alike && memcmp(&c[size_t(n * bytes)], &c[size_t((m * d.c_m_stride + n) * bytes)], size_t(bytes)) != 0)
          expect(false, "row " + std::to_string(m) + " has other bits than row 0");
      }
    expect(worst < (d.c_dtype == PCRT_F32 ? 1e-5 : 1e-2),
           "product " + std::to_string(d.m) + "x" + std::to_string(d.n) + "x" + std::to_string(d.k) + " in groups of " +
               std::to_string(d.group) + (random.byColumns() ? " by columns" : " by rows") + " is off by " +
               std::to_string(worst));
  }
}

/// Rows of tokens times the matrices of their experts.
void testExperts(int threads) {
  Pool pool(threads);
  for (int round = 0; round < 200; ++round) {
    const bool alike = round % 2;
    pcrt_gemm_desc d = Random(1).d;
    d.grouped = PCRT_GROUPED_PRODUCT, d.batch = d.experts = pick(1, 4), d.tokens = pick(1, 30);
    const int64_t most = pick(1, int(d.experts));
    d.m = d.rows = d.tokens * most, d.rest = -1, d.accumulate = 0, d.epilogue = PCRT_EPILOGUE_NONE;
    d.a_lies = pick(0, 1) ? PCRT_LIES_ROWS : PCRT_LIES_TOKENS;
    d.b_lies = PCRT_LIES_EXPERTS, d.c_lies = PCRT_LIES_ROWS;
    d.a_m_stride = d.k, d.c_m_stride = d.n, d.b_batch_stride = d.k * d.n;
    std::vector<Random> experts;
    const int64_t groups = d.k / d.group;
    std::vector<int8_t> b(size_t(bytesOf(d.b_dtype, d.experts * d.k * d.n)));
    std::vector<float> scales(size_t(d.experts * d.n * groups)), mask(size_t(d.tokens * d.experts));
    const bool inside = d.b_k_stride == 1 && pick(0, 1); // columns of all experts follow each other
    std::vector<std::pair<int64_t, int64_t>> entries;    // expert, token
    for (int64_t expert = 0; expert < d.experts; ++expert) {
      const Random &one = experts.emplace_back(d);
      const auto bytes = one.stored();
      auto copy = [&](const auto &from, auto &to) { // copies in pieces of a column, or all at once
        const auto pieces = inside ? d.n : 1, size = int64_t(from.size()) / pieces;
        for (int64_t i = 0; i < pieces; ++i)
          std::copy_n(from.begin() + i * size, size, to.begin() + (expert + i * d.experts) * size);
      };
      copy(bytes, b), copy(one.scales, scales);
      for (int64_t token = 0; token < d.tokens; ++token)
        if ((token + expert) % d.experts < most && pick(0, 3)) {
          mask[size_t(token * d.experts + expert)] = 1;
          entries.emplace_back(expert, token);
        }
    }
    if (inside)
      d.b_n_stride = d.experts * d.k, d.b_batch_stride = d.k;
    const bool byRows = d.a_lies == PCRT_LIES_ROWS;
    auto a = rows(byRows ? d.rows : d.tokens, d.k, d.k, d.a_dtype, alike), c = rows(d.rows, d.n, d.n, d.c_dtype, true);
    expect(!checkGemm(d), checkGemm(d) ? checkGemm(d) : "");
    Gemms gemms(pool, &d, 1, /*nativeBf16=*/false, /*rowsAlike=*/true);
    const char *error = nullptr;
    expect(gemms.run(0, a.data(), b.data(), c.data(), scales.data(), mask.data(), &error), error ? error : "run");
    double worst = 0;
    for (size_t row = 0, first = 0; row < entries.size(); ++row) {
      const auto [expert, token] = entries[row];
      first = row && entries[row - 1].first != expert ? row : first;
      for (int64_t n = 0; n < d.n; ++n) {
        double sum = 0;
        for (int64_t k = 0; k < d.k; ++k)
          sum += double(numberAt(a, d.a_dtype, (byRows ? int64_t(row) : token) * d.k + k)) *
                 experts[size_t(expert)].element(k, n);
        const double found = numberAt(c, d.c_dtype, int64_t(row) * d.n + n);
        const double difference = std::fabs(found - sum) / std::max(1.0, std::fabs(sum));
        worst = std::max(worst, std::isfinite(difference) ? difference : 1e9);
      }
      const auto bytes = size_t(d.n * elementBytes(d.c_dtype));
      if (alike && memcmp(&c[first * bytes], &c[row * bytes], bytes) != 0)
        expect(false, "row " + std::to_string(row) + " has other bits than the first of its expert");
    }
    expect(worst < (d.c_dtype == PCRT_F32 ? 1e-5 : 1e-2), "experts are off by " + std::to_string(worst));
  }
}

void testRefused() {
  Random random(3);
  auto refused = [&](auto change, const char *word) {
    pcrt_gemm_desc d = random.d;
    change(d);
    const char *why = checkGemm(d);
    expect(why && std::string(why).find(word) != std::string::npos, std::string(word) + ": " + (why ? why : "taken"));
  };
  refused([](pcrt_gemm_desc &d) { d.group = 0; }, "groups");
  refused([](pcrt_gemm_desc &d) { d.batch = 2; }, "groups");
  refused([](pcrt_gemm_desc &d) { d.a_dtype = PCRT_I8; }, "not in b");
  refused([](pcrt_gemm_desc &d) { d.a_k_stride = 2; }, "not contiguous");
  refused([](pcrt_gemm_desc &d) { d.b_dtype = PCRT_F32; }, "not codes");
}

} // namespace

int main() {
  for (int threads : {1, 2, 3})
    testProducts(threads), testExperts(threads);
  testRefused();
  return finishChecks();
}
