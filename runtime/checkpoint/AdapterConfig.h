//===- AdapterConfig.h - The adapter and the base of a checkpoint ---------===//
// The compiler writes the settings of an adapter into the program. A run saves them with the path of the base, and
// compares them with the settings of an adapter that it loads.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CHECKPOINT_ADAPTERCONFIG_H
#define PCRT_CHECKPOINT_ADAPTERCONFIG_H

#include "base/AdapterSettings.h"
#include "checkpoint/Trajectory.h"

namespace pcrt {

/// The text of adapter_config.json for a checkpoint with this trajectory.
std::string adapterConfig(const Program &program, const Trajectory &trajectory);

/// Throws PCRT_USAGE, naming the key, unless DIRECTORY/adapter_config.json describes the adapters of `program`. The
/// targets are compared later, by the names of the tensors that are read.
void checkAdapterConfig(const Program &program, const std::string &directory);

/// Throws PCRT_USAGE, naming a tensor, unless a base with these sums of tensors is the base of a checkpoint's adapter.
/// If there are no sums, the base has random values. `weights` is the path of the base.
void checkSameBase(const Trajectory &before, const std::map<std::string, std::string> &base,
                   const std::string &directory, const std::string &weights);

} // namespace pcrt

#endif // PCRT_CHECKPOINT_ADAPTERCONFIG_H
