//===- KernelCheck.h - Kernels of a device against those of the CPU -------===//
// Implements `--check-kernels` of compiled programs: the same random operands, on the device and on the CPU.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CUDA_KERNELCHECK_H
#define PCRT_CUDA_KERNELCHECK_H

#include "base/Program.h"

#include <cstdint>
#include <string>

namespace pcrt {

class Pool;

/// Returns the difference of `got` from `want`, two tensors of `dtype` (f32, bf16 or i32). It is the largest difference
/// of two elements, divided by the largest magnitude of a finite element of `want`. It is infinite if only one of two
/// elements is a number.
double largestDifference(Pool &pool, const std::string &dtype, int64_t elements, const char *want, const char *got);

/// Runs every distinct kernel and matrix product of a program of pc-compile --check-kernels on the same random operands
/// on the device and on the CPU, and times it. For products, it compares only some elements. It prints one line of JSON
/// for the device, with the bytes per second of a copy and the flops per second of a large bf16 product. It prints
/// another line for each kernel. This line has the largest difference relative to the largest element, the allowed
/// difference, and the median and spread of the kernel's times with operands that are in no cache. On the stand-in,
/// nothing is timed. Returns PCRT_OK, or PCRT_VERIFICATION if a result differs. Throws if the program has no cases or
/// the device fails.
pcrt_status checkKernels(const Program &program);

} // namespace pcrt

#endif // PCRT_CUDA_KERNELCHECK_H
