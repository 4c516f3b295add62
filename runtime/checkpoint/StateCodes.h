//===- StateCodes.h - States in 8 bits that a checkpoint has in f32, and the reverse -------------===//
// A checkpoint stores states as the program has them: f32, or codes with scales (pcrt/block_codes.h). A program that
// has states in the other form converts them. Codes become the f32 numbers that they stand for; f32 is rounded to
// codes.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CHECKPOINT_STATECODES_H
#define PCRT_CHECKPOINT_STATECODES_H

#include "base/Safetensors.h"
#include "base/TensorSum.h"
#include "checkpoint/SavedTensors.h"
#include "device/Device.h"

namespace pcrt {

/// A rank's block of a state, and the tensors of a checkpoint for its parts.
struct StoredState {
  const Saved &saved;
  std::vector<const StoredTensor *> stored;
  const Program &program;
  int rank;
  Device &device;

  /// Reads codes and decodes them. Adds checksums to `sums`, one for each part, if this rank would write the block.
  void decode(const std::vector<const StoredTensor *> &scales, std::vector<TensorSum> &sums) const;
  /// Reads f32 and encodes it. Also writes the scales. Throws PCRT_INFEASIBLE if the plan splits the scales in another
  /// way than the codes.
  void encode(const State &scales, std::vector<TensorSum> &sums) const;
  /// Reads codes as they are.
  void copy(std::vector<TensorSum> &sums) const;

private:
  Block block() const { return blockOf(program.mesh, saved.tensor->shape, saved.tensor->layout, rank); }
  std::vector<float> read(std::vector<TensorSum> &sums) const;
};

} // namespace pcrt

#endif // PCRT_CHECKPOINT_STATECODES_H
