//===- KernelCheck.h - kernels of a device against those of the CPU -------===//
#ifndef PCRT_DEVICE_CUDA_KERNELCHECK_H
#define PCRT_DEVICE_CUDA_KERNELCHECK_H

#include "core/Program.h"

namespace pcrt {

/// Runs every distinct kernel and matrix product of a program of pc-compile --check-kernels on the same random operands
/// on the device and on the CPU (products: on some of their elements), and times it. Prints one line of JSON for the
/// device, with the bytes per second of a copy and the flops per second of a large bf16 product, and one for each
/// kernel: largest difference, relative to the largest element, and what is allowed. On the stand-in nothing is timed.
/// Returns PCRT_OK, or PCRT_VERIFICATION where a result differs; throws where the program has no cases or the device
/// fails.
pcrt_status checkKernels(const Program &program);

} // namespace pcrt

#endif // PCRT_DEVICE_CUDA_KERNELCHECK_H
