//===- Grouped.h - products on the rows that a mask chooses, on the CPU ---===//
#ifndef PCRT_CPU_GROUPED_H
#define PCRT_CPU_GROUPED_H

#include "cpu/Pool.h"
#include "pcrt/pcrt.h"

#include <vector>

namespace pcrt {

/// Checks a descriptor that is grouped: null, or what is wrong with it.
const char *checkGrouped(const pcrt_gemm_desc &desc);

/// All grouped products of a program. Which rows there are is found anew for each from its mask, which takes nothing
/// beside the product.
class GroupedProducts {
public:
  /// `firstRegion`: as of LibraryCall, by thread. `descs` have passed checkGrouped where they are grouped.
  GroupedProducts(Pool &pool, const pcrt_gemm_desc *descs, int count, int firstRegion);
  ~GroupedProducts();
  GroupedProducts(const GroupedProducts &) = delete;
  GroupedProducts &operator=(const GroupedProducts &) = delete;

  /// Runs a product and waits. Null, or what went wrong.
  const char *run(const pcrt_gemm_desc &desc, const float *a, const float *b, float *c, const float *mask);

  /// Calls the library once for a product of this shape on zeros, of which there are `bytes` bytes.
  void warmUp(const pcrt_gemm_desc &desc, void *zeros, int64_t bytes);

  /// Memory for rows that are gathered and for results that are added up, in bytes.
  int64_t scratchBytes() const { return totalBytes; }

private:
  const char *findRows(const pcrt_gemm_desc &desc, const float *mask);
  const float *gather(int32_t lies, const float *x, int64_t width, float *to, int64_t lo, int64_t hi);
  void multiply(int thread, const pcrt_gemm_desc &desc, const float *a, const float *b, float *c, int64_t rows);
  void product(const pcrt_gemm_desc &desc, const float *a, const float *b, float *c);
  /// A token's numbers to each of its rows, and the sums of its rows, in the order of its experts.
  void toRows(const pcrt_gemm_desc &desc, const float *a, float *c);
  void toTokens(const pcrt_gemm_desc &desc, const float *a, float *c);
  void gradient(const pcrt_gemm_desc &desc, const float *a, const float *b, float *c);
  void pass(int thread, int status) {
    if (status)
      statuses[size_t(thread)] = status;
  }

  Pool &pool;
  int firstRegion;
  int64_t totalBytes = 0, padFloats = 0;
  char *memory = nullptr;
  float *gatheredA = nullptr, *gatheredB = nullptr, *made = nullptr, *pads = nullptr;
  int32_t *tokenOf = nullptr;    ///< by row
  std::vector<int64_t> firstRow; ///< by expert, and behind the last one
  std::vector<int64_t> nextRow;  ///< while rows are found
  std::vector<int> statuses;     ///< dnnl_status_t, by thread
};

} // namespace pcrt

#endif // PCRT_CPU_GROUPED_H
