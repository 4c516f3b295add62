//===- abi.cpp - Our constants of the driver are NVIDIA's -----------------===//
// Compiled if the real headers are installed. Types and signatures are compared by compiling the stand-in's own sources
// against them (CMakeLists.txt).
//===----------------------------------------------------------------------===//
#include "standin/abi/CublasLt.h"
#include "standin/abi/Cudnn.h"
#include "standin/abi/Driver.h"
#include "standin/abi/Nccl.h"

#define COMPARE(name, value) static_assert(static_cast<int>(name) == (value), #name);
PC_CUDA_ERRORS(COMPARE)
PC_CUDA_CONSTANTS(COMPARE)
PC_CUBLASLT_CONSTANTS(COMPARE)
PC_CUDNN_CONSTANTS(COMPARE)
PC_NCCL_CONSTANTS(COMPARE)

int main() {}
