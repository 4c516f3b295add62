//===- Kernels.h - What kernels of compiled programs take -----------------===//
// Attention and the streaming kernels of layers are made by the compiler. So small models are compiled and trained for
// a few steps, and the trace of the last one has the seconds of each of its calls.
//===----------------------------------------------------------------------===//
#ifndef PC_CALIBRATE_KERNELS_H
#define PC_CALIBRATE_KERNELS_H

#include "Measure.h"

#include <filesystem>

namespace pc_calibrate {

/// A folder that is gone afterwards. Throws a Failure where there is no place for it.
struct Folder {
  Folder();
  ~Folder();
  std::filesystem::path at;
};

/// What the models are compiled for, and run on.
struct KernelsOn {
  int ranks = 1;    ///< Of a CPU, which share its memory.
  std::string arch; ///< Of a device: sm_90a. Empty: cores.
  bool isStandIn = false;
  bool isShort = false;
  double noise = 0.05;
};

/// Whether pc-compile, and what else it takes, lies beside this program.
bool canTimeKernels();

/// Times them by pc-import, pc-compile and pc-run, which lie beside this program, and writes what they took to `path`.
/// Throws a Failure where one of these fails.
void timeKernels(const KernelsOn &on, const std::string &path);

/// Adds what timeKernels wrote.
void readKernels(const std::string &path, Measurements &results);

} // namespace pc_calibrate

#endif // PC_CALIBRATE_KERNELS_H
