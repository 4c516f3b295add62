//===- Libraries.h - Finding and opening NVIDIA's libraries ---------------===//
// The driver, cuBLASLt, cuDNN and NCCL are opened when a CUDA program starts; nothing is linked.
// PCRT_CUDA_LIBRARIES=DIR[:DIR...] names directories to search first; =standin:FILE names one library that replaces all
// four.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CUDA_LIBRARIES_H
#define PCRT_CUDA_LIBRARIES_H

#include "cuda/CublasLt.h"
#include "cuda/Cudnn.h"
#include "cuda/Driver.h"
#include "cuda/Nccl.h"

#include <string>

namespace pcrt::cuda {

/// A library that was opened. It stays open until the process ends.
struct Opened {
  void *handle = nullptr;
  std::string path; ///< The path of the file, as the loader resolved it.
  int64_t version = 0;
};

/// These functions open a library and fill its table. `opened`, which may be null, describes the file. They throw a
/// Failure (PCRT_RESOURCE) that names the library, the searched places or the found version, and what to do.
void load(Driver &driver, Opened *opened = nullptr);
void load(CublasLt &blas, Opened *opened = nullptr);
void load(Cudnn &cudnn, Opened *opened = nullptr);
void load(Nccl &nccl, Opened *opened = nullptr);

/// Whether PCRT_CUDA_LIBRARIES names a stand-in.
bool standinChosen();

/// "12.9", from the number that a library reports.
std::string describeDriverVersion(int64_t version);
std::string describeCublasVersion(int64_t version);
std::string describeCudnnVersion(int64_t version);
std::string describeNcclVersion(int64_t version);

} // namespace pcrt::cuda

#endif // PCRT_CUDA_LIBRARIES_H
