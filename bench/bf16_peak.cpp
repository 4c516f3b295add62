// bf16_peak: the rate of a large oneDNN matrix product in bf16 (f32 sums) on one thread and on all of them, GF/s, as
// one line of JSON: what a library reaches on this CPU, which is the peak that a step in bf16 is compared with. Every
// thread multiplies matrices of its own, which a core's cache does not hold.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.hpp>
#include <thread>
#include <vector>

namespace {

constexpr int64_t M = 1024, N = 4096, K = 1024;

/// One thread's product with its own memory.
class Product {
public:
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
    run(1);
  }

  void run(int times) {
    for (int i = 0; i < times; ++i)
      primitive.execute(stream, arguments);
    stream.wait();
  }

private:
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::matmul primitive;
  std::vector<std::vector<uint16_t>> data;
  std::unordered_map<int, dnnl::memory> arguments;
};

/// The best rate of five runs on `threads` threads, GF/s.
double measure(int threads) {
  constexpr int times = 12;
  double best = 0;
  for (int repeat = 0; repeat < 5; ++repeat) {
    std::vector<double> seconds(threads);
    std::vector<std::thread> team;
    for (int t = 0; t < threads; ++t)
      team.emplace_back([&seconds, t] {
        Product product;
        auto start = std::chrono::steady_clock::now();
        product.run(times);
        seconds[t] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      });
    for (std::thread &thread : team)
      thread.join();
    double slowest = *std::max_element(seconds.begin(), seconds.end());
    best = std::max(best, 2.0 * M * N * K * times * threads / slowest / 1e9);
  }
  return best;
}

} // namespace

int main() {
  int threads = int(std::thread::hardware_concurrency());
  double one = measure(1), all = measure(threads);
  printf("{\"threads\": %d, \"one_thread_gflops\": %.1f, \"all_threads_gflops\": %.1f}\n", threads, one, all);
}
