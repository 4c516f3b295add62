//===- LtFloat8.cpp - Products of floats of 8 bits in cuBLASLt ------------===//
// One scale per operand, and block scales, of compute capability 9.0, as cuBLAS 12.9 documents them ("Tensorwide
// Scaling For FP8 Data Types", "128-element 1D and 128x128 2D Block Scaling For FP8 Data Types", and the requirements
// of FP8 kernels under cublasLtMatmul). Every documented requirement is checked. Requirements that only Transformer
// Engine (common/gemm/cublaslt_gemm.cu) and PyTorch (native/cuda/ScaledBlas.cpp) check before they call the library are
// checked, too.
//===----------------------------------------------------------------------===//
#include "standin/LtProduct.h"

#include <cmath>

using namespace pc::standin;

static constexpr int64_t side = 128; ///< of a block

static int64_t blocksOf(int64_t size) { return (size + side - 1) / side; }

static bool isOne(int mode) { return mode == CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F; }
static bool isVector(int mode) { return mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F; }
static bool isBlock(int mode) { return mode == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F; }

/// A row of scales of 128 x 128 blocks begins at a multiple of 4 numbers.
static int64_t rowOfBlocks(int64_t k) { return (blocksOf(k) + 3) / 4 * 4; }

std::string pc::standin::checkFloat8(const Product &p) {
  const Desc &desc = p.desc;
  if (options().noFloat8)
    return "floats of 8 bits (PC_STANDIN_NO_FLOAT8)";
  if (!p.a.isFloat8() || !p.b.isFloat8())
    return "one operand of 8 bits, and one that is not";
  if (p.a.type == CUDA_R_8F_E5M2 && p.b.type == CUDA_R_8F_E5M2)
    return "E5M2 times E5M2";
  if (p.c.type != p.d.type || p.d.isFloat8())
    return "floats of 8 bits with a result other than f32 and bf16";
  if (!desc.transA || desc.transB)
    return "floats of 8 bits in a layout other than TN";
  for (int mode : {desc.scaleModeOfA, desc.scaleModeOfB})
    if (!isOne(mode) && !isVector(mode) && !isBlock(mode))
      return "scale mode " + std::to_string(mode);
  const bool hasOne = isOne(desc.scaleModeOfA);
  if (hasOne != isOne(desc.scaleModeOfB))
    return "one scale for one operand, and block scales for the other";
  if (isBlock(desc.scaleModeOfA) && isBlock(desc.scaleModeOfB))
    return "scales of 128 x 128 blocks in both operands";
  // One scale allows fast accumulation, which loses bits, and epilogues. No program here asks for them.
  if (desc.fastAccumulation)
    return hasOne ? "fast accumulation, which the stand-in does not compute" : "fast accumulation with block scales";
  if (desc.epilogue != CUBLASLT_EPILOGUE_DEFAULT)
    return "an epilogue after a product of floats of 8 bits";
  if (p.d.batch != 1)
    return "floats of 8 bits in a batch";
  // "All matrix dimensions must meet the optimal requirements listed in Tensor Core Usage": multiples of 16 bytes.
  const int64_t bytes = p.d.elementBytes();
  if (p.k % 16 || p.a.leading % 16 || p.b.leading % 16 || p.m * bytes % 16 || p.d.leading * bytes % 16 ||
      p.c.leading * bytes % 16)
    return "rows that are not multiples of 16 bytes";
  // PyTorch (native/cuda/Blas.cpp, _scaled_mm) requires that k and m are multiples of 16. Programs here also let n be
  // one, because each dim of a layer's product is m of another product.
  if (hasOne && (p.m % 16 || p.n % 16))
    return "m or n that is not a multiple of 16";
  // Transformer Engine found that n must be a multiple of 8, too; the documentation says of 4.
  if (p.m % 4 || p.n % (isVector(desc.scaleModeOfB) ? 8 : 4))
    return "m or n that is not a multiple of 8";
  return "";
}

std::string pc::standin::checkFloat8Pointers(const Product &p, const void *a, const void *b, const void *d) {
  const bool hasOne = isOne(p.desc.scaleModeOfA);
  auto isAt = [](const void *at, uintptr_t bytes) { return at && reinterpret_cast<uintptr_t>(at) % bytes == 0; };
  for (const void *at : {a, b, d})
    if (!isAt(at, 16))
      return "operands of 8 bits that are missing or not at multiples of 16 bytes";
  // A missing scale counts as 1 in the library, but every program here has its scales.
  for (const void *at : {p.desc.scalesOfA, p.desc.scalesOfB})
    if (!isAt(at, hasOne ? sizeof(float) : 16))
      return "scales of 8 bits that are missing or not at multiples of " + std::to_string(hasOne ? sizeof(float) : 16) +
             " bytes";
  return "";
}

namespace {
/// The scales of an operand with `rows` rows of k elements.
struct Scales {
  const float *data;
  int mode;
  int64_t rows, k;

  /// The scale of a row's elements of block `l` along k.
  float at(int64_t row, int64_t l) const {
    return isOne(mode) ? data[0] : isVector(mode) ? data[l * rows + row] : data[row / side * rowOfBlocks(k) + l];
  }
  /// Ranges of memory that are read.
  void addTo(std::vector<Access> &accesses) const {
    auto *base = reinterpret_cast<const char *>(data);
    const int64_t row = 4 * blocksOf(k);
    if (isOne(mode))
      return accesses.push_back({base, sizeof(float), false});
    if (isVector(mode))
      return accesses.push_back({base, row * rows, false});
    for (int64_t block = 0; block < blocksOf(rows); ++block)
      accesses.push_back({base + block * 4 * rowOfBlocks(k), row, false});
  }
};
} // namespace

static Scales scalesOfA(const Product &p) {
  return {static_cast<const float *>(p.desc.scalesOfA), p.desc.scaleModeOfA, p.m, p.k};
}
static Scales scalesOfB(const Product &p) {
  return {static_cast<const float *>(p.desc.scalesOfB), p.desc.scaleModeOfB, p.n, p.k};
}

void pc::standin::addScales(std::vector<Access> &accesses, const Product &p) {
  scalesOfA(p).addTo(accesses);
  scalesOfB(p).addTo(accesses);
}

/// The numbers of all bytes (OCP 8-bit Floating Point Specification): E4M3 has no infinities.
static std::vector<float> numbersOf(int type) {
  const bool isE4M3 = type == CUDA_R_8F_E4M3;
  const int mantissaBits = isE4M3 ? 3 : 2, bias = isE4M3 ? 7 : 15;
  std::vector<float> numbers(256);
  for (int byte = 0; byte < 256; ++byte) {
    const int exponent = (byte & 0x7f) >> mantissaBits, mantissa = byte & ((1 << mantissaBits) - 1);
    float size = exponent ? std::ldexp(float(mantissa + (1 << mantissaBits)), exponent - bias - mantissaBits)
                          : std::ldexp(float(mantissa), 1 - bias - mantissaBits);
    if (isE4M3 ? (byte & 0x7f) == 0x7f : exponent == 31)
      size = isE4M3 || mantissa ? NAN : INFINITY;
    numbers[byte] = byte & 0x80 ? -size : size;
  }
  return numbers;
}

/// Column-major k x columns codes as numbers.
static std::vector<float> read(const Layout &layout, const void *base) {
  const std::vector<float> numbers = numbersOf(layout.type);
  std::vector<float> values(layout.rows * layout.columns);
  auto *codes = static_cast<const uint8_t *>(base);
  for (int64_t column = 0; column < layout.columns; ++column)
    for (int64_t row = 0; row < layout.rows; ++row)
      values[column * layout.rows + row] = numbers[codes[column * layout.leading + row]];
  return values;
}

/// Scales multiply the sum of each block of k, as on the device. One scale multiplies the whole sum.
void pc::standin::multiplyFloat8(const Product &p, const void *a, const void *b, std::vector<float> &product) {
  const std::vector<float> left = read(p.a, a), right = read(p.b, b);
  const Scales ofA = scalesOfA(p), ofB = scalesOfB(p);
  std::vector<float> part(product.size());
  const int64_t most = isOne(p.desc.scaleModeOfA) ? p.k : side; // the elements along k that share scales
  for (int64_t l = 0; l * most < p.k; ++l) {
    const int64_t from = l * most, k = std::min(most, p.k - from);
    // Column-major D is row-major D^T = op(B)^T op(A)^T.
    multiply(false, true, p.n, p.m, k, right.data() + from, p.k, left.data() + from, p.k, part.data(), p.m);
    for (int64_t column = 0; column < p.n; ++column)
      for (int64_t row = 0; row < p.m; ++row)
        product[column * p.m + row] += part[column * p.m + row] * (ofA.at(row, l) * ofB.at(column, l));
  }
}
