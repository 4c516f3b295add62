//===- Philox.h - The random generator in kernels -------------------------------------------===//
// Philox4x32-10 (J. Salmon et al., 2011), as pcrt_philox computes it.
//===----------------------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_KERNELS_PHILOX_H
#define PC_LIB_CODEGEN_KERNELS_PHILOX_H

#include "../Emit/Emit.h"
#include <array>

namespace pc::kernels {

/// The two words of a key: i64 scalars that are below 2^32.
using PhiloxKey = std::array<Num, 2>;

/// Emits the generator. The words of the counter are i64 below 2^32, or vectors of them; scalars are broadcast to the
/// type of the first word. Returns the four random words in the same form.
std::array<Num, 4> philox(Emitter &e, std::array<Num, 4> counter, PhiloxKey key);

} // namespace pc::kernels
#endif
