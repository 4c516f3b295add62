//===- PlainGemm.h - A matrix product as the ABI defines it ---------------===//
// For shapes and dtypes that oneDNN does not support, and for tests: f32 sums in the order of k, any strides.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CPU_PLAINGEMM_H
#define PCRT_CPU_PLAINGEMM_H

#include "pcrt/pcrt.h"

namespace pcrt {

/// Runs `desc` (batch and all) on one thread.
void plainGemm(const pcrt_gemm_desc &desc, const void *a, const void *b, void *c, const float *bias);

} // namespace pcrt

#endif // PCRT_CPU_PLAINGEMM_H
