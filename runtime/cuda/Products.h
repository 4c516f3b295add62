//===- Products.h - The matrix products of a program on cuBLASLt ----------===//
// Row-major products are column-major products of the transposed result, so no layout is ever converted. For every
// distinct product, the library's best few algorithms are timed at start-up on the buffers of the step. A product with
// an epilogue is also timed as the plain product followed by our own kernel. The plain product also runs if the library
// has no algorithm with the epilogue. The choice is written to a cache file. Ranks agree on one choice for each
// product.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CUDA_PRODUCTS_H
#define PCRT_CUDA_PRODUCTS_H

#include "comm/Comm.h"
#include "cuda/Kernels.h"

#include <functional>
#include <memory>

namespace pcrt::cuda {

class AlgorithmCache;

/// The operands of one call.
struct ProductCall {
  int index = 0; ///< In the program's table.
  const void *a = nullptr, *b = nullptr;
  void *c = nullptr;
  const void *bias = nullptr; ///< The scales of a, if a and b have codes; then aux has those of b.
  void *aux = nullptr;
  int beside = 0; ///< The number of groups whose moves are in flight during the product.
};

/// A matrix as cuBLASLt sees memory: column-major, transposed or not.
struct ColumnMajor {
  bool good = false, transposed = false;
  uint64_t rows = 0, columns = 0; ///< As stored.
  int64_t leading = 0;
};

/// Returns the memory layout of rows x columns elements at row * rowStride + column * columnStride. The result is not
/// `good` if neither stride is 1.
ColumnMajor columnMajor(int64_t rows, int64_t columns, int64_t rowStride, int64_t columnStride);

/// The products of one program. The rank's thread calls it. It owns the library's handle and the plans and borrows the
/// session, kernels and workspace. All ranks that share a product compute the same bits.
class Products {
public:
  /// Loads the library. Throws PCRT_RESOURCE if the library is missing. Without `kernels` it must have every epilogue.
  Products(Session &session, const pcrt_program &program, Kernels *kernels = nullptr);
  ~Products();

  /// Sets the numbers of multiprocessors that products leave to each group whose moves are in flight, and to messages.
  /// A kernel of the library with a block for each multiprocessor takes twice as long if one of them is occupied. Call
  /// it before `prepare`.
  void leave(int toGroup, int toMessages) { left = toGroup, leftAlways = toMessages; }

  /// Prepares the products that a step calls. `workspace` is the arena's. Throws PCRT_INTERNAL, naming a product that
  /// the library does not support. `fillArena` puts random numbers into the operands; it is called if anything is
  /// timed.
  void prepare(const std::vector<ProductCall> &calls, void *workspace, const std::function<void()> &fillArena);

  /// Makes all ranks that have a product in common use the choice of the lowest of them. All ranks call it.
  pcrt_status agree(Comm &comm);

  /// Enqueues a product on the compute stream. A bias has the dtype of c (cuBLASLt knows no other).
  BlasStatus run(const ProductCall &call);

  std::string describe(BlasStatus status) const { return blas.cublasLtGetStatusString(status); }
  const Opened &library() const { return opened; }
  /// The number of products that were timed at this start and not taken from the cache.
  int timed() const { return numTimed; }
  /// The number of products whose epilogue is a kernel of the program.
  int apart() const;
  /// The number of products that leave multiprocessors to moves.
  int besideMoves() const;

private:
  struct Plan;
  /// How a product is computed; the same on all ranks.
  struct Choice {
    MatmulAlgorithm algorithm{};
    uint64_t apart = 0; ///< 1: the plain product, followed by a kernel for its epilogue.
  };

  Plan *planOf(const ProductCall &call);
  int multiprocessorsFor(const ProductCall &call) const;
  std::string keyOf(const ProductCall &call) const;
  std::string identity(const Plan &plan) const;
  std::unique_ptr<Plan> makePlan(const pcrt_gemm_desc &desc, const ProductCall &call, const std::string &key);
  /// Returns the library's algorithms for a product. If `needed` is true, it is an error if there is none.
  std::vector<MatmulHeuristic> candidates(Plan &plan, const ProductCall &call, bool needed);
  std::vector<Choice> choices(Plan &plan, const ProductCall &call);
  bool remembered(Plan &plan, const AlgorithmCache &cache, const std::string &key);
  float milliseconds(Plan &plan, const ProductCall &call, const Choice &choice);
  char *paddedScales(const Plan &plan) const;
  int64_t workspaceOf(const Plan &plan) const;
  std::pair<const void *, const void *> scalesOf(const Plan &plan, const ProductCall &call) const;
  bool padScales(const Plan &plan, const ProductCall &call);
  /// Sets the pointers to the scales of a product of codes; does nothing for other products.
  BlasStatus setScales(Plan &plan, const ProductCall &call);
  BlasStatus enqueue(Plan &plan, const ProductCall &call, const MatmulAlgorithm &algorithm);
  BlasStatus enqueue(Plan &plan, const ProductCall &call, const Choice &choice);

  Session &session;
  const pcrt_program &program;
  Kernels *kernels;
  bool tune;      ///< PCRT_CUDA_TUNE=0: use the library's first choice without timing.
  bool epilogues; ///< PCRT_CUDA_EPILOGUES=0: use the program's kernels instead of the library's, except for a bias.
  CublasLt blas;
  Opened opened;
  BlasHandle handle = nullptr;
  void *workspace = nullptr;
  int left = 0, leftAlways = 0;
  std::vector<std::unique_ptr<Plan>> plans;
  std::vector<std::vector<Plan *>> plansOf; ///< Plans of each table entry, by alignments and by room for moves.
  std::vector<Event> timers;
  int numTimed = 0;
};

} // namespace pcrt::cuda

#endif // PCRT_CUDA_PRODUCTS_H
