//===- bf16_peak.cpp - The peak rate of bf16 products on this CPU ---------===//
// Prints the rate of a large oneDNN matrix product in bf16 (f32 sums) on one thread and on all of them, GF/s, as one
// line of JSON. This is what a library reaches on this CPU, the peak with which a step in bf16 is compared. Every
// thread multiplies matrices of its own, which a core's cache does not hold.
//===----------------------------------------------------------------------===//
#include "peak.h"

#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.hpp>

namespace {

constexpr int64_t M = 1024, N = 4096, K = 1024;
constexpr int times = 12;

/// One thread's product with its own memory.
class Product {
public:
  static constexpr double amount = 2.0 * M * N * K * times;

  Product() {
    // oneDNN's OpenMP library comes with it; a primitive keeps the number of threads of its creation.
    if (auto *setThreads = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads")))
      setThreads(1);
    auto desc = [](int64_t rows, int64_t columns) {
      return dnnl::memory::desc({rows, columns}, dnnl::memory::data_type::bf16, dnnl::memory::dims{columns, 1});
    };
    dnnl::memory::desc a = desc(M, K), b = desc(K, N), c = desc(M, N);
    primitive = dnnl::matmul(dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, c), engine));
    for (auto [argument, memory] : {std::pair(DNNL_ARG_SRC, a), {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}}) {
      data.emplace_back(memory.get_size() / 2, uint16_t(0x3c00)); // 0.0078125
      arguments.insert({argument, dnnl::memory(memory, engine, data.back().data())});
    }
    execute(1);
  }

  void run() { execute(times); }

private:
  void execute(int count) {
    for (int i = 0; i < count; ++i)
      primitive.execute(stream, arguments);
    stream.wait();
  }

  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::matmul primitive;
  std::vector<std::vector<uint16_t>> data;
  std::unordered_map<int, dnnl::memory> arguments;
};

} // namespace

int main() { printPeak<Product>(); }
