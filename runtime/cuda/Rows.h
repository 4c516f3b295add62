//===- Rows.h - Copies of rows on a device --------------------------------===//
// A move whose dim is not outermost takes a block of every row of a tensor. This copy gathers such blocks into
// contiguous memory, or scatters them.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CUDA_ROWS_H
#define PCRT_CUDA_ROWS_H

#include "cuda/Driver.h"

namespace pcrt::cuda {

/// Enqueues a copy of `rows` rows of `width` bytes, whose starts lie `toPitch` and `fromPitch` bytes apart.
inline Result copyRows(const Driver &driver, void *to, int64_t toPitch, const void *from, int64_t fromPitch,
                       int64_t width, int64_t rows, Stream stream) {
  if (rows == 0 || width == 0)
    return Success;
  auto toAddress = reinterpret_cast<Address>(to), fromAddress = reinterpret_cast<Address>(from);
  if (rows == 1 || (toPitch == width && fromPitch == width))
    return driver.cuMemcpyDtoDAsync_v2(toAddress, fromAddress, size_t(width * rows), stream);
  Copy2D copy{};
  copy.fromType = copy.toType = MemoryDevice;
  copy.fromDevice = fromAddress;
  copy.fromPitch = size_t(fromPitch);
  copy.toDevice = toAddress;
  copy.toPitch = size_t(toPitch);
  copy.width = size_t(width);
  copy.height = size_t(rows);
  return driver.cuMemcpy2DAsync_v2(&copy, stream);
}

} // namespace pcrt::cuda

#endif // PCRT_CUDA_ROWS_H
