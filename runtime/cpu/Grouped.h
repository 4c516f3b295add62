//===- Grouped.h - Products on the rows that a mask chooses, on the CPU ---===//
// A mixture of experts multiplies the rows of each expert by that expert's matrix. Results do not depend on the number
// of threads, and a row's result does not depend on the other rows.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CPU_GROUPED_H
#define PCRT_CPU_GROUPED_H

#include "cpu/Pool.h"
#include "device/RowTally.h"
#include "pcrt/pcrt.h"

#include <memory>
#include <vector>

namespace pcrt {

/// Checks a grouped descriptor. Returns null, or the error.
const char *checkGrouped(const pcrt_gemm_desc &desc);

/// All grouped products of a program. Each run finds its rows from its mask, which takes little time compared with the
/// product. In bf16, rows are multiplied tile by tile, because the library's products have fixed sizes. The owner of
/// the pool calls this object, for one product at a time. After allocate(), nothing is allocated.
class GroupedProducts {
public:
  /// `firstRegion` is the index of thread 0's memory for LibraryCall. `nativeBf16` has the same meaning as in Matmul.
  GroupedProducts(Pool &pool, int firstRegion, bool nativeBf16);
  ~GroupedProducts();
  GroupedProducts(const GroupedProducts &) = delete;
  GroupedProducts &operator=(const GroupedProducts &) = delete;

  /// Adds a product, which has passed checkGrouped; returns its number.
  int add(const pcrt_gemm_desc &desc);
  /// Allocates the memory that all products need. Call it once, after the last add().
  void allocate();

  /// Runs a product and waits. Returns null, or the error.
  const char *run(int index, const void *a, const void *b, void *c, const float *mask, const float *scales);

  /// Calls the library once for a product of this shape on `size` bytes of zeros.
  void warmUp(int index, void *zeros, int64_t size);

  /// Memory for rows that are gathered and for results that are added up, in bytes.
  int64_t scratchBytes() const { return totalBytes; }
  /// Parts of products that run in a plain loop.
  int plainParts() const { return numPlain; }
  /// Counts of the rows of products so far.
  const RowTally &rows() const { return tally; }

private:
  struct Part;
  struct Plan;

  const char *findRows(const pcrt_gemm_desc &desc, const float *mask);
  const char *gather(int32_t lies, const char *x, int64_t bytes, char *to, int64_t lo, int64_t hi);
  void multiply(int thread, const pcrt_gemm_desc &desc, const float *a, const float *b, float *c, int64_t rows);
  void multiply(int thread, Part &part, const pcrt_gemm_desc &desc, const char *a, const char *b, char *c,
                int32_t dtype, int64_t rows);
  void multiplyCodes(int thread, Part &part, const pcrt_gemm_desc &desc, const char *a, const char *b, char *c,
                     const float *scales, int64_t rows);
  void product(Plan &plan, const char *a, const char *b, char *c, const float *scales);
  void addUp(int thread, Part &part, const pcrt_gemm_desc &desc, const char *a, const char *b, char *c, int64_t lo,
             int64_t count, int64_t depth);
  void gradient(Plan &plan, const char *a, const char *b, char *c);
  /// toRows copies a token's numbers to each row of the token. toTokens adds up the rows of a token, which are of
  /// `dtype`, in the order of its experts.
  void toRows(const pcrt_gemm_desc &desc, const char *a, char *c);
  void toTokens(const pcrt_gemm_desc &desc, int32_t dtype, const void *a, void *c);
  void lines(const pcrt_gemm_desc &desc, const char *a, char *c);
  void pass(int thread, int status) {
    if (status)
      statuses[size_t(thread)] = status;
  }
  /// Returns the memory of one thread. It consists of padded rows, then a sum, then the memory that the library needs.
  char *ofThread(int thread) const { return threads + thread * (bytes.pad + bytes.sum + bytes.scratch); }
  char *scratchOf(int thread) const { return ofThread(thread) + bytes.pad + bytes.sum; }

  Pool &pool;
  int firstRegion;
  bool nativeBf16;
  std::vector<std::unique_ptr<Plan>> plans;
  struct {
    int64_t rows = 0, a = 0, b = 0, made = 0, sums = 0; ///< bytes that the threads share
    int64_t pad = 0, sum = 0, scratch = 0;              ///< the bytes of each thread
  } bytes;
  int64_t totalBytes = 0, experts = 0;
  RowTally tally;
  int numPlain = 0;
  char *memory = nullptr, *threads = nullptr;
  char *gatheredA = nullptr, *gatheredB = nullptr;
  float *made = nullptr, *sums = nullptr; ///< results of rows, and sums of tokens
  int32_t *tokenOf = nullptr;             ///< by row
  std::vector<int64_t> firstRow;          ///< the first row of each expert, and the end of the last expert's rows
  std::vector<int64_t> nextRow;           ///< used only while rows are found
  std::vector<int> statuses;              ///< dnnl_status_t, by thread
};

} // namespace pcrt

#endif // PCRT_CPU_GROUPED_H
