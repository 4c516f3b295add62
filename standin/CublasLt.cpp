//===- CublasLt.cpp - Matrix products as cuBLASLt offers them -------------===//
// Supports column-major operands in f32, bf16 or 8 bits (LtFloat8.cpp), f32 accumulation, and the epilogues that the
// project uses. A product overwrites the workspace of its algorithm with garbage, so that sharing it between streams
// shows in results as well as in the order checker. Products that cuBLASLt is documented to refuse are refused.
//===----------------------------------------------------------------------===//
#include "standin/LtProduct.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

using namespace pc::standin;

namespace {

/// The contents of a cublasLtMatmulPreference_t.
struct Preference {
  uint64_t workspace = 0;
};

/// The contents of an algorithm's 64 bytes.
struct Algorithm {
  uint64_t magic, shape, workspace, index;
};
constexpr uint64_t algorithmMagic = 0x7063207374616e64;

Desc &get(cublasLtMatmulDesc_t desc) { return *reinterpret_cast<Desc *>(desc); }
Layout &get(cublasLtMatrixLayout_t layout) { return *reinterpret_cast<Layout *>(layout); }

bool hasBias(int epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_GELU_BIAS ||
         epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}
bool hasBiasGradient(int epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD || epilogue == CUBLASLT_EPILOGUE_BGRADA ||
         epilogue == CUBLASLT_EPILOGUE_BGRADB;
}
bool isGelu(int epilogue) { return epilogue & CUBLASLT_EPILOGUE_GELU; }
bool isGeluGradient(int epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_DGELU || epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD;
}
bool hasAux(int epilogue) { return epilogue & 128; }

/// The length of the bias or its gradient: the rows of D, except for BGRADB, which has the columns.
int64_t biasLength(const Product &p) { return p.desc.epilogue == CUBLASLT_EPILOGUE_BGRADB ? p.n : p.m; }

} // namespace

/// Checks the product; returns the reason why cuBLASLt would find no algorithm, or an empty string.
static std::string check(Product &p) {
  const Desc &desc = p.desc;
  p.m = p.d.rows, p.n = p.d.columns;
  p.k = desc.transA ? p.a.rows : p.a.columns;
  if ((desc.transA ? p.a.columns : p.a.rows) != p.m || (desc.transB ? p.b.rows : p.b.columns) != p.n ||
      (desc.transB ? p.b.columns : p.b.rows) != p.k || p.c.rows != p.m || p.c.columns != p.n)
    return "shapes do not match";
  for (const Layout *layout : {&p.a, &p.b, &p.c, &p.d}) {
    if (layout->type != CUDA_R_32F && layout->type != CUDA_R_16BF && !layout->isFloat8())
      return "a type other than f32, bf16, E4M3 and E5M2";
    if (layout->leading < layout->rows)
      return "a leading dim smaller than the number of rows";
    if (layout->batch != p.d.batch)
      return "different numbers of matrices in the batch";
  }
  if (hasFloat8(p)) {
    if (std::string why = checkFloat8(p); !why.empty())
      return why;
  } else if (p.d.isFloat8() || desc.scalesOfA || desc.scalesOfB || desc.scaleModeOfA || desc.scaleModeOfB ||
             desc.fastAccumulation) {
    return "scales of operands that are not floats of 8 bits";
  } else if (p.a.type != p.b.type || p.c.type != p.d.type || (p.a.type == CUDA_R_32F && p.d.type != CUDA_R_32F)) {
    return "a combination of types that cuBLASLt does not have";
  }
  if (desc.pointerMode != 0)
    return "scalars in device memory";
  if (desc.smTarget < 0 || desc.smTarget > multiprocessors)
    return std::to_string(desc.smTarget) + " multiprocessors of " + std::to_string(multiprocessors);
  int epilogue = desc.epilogue;
  if (epilogue != CUBLASLT_EPILOGUE_DEFAULT && !hasBias(epilogue) && !hasBiasGradient(epilogue) &&
      epilogue != CUBLASLT_EPILOGUE_GELU && epilogue != CUBLASLT_EPILOGUE_GELU_AUX && !isGeluGradient(epilogue))
    return "epilogue " + std::to_string(epilogue);
  if (options().fewEpilogues && epilogue != CUBLASLT_EPILOGUE_DEFAULT && epilogue != CUBLASLT_EPILOGUE_BIAS)
    return "an epilogue other than the bias";
  if ((hasBias(epilogue) || hasBiasGradient(epilogue)) && desc.biasType != -1 && desc.biasType != p.d.type)
    return "a bias whose type differs from the result";
  if (hasAux(epilogue)) {
    if (desc.auxType != -1 && desc.auxType != p.d.type)
      return "an auxiliary matrix whose type differs from the result";
    if (desc.auxLeading % 8 || desc.auxLeading < p.m)
      return "an auxiliary matrix whose leading dim is not a multiple of 8, or smaller than the rows of the result";
    if (p.d.batch > 1 && desc.auxStride == 0)
      return "an auxiliary matrix without batch stride";
  }
  return "";
}

/// A number that is equal for products that take the same algorithms.
static uint64_t shapeOf(const Product &p) {
  uint64_t hash = 14695981039346656037u;
  auto add = [&](int64_t value) { hash = (hash ^ static_cast<uint64_t>(value)) * 1099511628211u; };
  for (const Layout *layout : {&p.a, &p.b, &p.d})
    for (int64_t value : {int64_t(layout->type), layout->rows, layout->columns, layout->leading, int64_t(layout->batch),
                          layout->batchStride})
      add(value);
  for (int value :
       {p.desc.transA, p.desc.transB, p.desc.epilogue, p.desc.smTarget, p.desc.scaleModeOfA, p.desc.scaleModeOfB})
    add(value);
  return hash;
}

//===----------------------------------------------------------------------===//
// The product itself
//===----------------------------------------------------------------------===//

static float gelu(float x) {
  float inner = 0.7978845608f * (x + 0.044715f * x * x * x);
  return 0.5f * x * (1 + std::tanh(inner));
}

static float geluGradient(float x) {
  float t = std::tanh(0.7978845608f * (x + 0.044715f * x * x * x));
  return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * 0.7978845608f * (1 + 3 * 0.044715f * x * x);
}

namespace {
/// Returns one matrix of the batch in f32, column-major. It is not copied if it is f32 already.
struct FloatMatrix {
  FloatMatrix(const Layout &layout, const void *base, int64_t batch) {
    if (layout.type == CUDA_R_32F) {
      data = static_cast<const float *>(base) + batch * layout.batchStride;
      leading = layout.leading;
      return;
    }
    leading = layout.rows;
    if (layout.isFloat8()) // see multiplyFloat8
      return;
    converted.resize(layout.rows * layout.columns);
    data = converted.data();
    auto *from = static_cast<const uint16_t *>(base) + batch * layout.batchStride;
    for (int64_t column = 0; column < layout.columns; ++column)
      for (int64_t row = 0; row < layout.rows; ++row)
        converted[column * layout.rows + row] = fromBf16(from[column * layout.leading + row]);
  }
  float at(int64_t row, int64_t column) const { return data[column * leading + row]; }

  const float *data = nullptr;
  int64_t leading;
  std::vector<float> converted;
};
} // namespace

/// Multiplies operands of f32 or bf16. The sum over k is cut into `parts`, which are added up one by one.
static void multiplyParts(const Product &p, int64_t parts, const FloatMatrix &left, const FloatMatrix &right,
                          std::vector<float> &product) {
  // Column-major D is row-major D^T = op(B)^T op(A)^T.
  std::vector<float> part(parts > 1 ? product.size() : 0);
  for (int64_t i = 0; i < parts; ++i) {
    int64_t from = p.k * i / parts, k = p.k * (i + 1) / parts - from;
    multiply(p.desc.transB != 0, p.desc.transA != 0, p.n, p.m, k,
             right.data + from * (p.desc.transB ? right.leading : 1), right.leading,
             left.data + from * (p.desc.transA ? 1 : left.leading), left.leading,
             parts > 1 ? part.data() : product.data(), p.m);
    for (size_t at = 0; at < part.size(); ++at)
      product[at] += part[at];
  }
}

/// Computes one product of the batch. The sum over k is cut into `parts`.
static void multiplyOne(const Product &p, int64_t parts, int64_t batch, float alpha, const void *a, const void *b,
                        float beta, const void *c, void *d) {
  FloatMatrix left(p.a, a, batch), right(p.b, b, batch);
  std::vector<float> product(p.m * p.n);
  if (hasFloat8(p))
    multiplyFloat8(p, a, b, product);
  else
    multiplyParts(p, parts, left, right, product);
  const Desc &desc = p.desc;
  int epilogue = desc.epilogue;
  Layout bias{p.d.type, biasLength(p), 1, biasLength(p), p.d.batch, desc.biasStride};
  Layout aux{p.d.type, p.m, p.n, desc.auxLeading, p.d.batch, desc.auxStride};
  std::vector<float> biasGradient(biasLength(p));
  for (int64_t column = 0; column < p.n; ++column)
    for (int64_t row = 0; row < p.m; ++row) {
      float value = alpha * product[column * p.m + row];
      if (beta != 0)
        value += beta * p.c.load(c, batch, row, column);
      if (hasBias(epilogue))
        value += bias.load(desc.bias, batch, row, 0);
      if (isGelu(epilogue)) {
        if (hasAux(epilogue))
          aux.store(desc.aux, batch, row, column, value);
        value = gelu(value);
      }
      if (isGeluGradient(epilogue))
        value *= geluGradient(aux.load(desc.aux, batch, row, column));
      if (epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD)
        biasGradient[row] += value;
      p.d.store(d, batch, row, column, value);
    }
  // Sums of A or B over k.
  if (epilogue == CUBLASLT_EPILOGUE_BGRADA)
    for (int64_t row = 0; row < p.m; ++row)
      for (int64_t i = 0; i < p.k; ++i)
        biasGradient[row] += desc.transA ? left.at(i, row) : left.at(row, i);
  if (epilogue == CUBLASLT_EPILOGUE_BGRADB)
    for (int64_t column = 0; column < p.n; ++column)
      for (int64_t i = 0; i < p.k; ++i)
        biasGradient[column] += desc.transB ? right.at(column, i) : right.at(i, column);
  if (hasBiasGradient(epilogue))
    for (int64_t i = 0; i < biasLength(p); ++i)
      bias.store(desc.bias, batch, i, 0, biasGradient[i]);
}

/// Adds the columns of every matrix of the batch, as few ranges.
static void addAccesses(std::vector<Access> &accesses, const Layout &layout, const void *base, bool write) {
  auto *begin = static_cast<const char *>(base);
  int64_t size = layout.elementBytes();
  for (int64_t batch = 0; batch < layout.batch; ++batch) {
    const char *matrix = begin + batch * layout.batchStride * size;
    if (layout.leading == layout.rows) {
      accesses.push_back({matrix, layout.rows * layout.columns * size, write});
      continue;
    }
    for (int64_t column = 0; column < layout.columns; ++column)
      accesses.push_back({matrix + column * layout.leading * size, layout.rows * size, write});
  }
}

static cublasStatus_t refuseProduct(cublasStatus_t status, const std::string &why) {
  refuse(CUDA_ERROR_NOT_SUPPORTED, "cublasLtMatmul: " + why);
  return status;
}

PC_EXPORT cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
                                        cublasLtMatrixLayout_t aLayout, const void *b, cublasLtMatrixLayout_t bLayout,
                                        const void *beta, const void *c, cublasLtMatrixLayout_t cLayout, void *d,
                                        cublasLtMatrixLayout_t dLayout, const cublasLtMatmulAlgo_t *algo,
                                        void *workspace, size_t workspaceBytes, cudaStream_t stream) {
  Lock lock(driverMutex());
  Product p{get(desc), get(aLayout), get(bLayout), get(cLayout), get(dLayout), 0, 0, 0};
  if (std::string why = check(p); !why.empty())
    return refuseProduct(CUBLAS_STATUS_NOT_SUPPORTED, why);
  uint64_t scratch = 0, index = 0;
  if (algo) {
    Algorithm chosen;
    memcpy(&chosen, algo, sizeof chosen);
    if (chosen.magic != algorithmMagic || chosen.shape != shapeOf(p))
      return refuseProduct(CUBLAS_STATUS_INVALID_VALUE, "the algorithm was chosen for a different product");
    if (chosen.workspace > workspaceBytes)
      return refuseProduct(CUBLAS_STATUS_INVALID_VALUE, "the algorithm needs more workspace");
    scratch = chosen.workspace, index = chosen.index;
  }
  if ((hasBias(p.desc.epilogue) || hasBiasGradient(p.desc.epilogue)) && !p.desc.bias)
    return refuseProduct(CUBLAS_STATUS_INVALID_VALUE, "the bias is missing");
  if (hasAux(p.desc.epilogue) && !p.desc.aux)
    return refuseProduct(CUBLAS_STATUS_INVALID_VALUE, "the auxiliary matrix is missing");
  if (std::string why = hasFloat8(p) ? checkFloat8Pointers(p, a, b, d) : std::string(); !why.empty())
    return refuseProduct(CUBLAS_STATUS_NOT_SUPPORTED, why);
  if (reinterpret_cast<uintptr_t>(workspace) % 256)
    return refuseProduct(CUBLAS_STATUS_INVALID_VALUE, "the workspace is not aligned to 256 bytes");
  float alphaValue, betaValue;
  memcpy(&alphaValue, alpha, 4);
  memcpy(&betaValue, beta, 4);

  Work work;
  work.name = "matmul " + std::to_string(p.m) + "x" + std::to_string(p.n) + "x" + std::to_string(p.k);
  if (p.desc.smTarget)
    work.name += " on " + std::to_string(p.desc.smTarget) + " multiprocessors";
  addAccesses(work.accesses, p.a, a, false);
  addAccesses(work.accesses, p.b, b, false);
  if (hasFloat8(p))
    addScales(work.accesses, p);
  if (betaValue != 0)
    addAccesses(work.accesses, p.c, c, false);
  if (p.desc.bias && (hasBias(p.desc.epilogue) || hasBiasGradient(p.desc.epilogue)))
    addAccesses(work.accesses, {p.d.type, biasLength(p), 1, biasLength(p), p.d.batch, p.desc.biasStride}, p.desc.bias,
                hasBiasGradient(p.desc.epilogue));
  if (hasAux(p.desc.epilogue))
    addAccesses(work.accesses, {p.d.type, p.m, p.n, p.desc.auxLeading, p.d.batch, p.desc.auxStride}, p.desc.aux,
                isGelu(p.desc.epilogue));
  addAccesses(work.accesses, p.d, d, true);
  if (scratch)
    work.accesses.push_back({workspace, static_cast<int64_t>(scratch), 1});
  work.run = [=](std::vector<Access> &) {
    if (scratch)
      memset(workspace, 0xff, scratch);
    const Fault &fault = options().fault;
    if (fault.kind == "algorithm" && static_cast<uint64_t>(fault.index) == index)
      return "algorithm " + std::to_string(index) + " of cuBLASLt faults (PC_STANDIN_FAULT)";
    bool differ = options().algorithmsDiffer;
    if (differ)
      std::this_thread::sleep_for(std::chrono::microseconds((index + options().rank) % 3 * 300));
    int64_t parts = differ ? std::min<int64_t>(index + 1, p.k) : 1;
    for (int64_t batch = 0; batch < p.d.batch; ++batch)
      multiplyOne(p, parts, batch, alphaValue, a, b, betaValue, c, d);
    return std::string();
  };
  return enqueue(stream, std::move(work), "cublasLtMatmul") == CUDA_SUCCESS ? CUBLAS_STATUS_SUCCESS
                                                                            : CUBLAS_STATUS_EXECUTION_FAILED;
}

//===----------------------------------------------------------------------===//
// Algorithms
//===----------------------------------------------------------------------===//

PC_EXPORT cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                                        cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                                        cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                        cublasLtMatmulPreference_t preference, int wanted,
                                                        cublasLtMatmulHeuristicResult_t *results, int *count) {
  Lock lock(driverMutex());
  *count = 0;
  Product p{get(desc), get(a), get(b), get(c), get(d), 0, 0, 0};
  if (std::string why = check(p); !why.empty())
    return refuseProduct(CUBLAS_STATUS_NOT_SUPPORTED, why);
  uint64_t limit = reinterpret_cast<Preference *>(preference)->workspace;
  const uint64_t workspaces[] = {uint64_t(1) << 20, 0, uint64_t(4) << 20}; // they differ only in their workspaces
  for (uint64_t index = 0; index < 3 && *count < wanted; ++index) {
    if (workspaces[index] > limit)
      continue;
    cublasLtMatmulHeuristicResult_t &result = results[(*count)++];
    memset(&result, 0, sizeof result);
    Algorithm algorithm{algorithmMagic, shapeOf(p), workspaces[index], index};
    memcpy(&result.algo, &algorithm, sizeof algorithm);
    result.workspaceSize = workspaces[index];
    result.state = CUBLAS_STATUS_SUCCESS;
    result.wavesCount = 1;
  }
  return CUBLAS_STATUS_SUCCESS;
}

PC_EXPORT cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                                 cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                                 cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t *algo,
                                                 cublasLtMatmulHeuristicResult_t *result) {
  Lock lock(driverMutex());
  Product p{get(desc), get(a), get(b), get(c), get(d), 0, 0, 0};
  Algorithm algorithm;
  memcpy(&algorithm, algo, sizeof algorithm);
  std::string why = check(p);
  if (why.empty() && (algorithm.magic != algorithmMagic || algorithm.shape != shapeOf(p)))
    why = "the algorithm was chosen for a different product";
  if (!why.empty())
    return refuseProduct(CUBLAS_STATUS_NOT_SUPPORTED, why);
  memset(result, 0, sizeof *result);
  result->algo = *algo;
  result->workspaceSize = algorithm.workspace;
  result->wavesCount = 1;
  return CUBLAS_STATUS_SUCCESS;
}

//===----------------------------------------------------------------------===//
// Handles and descriptors
//===----------------------------------------------------------------------===//

PC_EXPORT size_t cublasLtGetVersion(void) { return 130100; }
PC_EXPORT size_t cublasLtGetCudartVersion(void) { return 13000; }

PC_EXPORT const char *cublasLtGetStatusName(cublasStatus_t status) {
  switch (static_cast<int>(status)) {
#define CASE(name)                                                                                                     \
  case name:                                                                                                           \
    return #name;
    CASE(CUBLAS_STATUS_SUCCESS)
    CASE(CUBLAS_STATUS_NOT_INITIALIZED)
    CASE(CUBLAS_STATUS_INVALID_VALUE)
    CASE(CUBLAS_STATUS_EXECUTION_FAILED)
    CASE(CUBLAS_STATUS_NOT_SUPPORTED)
#undef CASE
  default:
    return "an unknown status";
  }
}

/// Adds the reason if the last refusal on this thread was about a product.
PC_EXPORT const char *cublasLtGetStatusString(cublasStatus_t status) {
  static thread_local std::string text;
  text = cublasLtGetStatusName(status);
  if (std::string why = explanation(CUDA_ERROR_NOT_SUPPORTED); status != CUBLAS_STATUS_SUCCESS && !why.empty())
    text += ": " + why;
  return text.c_str();
}

PC_EXPORT cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
  Lock lock(driverMutex());
  if (currentDevice() < 0)
    return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = reinterpret_cast<cublasLtHandle_t>(new char);
  return CUBLAS_STATUS_SUCCESS;
}

PC_EXPORT cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete reinterpret_cast<char *>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

/// Stores an attribute of the right size.
template <typename T> static cublasStatus_t assign(T &to, const void *from, size_t bytes) {
  if (bytes != sizeof(T))
    return CUBLAS_STATUS_INVALID_VALUE;
  memcpy(&to, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

PC_EXPORT cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute,
                                                  cudaDataType_t scale) {
  if ((compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_FAST_TF32) || scale != CUDA_R_32F)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  *desc = reinterpret_cast<cublasLtMatmulDesc_t>(new Desc);
  return CUBLAS_STATUS_SUCCESS;
}

PC_EXPORT cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete &get(desc);
  return CUBLAS_STATUS_SUCCESS;
}

PC_EXPORT cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                                        cublasLtMatmulDescAttributes_t attribute, const void *value,
                                                        size_t bytes) {
  Desc &to = get(desc);
  switch (static_cast<int>(attribute)) {
#define CASE(name, member)                                                                                             \
  case CUBLASLT_MATMUL_DESC_##name:                                                                                    \
    return assign(to.member, value, bytes);
    CASE(POINTER_MODE, pointerMode)
    CASE(TRANSA, transA)
    CASE(TRANSB, transB)
    CASE(EPILOGUE, epilogue)
    CASE(BIAS_POINTER, bias)
    CASE(BIAS_BATCH_STRIDE, biasStride)
    CASE(EPILOGUE_AUX_POINTER, aux)
    CASE(EPILOGUE_AUX_LD, auxLeading)
    CASE(EPILOGUE_AUX_BATCH_STRIDE, auxStride)
    CASE(SM_COUNT_TARGET, smTarget)
    CASE(EPILOGUE_AUX_DATA_TYPE, auxType)
    CASE(BIAS_DATA_TYPE, biasType)
    CASE(A_SCALE_POINTER, scalesOfA)
    CASE(B_SCALE_POINTER, scalesOfB)
    CASE(A_SCALE_MODE, scaleModeOfA)
    CASE(B_SCALE_MODE, scaleModeOfB)
    CASE(FAST_ACCUM, fastAccumulation)
#undef CASE
  default:
    return refuseProduct(CUBLAS_STATUS_NOT_SUPPORTED, "attribute " + std::to_string(static_cast<int>(attribute)));
  }
}

PC_EXPORT cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type, uint64_t rows,
                                                    uint64_t columns, int64_t leading) {
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(
      new Layout{static_cast<int>(type), static_cast<int64_t>(rows), static_cast<int64_t>(columns), leading});
  return CUBLAS_STATUS_SUCCESS;
}

PC_EXPORT cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete &get(layout);
  return CUBLAS_STATUS_SUCCESS;
}

PC_EXPORT cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                          cublasLtMatrixLayoutAttribute_t attribute, const void *value,
                                                          size_t bytes) {
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
    return assign(get(layout).batch, value, bytes);
  if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)
    return assign(get(layout).batchStride, value, bytes);
  int order = -1;
  if (attribute == CUBLASLT_MATRIX_LAYOUT_ORDER && assign(order, value, bytes) == CUBLAS_STATUS_SUCCESS &&
      order == CUBLASLT_ORDER_COL)
    return CUBLAS_STATUS_SUCCESS;
  return refuseProduct(CUBLAS_STATUS_NOT_SUPPORTED, "layout attribute " + std::to_string(static_cast<int>(attribute)));
}

PC_EXPORT cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference) {
  *preference = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}

PC_EXPORT cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete reinterpret_cast<Preference *>(preference);
  return CUBLAS_STATUS_SUCCESS;
}

/// Accepts alignments and reduction schemes, which have no effect here.
PC_EXPORT cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                              cublasLtMatmulPreferenceAttributes_t attribute,
                                                              const void *value, size_t bytes) {
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
    return assign(reinterpret_cast<Preference *>(preference)->workspace, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
