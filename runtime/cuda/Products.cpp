//===- Products.cpp - The matrix products of a program on cuBLASLt --------===//
// A plan is a product with its descriptors and its choice; plans are shared by all calls with the same key. Algorithms
// with atomic split-k are excluded, so that the same operands give the same bits every time.
//===----------------------------------------------------------------------===//
#include "cuda/Products.h"
#include "base/Failure.h"
#include "cuda/AlgorithmCache.h"
#include "cuda/Rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

using namespace pcrt;
using namespace pcrt::cuda;

ColumnMajor pcrt::cuda::columnMajor(int64_t rows, int64_t columns, int64_t rowStride, int64_t columnStride) {
  auto stored = [](bool transposed, int64_t r, int64_t c, int64_t leading) {
    return ColumnMajor{leading >= r, transposed, uint64_t(r), uint64_t(c), leading};
  };
  // The stride of an extent of 1 does not matter.
  if (rows == 1)
    return stored(false, 1, columns, columns == 1 ? 1 : columnStride);
  if (columns == 1)
    return rowStride == 1 ? stored(false, rows, 1, rows) : stored(true, 1, rows, rowStride);
  if (rowStride == 1)
    return stored(false, rows, columns, columnStride);
  if (columnStride == 1)
    return stored(true, columns, rows, rowStride);
  return {};
}

/// A product as cuBLASLt sees it, and the chosen way to compute it.
struct Products::Plan {
  pcrt_gemm_desc desc;
  std::string key;
  bool swapped = false; ///< The first operand of the library is a, not b.
  MatmulDesc op = nullptr;
  MatrixLayout a = nullptr, b = nullptr, c = nullptr; ///< The library's a, b and c.
  int alignments[3] = {};                             ///< Alignments of the library's A, B and C.
  int64_t leadingC = 0;
  int64_t paddedBytes = 0; ///< Of the workspace, for scales.
  Choice choice;
  std::unique_ptr<Plan> alone; ///< The product without its epilogue, if a kernel can also compute the epilogue.
  bool empty = false;          ///< Nothing to compute.
  bool leaves = false;         ///< Multiprocessors to moves.
};

/// The largest power of two up to 256 that divides an address.
static int alignmentOf(const void *at) {
  auto address = reinterpret_cast<uintptr_t>(at);
  return int(std::min<uintptr_t>(256, address ? address & -address : 256));
}

/// canBeApart is true if a kernel of the program can compute the epilogue after the product. `alone` is the product
/// without that epilogue, and its operands.
static bool canBeApart(const pcrt_gemm_desc &desc) {
  return desc.epilogue >= PCRT_EPILOGUE_GELU_BIAS && desc.rest >= 0;
}
static pcrt_gemm_desc alone(pcrt_gemm_desc desc) {
  desc.epilogue = desc.epilogue == PCRT_EPILOGUE_GELU_BIAS ? PCRT_EPILOGUE_BIAS : PCRT_EPILOGUE_NONE;
  return desc;
}
static ProductCall alone(const pcrt_gemm_desc &desc, const ProductCall &call) {
  if (desc.epilogue == PCRT_EPILOGUE_GELU_BIAS)
    return {call.index, call.a, call.b, call.aux, call.bias, nullptr, call.beside};
  return {call.index, call.a, call.b, call.c, nullptr, nullptr, call.beside};
}

static int realType(int32_t dtype) {
  return dtype == PCRT_BF16 ? RealBF16 : dtype == PCRT_E4M3 ? RealE4M3 : dtype == PCRT_E5M2 ? RealE5M2 : Real32F;
}

/// cuBLASLt's mode for scales of an operand of codes, by pcrt_scales.
static int32_t scaleMode(int32_t scales) {
  return scales == PCRT_SCALES_ONE ? ScaleOne : scales == PCRT_SCALES_VECTORS ? ScaleVector128 : ScaleBlock128;
}

static bool hasCodes(const pcrt_gemm_desc &d) { return d.a_scales != PCRT_SCALES_NONE; }

/// "(512 x 256, sums of 128 products of E4M3 and E5M2, one scale per operand)" describes a product of codes.
static std::string describeCodes(const pcrt_gemm_desc &d) {
  auto type = [](int32_t dtype) { return std::string(dtype == PCRT_E4M3 ? "E4M3" : "E5M2"); };
  return "(" + std::to_string(d.m) + " x " + std::to_string(d.n) + ", sums of " + std::to_string(d.k) +
         " products of " + type(d.a_dtype) + " and " + type(d.b_dtype) + ", " +
         (d.a_scales == PCRT_SCALES_ONE ? "one scale per operand" : "scales per block") + ")";
}

/// Scales of squares are rows of k / 128 numbers, and the library reads rows at multiples of 4 numbers (cuBLAS
/// documentation, "Scaling factors layouts").
static int64_t paddedRow(int64_t numbers) { return (numbers + 3) / 4 * 4; }
/// The bytes that an operand's scales need in the workspace, in rows of that length; 0 if they have it already.
static int64_t paddedBytes(int32_t scales, int64_t rows, int64_t k) {
  const int64_t numbers = k / 128;
  return scales == PCRT_SCALES_SQUARES && numbers != paddedRow(numbers)
             ? (4 * rows / 128 * paddedRow(numbers) + 255) / 256 * 256
             : 0;
}

int Products::multiprocessorsFor(const ProductCall &call) const {
  return std::max(session.multiprocessors - leftAlways - left * call.beside, session.multiprocessors / 2);
}

/// The key of a call's plan: shape, strides, dtypes, epilogue, alignments and multiprocessors.
std::string Products::keyOf(const ProductCall &call) const {
  const pcrt_gemm_desc &d = program.gemms[call.index];
  std::string key;
  for (int64_t number : {d.batch,
                         d.m,
                         d.n,
                         d.k,
                         d.a_batch_stride,
                         d.a_m_stride,
                         d.a_k_stride,
                         d.b_batch_stride,
                         d.b_k_stride,
                         d.b_n_stride,
                         d.c_batch_stride,
                         d.c_m_stride,
                         d.c_n_stride,
                         int64_t(d.a_dtype),
                         int64_t(d.b_dtype),
                         int64_t(d.c_dtype),
                         int64_t(d.accumulate),
                         int64_t(d.epilogue),
                         int64_t(d.a_scales),
                         int64_t(d.b_scales),
                         int64_t(alignmentOf(call.a)),
                         int64_t(alignmentOf(call.b)),
                         int64_t(alignmentOf(call.c)),
                         int64_t(alignmentOf(call.bias)),
                         int64_t(alignmentOf(call.aux)),
                         int64_t(multiprocessorsFor(call))})
    key += (key.empty() ? "" : ",") + std::to_string(number);
  return key;
}

Products::Products(Session &session, const pcrt_program &program, Kernels *kernels)
    : session(session), program(program), kernels(kernels), tune(switchedOn("PCRT_CUDA_TUNE", !session.standin)),
      epilogues(switchedOn("PCRT_CUDA_EPILOGUES", true)), plansOf(program.num_gemms) {
  load(blas, &opened);
  if (int64_t cudart = int64_t(blas.cublasLtGetCudartVersion()); cudart / 1000 > session.library.version / 1000)
    fail(PCRT_RESOURCE, "cuBLASLt (" + opened.path + ") needs a driver for CUDA " + describeDriverVersion(cudart) +
                            ", but this driver is for CUDA " + describeDriverVersion(session.library.version) +
                            "; install a newer driver, or cuBLASLt of CUDA " +
                            std::to_string(session.library.version / 1000));
  // Block scales are since cuBLAS 12.9 (PyTorch, aten/src/ATen/native/cuda/ScaledBlas.cpp, _check_deepseek_support).
  // Products with one scale per operand are older, but all need the same version here.
  constexpr int64_t withCodes = 120900;
  if (std::any_of(program.gemms, program.gemms + program.num_gemms, hasCodes) && opened.version < withCodes)
    fail(PCRT_RESOURCE, "this program multiplies floats of 8 bits, but cuBLASLt " +
                            describeCublasVersion(opened.version) + " (" + opened.path +
                            ") cannot; install cuBLASLt 12.9 or later, or compile with --precision=bf16");
  BlasStatus status = blas.cublasLtCreate(&handle);
  if (status)
    fail(PCRT_RESOURCE, "cuBLASLt (" + opened.path + ") does not start: " + describe(status));
}

Products::~Products() {
  auto destroy = [&](Plan &plan) {
    for (MatrixLayout layout : {plan.a, plan.b, plan.c})
      if (layout)
        blas.cublasLtMatrixLayoutDestroy(layout);
    if (plan.op)
      blas.cublasLtMatmulDescDestroy(plan.op);
  };
  for (auto &plan : plans) {
    destroy(*plan);
    if (plan->alone)
      destroy(*plan->alone);
  }
  if (handle)
    blas.cublasLtDestroy(handle);
}

static bool usesBias(const pcrt_gemm_desc &d) {
  return d.epilogue == PCRT_EPILOGUE_BIAS || d.epilogue == PCRT_EPILOGUE_GELU_BIAS ||
         d.epilogue == PCRT_EPILOGUE_BIAS_GRAD;
}
static bool usesAux(const pcrt_gemm_desc &d) {
  return d.epilogue == PCRT_EPILOGUE_GELU_BIAS || d.epilogue == PCRT_EPILOGUE_GELU_GRAD;
}

/// The place in the workspace of scales that need longer rows; null if there are none. It follows the library's part.
char *Products::paddedScales(const Plan &plan) const {
  return plan.paddedBytes ? static_cast<char *>(workspace) + workspaceOf(plan) : nullptr;
}

/// The bytes of the workspace that the library may use.
int64_t Products::workspaceOf(const Plan &plan) const {
  return (program.workspace_bytes - plan.paddedBytes) / 256 * 256;
}

/// The pointers to scales of the library's A and B.
std::pair<const void *, const void *> Products::scalesOf(const Plan &plan, const ProductCall &call) const {
  const void *ofA = call.bias, *ofB = call.aux; // of our a and b; one at most has squares
  if (char *padded = paddedScales(plan))
    (plan.desc.a_scales == PCRT_SCALES_SQUARES ? ofA : ofB) = padded;
  return plan.swapped ? std::pair(ofA, ofB) : std::pair(ofB, ofA);
}

/// Copies scales to rows of the length that the library reads.
bool Products::padScales(const Plan &plan, const ProductCall &call) {
  char *padded = paddedScales(plan);
  if (!padded)
    return true;
  const pcrt_gemm_desc &d = plan.desc;
  const bool isA = d.a_scales == PCRT_SCALES_SQUARES;
  const int64_t row = 4 * (d.k / 128);
  return copyRows(session.driver, padded, 4 * paddedRow(d.k / 128), isA ? call.bias : call.aux, row, row,
                  (isA ? d.m : d.n) / 128, session.compute) == Success;
}

static std::string nameOf(const pcrt_gemm_desc &d) { return "matrix product '" + std::string(d.name) + "'"; }

std::unique_ptr<Products::Plan> Products::makePlan(const pcrt_gemm_desc &d, const ProductCall &call,
                                                   const std::string &key) {
  auto plan = std::make_unique<Plan>();
  plan->desc = d;
  plan->key = key;
  if (d.batch == 0 || d.m == 0 || d.n == 0) {
    plan->empty = true;
    return plan;
  }
  auto refuse = [&](const std::string &what) {
    fail(PCRT_INTERNAL, nameOf(d) + ": " + what + "; this is a bug of the compiler");
  };
  if (d.k == 0)
    refuse("it sums over an empty dim");
  // The result, column-major: c^T = b^T a^T, or c = a b where c itself is column-major.
  ColumnMajor c = columnMajor(d.n, d.m, d.c_n_stride, d.c_m_stride);
  plan->swapped = c.transposed;
  if (plan->swapped)
    c = columnMajor(d.m, d.n, d.c_m_stride, d.c_n_stride);
  ColumnMajor a = columnMajor(d.n, d.k, d.b_n_stride, d.b_k_stride),
              b = columnMajor(d.k, d.m, d.a_k_stride, d.a_m_stride);
  if (plan->swapped) {
    a = columnMajor(d.m, d.k, d.a_m_stride, d.a_k_stride);
    b = columnMajor(d.k, d.n, d.b_k_stride, d.b_n_stride);
  }
  if (!a.good || !b.good || !c.good || c.transposed)
    refuse("an operand has no contiguous dim");
  if (d.epilogue != PCRT_EPILOGUE_NONE && plan->swapped)
    refuse("its epilogue needs contiguous rows");
  plan->leadingC = c.leading;
  const void *pointers[] = {plan->swapped ? call.a : call.b, plan->swapped ? call.b : call.a, call.c};
  for (int i = 0; i < 3; ++i)
    plan->alignments[i] = alignmentOf(pointers[i]);

  auto require = [&](BlasStatus status) {
    if (status)
      fail(PCRT_INTERNAL, nameOf(d) + ": cuBLASLt says " + describe(status));
  };
  auto set = [&](int attribute, auto value) {
    require(blas.cublasLtMatmulDescSetAttribute(plan->op, attribute, &value, sizeof value));
  };
  require(blas.cublasLtMatmulDescCreate(&plan->op, Compute32F, Real32F));
  set(DescTransposeA, int32_t(a.transposed ? OperationT : OperationN));
  set(DescTransposeB, int32_t(b.transposed ? OperationT : OperationN));
  plan->leaves = multiprocessorsFor(call) < session.multiprocessors;
  if (plan->leaves)
    set(DescMultiprocessors, int32_t(multiprocessorsFor(call)));
  switch (d.epilogue) {
  case PCRT_EPILOGUE_NONE:
    break;
  case PCRT_EPILOGUE_BIAS:
    set(DescEpilogue, uint32_t(EpilogueBias));
    break;
  case PCRT_EPILOGUE_GELU_BIAS:
    set(DescEpilogue, uint32_t(EpilogueGeluAuxBias));
    break;
  case PCRT_EPILOGUE_GELU_GRAD:
    set(DescEpilogue, uint32_t(EpilogueDGelu));
    break;
  case PCRT_EPILOGUE_BIAS_GRAD: // our b is the library's A
    set(DescEpilogue, uint32_t(EpilogueBiasGradientA));
    break;
  default:
    refuse("epilogue " + std::to_string(d.epilogue) + " is not known");
  }
  if (hasCodes(d)) { // no fast accumulation, which is off by default: it loses bits of sums over k
    if (d.epilogue != PCRT_EPILOGUE_NONE || d.batch != 1 || !a.transposed || b.transposed)
      refuse("it multiplies codes that are not as cuBLASLt reads them");
    set(DescScaleModeOfA, scaleMode(plan->swapped ? d.a_scales : d.b_scales));
    set(DescScaleModeOfB, scaleMode(plan->swapped ? d.b_scales : d.a_scales));
    plan->paddedBytes = paddedBytes(d.a_scales, d.m, d.k) + paddedBytes(d.b_scales, d.n, d.k);
    if (workspaceOf(*plan) < 0)
      refuse("its scales do not fit into the workspace");
  }
  if (usesBias(d))
    set(DescBiasType, int32_t(realType(d.c_dtype)));
  if (usesAux(d)) {
    set(DescAuxLeading, int64_t(c.leading));
    set(DescAuxType, int32_t(realType(d.c_dtype)));
  }
  auto layout = [&](MatrixLayout &made, const ColumnMajor &matrix, int32_t dtype, int64_t batchStride) {
    require(blas.cublasLtMatrixLayoutCreate(&made, realType(dtype), matrix.rows, matrix.columns, matrix.leading));
    if (d.batch == 1)
      return;
    auto count = int32_t(d.batch);
    require(blas.cublasLtMatrixLayoutSetAttribute(made, LayoutBatchCount, &count, sizeof count));
    require(blas.cublasLtMatrixLayoutSetAttribute(made, LayoutBatchStride, &batchStride, sizeof batchStride));
  };
  layout(plan->a, a, plan->swapped ? d.a_dtype : d.b_dtype, plan->swapped ? d.a_batch_stride : d.b_batch_stride);
  layout(plan->b, b, plan->swapped ? d.b_dtype : d.a_dtype, plan->swapped ? d.b_batch_stride : d.a_batch_stride);
  layout(plan->c, c, d.c_dtype, d.c_batch_stride);
  return plan;
}

BlasStatus Products::setScales(Plan &plan, const ProductCall &call) {
  if (!hasCodes(plan.desc))
    return 0;
  auto [ofA, ofB] = scalesOf(plan, call);
  if (BlasStatus status = blas.cublasLtMatmulDescSetAttribute(plan.op, DescScalesOfA, &ofA, sizeof ofA))
    return status;
  return blas.cublasLtMatmulDescSetAttribute(plan.op, DescScalesOfB, &ofB, sizeof ofB);
}

BlasStatus Products::enqueue(Plan &plan, const ProductCall &call, const MatmulAlgorithm &algorithm) {
  constexpr BlasStatus executionFailed = 13;
  const pcrt_gemm_desc &d = plan.desc;
  if (BlasStatus status = setScales(plan, call))
    return status;
  if (!padScales(plan, call))
    return executionFailed;
  if (usesBias(d))
    if (BlasStatus status = blas.cublasLtMatmulDescSetAttribute(plan.op, DescBiasPointer, &call.bias, sizeof call.bias))
      return status;
  if (usesAux(d))
    if (BlasStatus status = blas.cublasLtMatmulDescSetAttribute(plan.op, DescAuxPointer, &call.aux, sizeof call.aux))
      return status;
  float alpha = 1, beta = d.accumulate ? 1 : 0;
  return blas.cublasLtMatmul(handle, plan.op, &alpha, plan.swapped ? call.a : call.b, plan.a,
                             plan.swapped ? call.b : call.a, plan.b, &beta, call.c, plan.c, call.c, plan.c, &algorithm,
                             workspace, size_t(workspaceOf(plan)), session.compute);
}

BlasStatus Products::enqueue(Plan &plan, const ProductCall &call, const Choice &choice) {
  constexpr BlasStatus executionFailed = 13;
  if (!choice.apart)
    return enqueue(plan, call, choice.algorithm);
  if (BlasStatus status = enqueue(*plan.alone, alone(plan.desc, call), choice.algorithm))
    return status;
  void *geluBias[] = {call.aux, call.c}, *geluGrad[] = {call.c, call.aux, call.c};
  void *biasGrad[] = {const_cast<void *>(call.b), const_cast<void *>(call.bias), workspace};
  void **args = plan.desc.epilogue == PCRT_EPILOGUE_GELU_BIAS   ? geluBias
                : plan.desc.epilogue == PCRT_EPILOGUE_GELU_GRAD ? geluGrad
                                                                : biasGrad;
  bool inTwo = args == biasGrad && program.device_kernels[plan.desc.rest].num_args == 3;
  for (int part = 0; part <= int(inTwo); ++part)
    if (kernels->launch(plan.desc.rest + part, args) != Success)
      return executionFailed;
  return 0;
}

std::vector<MatmulHeuristic> Products::candidates(Plan &plan, const ProductCall &call, bool needed) {
  // The library derives alignments of the epilogue's operands and of scales from the pointers it finds.
  BlasStatus status = setScales(plan, call);
  if (call.bias && usesBias(plan.desc))
    blas.cublasLtMatmulDescSetAttribute(plan.op, DescBiasPointer, &call.bias, sizeof call.bias);
  if (call.aux && usesAux(plan.desc))
    blas.cublasLtMatmulDescSetAttribute(plan.op, DescAuxPointer, &call.aux, sizeof call.aux);
  MatmulPreference preference = nullptr;
  std::vector<MatmulHeuristic> results(tune ? 8 : 1);
  int count = 0;
  if (!status)
    status = blas.cublasLtMatmulPreferenceCreate(&preference);
  auto set = [&](int attribute, auto value) {
    if (!status)
      status = blas.cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value);
  };
  set(PreferenceWorkspaceBytes, uint64_t(workspaceOf(plan)));
  // Split-k adds its partial sums in the workspace, in a fixed order, so that the bits are the same every time.
  set(PreferenceReductionMask, uint32_t(ReductionComputeType));
  set(PreferenceAlignmentA, uint32_t(plan.alignments[0]));
  set(PreferenceAlignmentB, uint32_t(plan.alignments[1]));
  set(PreferenceAlignmentC, uint32_t(plan.alignments[2]));
  set(PreferenceAlignmentD, uint32_t(plan.alignments[2]));
  if (!status)
    status = blas.cublasLtMatmulAlgoGetHeuristic(handle, plan.op, plan.a, plan.b, plan.c, plan.c, preference,
                                                 int(results.size()), results.data(), &count);
  if (preference)
    blas.cublasLtMatmulPreferenceDestroy(preference);
  results.resize(status ? 0 : count);
  std::erase_if(results, [](const MatmulHeuristic &result) { return result.state != 0; });
  if (results.empty() && needed && hasCodes(plan.desc))
    fail(PCRT_RESOURCE, nameOf(plan.desc) + " " + describeCodes(plan.desc) + ": cuBLASLt " +
                            describeCublasVersion(opened.version) + " (" + opened.path +
                            ") has no algorithm for this product of floats of 8 bits" +
                            (status ? ": " + describe(status) : "") +
                            "; install another cuBLASLt, or compile with --arch=sm_90, where kernels decode operands "
                            "to bf16, or with --precision=bf16");
  if (results.empty() && needed)
    fail(PCRT_INTERNAL, nameOf(plan.desc) + " (" + plan.key + "): cuBLASLt " + describeCublasVersion(opened.version) +
                            " has no algorithm for this product" + (status ? ": " + describe(status) : ""));
  return results;
}

std::vector<Products::Choice> Products::choices(Plan &plan, const ProductCall &call) {
  std::vector<Choice> all;
  if (epilogues || !plan.alone)
    for (const MatmulHeuristic &found : candidates(plan, call, !plan.alone))
      all.push_back({found.algorithm, 0});
  if (plan.alone && (tune || all.empty()))
    for (const MatmulHeuristic &found : candidates(*plan.alone, alone(plan.desc, call), all.empty()))
      all.push_back({found.algorithm, 1});
  return all;
}

bool Products::remembered(Plan &plan, const AlgorithmCache &cache, const std::string &key) {
  MatmulHeuristic checked;
  Choice choice;
  if (!tune || !cache.find(key, &choice, sizeof choice) || (choice.apart && !plan.alone))
    return false;
  Plan &used = choice.apart ? *plan.alone : plan;
  plan.choice = choice;
  return blas.cublasLtMatmulAlgoCheck(handle, used.op, used.a, used.b, used.c, used.c, &choice.algorithm, &checked) ==
             0 &&
         int64_t(checked.workspaceBytes) <= workspaceOf(plan);
}

float Products::milliseconds(Plan &plan, const ProductCall &call, const Choice &choice) {
  constexpr int repetitions = 12;
  while (timers.size() < 2)
    timers.push_back(session.makeEvent(true));
  std::vector<float> times;
  for (int i = -2; i < repetitions; ++i) {
    session.check(session.driver.cuEventRecord(timers[0], session.compute), "time a matrix product");
    if (enqueue(plan, call, choice))
      return INFINITY; // the library offered it, but it does not run
    session.check(session.driver.cuEventRecord(timers[1], session.compute), "time a matrix product");
    if (Result result = session.driver.cuEventSynchronize(timers[1]); result != Success)
      fail(PCRT_INTERNAL,
           session.name + ": " + nameOf(plan.desc) + " (" + plan.key + "): an algorithm from cuBLASLt " +
               describeCublasVersion(opened.version) + " failed: " + session.describe(result) +
               "; set PCRT_CUDA_TUNE=0 to use the first algorithm that cuBLASLt offers for each product");
    float time = 0;
    session.check(session.driver.cuEventElapsedTime_v2(&time, timers[0], timers[1]), "time a matrix product");
    if (i >= 0)
      times.push_back(time);
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

void Products::prepare(const std::vector<ProductCall> &calls, void *memory, const std::function<void()> &fillArena) {
  workspace = memory;
  AlgorithmCache cache("cublaslt-" + std::to_string(opened.version) + "-" + session.deviceName + "-" +
                       std::to_string(session.multiprocessors) + "-" + std::to_string(program.workspace_bytes));
  bool filled = false;
  for (const ProductCall &call : calls) {
    const pcrt_gemm_desc &desc = program.gemms[call.index];
    std::string key = keyOf(call);
    std::vector<Plan *> &mine = plansOf[call.index];
    if (std::any_of(mine.begin(), mine.end(), [&](Plan *plan) { return plan->key == key; }))
      continue;
    auto known = std::find_if(plans.begin(), plans.end(), [&](auto &plan) { return plan->key == key; });
    if (known != plans.end()) {
      mine.push_back(known->get());
      continue;
    }
    plans.push_back(makePlan(desc, call, key));
    Plan &plan = *plans.back();
    mine.push_back(&plan);
    if (plan.empty)
      continue;
    if (kernels && canBeApart(desc))
      plan.alone = makePlan(alone(desc), alone(desc, call), key);
    std::string remember = key + (epilogues ? "" : ",apart");
    if (remembered(plan, cache, remember))
      continue;
    std::vector<Choice> found = choices(plan, call);
    plan.choice = found[0];
    if (found.size() == 1)
      continue;
    if (!filled)
      fillArena();
    filled = true;
    float best = INFINITY;
    for (const Choice &choice : found)
      if (float time = milliseconds(plan, call, choice); time < best) {
        best = time;
        plan.choice = choice;
      }
    ++numTimed;
    cache.insert(remember, &plan.choice, sizeof plan.choice);
  }
  cache.save();
}

/// The part of a plan that must be equal on two ranks if one is to use the algorithm that the other chose.
std::string Products::identity(const Plan &plan) const {
  return plan.key + (plan.alone ? "+" : "-") + std::to_string(program.workspace_bytes);
}

pcrt_status Products::agree(Comm &comm) {
  // Ranks that compute the same values have to compute the same bits. Stages share only some products.
  std::vector<char> mine, all;
  auto append = [&](const void *from, size_t bytes) {
    const char *begin = static_cast<const char *>(from);
    mine.insert(mine.end(), begin, begin + bytes);
  };
  for (auto &plan : plans) {
    std::string text = identity(*plan);
    append(text.c_str(), text.size() + 1);
    append(&plan->choice, sizeof plan->choice);
  }
  int64_t bytes = int64_t(mine.size());
  std::vector<int64_t> sizes(comm.size());
  PCRT_TRY(comm.allGatherBytes(&bytes, sizeof bytes, sizes.data()));
  int64_t most = *std::max_element(sizes.begin(), sizes.end());
  if (most == 0)
    return PCRT_OK;
  mine.resize(most);
  all.resize(most * comm.size());
  PCRT_TRY(comm.allGatherBytes(mine.data(), most, all.data()));
  std::map<std::string, Choice> choices; // choices of the lowest rank that has the plan
  for (int rank = 0; rank < comm.size(); ++rank)
    for (const char *at = all.data() + rank * most, *end = at + sizes[rank]; at < end;) {
      std::string text = at;
      Choice choice;
      memcpy(&choice, at += text.size() + 1, sizeof choice);
      at += sizeof choice;
      choices.emplace(text, choice);
    }
  for (auto &plan : plans)
    plan->choice = choices.at(identity(*plan));
  return PCRT_OK;
}

int Products::apart() const {
  return int(std::count_if(plans.begin(), plans.end(), [](auto &plan) { return plan->choice.apart; }));
}

int Products::besideMoves() const {
  return int(std::count_if(plans.begin(), plans.end(), [](auto &plan) { return plan->leaves; }));
}

BlasStatus Products::run(const ProductCall &call) {
  // Calls of one table entry differ only in addresses, which usually have the same alignment.
  Plan *plan = planOf(call);
  if (plan && plan->empty)
    return 0;
  return plan ? enqueue(*plan, call, plan->choice) : 1;
}

Products::Plan *Products::planOf(const ProductCall &call) {
  std::vector<Plan *> &mine = plansOf[call.index];
  if (mine.size() == 1)
    return mine[0];
  std::string key = keyOf(call);
  for (Plan *plan : mine)
    if (plan->key == key)
      return plan;
  return nullptr;
}
