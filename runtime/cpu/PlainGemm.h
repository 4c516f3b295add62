//===- PlainGemm.h - A matrix product as the ABI defines it ---------------===//
// A plain product for tests, and for shapes and dtypes that oneDNN does not support. It adds in f32 in the order of k,
// and accepts any strides.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CPU_PLAINGEMM_H
#define PCRT_CPU_PLAINGEMM_H

#include "pcrt/pcrt.h"

namespace pcrt {

/// Runs `desc` (batch and all) on one thread.
void plainGemm(const pcrt_gemm_desc &desc, const void *a, const void *b, void *c, const float *bias);

} // namespace pcrt

#endif // PCRT_CPU_PLAINGEMM_H
