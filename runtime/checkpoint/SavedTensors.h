//===- SavedTensors.h - The tensors of a checkpoint and their files -------===//
// Lists the tensors of a checkpoint. Saving and loading share this code.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CHECKPOINT_SAVEDTENSORS_H
#define PCRT_CHECKPOINT_SAVEDTENSORS_H

#include "base/AdapterSettings.h"
#include "base/Program.h"
#include "base/TensorSum.h"
#include "comm/Comm.h"
#include "pcrt/average.h"

namespace pcrt {

constexpr const char *stateFile = "training_state.safetensors";
constexpr const char *averageFile = PCRT_EMA_FILE;
constexpr const char *configFile = "config.json";

/// Returns the name of the model's file, or of the adapter's file if the program has an adapter. The base of an adapter
/// has its own files.
inline const char *modelFileOf(const Program &program) {
  return program.hasAdapter() ? adapterFile : "model.safetensors";
}

/// A tensor of the program and its place in a checkpoint.
struct Saved {
  const Tensor *tensor;
  const Parameter *parameter;
  const std::vector<Part> *parts; ///< Its boxes in the tensors of the checkpoint.
  bool inModel;
  std::string prefix;     ///< The beginning of its name; the part's name follows.
  int64_t replica = -1;   ///< The replica of local SGD that owns it; -1: all share it.
  bool inAverage = false; ///< It is in the file of averages, under its name in the model.

  /// Whether the tensor is an average. The file of averages also has the parameters that have no average.
  bool isAverage() const { return inAverage && tensor != parameter; }
  std::string nameOf(const Part &part) const { return prefix + part.source; }
};

/// Whether the program keeps averages of its parameters.
bool averages(const Program &program);

/// The tensors of one program that a checkpoint after `step` steps has, in a run with `replicas` replicas. Between two
/// rounds of local SGD, the checkpoint has the parameters that all replicas share: they are the model.
std::vector<Saved> savedTensors(const Program &program, int64_t step, int64_t replicas);

/// Adds up the ranks' parts of every tensor's sum. All ranks have the same names.
void addUp(TensorSums &sums, Comm &comm);

} // namespace pcrt

#endif // PCRT_CHECKPOINT_SAVEDTENSORS_H
