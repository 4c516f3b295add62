//===- KernelCheck.cpp - Kernels of a device against those of the CPU -----===//
// The cases are in the program's description: buffers in the arena, launches, allowed differences. Operands follow from
// their offsets and are the same on host and device; results are filled with NaNs before a run, so that elements that
// are not written are found. Times evict the operands from the cache first.
//===----------------------------------------------------------------------===//
#include "cuda/KernelCheck.h"
#include "base/Failure.h"
#include "base/Types.h"
#include "cpu/PlainGemm.h"
#include "cpu/Pool.h"
#include "cuda/Memory.h"
#include "cuda/Products.h"
#include "pcrt/block_codes.h"
#include "pcrt/float8.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <sys/mman.h>
#include <thread>

using namespace pcrt;
using namespace pcrt::cuda;

namespace {

/// A tensor in the arena, and how its operands are drawn.
struct Buffer {
  explicit Buffer(const Json &json)
      : offset(json.at("offset")), elements(json.at("elements")), dtype(json.at("dtype")),
        below(json.value("below", int64_t(1))), run(json.value("run", int64_t(-1))),
        positive(json.value("positive", false)), chosen(json.value("chosen", int64_t(0))),
        of(json.value("of", int64_t(1))) {}
  bool isFloat8() const { return dtype == "e4m3" || dtype == "e5m2"; }
  int64_t bytes() const { return elements * (dtype == "i8" || isFloat8() ? 1 : dtype == "bf16" ? 2 : 4); }

  int64_t offset, elements;
  std::string dtype;
  int64_t below; ///< i32
  int64_t run;   ///< i32: element i is i modulo `below` if 0, otherwise i / run, limited to below `below`; random if -1
  bool positive;
  int64_t chosen, of; ///< a mask of experts: of every `of` neighbouring numbers, `chosen` are 1 and the others 0
};

std::vector<Buffer> buffers(const Json &list) {
  std::vector<Buffer> all;
  for (const Json &entry : list)
    all.emplace_back(entry);
  return all;
}

pcrt_float8 formatOf(const std::string &dtype) { return dtype == "e4m3" ? pcrt_e4m3() : pcrt_e5m2(); }

double load(const char *at, const std::string &dtype, int64_t i) {
  if (dtype == "e4m3" || dtype == "e5m2")
    return pcrt_number_of_float8(formatOf(dtype), static_cast<uint8_t>(at[i]));
  if (dtype == "bf16") {
    uint16_t half;
    memcpy(&half, at + 2 * i, 2);
    return double(bf16ToFloat(half));
  }
  float single;
  memcpy(&single, at + 4 * i, 4);
  if (dtype == "f32")
    return double(single);
  int32_t whole;
  memcpy(&whole, at + 4 * i, 4);
  return whole;
}

double load(const char *at, int32_t dtype, int64_t i) {
  return load(at, dtype == PCRT_BF16 ? "bf16" : dtype == PCRT_E4M3 ? "e4m3" : dtype == PCRT_E5M2 ? "e5m2" : "f32", i);
}

/// The scale of element [row, i] of an operand with `rows` rows of k codes, or 1 if it has none.
double scaleOf(const char *scales, int32_t kind, int64_t rows, int64_t k, int64_t row, int64_t i) {
  return kind == PCRT_SCALES_NONE      ? 1
         : kind == PCRT_SCALES_ONE     ? load(scales, PCRT_F32, 0)
         : kind == PCRT_SCALES_VECTORS ? load(scales, PCRT_F32, i / 128 * rows + row)
                                       : load(scales, PCRT_F32, row / 128 * (k / 128) + i / 128);
}

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

double geluTanh(double x) { return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); }

/// One check of a program: it owns a session, the arenas on both sides and the CPU's threads. Throws a Failure if the
/// device fails.
class Check {
public:
  explicit Check(const Program &program)
      : program(program.abi), session(deviceOrdinal()), memory(session), beside(session), staging(session),
        kernels(session, program.abi), pool(int(std::max(1u, std::thread::hardware_concurrency()))),
        device(memory.allocate(program.abi.arena_bytes)) {
    host = static_cast<char *>(mmap(nullptr, size_t(this->program.arena_bytes), PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (host == MAP_FAILED)
      fail(PCRT_RESOURCE, "not enough host memory for a copy of the arena");
    if (this->program.num_gemms)
      products = std::make_unique<Products>(session, this->program, &kernels);
    start = session.makeEvent(true);
    end = session.makeEvent(true);
  }
  ~Check() { munmap(host, size_t(program.arena_bytes)); }

  pcrt_status run(const Json &cases) {
    Json roofs = {{"device", session.name}, {"cases", cases.size()}};
    if (!session.standin) {
      evicting = beside.allocate(evictedBytes);
      measureRoofs(roofs);
    }
    print(roofs);
    for (const Json &one : cases)
      one.contains("product") ? checkProduct(one) : checkKernel(one);
    return failed ? PCRT_VERIFICATION : PCRT_OK;
  }

private:
  static int deviceOrdinal() {
    const char *ordinal = getenv("PCRT_CUDA_DEVICE");
    return ordinal ? atoi(ordinal) : 0;
  }

  static void print(const Json &line) {
    printf("%s\n", line.dump().c_str());
    fflush(stdout);
  }

  /// Fills a buffer with random numbers in [-1, 1) or [0.1, 0.9), ids below a limit, codes, or a mask of experts. The
  /// numbers depend only on the buffer's offset.
  void fill(const Buffer &buffer) {
    char *at = host + buffer.offset;
    pool.ranges(buffer.elements, [&](int, int64_t lo, int64_t hi) {
      for (int64_t i = lo; i < hi; ++i) {
        uint64_t bits = mix(uint64_t(buffer.offset + i) * 0x9e3779b97f4a7c15u + 1);
        if (buffer.dtype == "i8") {
          at[i] = char(bits >> 56);
          continue;
        }
        if (buffer.isFloat8()) { // numbers in [-1, 1), like other operands
          while (!(std::fabs(pcrt_number_of_float8(formatOf(buffer.dtype), uint8_t(bits >> 56))) < 1))
            bits = mix(bits);
          at[i] = char(bits >> 56);
          continue;
        }
        if (buffer.dtype == "i32") {
          int64_t id64 = buffer.run < 0    ? int64_t(bits % uint64_t(buffer.below))
                         : buffer.run == 0 ? i % buffer.below
                                           : std::min(i / buffer.run, buffer.below - 1);
          auto id = int32_t(id64);
          memcpy(at + 4 * i, &id, 4);
          continue;
        }
        float unit = float(bits >> 40) / float(1 << 24), value = buffer.positive ? 0.1f + 0.8f * unit : 2 * unit - 1;
        if (buffer.chosen)
          value = isChosen(buffer, i) ? 1 : 0;
        uint16_t half = floatToBf16(value);
        buffer.dtype == "bf16" ? memcpy(at + 2 * i, &half, 2) : memcpy(at + 4 * i, &value, 4);
      }
    });
  }

  /// Returns true if entry `i` of a mask has one of the smallest draws of its token.
  static bool isChosen(const Buffer &buffer, int64_t i) {
    auto draw = [&](int64_t at) { return std::pair(mix(uint64_t(buffer.offset + at) * 0x9e3779b97f4a7c15u), at); };
    int64_t first = i / buffer.of * buffer.of, smaller = 0;
    for (int64_t other = first; other < first + buffer.of; ++other)
      smaller += draw(other) < draw(i);
    return smaller < buffer.chosen;
  }

  /// Fills operands with random numbers and all other results with NaNs, on the host and the device.
  void prepare(const std::vector<Buffer> &inputs, const std::vector<Buffer> &outputs) {
    for (const Buffer &buffer : outputs)
      memset(host + buffer.offset, 0xff, size_t(buffer.bytes()));
    for (const Buffer &buffer : inputs)
      fill(buffer);
    for (const auto *list : {&inputs, &outputs})
      for (const Buffer &buffer : *list)
        staging.write(device + buffer.offset, host + buffer.offset, buffer.bytes());
  }

  void launch(const Json &launches) {
    for (const Json &one : launches) {
      std::vector<void *> args;
      for (int64_t offset : one.at("offsets"))
        args.push_back(device + offset);
      session.check(kernels.launch(one.at("kernel"), args.data()), "launch a kernel");
    }
  }

  void runOnHost(const Json &launches) {
    for (const Json &one : launches) {
      const pcrt_kernel &kernel = program.kernels[one.at("kernel").get<int>()];
      std::vector<void *> args;
      for (int64_t offset : one.at("offsets"))
        args.push_back(host + offset);
      pool.ranges(kernel.items, [&](int, int64_t lo, int64_t hi) {
        void *scratch = aligned_alloc(64, size_t(kernel.scratch_bytes + 127) / 64 * 64);
        kernel.fn(args.data(), lo, hi, scratch);
        free(scratch);
      });
    }
  }

  /// The largest difference over all results.
  double compare(const std::vector<Buffer> &outputs) {
    double worst = 0;
    for (const Buffer &buffer : outputs) {
      std::vector<char> got(size_t(buffer.bytes()));
      staging.read(got.data(), device + buffer.offset, buffer.bytes());
      worst = std::max(worst, largestDifference(pool, buffer.dtype, buffer.elements, host + buffer.offset, got.data()));
    }
    return worst;
  }

  struct Times {
    double median, low, high; ///< Seconds; low and high are the 10th and the 90th percentile.
  };

  /// Times what `enqueue` enqueues. Before each run, other memory is written, to evict the operands from the cache.
  template <typename F> Times seconds(F &&enqueue) {
    constexpr int warm = 3, timed = 20;
    std::vector<double> times;
    for (int i = 0; i < warm + timed; ++i) {
      session.check(
          session.driver.cuMemsetD32Async(addressOf(evicting), uint32_t(i), evictedBytes / 4, session.compute),
          "time a kernel");
      session.check(session.driver.cuEventRecord(start, session.compute), "time a kernel");
      enqueue();
      session.check(session.driver.cuEventRecord(end, session.compute), "time a kernel");
      session.check(session.driver.cuEventSynchronize(end), "time a kernel");
      float milliseconds = 0;
      session.check(session.driver.cuEventElapsedTime_v2(&milliseconds, start, end), "time a kernel");
      if (i >= warm)
        times.push_back(double(milliseconds) * 1e-3);
    }
    std::sort(times.begin(), times.end());
    return {times[timed / 2], times[timed / 10], times[timed - 1 - timed / 10]};
  }

  void addTimes(Json &line, const Times &times) {
    line["seconds"] = times.median;
    line["seconds_spread"] = {times.low, times.high};
  }

  void checkKernel(const Json &one) {
    std::vector<Buffer> inputs = buffers(one.at("inputs")), outputs = buffers(one.at("outputs"));
    prepare(inputs, outputs);
    launch(one.at("device"));
    session.synchronize();
    runOnHost(one.at("host"));
    bool half = false;
    std::map<int64_t, int64_t> read, written; // by offset; both contain buffers that are updated in place
    for (const Buffer &buffer : inputs)
      read[buffer.offset] = std::max(read[buffer.offset], buffer.bytes()), half |= buffer.dtype == "bf16";
    for (const Buffer &buffer : outputs)
      written[buffer.offset] = std::max(written[buffer.offset], buffer.bytes()), half |= buffer.dtype == "bf16";
    int64_t bytes = 0;
    for (const auto *ranges : {&read, &written})
      for (auto [offset, size] : *ranges)
        bytes += size;
    Json line = {{"kernel", one.at("name")}, {"kind", one.at("kind")}, {"bytes", bytes}};
    if (double flops = one.value("flops", 0.0); flops > 0)
      line["flops"] = flops;
    finish(line, compare(outputs), half ? 2e-2 : 1e-4);
    if (!session.standin)
      addTimes(line, seconds([&] { launch(one.at("device")); }));
    print(line);
  }

  void finish(Json &line, double error, double allowed) {
    bool good = error <= allowed;
    failed |= !good;
    line["error"] = std::isfinite(error) ? Json(error) : Json("not finite");
    line["allowed"] = allowed;
    line["ok"] = good;
  }

  void checkProduct(const Json &one) {
    int index = one.at("product");
    const pcrt_gemm_desc &d = program.gemms[index];
    const Json &offsets = one.at("offsets");
    auto on = [&](char *base, int i) {
      return offsets[i].get<int64_t>() < 0 ? nullptr : base + offsets[i].get<int64_t>();
    };
    ProductCall call{index, on(device, 0), on(device, 1), on(device, 2), on(device, 3), on(device, 4)};
    prepare(buffers(one.at("inputs")), {});
    products->prepare({call}, device + program.workspace_offset, [] {});
    prepare(buffers(one.at("inputs")), {}); // the kernel that was run may have written there
    auto enqueue = [&] {
      if (BlasStatus status = products->run(call))
        fail(PCRT_INTERNAL, std::string(d.name) + ": cuBLASLt says " + products->describe(status));
    };
    enqueue();
    session.synchronize();
    Json line = {{"product", one.at("name")},
                 {"shape", {d.batch, d.m, d.n, d.k}},
                 {"epilogue", d.epilogue},
                 {"flops", 2.0 * double(d.batch) * double(d.m) * double(d.n) * double(d.k)}};
    finish(line, sample(d, call, on(host, 0), on(host, 1), on(host, 3), on(host, 4)),
           d.c_dtype == PCRT_BF16 ? 2e-2 : 1e-4);
    if (!session.standin)
      addTimes(line, seconds(enqueue));
    print(line);
  }

  /// The largest difference of some elements of a product from sums in double precision, relative to the typical size
  /// of such sums.
  double sample(const pcrt_gemm_desc &d, const ProductCall &call, const char *a, const char *b, const char *bias,
                const char *aux) {
    const bool codes = d.a_scales != PCRT_SCALES_NONE;    // bias and aux are scales of a and b
    double worst = 0, scale = std::sqrt(double(d.k)) / 3; // the operands are numbers in [-1, 1)
    auto readOne = [&](const void *at, int32_t dtype, int64_t i) {
      char bytes[4] = {};
      int64_t width = dtype == PCRT_BF16 ? 2 : 4;
      staging.read(bytes, static_cast<const char *>(at) + i * width, width);
      return load(bytes, dtype, 0);
    };
    auto note = [&](double want, double got) {
      double apart = std::fabs(want - got) / std::max(scale, std::fabs(want));
      worst = apart <= worst ? worst : apart;
    };
    for (uint64_t i = 0; i < 64; ++i) {
      int64_t batch = int64_t(mix(3 * i) % uint64_t(d.batch)), m = int64_t(mix(3 * i + 1) % uint64_t(d.m)),
              n = int64_t(mix(3 * i + 2) % uint64_t(d.n)),
              at = batch * d.c_batch_stride + m * d.c_m_stride + n * d.c_n_stride;
      double sum = 0, column = 0, squares = 0;
      for (int64_t k = 0; k < d.k; ++k) {
        double right = load(b, d.b_dtype, batch * d.b_batch_stride + k * d.b_k_stride + n * d.b_n_stride),
               left = load(a, d.a_dtype, batch * d.a_batch_stride + m * d.a_m_stride + k * d.a_k_stride);
        right *= scaleOf(aux, d.b_scales, d.n, d.k, n, k);
        left *= scaleOf(bias, d.a_scales, d.m, d.k, m, k);
        sum += left * right;
        squares += left * right * left * right;
        column += right;
      }
      if (codes) // most codes are small numbers
        scale = std::sqrt(squares);
      if (d.epilogue == PCRT_EPILOGUE_BIAS || d.epilogue == PCRT_EPILOGUE_GELU_BIAS)
        sum += load(bias, d.c_dtype, n);
      if (d.epilogue == PCRT_EPILOGUE_GELU_BIAS) {
        note(sum, readOne(call.aux, d.c_dtype, at));
        sum = geluTanh(sum);
      }
      if (d.epilogue == PCRT_EPILOGUE_GELU_GRAD) {
        double x = load(aux, d.c_dtype, at);
        sum *= (geluTanh(x + 1e-4) - geluTanh(x - 1e-4)) / 2e-4;
      }
      if (d.epilogue == PCRT_EPILOGUE_BIAS_GRAD)
        note(column, readOne(call.bias, d.c_dtype, n));
      note(sum, readOne(call.c, d.c_dtype, at));
    }
    return worst;
  }

  /// Measures the rates of a large copy and a large product.
  void measureRoofs(Json &roofs) {
    constexpr int64_t size = 8192, matrix = 2 * size * size, scratch = 64 << 20;
    DeviceArena own(session);
    char *base = own.allocate(3 * matrix + scratch);
    auto copyOnce = [&] {
      session.check(session.driver.cuMemcpyDtoDAsync_v2(addressOf(base), addressOf(base + matrix), size_t(matrix),
                                                        session.compute),
                    "copy");
    };
    double copy = seconds(copyOnce).median;
    roofs["copy_bytes_per_second"] = 2 * double(matrix) / copy;
    std::vector<uint16_t> noise(size_t(size * size));
    for (size_t i = 0; i < noise.size(); ++i)
      noise[i] = floatToBf16(float(mix(i) >> 40) / float(1 << 23) - 1);
    for (int i = 0; i < 2; ++i)
      staging.write(base + i * matrix, noise.data(), matrix);
    pcrt_gemm_desc d{};
    d.name = "8192 x 8192 x 8192";
    d.batch = 1, d.m = d.n = d.k = size;
    d.a_m_stride = d.b_k_stride = d.c_m_stride = size, d.a_k_stride = d.b_n_stride = d.c_n_stride = 1;
    d.a_dtype = d.b_dtype = d.c_dtype = PCRT_BF16;
    pcrt_program one{};
    one.num_gemms = 1, one.gemms = &d, one.workspace_bytes = scratch;
    Products large(session, one);
    ProductCall call{0, base, base + matrix, base + 2 * matrix, nullptr, nullptr};
    large.prepare({call}, base + 3 * matrix, [] {});
    roofs["bf16_flops_per_second"] =
        2.0 * double(size) * double(size) * double(size) / seconds([&] { (void)large.run(call); }).median;
  }

  const pcrt_program &program;
  Session session;
  DeviceArena memory, beside;
  Staging staging;
  Kernels kernels;
  std::unique_ptr<Products> products;
  Pool pool;
  static constexpr int64_t evictedBytes = 256 << 20; ///< More than any device's cache.
  char *device, *host = nullptr, *evicting = nullptr;
  Event start = nullptr, end = nullptr;
  bool failed = false;
};

} // namespace

double pcrt::largestDifference(Pool &pool, const std::string &dtype, int64_t elements, const char *want,
                               const char *got) {
  if (dtype == "i8")
    return pcrt_are_codes(reinterpret_cast<const int8_t *>(got), reinterpret_cast<const int8_t *>(want), elements)
               ? 0
               : INFINITY;
  if (dtype == "e4m3" || dtype == "e5m2")
    return memcmp(got, want, size_t(elements)) == 0 ? 0 : INFINITY;
  std::vector<double> apart(size_t(pool.size())), largest(size_t(pool.size()));
  pool.ranges(elements, [&](int thread, int64_t lo, int64_t hi) {
    for (int64_t i = lo; i < hi; ++i) {
      double expected = load(want, dtype, i), have = load(got, dtype, i);
      if (std::isfinite(expected))
        largest[thread] = std::max(largest[thread], std::fabs(expected));
      if (expected == have || (std::isnan(expected) && std::isnan(have)))
        continue;
      double difference = std::fabs(expected - have);
      apart[thread] = std::isfinite(difference) ? std::max(apart[thread], difference) : INFINITY;
    }
  });
  double most = *std::max_element(apart.begin(), apart.end());
  return most == 0 ? 0 : most / *std::max_element(largest.begin(), largest.end());
}

pcrt_status pcrt::checkKernels(const Program &program) {
  Json json = Json::parse(program.abi.json, program.abi.json + program.abi.json_bytes);
  if (!json.contains("cases"))
    fail(PCRT_USAGE, "--check-kernels needs a program compiled with pc-compile --target=cuda --check-kernels");
  return Check(program).run(json.at("cases"));
}
