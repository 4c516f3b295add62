//===- Kernels.h - Measures kernels of compiled programs ------------------===//
// The compiler generates attention and the streaming kernels of layers. Small models are therefore compiled and trained
// for a few steps, and the trace of the last step has the seconds of each of its calls.
//===----------------------------------------------------------------------===//
#ifndef PC_CALIBRATE_KERNELS_H
#define PC_CALIBRATE_KERNELS_H

#include "Measure.h"

#include <filesystem>

namespace pc_calibrate {

/// A temporary folder, which the destructor removes. Throws a Failure if it cannot be created.
struct Folder {
  Folder();
  ~Folder();
  std::filesystem::path at;
};

/// The target for which the models are compiled, and on which they run.
struct KernelsOn {
  int ranks = 1;    ///< The ranks on a CPU, which share its memory.
  std::string arch; ///< The architecture of a device, such as sm_90a; empty: CPU cores.
  bool isStandIn = false;
  bool isShort = false;
  double noise = 0.05;
};

/// Whether pc-compile and the other tools are in the folder of this program.
bool canTimeKernels();

/// Times the kernels with pc-import, pc-compile and pc-run, and writes the times to `path`. Throws a Failure if one of
/// these fails.
void timeKernels(const KernelsOn &on, const std::string &path);

/// Adds the times that timeKernels wrote to `results`.
void readKernels(const std::string &path, Measurements &results);

} // namespace pc_calibrate

#endif // PC_CALIBRATE_KERNELS_H
