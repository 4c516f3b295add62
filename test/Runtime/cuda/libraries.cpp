//===- libraries.cpp - NVIDIA's own libraries, without a GPU --------------===//
// usage: cuda-libraries [STUB_OF_LIBCUDA]
// The libraries of this machine export every function of the tables, and cuBLASLt takes every attribute that the
// runtime sets, in the size that it has here. Exit code 77 (skipped) if no library is installed.
//===----------------------------------------------------------------------===//
#include "cuda/Libraries.h"
#include "../../Checks.h"
#include "base/Failure.h"

#include <cstdio>
#include <dlfcn.h>

using namespace pcrt;
using namespace pcrt::cuda;

/// Loads a library's table. Returns false if this machine does not have the library.
template <typename Table> static bool loads(Table &table, std::string (*describe)(int64_t)) {
  Opened opened;
  try {
    load(table, &opened);
  } catch (const Failure &failure) {
    bool missing = failure.message.find("not found on this machine") != std::string::npos;
    expect(missing, failure.message);
    printf("%s\n", failure.message.substr(0, 80).c_str());
    return false;
  }
  printf("%s %s\n", opened.path.c_str(), describe(opened.version).c_str());
  ++checks;
  return true;
}

static void checkDescriptors(const CublasLt &blas) {
  auto good = [&](BlasStatus status, const char *what) {
    expect(status == 0, std::string(what) + ": " + blas.cublasLtGetStatusString(status));
  };
  MatmulDesc desc = nullptr;
  MatrixLayout layout = nullptr;
  MatmulPreference preference = nullptr;
  good(blas.cublasLtMatmulDescCreate(&desc, Compute32F, Real32F), "a product");
  auto set = [&](int attribute, auto value, const char *what) {
    good(blas.cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof value), what);
  };
  set(DescTransposeA, int32_t(OperationT), "transpose a");
  set(DescTransposeB, int32_t(OperationN), "transpose b");
  for (int epilogue : {EpilogueDefault, EpilogueBias, EpilogueGeluAuxBias, EpilogueDGelu, EpilogueBiasGradientA})
    set(DescEpilogue, uint32_t(epilogue), "epilogue");
  set(DescBiasPointer, reinterpret_cast<const void *>(0x10000), "bias");
  set(DescBiasType, int32_t(RealBF16), "type of the bias");
  set(DescAuxPointer, reinterpret_cast<const void *>(0x10000), "aux");
  set(DescAuxLeading, int64_t(768), "stride of aux");
  set(DescAuxType, int32_t(RealBF16), "type of aux");
  good(blas.cublasLtMatrixLayoutCreate(&layout, RealBF16, 768, 3072, 768), "a matrix");
  int32_t batches = 12;
  int64_t stride = 768 * 3072;
  good(blas.cublasLtMatrixLayoutSetAttribute(layout, LayoutBatchCount, &batches, sizeof batches), "batches");
  good(blas.cublasLtMatrixLayoutSetAttribute(layout, LayoutBatchStride, &stride, sizeof stride), "stride of batches");
  good(blas.cublasLtMatmulPreferenceCreate(&preference), "a preference");
  auto prefer = [&](int attribute, auto value, const char *what) {
    good(blas.cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value), what);
  };
  prefer(PreferenceWorkspaceBytes, uint64_t(32 << 20), "workspace");
  prefer(PreferenceReductionMask, uint32_t(ReductionComputeType), "reductions");
  for (int attribute : {PreferenceAlignmentA, PreferenceAlignmentB, PreferenceAlignmentC, PreferenceAlignmentD})
    prefer(attribute, uint32_t(256), "alignment");
  good(blas.cublasLtMatmulPreferenceDestroy(preference), "destroy a preference");
  good(blas.cublasLtMatrixLayoutDestroy(layout), "destroy a matrix");
  good(blas.cublasLtMatmulDescDestroy(desc), "destroy a product");
}

int main(int argc, char **argv) {
  bool any = false;
  Driver driver;
  if (void *stub = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : nullptr) {
    any = true;
    for (const Symbol &symbol : driver.symbols())
      expect(!symbol.required || dlsym(stub, symbol.name), std::string(argv[1]) + " has no " + symbol.name);
  }
  CublasLt blas;
  if (loads(blas, describeCublasVersion)) {
    any = true;
    checkDescriptors(blas);
  }
  Cudnn dnn;
  any |= loads(dnn, describeCudnnVersion);
  Nccl nccl;
  if (loads(nccl, describeNcclVersion)) {
    any = true;
    expect(std::string(nccl.ncclGetErrorString(NcclInvalidUsage)) != std::string(nccl.ncclGetErrorString(NcclSuccess)),
           "NCCL's words for errors");
  }
  return finishChecks() ? 1 : any ? 0 : 77;
}
