//===- kernels-on-host.cpp - Correct and broken kernels on the stand-in's fibers -===//
// Intact kernels must give correct results in every order of threads and no report. If one of their barriers or waits
// is left out, there must be a report. Broken kernels must cause a report that names the fault and both places.
//===----------------------------------------------------------------------===//
#include "../../Checks.h"
#include "Gpu/Images.h"
#include "standin/kernel/AccessChecker.h"
#include "standin/kernel/Kernel.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Parser/Parser.h"
#include <bit>
#include <climits>
#include <cmath>
#include <functional>
#include <sys/mman.h>

using namespace pc::standin;

namespace {
/// A device buffer of 4-byte words.
struct Buffer {
  size_t words;
  bool written = false; ///< holds data before the launch
  std::function<uint32_t(size_t)> fill = [](size_t) { return 0u; };
};
uint32_t word(float f) { return std::bit_cast<uint32_t>(f); }
float real(uint32_t w) { return std::bit_cast<float>(w); }
Buffer reals(size_t n, std::function<float(size_t)> f) {
  return {n, true, [f](size_t i) { return word(f(i)); }};
}
Buffer zeros(size_t n) {
  return {n, true, [](size_t) { return 0u; }};
}
Buffer fresh(size_t n) { return {n}; }

using Words = std::vector<uint32_t *>;
struct Case {
  std::string kernel;
  std::array<uint32_t, 3> grid, block;
  std::vector<Buffer> buffers;
  /// Describes what is wrong with the results; empty if nothing is.
  std::function<std::string(const Words &)> verify;
  uint32_t dynamicShared = 0;
  int redundant = 0; ///< barriers that nothing depends on
};

/// Memory of the "device", with room between buffers.
struct Arena {
  static constexpr size_t size = 1 << 20;
  uint8_t *base =
      static_cast<uint8_t *>(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  AccessChecker checker;
  Arena() { checker.addRegion(base, size); }

  std::string run(const KernelImage &image, const Case &c, uint64_t order, bool check, int64_t skip, Words &words) {
    checker.setState(base, size, ByteState::Unallocated);
    words.clear();
    std::vector<void *> addresses;
    size_t offset = 256;
    for (const Buffer &buffer : c.buffers) {
      auto *data = reinterpret_cast<uint32_t *>(base + offset);
      for (size_t i = 0; i < buffer.words; ++i)
        data[i] = buffer.written ? buffer.fill(i) : 0xFFFFFFFFu;
      checker.setState(data, 4 * buffer.words, buffer.written ? ByteState::Written : ByteState::Allocated);
      words.push_back(data);
      offset = (offset + 4 * buffer.words + 511) / 256 * 256;
    }
    std::vector<void *> params;
    for (uint32_t *&data : words)
      params.push_back(&data);
    KernelLaunch launch;
    launch.module = image.module;
    launch.kernel = image.find(c.kernel);
    if (!launch.kernel)
      return "no kernel " + c.kernel;
    std::copy(c.grid.begin(), c.grid.end(), launch.grid);
    std::copy(c.block.begin(), c.block.end(), launch.block);
    launch.dynamicShared = c.dynamicShared;
    launch.params = params.data();
    launch.order = order;
    launch.checker = check ? &checker : nullptr;
    launch.skippedSite = skip;
    return pc_run_kernel(launch);
  }
};

std::string wrongAt(size_t i, double got, double want) {
  return "element " + std::to_string(i) + " is " + std::to_string(got) + ", should be " + std::to_string(want);
}

float sample(size_t i) { return float((i * 2654435761u >> 8) % 2001) / 500 - 2; }

/// Both signs, all magnitudes from 1e-6 to 1e2, and special values.
float spread(size_t i) {
  const float special[] = {0, -0.f, INFINITY, -INFINITY, NAN, 1, 88.8f, -87.5f, -103.f, 1e-40f, 3e38f, -1};
  if (i < std::size(special))
    return special[i];
  float magnitude = std::pow(10.f, float(i % 1024) / 128 - 6);
  return (i & 1024 ? -1 : 1) * magnitude * (1 + float(i >> 11) / 3);
}

std::vector<Case> intactCases() {
  std::vector<Case> cases;
  cases.push_back(
      {"axpy", {4, 1, 1}, {64, 1, 1}, {reals(1024, sample), fresh(1024)}, [](const Words &w) -> std::string {
         for (size_t i = 0; i < 1024; ++i)
           if (real(w[1][i]) != std::fmaf(2, sample(i), 1))
             return wrongAt(i, real(w[1][i]), 2 * sample(i) + 1);
         return "";
       }});
  cases.push_back(
      {"softmax", {3, 1, 1}, {128, 1, 1}, {reals(3000, sample), fresh(3000)}, [](const Words &w) -> std::string {
         for (size_t row = 0; row < 3; ++row) {
           double sum = 0;
           for (size_t j = 0; j < 1000; ++j)
             sum += std::exp(double(sample(1000 * row + j)));
           for (size_t j = 0; j < 1000; ++j) {
             double want = std::exp(double(sample(1000 * row + j))) / sum, got = real(w[1][1000 * row + j]);
             if (!(std::fabs(got - want) <= 1e-6 * want))
               return wrongAt(1000 * row + j, got, want);
           }
         }
         return "";
       }});
  cases.push_back(
      {"sum_rows", {3, 1, 1}, {256, 1, 1}, {reals(3000, sample), fresh(3)}, [](const Words &w) -> std::string {
         for (size_t row = 0; row < 3; ++row) {
           double sum = 0;
           for (size_t j = 0; j < 1000; ++j)
             sum += sample(1000 * row + j);
           if (!(std::fabs(real(w[1][row]) - sum) < 1e-3))
             return wrongAt(row, real(w[1][row]), sum);
         }
         return "";
       }});
  cases.back().redundant = 1; // upstream's last one, which guards the next reduction
  cases.push_back(
      {"transpose", {3, 1, 1}, {32, 8, 1}, {reals(64 * 96, sample), fresh(96 * 64)}, [](const Words &w) -> std::string {
         for (size_t i = 0; i < 64 * 96; ++i)
           if (w[1][i % 96 * 64 + i / 96] != word(sample(i)))
             return wrongAt(i, real(w[1][i % 96 * 64 + i / 96]), sample(i));
         return "";
       }});
  cases.back().redundant = 1; // after the last tile
  auto a = [](size_t row, size_t k) { return float(int(row * 7 + k * 3) % 11 - 5); };
  auto b = [](size_t column, size_t k) { return float(int(k * 5 + column) % 7 - 3); };
  auto pair = [](float low, float high) { return (word(high) & 0xffff0000u) | word(low) >> 16; };
  cases.push_back({"matmul",
                   {1, 1, 1},
                   {32, 1, 1},
                   {{128, true, [=](size_t i) { return pair(a(i / 8, i % 8 * 2), a(i / 8, i % 8 * 2 + 1)); }},
                    {64, true, [=](size_t i) { return pair(b(i / 8, i % 8 * 2), b(i / 8, i % 8 * 2 + 1)); }},
                    fresh(128)},
                   [=](const Words &w) -> std::string {
                     for (size_t i = 0; i < 128; ++i) {
                       float want = 0;
                       for (size_t k = 0; k < 16; ++k)
                         want += a(i / 8, k) * b(i % 8, k);
                       if (real(w[2][i]) != want)
                         return wrongAt(i, real(w[2][i]), want);
                     }
                     return "";
                   }});
  cases.push_back({"pipeline",
                   {1, 1, 1},
                   {64, 1, 1},
                   {{2048, true, [](size_t i) { return uint32_t(i * i); }}, fresh(256)},
                   [](const Words &w) -> std::string {
                     for (size_t i = 0; i < 256; ++i) {
                       uint32_t want = 0;
                       for (size_t tile = 0; tile < 8; ++tile)
                         want += uint32_t((256 * tile + 255 - i) * (256 * tile + 255 - i));
                       if (w[1][i] != want)
                         return wrongAt(i, w[1][i], want);
                     }
                     return "";
                   }});
  cases.back().redundant = 1; // after the last tile
  cases.push_back({"mixed",
                   {1, 1, 1},
                   {96, 1, 1},
                   {fresh(96 * 6), zeros(2), zeros(2), fresh(96)},
                   [](const Words &w) -> std::string {
                     for (uint32_t t = 0; t < 96; ++t) {
                       uint32_t lane = t % 32, base = t - lane;
                       uint32_t want[6] = {t ^ 3, lane ? t - 1 : t, lane < 31 ? t + 1 : t, base + 3, lane != 0, lane};
                       for (size_t j = 0; j < 6; ++j)
                         if (w[0][6 * t + j] != want[j])
                           return wrongAt(6 * t + j, w[0][6 * t + j], want[j]);
                       if (real(w[3][t]) != float(95 - t))
                         return wrongAt(t, real(w[3][t]), 95 - t);
                     }
                     bool sums = real(w[1][0]) == 95 * 48 && w[2][0] == 95 * 48 && w[2][1] == 95;
                     return sums ? "" : "an atomic result is wrong";
                   },
                   96 * 4});
  cases.push_back({"round", {1, 1, 1}, {128, 1, 1}, {reals(128, sample), fresh(64)}, [](const Words &w) -> std::string {
                     for (size_t i = 0; i < 128; ++i) {
                       uint32_t bits = word(sample(i)), want = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
                       uint32_t got = w[1][i / 2] >> (16 * (i % 2)) & 0xffff;
                       if (got != want)
                         return wrongAt(i, got, want);
                     }
                     return "";
                   }});
  cases.push_back(
      {"warp_reverse", {1, 1, 1}, {64, 1, 1}, {reals(64, sample), fresh(64)}, [](const Words &w) -> std::string {
         for (size_t i = 0; i < 64; ++i)
           if (w[1][i] != word(sample(i ^ 31)))
             return wrongAt(i, real(w[1][i]), sample(i ^ 31));
         return "";
       }});
  cases.push_back({"functions", {16, 1, 1}, {256, 1, 1}, {reals(4096, spread), fresh(6 * 4096)}, [](const Words &w) {
                     const char *names[] = {"exp", "log", "tanh", "erf", "sin", "cos"};
                     double (*exact[])(double) = {std::exp, std::log, std::tanh, std::erf, std::sin, std::cos};
                     for (size_t f = 0; f < 6; ++f) {
                       double worst = 0;
                       for (size_t i = 0; i < 4096; ++i) {
                         float x = spread(i), got = real(w[1][4096 * f + i]), want = float(exact[f](x));
                         // The result is NaN for angles that cannot be reduced exactly.
                         if (f >= 4 && std::fabs(x) >= 0x1p50f)
                           want = NAN;
                         if (std::isnan(want) ? std::isnan(got) : got == want)
                           continue;
                         double ulp = std::max(std::ldexp(1.0, std::ilogb(want) - 23), 1e-38);
                         double error = std::fabs(got - exact[f](x)) / ulp;
                         if (!(error <= 4))
                           return std::string(names[f]) + " of " + std::to_string(x) + ": " + wrongAt(i, got, want) +
                                  ", " + std::to_string(error) + " units";
                         worst = std::max(worst, error);
                       }
                       if (getenv("PC_VERBOSE"))
                         llvm::outs() << names[f] << ": at most " << worst << " units in the last place\n";
                     }
                     return std::string();
                   }});
  cases.push_back(
      {"tail", {1, 1, 1}, {64, 1, 1}, {reals(250, sample), fresh(250), fresh(64)}, [](const Words &w) -> std::string {
         for (size_t i = 0; i < 250; ++i)
           if (real(w[1][i]) != -sample(i))
             return wrongAt(i, real(w[1][i]), -sample(i));
         for (size_t i = 0; i < 62; ++i)
           if (float x = sample(4 * i); std::fabs(x) > 0.3f && w[2][i] != (x < 0 ? 0x80000000u : 0x7fffffffu))
             return wrongAt(i, w[2][i], x < 0 ? INT_MIN : INT_MAX);
         return "";
       }});
  return cases;
}

void runIntact(const KernelImage &image) {
  Arena arena;
  Words words;
  for (const Case &c : intactCases())
    for (bool check : {false, true})
      for (uint64_t order : {0, 1, 2, 3, 4, 5}) {
        std::string fault = arena.run(image, c, order, check, -1, words);
        std::string name = c.kernel + (check ? ", checked" : "") + ", order " + std::to_string(order);
        expect(fault.empty(), name + ": " + fault);
        if (fault.empty()) {
          std::string wrong = c.verify(words);
          expect(wrong.empty(), name + ": " + wrong);
        }
      }
}

bool synchronizes(int32_t kind) {
  return kind == PCRT_SITE_BARRIER || kind == PCRT_SITE_SYNCWARP || kind == PCRT_SITE_WAIT;
}

/// Leaves out one barrier or wait at a time. In every order the checker must report it.
void runWithoutEach(const KernelImage &image) {
  Arena arena;
  Words words;
  int left = 0;
  for (const Case &c : intactCases()) {
    int silent = 0;
    for (uint32_t site = 0; site < image.module->num_sites; ++site) {
      const pcrt_host_site &where = image.module->sites[site];
      if (c.kernel != where.kernel || !synchronizes(where.kind))
        continue;
      bool used = false, named = true;
      std::string first;
      for (uint64_t order : {0, 1, 2, 3}) {
        std::string fault = arena.run(image, c, order, true, site, words);
        named &= !fault.empty();
        used |= !fault.empty();
        if (first.empty())
          first = fault;
      }
      // A checked run never reaches the sites of the unchecked variant.
      std::string text = where.text;
      if (!used) {
        silent += 1;
        continue;
      }
      ++left;
      expect(named, c.kernel + " without the " + text + ": a report in some orders only");
      if (getenv("PC_VERBOSE"))
        llvm::outs() << "without the " << text << ": " << first << "\n";
    }
    // Half of the sites belong to the unchecked variant.
    int all = 0;
    for (uint32_t site = 0; site < image.module->num_sites; ++site)
      all += c.kernel == image.module->sites[site].kernel && synchronizes(image.module->sites[site].kind);
    expect(silent == all / 2 + c.redundant, c.kernel + ": " + std::to_string(silent - all / 2) +
                                                " barriers or waits can go without a report, expected " +
                                                std::to_string(c.redundant));
  }
  llvm::outs() << left << " barriers and waits left out, one at a time: each reported\n";
}

void runBroken(const KernelImage &image) {
  struct Fault {
    std::string kernel;
    uint32_t blocks;
    std::vector<std::string> words; ///< all in the report
    bool unchecked;                 ///< whether it is also seen without the checker
  };
  const Fault faults[] = {
      {"reuse", 1, {"data race", "shared memory", "(store #", "(load #", "unordered with a"}, false},
      {"exchange", 1, {"reads 4 bytes at byte", "shared memory", "load #"}, false},
      {"two_blocks",
       2,
       {"data race", "writes 4 bytes", "unordered with a write of thread", "of block", "broken.mlir:"},
       false},
      {"in_place", 3, {"data race", "of block"}, false},
      {"early", 1, {"threads wait for threads that never arrive", "200 at barrier", "56 returned"}, true},
      {"arms", 1, {"barriers in divergent code", "barrier #"}, true},
      {"some_lanes", 1, {"threads wait for threads that never arrive", "20 at shuffle"}, true},
      {"some_lanes_mma", 1, {"threads wait for threads that never arrive", "20 at mma"}, true},
      {"lost_update", 1, {"data race", "byte 0 of shared memory"}, false},
      {"misaligned", 1, {"misaligned", "16 bytes", "load #"}, false},
      {"past_the_end", 1, {"out of bounds", "thread 255,0,0", "load #"}, false},
      {"past_shared", 1, {"out of bounds", "thread 255,0,0", "shared memory", "store #"}, false},
      {"never_written", 1, {"never written", "load #"}, false},
      {"no_wait", 1, {"missing wait", "asynchronous copy #"}, false},
      {"no_group", 1, {"missing wait", "asynchronous copy #"}, false},
      {"warp_only", 1, {"shared memory", "load #"}, false},
  };
  Arena arena;
  Words words;
  for (const Fault &fault : faults) {
    Case c{fault.kernel,
           {fault.blocks, 1, 1},
           {256, 1, 1},
           {reals(1024, [](size_t i) { return float(i); }), fresh(1024)},
           {}};
    for (bool check : {true, false})
      for (uint64_t order : {0, 1, 2, 3, 4, 5}) {
        if (!check && !fault.unchecked)
          continue;
        std::string report = arena.run(image, c, order, check, -1, words);
        for (const std::string &word : fault.words)
          expect(report.find(word) != std::string::npos,
                 fault.kernel + ", order " + std::to_string(order) + ": \"" + report + "\" lacks \"" + word + "\"");
        if (getenv("PC_VERBOSE") && order == 0)
          llvm::outs() << report << "\n";
      }
  }
}

/// Compares the checker's list of accessed bytes with the exact list for a launch.
void checkRanges(const KernelImage &image) {
  Arena arena;
  Words words;
  Case c = intactCases()[1]; // softmax: reads x, writes and reads y
  expect(arena.run(image, c, 0, true, -1, words).empty(), "softmax runs");
  auto ranges = arena.checker.accesses();
  expect(ranges.size() == 3 && !ranges[0].write && ranges[0].begin == words[0] && ranges[0].bytes == 12000 &&
             !ranges[1].write && ranges[1].begin == words[1] && ranges[2].write && ranges[2].begin == words[1] &&
             ranges[2].bytes == 12000,
         "softmax reads x and writes y, all of both");
}

void checkLaunches(const KernelImage &image) {
  Arena arena;
  Words words;
  Case c = intactCases()[0];
  c.block[0] = 32;
  expect(arena.run(image, c, 0, false, -1, words).find("launched with 32x1x1 threads, compiled for 64x1x1") !=
             std::string::npos,
         "a launch with another block than compiled for is refused");
  c.block[0] = 2048;
  expect(arena.run(image, c, 0, false, -1, words).find("no device can run") != std::string::npos,
         "more threads than a block may have");
  c = intactCases()[6];
  c.dynamicShared = 300 << 10;
  expect(arena.run(image, c, 0, false, -1, words).find("bytes of shared memory, but a block may have") !=
             std::string::npos,
         "more shared memory than a block may have");
}

std::string hostImage(mlir::MLIRContext &context, llvm::StringRef path, llvm::StringRef cudaPath) {
  auto module = mlir::parseSourceFile<mlir::ModuleOp>(path, &context);
  if (!module)
    return "";
  pc::GpuTargetOptions options;
  options.archs = {"sm_80"};
  options.emitCubins = false;
  options.emitHostImage = true;
  options.cudaPath = cudaPath;
  auto images = pc::compileGpuModule(*module->getOps<mlir::gpu::GPUModuleOp>().begin(), options);
  return failed(images) ? "" : images->back().bytes;
}
} // namespace

int main(int argc, char **argv) {
  if (argc != 2) {
    llvm::errs() << "usage: kernels-on-host DIRECTORY\n";
    return 2;
  }
  mlir::DialectRegistry registry;
  registry
      .insert<mlir::arith::ArithDialect, mlir::cf::ControlFlowDialect, mlir::gpu::GPUDialect, mlir::LLVM::LLVMDialect,
              mlir::math::MathDialect, mlir::memref::MemRefDialect, mlir::NVVM::NVVMDialect, mlir::nvgpu::NVGPUDialect,
              mlir::scf::SCFDialect, mlir::vector::VectorDialect>();
  mlir::MLIRContext context(registry);
  auto load = [&](const char *name, KernelImage &image, llvm::StringRef cudaPath = "") {
    std::string bytes = hostImage(context, std::string(argv[1]) + "/" + name, cudaPath);
    std::string error = bytes.empty() ? "does not compile" : loadKernelImage(bytes.data(), bytes.size(), image);
    expect(error.empty(), std::string(name) + ": " + error);
    return error.empty();
  };
  KernelImage intact, broken, withoutCuda;
  if (load("intact.mlir", intact)) {
    runIntact(intact);
    runWithoutEach(intact);
    checkRanges(intact);
    checkLaunches(intact);
  }
  if (load("broken.mlir", broken))
    runBroken(broken);
  if (load("intact.mlir", withoutCuda, "/nonexistent")) // our own functions instead of libdevice's
    runIntact(withoutCuda);
  return finishChecks();
}
