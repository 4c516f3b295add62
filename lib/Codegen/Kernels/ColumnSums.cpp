//===- ColumnSums.cpp - Sums over the rows of a matrix, on a GPU ----------------------===//
// Sums over rows have few results and many terms, so the threads of a block share the rows. The order of addition
// depends only on the shape.
//===-----------------------------------------------------------------------------===//
#include "Kernels.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace pc;
using namespace pc::kernels;

// A block owns a few columns, at least 16 bytes of a row. Its threads form n lines, each of which sums every n-th row.
// The sums of the lines are added in shared memory, so partial sums need no buffer.
void pc::kernels::columnSums(Kernel &kernel, int64_t rows, int64_t columns, int64_t count,
                             llvm::function_ref<Emitter::Carried(Num, Num, int64_t)> terms,
                             llvm::function_ref<void(Num, const Emitter::Carried &)> finish) {
  SimtEmitter &e = *kernel.simt;
  constexpr int64_t threads = 256;
  const int64_t width = e.widthFor(columns), vectors = columns / width;
  // `lines` threads share a column, each with at least about four rows.
  const int64_t lines = std::clamp<int64_t>(llvm::bit_floor(uint64_t(rows) / 4 + 1), 1, threads);
  const int64_t perBlock = threads / lines;
  kernel.items = llvm::divideCeil(vectors, perBlock);
  e.teams(kernel.items, threads, 1, [&](Num item) {
    Num vector = item * perBlock + e.rank % e.integer(perBlock), line = e.rank / e.integer(perBlock);
    Num exists = vector < e.integer(vectors);
    Num column = e.select(exists, vector, e.integer(vectors - 1)) * width;
    Emitter::Carried sums = e.unrolled(line, rows, lines, Emitter::Carried(count, e.zeros(width)),
                                       [&](Num row, const Emitter::Carried &sums) {
                                         Emitter::Carried next;
                                         for (auto [sum, term] : llvm::zip_equal(sums, terms(row, column, width)))
                                           next.push_back(sum + term);
                                         return next;
                                       });
    if (lines == 1)
      return e.when(exists, [&] { finish(column, sums); });
    // Their sums are added pair by pair, so the order does not depend on timing.
    Ptr memory = e.shared(threads * count * width);
    auto slot = [&](Num thread, int64_t c) { return (thread + c * threads) * width; };
    for (auto [c, sum] : llvm::enumerate(sums))
      memory.store(sum, slot(e.rank, c));
    for (int64_t half = lines / 2; half >= 1; half /= 2) {
      e.barrier();
      e.when(line < e.integer(half), [&] {
        for (int64_t c = 0; c < count; ++c) {
          Num other = memory.load(slot(e.rank + half * perBlock, c), width);
          memory.store(memory.load(slot(e.rank, c), width) + other, slot(e.rank, c));
        }
      });
    }
    e.when(line < e.integer(1), [&] {
      e.when(exists, [&] {
        Emitter::Carried totals;
        for (int64_t c = 0; c < count; ++c)
          totals.push_back(memory.load(slot(e.rank, c), width));
        finish(column, totals);
      });
    });
  });
}
