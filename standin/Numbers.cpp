//===- Numbers.cpp - Matrix products for the library stand-ins ------------===//
// Finds dnnl_sgemm at run time, so that the stand-in needs no oneDNN.
//===----------------------------------------------------------------------===//
#include "standin/Numbers.h"

#include <algorithm>
#include <dlfcn.h>

using namespace pc::standin;

/// oneDNN's C function: row major, as BLAS; 0 is success.
using Sgemm = int (*)(char transA, char transB, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                      int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc);

static void *findLibrary() {
  for (const char *name : {"libdnnl.so.3", "libdnnl.so.2"})
    if (void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL))
      return library;
  return nullptr;
}

/// oneDNN's product on the calling thread only. Products are small, so more threads would mostly wait for each other,
/// and other devices need the cores.
static Sgemm findSgemm() {
  static void *library = findLibrary();
  if (!library)
    return nullptr;
  static auto *setNumThreads = reinterpret_cast<void (*)(int)>(dlsym(library, "omp_set_num_threads"));
  if (setNumThreads)
    setNumThreads(1); // a setting of each calling thread
  return reinterpret_cast<Sgemm>(dlsym(library, "dnnl_sgemm"));
}

void pc::standin::multiply(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
                           const float *b, int64_t ldb, float *c, int64_t ldc) {
  thread_local Sgemm sgemm = findSgemm();
  if (sgemm && k > 0 && sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k, 1, a, lda, b, ldb, 0, c, ldc) == 0)
    return;
  for (int64_t i = 0; i < m; ++i) {
    float *row = c + i * ldc;
    std::fill_n(row, n, 0.0f);
    for (int64_t p = 0; p < k; ++p) {
      float left = ta ? a[p * lda + i] : a[i * lda + p];
      for (int64_t j = 0; j < n; ++j)
        row[j] += left * (tb ? b[j * ldb + p] : b[p * ldb + j]);
    }
  }
}
