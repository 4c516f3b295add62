//===- products.cpp - The stand-in's cuBLASLt compared with plain sums ----===//
// Every layout, dtype, scale mode and epilogue that the runtime uses, products that must be refused, and two streams
// that share a workspace.
//===----------------------------------------------------------------------===//
#include "Cuda.h"
#include "standin/Numbers.h"
#include "standin/abi/CublasLt.h"

#include <cmath>

using pc::standin::fromBf16;
using pc::standin::toBf16;

extern "C" {
cublasStatus_t cublasLtCreate(cublasLtHandle_t *);
cublasStatus_t cublasLtDestroy(cublasLtHandle_t);
const char *cublasLtGetStatusString(cublasStatus_t);
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *, cublasComputeType_t, cudaDataType_t);
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, const void *,
                                              size_t);
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *, cudaDataType, uint64_t, uint64_t, int64_t);
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t);
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t);
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t);
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t, const void *,
                                                size_t);
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *);
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
                                                    const void *, size_t);
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int, cublasLtMatmulHeuristicResult_t *,
                                              int *);
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t, const void *, const void *,
                              cublasLtMatrixLayout_t, const void *, cublasLtMatrixLayout_t, const void *, const void *,
                              cublasLtMatrixLayout_t, void *, cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t *,
                              void *, size_t, cudaStream_t);
}

namespace {

/// A batch of column-major matrices in device memory, with gaps between the columns.
struct Matrix {
  int64_t rows, columns, batch, leading = (rows + 15) / 8 * 8, stride = leading * columns + 8;
  bool bf16;
  char *data = deviceArray<char>(stride * batch * 4);
  cublasLtMatrixLayout_t layout = nullptr;

  Matrix(int64_t rows, int64_t columns, int64_t batch, bool bf16)
      : rows(rows), columns(columns), batch(batch), bf16(bf16) {
    OK(cublasLtMatrixLayoutCreate(&layout, bf16 ? CUDA_R_16BF : CUDA_R_32F, rows, columns, leading));
    int32_t count = static_cast<int32_t>(batch);
    OK(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, 4));
    OK(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, 8));
    for (int64_t i = 0; i < stride * batch; ++i)
      set(i, static_cast<float>(i * 7919 % 257 - 128) / 64);
  }
  ~Matrix() {
    OK(cuMemFree_v2(address(data)));
    OK(cublasLtMatrixLayoutDestroy(layout));
  }
  void set(int64_t i, float value) {
    if (bf16)
      reinterpret_cast<uint16_t *>(data)[i] = toBf16(value);
    else
      reinterpret_cast<float *>(data)[i] = value;
  }
  float at(int64_t i) const {
    return bf16 ? fromBf16(reinterpret_cast<uint16_t *>(data)[i]) : reinterpret_cast<float *>(data)[i];
  }
  float at(int64_t b, int64_t row, int64_t column) const { return at(b * stride + column * leading + row); }
};

double gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
double geluGradient(double x) {
  double t = std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

struct Case {
  bool transA, transB, bf16, bf16Result;
  int epilogue;
  int64_t batch;
  float beta;
};

CUstream stream;
cublasLtHandle_t handle;

template <typename T> void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, T value) {
  OK(cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof value));
}

void run(const Case &test) {
  constexpr int64_t m = 24, n = 13, k = 37;
  Matrix a(test.transA ? k : m, test.transA ? m : k, test.batch, test.bf16);
  Matrix b(test.transB ? n : k, test.transB ? k : n, test.batch, test.bf16);
  Matrix c(m, n, test.batch, test.bf16Result), aux(m, n, test.batch, test.bf16Result);
  Matrix bias(m > n ? m : n, 1, test.batch, test.bf16Result);
  std::vector<float> before;
  for (int64_t i = 0; i < c.stride * test.batch; ++i)
    before.push_back(c.at(i));

  cublasLtMatmulDesc_t desc;
  OK(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  set(desc, CUBLASLT_MATMUL_DESC_TRANSA, int32_t(test.transA));
  set(desc, CUBLASLT_MATMUL_DESC_TRANSB, int32_t(test.transB));
  set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t(test.epilogue));
  set(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias.data);
  set(desc, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, bias.stride);
  set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux.data);
  set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, aux.leading);
  set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, aux.stride);
  cublasLtMatmulPreference_t preference;
  OK(cublasLtMatmulPreferenceCreate(&preference));
  uint64_t limit = 1 << 20;
  OK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit, 8));
  cublasLtMatmulHeuristicResult_t results[8];
  int count = 0;
  OK(cublasLtMatmulAlgoGetHeuristic(handle, desc, a.layout, b.layout, c.layout, c.layout, preference, 8, results,
                                    &count));
  CHECK(count == 2 && results[0].workspaceSize <= limit);
  static char *workspace = deviceArray<char>(1 << 20);
  float alpha = 0.5;
  OK(cublasLtMatmul(handle, desc, &alpha, a.data, a.layout, b.data, b.layout, &test.beta, c.data, c.layout, c.data,
                    c.layout, &results[0].algo, workspace, limit, stream));
  OK(cuStreamSynchronize(stream));
  double worst = 0, tolerance = test.bf16Result ? 0.01 : 1e-5;
  auto compare = [&](double expected, float got) {
    worst = std::max(worst, std::fabs(expected - got) / std::max(1.0, std::fabs(expected)));
  };
  Matrix fresh(m, n, test.batch, test.bf16Result), freshBias(bias.rows, 1, test.batch, test.bf16Result);
  for (int64_t batch = 0; batch < test.batch; ++batch) {
    std::vector<double> rowSums(m), columnSums(n), results(m);
    for (int64_t column = 0; column < n; ++column)
      for (int64_t row = 0; row < m; ++row) {
        double sum = 0, left = 0, right = 0;
        for (int64_t i = 0; i < k; ++i) {
          double x = test.transA ? a.at(batch, i, row) : a.at(batch, row, i);
          double y = test.transB ? b.at(batch, column, i) : b.at(batch, i, column);
          sum += x * y, left += x, right += y;
        }
        double value = 0.5 * sum + test.beta * before[batch * c.stride + column * c.leading + row];
        int e = test.epilogue;
        if (e == CUBLASLT_EPILOGUE_BIAS || e == CUBLASLT_EPILOGUE_GELU_AUX_BIAS)
          value += freshBias.at(batch, row, 0);
        if (e == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
          compare(value, aux.at(batch, row, column));
          value = gelu(value);
        }
        if (e == CUBLASLT_EPILOGUE_DGELU || e == CUBLASLT_EPILOGUE_DGELU_BGRAD)
          value *= geluGradient(fresh.at(batch, row, column));
        compare(value, c.at(batch, row, column));
        results[row] += value;
        rowSums[row] = left, columnSums[column] = right;
      }
    for (int64_t row = 0; row < m; ++row) {
      if (test.epilogue == CUBLASLT_EPILOGUE_BGRADA)
        compare(rowSums[row], bias.at(batch, row, 0));
      if (test.epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD)
        compare(results[row], bias.at(batch, row, 0));
    }
    for (int64_t column = 0; column < n && test.epilogue == CUBLASLT_EPILOGUE_BGRADB; ++column)
      compare(columnSums[column], bias.at(batch, column, 0));
  }
  char text[128];
  snprintf(text, sizeof text, "product %d%d bf16 %d %d epilogue %d batch %d: off by %g", test.transA, test.transB,
           test.bf16, test.bf16Result, test.epilogue, int(test.batch), worst);
  expect(worst <= tolerance, text);
  // An algorithm belongs to one product. Another type of bias, or another workspace, is refused.
  if (test.epilogue == CUBLASLT_EPILOGUE_BIAS && test.bf16Result) {
    set(desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, int32_t(CUDA_R_32F));
    CHECK(cublasLtMatmulAlgoGetHeuristic(handle, desc, a.layout, b.layout, c.layout, c.layout, preference, 8, results,
                                         &count) == CUBLAS_STATUS_NOT_SUPPORTED);
    CHECK(has(cublasLtGetStatusString(CUBLAS_STATUS_NOT_SUPPORTED), "a bias whose type differs from the result"));
  }
  CHECK(cublasLtMatmul(handle, desc, &alpha, a.data, a.layout, b.data, b.layout, &test.beta, c.data, c.layout, c.data,
                       c.layout, &results[0].algo, workspace, 0, stream) != CUBLAS_STATUS_SUCCESS);
  OK(cublasLtMatmulDescDestroy(desc));
  OK(cublasLtMatmulPreferenceDestroy(preference));
}

/// Two products on two streams that share a workspace are reported. The report names both.
void testSharedWorkspace() {
  CUstream other = makeStream();
  Matrix a(16, 16, 1, false), c(16, 16, 1, false), d(16, 16, 1, false);
  auto *workspace = deviceArray<char>(1 << 20);
  pc_standin_name_memory(workspace, 1 << 20, "workspace");
  cublasLtMatmulDesc_t desc;
  OK(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  cublasLtMatmulPreference_t preference;
  OK(cublasLtMatmulPreferenceCreate(&preference));
  uint64_t limit = 1 << 20;
  OK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit, 8));
  cublasLtMatmulHeuristicResult_t result;
  int count;
  OK(cublasLtMatmulAlgoGetHeuristic(handle, desc, a.layout, a.layout, c.layout, c.layout, preference, 1, &result,
                                    &count));
  float one = 1, zero = 0;
  for (auto [s, out] : {std::pair{stream, &c}, std::pair{other, &d}}) {
    pc_standin_label(s == stream ? "left" : "right");
    OK(cublasLtMatmul(handle, desc, &one, a.data, a.layout, a.data, a.layout, &zero, out->data, c.layout, out->data,
                      c.layout, &result.algo, workspace, limit, s));
  }
  pc_standin_label(nullptr);
  CHECK(cuCtxSynchronize() == CUDA_ERROR_LAUNCH_FAILED);
  CHECK(has(reports(), "'matmul 16x16x16 (left)', which writes, and 'matmul 16x16x16 (right)', which writes, bytes [0, "
                       "1048576) of workspace"));
  pc_standin_reset(0);
  OK(cublasLtMatmulDescDestroy(desc));
  OK(cublasLtMatmulPreferenceDestroy(preference));
}

/// A product of floats of 8 bits, with one scale per operand, or scales for vectors or squares of 128. Fields may be
/// changed to what the library does not have.
struct CodeCase {
  int64_t m = 128, n = 256, k = 384;
  int typeA = CUDA_R_8F_E4M3, typeB = CUDA_R_8F_E4M3, result = CUDA_R_16BF;
  int modeA = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F, modeB = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
  int32_t transA = 1, transB = 0;
  int8_t fast = 0;
  int epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  int64_t scalesAt = 0; ///< Bytes after an aligned address.
  int32_t batch = 1;
};

/// The number of a code (OCP 8-bit Floating Point Specification), by its fields.
double numberOf(uint8_t code, bool e5m2) {
  const int bits = e5m2 ? 2 : 3, bias = e5m2 ? 15 : 7, exponent = (code & 0x7f) >> bits;
  const double mantissa = double(code & ((1 << bits) - 1)) / (1 << bits);
  const double size = exponent ? std::ldexp(1 + mantissa, exponent - bias) : std::ldexp(mantissa, 1 - bias);
  return code & 0x80 ? -size : size;
}

/// Runs the product. Returns "" if all elements are right, or why the stand-in refuses it.
std::string runCodes(const CodeCase &test) {
  const int64_t blocks = (test.k + 127) / 128, row = (blocks + 3) / 4 * 4;
  auto *a = deviceArray<uint8_t>(test.m * test.k), *b = deviceArray<uint8_t>(test.n * test.k);
  auto *d = deviceArray<char>(test.m * test.n * 4);
  auto *scalesA = reinterpret_cast<float *>(deviceArray<char>(4 * (test.m * row + 8)) + test.scalesAt),
       *scalesB = deviceArray<float>(test.n * row + 8);
  auto fill = [](uint8_t *codes, int64_t count, int64_t step) { // magnitudes below 2
    for (int64_t i = 0; i < count; ++i)
      codes[i] = static_cast<uint8_t>(i * step % 0x40 | (i % 3 == 0 ? 0x80 : 0));
  };
  fill(a, test.m * test.k, 7919), fill(b, test.n * test.k, 104729);
  for (auto [scales, count] : {std::pair(scalesA, test.m * row), std::pair(scalesB, test.n * row)})
    for (int64_t i = 0; i < count; ++i)
      scales[i] = std::ldexp(1.0f, static_cast<int>(i * 31 % 7) - 3);
  cublasLtMatmulDesc_t desc;
  OK(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  set(desc, CUBLASLT_MATMUL_DESC_TRANSA, test.transA);
  set(desc, CUBLASLT_MATMUL_DESC_TRANSB, test.transB);
  set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t(test.epilogue));
  set(desc, CUBLASLT_MATMUL_DESC_FAST_ACCUM, test.fast);
  set(desc, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, int32_t(test.modeA));
  set(desc, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, int32_t(test.modeB));
  set(desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scalesA);
  set(desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scalesB);
  cublasLtMatrixLayout_t ofA, ofB, ofD;
  OK(cublasLtMatrixLayoutCreate(&ofA, test.typeA, test.transA ? test.k : test.m, test.transA ? test.m : test.k,
                                test.transA ? test.k : test.m));
  OK(cublasLtMatrixLayoutCreate(&ofB, test.typeB, test.transB ? test.n : test.k, test.transB ? test.k : test.n,
                                test.transB ? test.n : test.k));
  OK(cublasLtMatrixLayoutCreate(&ofD, test.result, test.m, test.n, test.m));
  for (cublasLtMatrixLayout_t layout : {ofA, ofB, ofD})
    OK(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &test.batch, sizeof test.batch));
  const float one = 1, zero = 0;
  std::string why;
  if (cublasLtMatmul(handle, desc, &one, a, ofA, b, ofB, &zero, d, ofD, d, ofD, nullptr, nullptr, 0, stream))
    why = cublasLtGetStatusString(CUBLAS_STATUS_NOT_SUPPORTED);
  OK(cuStreamSynchronize(stream));
  auto scaleOf = [&](const float *scales, int mode, int64_t rows, int64_t r, int64_t block) {
    return mode == CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F   ? scales[0]
           : mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F ? scales[block * rows + r]
                                                             : scales[r / 128 * row + block];
  };
  for (int64_t i = 0; why.empty() && i < test.m * test.n; i += 97) {
    const int64_t r = i % test.m, c = i / test.m;
    double sum = 0;
    for (int64_t k = 0; k < test.k; ++k)
      sum +=
          numberOf(a[r * test.k + k], test.typeA == CUDA_R_8F_E5M2) * scaleOf(scalesA, test.modeA, test.m, r, k / 128) *
          numberOf(b[c * test.k + k], test.typeB == CUDA_R_8F_E5M2) * scaleOf(scalesB, test.modeB, test.n, c, k / 128);
    const double got =
        test.result == CUDA_R_16BF ? fromBf16(reinterpret_cast<uint16_t *>(d)[i]) : reinterpret_cast<float *>(d)[i];
    if (std::fabs(got - sum) > 1e-3 + 5e-3 * std::fabs(sum))
      why = "element " + std::to_string(i) + " is " + std::to_string(got) + " instead of " + std::to_string(sum);
  }
  OK(cublasLtMatmulDescDestroy(desc));
  return why;
}

/// Products of floats of 8 bits that the library has, and others.
void testCodes() {
  const int vectors = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F, squares = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F,
            whole = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
  for (auto [modeA, modeB] :
       {std::pair(vectors, vectors), std::pair(vectors, squares), std::pair(squares, vectors), std::pair(whole, whole)})
    for (int result : {CUDA_R_16BF, CUDA_R_32F})
      for (int typeB : {CUDA_R_8F_E4M3, CUDA_R_8F_E5M2})
        expect(runCodes({.typeB = typeB, .result = result, .modeA = modeA, .modeB = modeB}).empty(),
               "a product of floats of 8 bits");
  auto refused = [&](const CodeCase &test, const char *why) { expect(has(runCodes(test), why), why); };
  refused({.modeA = squares, .modeB = squares}, "scales of 128 x 128 blocks in both operands");
  for (int type : {CUDA_R_8F_E4M3, CUDA_R_8F_E5M2})
    expect(runCodes({.m = 48, .n = 80, .k = 144, .typeA = type, .modeA = whole, .modeB = whole, .scalesAt = 4}).empty(),
           "a product of floats of 8 bits with one scale per operand");
  refused({.modeA = 1}, "scale mode 1");
  refused({.modeA = whole}, "one scale for one operand, and block scales for the other");
  refused({.modeB = whole}, "one scale for one operand, and block scales for the other");
  for (int mode : {whole, vectors}) {
    refused({.typeA = CUDA_R_8F_E5M2, .typeB = CUDA_R_8F_E5M2, .modeA = mode, .modeB = mode}, "E5M2 times E5M2");
    refused({.modeA = mode, .modeB = mode, .transA = 0}, "a layout other than TN");
    refused({.modeA = mode, .modeB = mode, .epilogue = CUBLASLT_EPILOGUE_BIAS}, "an epilogue after a product");
    refused({.k = 392, .modeA = mode, .modeB = mode}, "rows that are not multiples of 16 bytes");
    refused({.modeA = mode, .modeB = mode, .batch = 2}, "floats of 8 bits in a batch");
  }
  refused({.modeA = whole, .modeB = whole, .fast = 1}, "fast accumulation, which the stand-in does not compute");
  refused({.m = 136, .modeA = whole, .modeB = whole}, "m or n that is not a multiple of 16");
  refused({.n = 24, .modeA = whole, .modeB = whole}, "m or n that is not a multiple of 16");
  refused({.modeA = whole, .modeB = whole, .scalesAt = 2}, "not at multiples of 4 bytes");
  refused({.typeA = CUDA_R_8F_E5M2, .typeB = CUDA_R_8F_E5M2}, "E5M2 times E5M2");
  refused({.typeB = CUDA_R_16BF}, "one operand of 8 bits, and one that is not");
  refused({.result = CUDA_R_8F_E4M3}, "a result other than f32 and bf16");
  refused({.transA = 0}, "a layout other than TN");
  refused({.transB = 1}, "a layout other than TN");
  refused({.fast = 1}, "fast accumulation with block scales");
  refused({.epilogue = CUBLASLT_EPILOGUE_BIAS}, "an epilogue after a product of floats of 8 bits");
  refused({.k = 392}, "rows that are not multiples of 16 bytes");
  refused({.n = 252}, "m or n that is not a multiple of 8");
  refused({.scalesAt = 4}, "not at multiples of 16 bytes");
  refused({.typeA = CUDA_R_16BF, .typeB = CUDA_R_16BF}, "scales of operands that are not floats of 8 bits");
}

} // namespace

int main() {
  useDevice(0);
  OK(cublasLtCreate(&handle));
  stream = makeStream();
  for (bool transA : {false, true})
    for (bool transB : {false, true})
      for (int types : {0, 1, 2})
        for (int epilogue : {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
                             CUBLASLT_EPILOGUE_DGELU, CUBLASLT_EPILOGUE_DGELU_BGRAD, CUBLASLT_EPILOGUE_BGRADA,
                             CUBLASLT_EPILOGUE_BGRADB})
          for (int64_t batch : {1, 3})
            run({transA, transB, types > 0, types == 2, epilogue, batch, batch == 3 ? 1.0f : 0.0f});
  testCodes();
  testSharedWorkspace();
  OK(cublasLtDestroy(handle));
  return finishChecks();
}
