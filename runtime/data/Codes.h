//===- Codes.h - Weights as codes of 8 or 4 bits ---------------------------===//
// A program that generates text may store a matrix as integers with f32 scales. Both are computed when the matrix is
// read, from whole rows or groups, so that all plans store the same numbers.
//===----------------------------------------------------------------------===//
#ifndef PCRT_DATA_CODES_H
#define PCRT_DATA_CODES_H

#include "base/Program.h"
#include "device/Device.h"

#include <functional>

namespace pcrt {

/// Writes the numbers of a block of a parameter, row by row.
using BlockReader = std::function<void(const Block &block, float *to)>;

/// Stores this rank's codes of `parameter`, and the scales of the codes. A scale is the largest magnitude of its
/// elements, divided by 127 (by 7 for codes of 4 bits). A code is the nearest integer to element / scale, ties to even.
/// `own` reads the rank's block, and is called once. `other` reads larger blocks, for scales of rows that ranks share.
void storeCodes(const Program &program, const Parameter &parameter, int rank, Device &device, const BlockReader &own,
                const BlockReader &other);

} // namespace pcrt

#endif // PCRT_DATA_CODES_H
