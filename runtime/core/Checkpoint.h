//===- Checkpoint.h - saving and loading the state of training ------------===//
//
// A checkpoint is a directory that Hugging Face loads (config.json and
// model.safetensors), and training_state.safetensors beside it. It is written
// under another name and then takes the old one's place in one step, so that
// a full disk or a kill leaves the old one as it was.
//
//===----------------------------------------------------------------------===//
#ifndef PCRT_CORE_CHECKPOINT_H
#define PCRT_CORE_CHECKPOINT_H

#include "comm/Comm.h"
#include "core/Device.h"
#include "core/Program.h"
#include "device/Pool.h"

namespace pcrt {

/// Checks, before the run, that DIR can be written: throws PCRT_RESOURCE. All ranks call it.
void checkSaveDirectory(const std::string &directory, Comm &comm);

/// Writes parameters and optimizer states after `step` steps. All ranks call it. Throws PCRT_RESOURCE.
void saveCheckpoint(const std::string &directory, const Program &program, int64_t step, const Arena &arena, Comm &comm);

/// Reads what saveCheckpoint wrote, on any mesh. Returns the number of steps done. Throws PCRT_BAD_DATA.
int64_t loadCheckpoint(const std::string &directory, const Program &program, int rank, const Arena &arena, Pool &pool);

} // namespace pcrt

#endif // PCRT_CORE_CHECKPOINT_H
