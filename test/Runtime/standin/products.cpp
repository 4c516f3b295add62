//===- products.cpp - The stand-in's cuBLASLt compared with plain sums ----===//
// Every layout, dtype and epilogue that the runtime uses, products that must be refused, and two streams that share a
// workspace.
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
  testSharedWorkspace();
  OK(cublasLtDestroy(handle));
  return finishChecks();
}
