//===- Init.h - The first values of parameters and constants --------------===//
// Drawn values come from a counter-based generator keyed by the seed, the parameter and the element's global index:
// every plan starts from the same bits. Given values are boxes of a checkpoint's tensors.
//===----------------------------------------------------------------------===//
#ifndef PCRT_DATA_INIT_H
#define PCRT_DATA_INIT_H

#include "base/Program.h"
#include "base/Safetensors.h"
#include "base/TensorSum.h"
#include "cpu/Pool.h"
#include "device/Device.h"

#include <array>

namespace pcrt {

/// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

/// Element `index` of the standard normal values of parameter `key` under `seed`.
float normalAt(uint64_t seed, uint64_t key, uint64_t index);

/// Draws this rank's blocks of all parameters into the arena.
void drawParameters(const Program &program, uint64_t seed, int rank, Device &device, Pool &pool);

/// Reads this rank's blocks of all parameters. Throws PCRT_BAD_DATA naming a tensor that is missing, has another shape
/// or a dtype that is not a float. Adds to `sums` what this rank would write of them.
void readParameters(const Program &program, const Safetensors &weights, int rank, Device &device, Pool &pool,
                    TensorSums *sums);

/// Throws PCRT_BAD_DATA where tensors of `weights` that the model says are one have other numbers.
void checkTies(const Program &program, const Safetensors &weights);

/// Reads a rank's block of a tensor that belongs to `parameter` to its place in the arena: boxes of `stored`, one for
/// each part, as f32. Adds them to `sums`, of as many, if this rank is the one that would write them.
void readBlock(const Tensor &tensor, const Parameter &parameter, const std::vector<const StoredTensor *> &stored,
               const Program &program, int rank, Device &device, std::vector<TensorSum> &sums);

/// The tensor that a parameter or state is read from, of `all`; throws PCRT_BAD_DATA as readParameters does.
const StoredTensor &checkStored(const StoredTensor *stored, const std::string &name, const Dims &shape,
                                const std::string &where, const Safetensors &all);

/// Fills the constants (RoPE tables).
void fillConstants(const Program &program, int rank, Device &device);

} // namespace pcrt

#endif // PCRT_DATA_INIT_H
