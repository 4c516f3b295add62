//===- Tile.h - A product of matrices of one size, for one thread ---------===//
// A product whose sizes are known only when it runs is cut into tiles of fixed sizes.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CPU_TILE_H
#define PCRT_CPU_TILE_H

#include "pcrt/pcrt.h"

#include <memory>

namespace pcrt {

/// One product of fixed sizes, which one thread runs. It owns oneDNN's objects.
class Tile {
public:
  /// Computes c = a b, or c += a b if `desc` accumulates, with the sizes, strides and dtypes of one batch entry. A
  /// plain loop computes the product if oneDNN does not support it. `nativeBf16` has the same meaning as in Matmul.
  Tile(const pcrt_gemm_desc &desc, bool nativeBf16);
  ~Tile();

  bool isPlain() const;
  /// Memory that setB and run need, aligned to 64 bytes.
  int64_t scratchBytes() const;
  /// setB sets the b of the runs that follow with the same scratch memory; run computes. Neither function allocates.
  /// Both return dnnl_success or oneDNN's status.
  int setB(const void *b, void *scratch);
  int run(const void *a, void *c, void *scratch);

private:
  struct Library;
  pcrt_gemm_desc desc;
  std::unique_ptr<Library> library; ///< Null: a plain loop.
  const void *plainB = nullptr;
};

} // namespace pcrt

#endif // PCRT_CPU_TILE_H
