//===- Tile.h - A product of matrices of one size, for one thread ---------===//
// Products whose sizes are known only when they run are cut into such tiles.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CPU_TILE_H
#define PCRT_CPU_TILE_H

#include "pcrt/pcrt.h"

#include <memory>

namespace pcrt {

class Tile {
public:
  /// c = a b, or c += a b where `desc` accumulates: the sizes, strides and dtypes of one batch entry. Where oneDNN does
  /// not take it, a plain loop does it. `nativeBf16`: as of Matmul.
  Tile(const pcrt_gemm_desc &desc, bool nativeBf16);
  ~Tile();

  bool isPlain() const;
  /// Memory that setB and run need, aligned to 64 bytes.
  int64_t scratchBytes() const;
  /// The b of the runs that follow with the same scratch memory. Allocates nothing, as run. dnnl_success, or what
  /// oneDNN says.
  int setB(const void *b, void *scratch);
  int run(const void *a, void *c, void *scratch);

private:
  struct Library;
  pcrt_gemm_desc desc;
  std::unique_ptr<Library> library; ///< null: a plain loop
  const void *plainB = nullptr;
};

} // namespace pcrt

#endif // PCRT_CPU_TILE_H
