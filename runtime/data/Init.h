//===- Init.h - Initial values of parameters and constants ----------------===//
// Drawn values come from a counter-based generator keyed by the seed, the parameter and the element's global index. So
// every plan starts from the same bits. Values that are not drawn are boxes of a checkpoint's tensors.
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

/// Draws this rank's blocks of the parameters of the model, or those of the adapter if `adapter` is true, into the
/// arena.
void drawParameters(const Program &program, uint64_t seed, int rank, Device &device, Pool &pool, bool adapter = false);

/// Reads this rank's blocks of the same parameters. Throws PCRT_BAD_DATA, naming the tensor, if a tensor is missing,
/// has another shape, or has a dtype that is not a float. Adds to `sums` the checksums of the elements that this rank
/// would write.
void readParameters(const Program &program, const Safetensors &weights, int rank, Device &device, Pool &pool,
                    TensorSums *sums, bool adapter = false);

/// Throws PCRT_BAD_DATA if tensors of `weights` that the model ties have different numbers.
void checkTies(const Program &program, const Safetensors &weights);

/// Reads a rank's block of a tensor that belongs to `parameter`, to the block's place in the arena. `stored` has one
/// tensor for each entry of `parts`. Adds checksums to `sums`, one for each part, if this rank would write the block.
void readBlock(const Tensor &tensor, const Parameter &parameter, const std::vector<Part> &parts,
               const std::vector<const StoredTensor *> &stored, const Program &program, int rank, Device &device,
               std::vector<TensorSum> &sums);

/// Returns `*stored` if it has this shape and a float dtype, or I8 if it may be codes. Throws PCRT_BAD_DATA otherwise,
/// with a hint if `all` has the tensor under another name.
const StoredTensor &checkStored(const StoredTensor *stored, const std::string &name, const Dims &shape,
                                const std::string &where, const Safetensors &all, bool mayBeCodes = false);

/// Fills the constants (RoPE tables).
void fillConstants(const Program &program, int rank, Device &device);

} // namespace pcrt

#endif // PCRT_DATA_INIT_H
