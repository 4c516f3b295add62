//===- warpgroups-on-host.cpp - Wgmma on the stand-in compared with plain products -===//
// Tests products of 64 x 32 and 32 x n integers, with all layouts of operands, in every order of threads. Then it
// leaves out one part of a kernel at a time, which must cause a report that names the part.
//===----------------------------------------------------------------------===//
#include "../../Checks.h"
#include "Gpu/Images.h"
#include "standin/kernel/AccessChecker.h"
#include "standin/kernel/Kernel.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Parser/Parser.h"
#include <bit>
#include <cstring>

using namespace pc::standin;

namespace {
constexpr unsigned rows = 64, depth = 32, threads = 128, sharedWords = 8192;
constexpr unsigned ofA = 0, ofB = 8192; ///< bytes in shared memory

/// The form of a kernel's product, and the parts that are left out.
struct Form {
  std::string name;
  unsigned n;
  bool registers;   ///< A is in registers
  bool aTransposed; ///< otherwise the rows of A are in the dim that is not summed
  bool bTransposed; ///< rows of B likewise
  bool swizzled;
  std::string without; ///< "", or the fault
};

int a(unsigned row, unsigned k) { return int(row * 7 + k * 3) % 11 - 5; }
int b(unsigned k, unsigned column) { return int(k * 5 + column * 3 + column / 8) % 13 - 6; }

/// The byte offset of element (k, i) of a matrix of 32 x `count`. Swizzled tiles have columns of 64 elements of the
/// contiguous dim and rows of 128 bytes. Other tiles have blocks of 8 rows of 16 bytes. This function does not use the
/// code for descriptors.
unsigned place(const Form &f, bool transposed, unsigned k, unsigned i, unsigned count) {
  unsigned row = transposed ? k : i, column = transposed ? i : k, height = transposed ? depth : count;
  if (!f.swizzled)
    return (column / 8 * (height / 8) + row / 8) * 128 + row % 8 * 16 + column % 8 * 2;
  unsigned chunk = column % 64 / 8 ^ row % 8;
  return column / 64 * height * 128 + row * 128 + chunk * 16 + column % 8 * 2;
}

/// The descriptor's constant bits: leading and stride offset, swizzle.
uint64_t bits(const Form &f, bool transposed, unsigned count) {
  uint64_t height = transposed ? depth : count, leading, stride;
  if (f.swizzled)
    leading = transposed ? height * 128 : 16, stride = 1024;
  else if (transposed)
    leading = 128, stride = height / 8 * 128;
  else
    leading = height / 8 * 128, stride = 128;
  return leading / 16 << 16 | stride / 16 << 32 | (f.swizzled ? uint64_t(1) << 62 : 0);
}
/// The distance in bytes between 16 elements of the summed dim and the next 16.
unsigned step(const Form &f, bool transposed, unsigned count) {
  if (f.swizzled)
    return transposed ? 2048 : 32;
  return transposed ? 256 : 2 * (count / 8) * 128;
}

std::string list(const std::string &item, unsigned from, unsigned count) {
  std::string text;
  for (unsigned i = 0; i < count; ++i)
    text += (i ? ", " : "") + item + (item.find('=') == std::string::npos ? std::to_string(from + i) : "");
  return text;
}
std::string repeated(const std::string &item, unsigned count) {
  std::string text;
  for (unsigned i = 0; i < count; ++i)
    text += (i ? ", " : "") + item;
  return text;
}

/// The kernel copies the image of A and B to shared memory, multiplies in two steps, each a group, and writes each
/// thread's sums.
std::string kernel(const Form &f) {
  const unsigned sums = f.n / 2, numA = f.registers ? 4 : 1;
  const std::string structure = "!llvm.struct<(" + repeated("f32", sums) + ")>";
  std::string text = "gpu.func @" + f.name +
                     "(%x: !llvm.ptr, %a: !llvm.ptr, %y: !llvm.ptr) kernel attributes {nvvm.reqntid = array<i32: 128, "
                     "1, 1>} {\n";
  auto line = [&](const std::string &l) { text += "  " + l + "\n"; };
  auto constant = [&](const std::string &name, uint64_t value) {
    line("%" + name + " = arith.constant " + std::to_string(int64_t(value)) + " : i64");
  };
  line("%ti = gpu.thread_id x");
  line("%t = arith.index_cast %ti : index to i64");
  constant("all", sharedWords);
  constant("threads", threads);
  constant("low", 0x3ffff);
  constant("four", 4);
  line("%shared = llvm.mlir.addressof @shared : !llvm.ptr<3>");
  line("scf.for %i = %t to %all step %threads : i64 {");
  line("  %from = llvm.getelementptr %x[%i] : (!llvm.ptr, i64) -> !llvm.ptr, i32");
  line("  %w = llvm.load %from : !llvm.ptr -> i32");
  line("  %to = llvm.getelementptr %shared[%i] : (!llvm.ptr<3>, i64) -> !llvm.ptr<3>, i32");
  line("  llvm.store %w, %to : i32, !llvm.ptr<3>");
  line("}");
  if (f.without != "proxy fence")
    line("llvm.inline_asm has_side_effects \"fence.proxy.async.shared::cta;\", \"~{memory}\" : () -> ()");
  if (f.without != "barrier")
    line("gpu.barrier");
  line("%address = llvm.ptrtoint %shared : !llvm.ptr<3> to i64");
  line("%offset = arith.andi %address, %low : i64");
  line("%start = arith.shrui %offset, %four : i64");
  for (unsigned k = 0; k < 2; ++k) {
    std::string number = std::to_string(k);
    constant("bBits" + number, bits(f, f.bTransposed, f.n) + (ofB + k * step(f, f.bTransposed, f.n)) / 16);
    line("%b" + number + " = arith.addi %start, %bBits" + number + " : i64");
    if (f.without == "same product" && k) { // each warp has another descriptor
      constant("thirtyTwo", 32);
      line("%warp = arith.divui %t, %thirtyTwo : i64");
      line("%other = arith.addi %b1, %warp : i64");
    }
    constant("aBits" + number, bits(f, f.aTransposed, rows) + (ofA + k * step(f, f.aTransposed, rows)) / 16);
    line("%a" + number + " = arith.addi %start, %aBits" + number + " : i64");
    for (unsigned i = 0; f.registers && i < 4; ++i) {
      std::string name = number + "_" + std::to_string(i);
      constant("at" + name, 4 * k + i);
      constant("eight" + name, 8);
      line("%mine" + name + " = arith.muli %t, %eight" + name + " : i64");
      line("%index" + name + " = arith.addi %mine" + name + ", %at" + name + " : i64");
      line("%pa" + name + " = llvm.getelementptr %a[%index" + name + "] : (!llvm.ptr, i64) -> !llvm.ptr, i32");
      line("%ra" + name + " = llvm.load %pa" + name + " : !llvm.ptr -> i32");
    }
    // There is one text per step. Results of the first product are still in flight when the second product adds to
    // them.
    unsigned first = k ? 2 * sums : sums;
    std::string assembly = "{\\0A.reg .pred adds;\\0Asetp.ne.b32 adds, " + number + ", 0;\\0A";
    if (f.without != "wgmma fence")
      assembly += "wgmma.fence.sync.aligned;\\0A";
    assembly += "wgmma.mma_async.sync.aligned.m64n" + std::to_string(f.n) + "k16.f32.bf16.bf16 {" + list("$", 0, sums) +
                "}, " + (f.registers ? "{" + list("$", first, 4) + "}" : "$" + std::to_string(first)) + ", $" +
                std::to_string(first + numA) + ", adds, 1, 1, " +
                (f.registers     ? ""
                 : f.aTransposed ? "1, "
                                 : "0, ") +
                (f.bTransposed ? "1" : "0") + ";\\0A";
    if (f.without != "commit")
      assembly += "wgmma.commit_group.sync.aligned;\\0A";
    assembly += "}";
    std::string constraints = repeated("=f", sums), operands, types;
    if (k) {
      constraints += ", " + list("", 0, sums);
      operands = list("%s0_", 0, sums) + ", ";
      types = repeated("f32", sums) + ", ";
    }
    constraints += ", " + (f.registers ? repeated("r", 4) : std::string("l")) + ", l, ~{memory}";
    operands += (f.registers ? list("%ra" + number + "_", 0, 4) : "%a" + number) + ", " +
                (f.without == "same product" && k ? "%other" : "%b" + number);
    types += (f.registers ? repeated("i32", 4) : std::string("i64")) + ", i64";
    std::erase(constraints, ' ');
    line("%r" + number + " = llvm.inline_asm has_side_effects \"" + assembly + "\", \"" + constraints + "\" " +
         operands + " : (" + types + ") -> " + structure);
    for (unsigned i = 0; i < sums; ++i)
      line("%s" + number + "_" + std::to_string(i) + " = llvm.extractvalue %r" + number + "[" + std::to_string(i) +
           "] : " + structure);
  }
  if (f.without == "keeping operands") {
    constant("word", ofB / 4);
    line("%seven = arith.constant 7 : i32");
    line("%early = llvm.getelementptr %shared[%word] : (!llvm.ptr<3>, i64) -> !llvm.ptr<3>, i32");
    line("llvm.store %seven, %early : i32, !llvm.ptr<3>");
  }
  std::string constraints = repeated("=f", sums) + ", " + list("", 0, sums) + ", ~{memory}";
  std::erase(constraints, ' ');
  std::string wait = f.without == "wait of all" ? "1" : "0";
  if (f.without != "wait") {
    line("%waited = llvm.inline_asm has_side_effects \"wgmma.wait_group.sync.aligned " + wait + ";\", \"" +
         constraints + "\" " + list("%s1_", 0, sums) + " : (" + repeated("f32", sums) + ") -> " + structure);
    for (unsigned i = 0; i < sums; ++i)
      line("%done" + std::to_string(i) + " = llvm.extractvalue %waited[" + std::to_string(i) + "] : " + structure);
  }
  constant("each", sums);
  line("%begin = arith.muli %t, %each : i64");
  for (unsigned i = 0; i < sums; ++i) {
    std::string number = std::to_string(i);
    constant("c" + number, i);
    line("%i" + number + " = arith.addi %begin, %c" + number + " : i64");
    line("%p" + number + " = llvm.getelementptr %y[%i" + number + "] : (!llvm.ptr, i64) -> !llvm.ptr, f32");
    line("llvm.store %" + (f.without == "wait" ? "s1_" : std::string("done")) + number + ", %p" + number +
         " : f32, !llvm.ptr");
  }
  line("gpu.return");
  return text + "}\n";
}

uint16_t half(int value) { return uint16_t(std::bit_cast<uint32_t>(float(value)) >> 16); }

/// The memory of the "device".
struct Arena {
  static constexpr size_t size = 1 << 18;
  std::vector<uint32_t> memory = std::vector<uint32_t>(size / 4);
  uint32_t *x = memory.data(), *a = x + sharedWords, *y = a + threads * 8;
  AccessChecker checker;
  Arena() { checker.addRegion(x, size); }

  void fill(const Form &f) {
    auto *image = reinterpret_cast<uint8_t *>(x);
    std::memset(x, 0, sharedWords * 4);
    auto set = [&](unsigned at, int value) {
      uint16_t bits = half(value);
      std::memcpy(image + at, &bits, 2);
    };
    for (unsigned k = 0; k < depth; ++k) {
      for (unsigned row = 0; row < rows; ++row)
        set(ofA + place(f, f.aTransposed, k, row, rows), ::a(row, k));
      for (unsigned column = 0; column < f.n; ++column)
        set(ofB + place(f, f.bTransposed, k, column, f.n), b(k, column));
    }
    for (unsigned t = 0; t < threads; ++t)
      for (unsigned i = 0; i < 8; ++i) { // PTX ISA: as of mma.m16n8k16, warp by warp
        unsigned row = t / 32 * 16 + t % 32 / 4 + i % 2 * 8, k = i / 4 * 16 + i % 4 / 2 * 8 + t % 4 * 2;
        a[t * 8 + i] = uint32_t(half(::a(row, k + 1))) << 16 | half(::a(row, k));
      }
    checker.setState(x, size, ByteState::Written);
  }
  std::string run(const KernelImage &image, const Form &f, uint64_t order, bool check) {
    fill(f);
    void *params[] = {&x, &a, &y};
    KernelLaunch launch;
    launch.module = image.module;
    launch.kernel = image.find(f.name);
    if (!launch.kernel)
      return "no kernel";
    launch.block[0] = threads;
    launch.params = params;
    launch.order = order;
    launch.checker = check ? &checker : nullptr;
    return pc_run_kernel(launch);
  }
  std::string verify(const Form &f) {
    for (unsigned t = 0; t < threads; ++t)
      for (unsigned i = 0; i < f.n / 2; ++i) {
        unsigned row = t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + t % 4 * 2 + i % 2;
        int want = 0;
        for (unsigned k = 0; k < depth; ++k)
          want += ::a(row, k) * b(k, column);
        float got = std::bit_cast<float>(y[t * (f.n / 2) + i]);
        if (got != float(want))
          return "(" + std::to_string(row) + ", " + std::to_string(column) + ") is " + std::to_string(got) +
                 ", should be " + std::to_string(want);
      }
    return "";
  }
};
} // namespace

int main() {
  std::vector<Form> forms;
  for (unsigned n : {8, 64, 128})
    for (bool registers : {false, true})
      for (bool aTransposed : {false, true})
        for (bool bTransposed : {false, true})
          for (bool swizzled : {false, true}) {
            if ((registers && aTransposed) || (swizzled && bTransposed && n < 64))
              continue;
            std::string name = "n" + std::to_string(n) + (registers ? "_registers" : "") + (aTransposed ? "_a" : "") +
                               (bTransposed ? "_b" : "") + (swizzled ? "_swizzled" : "");
            forms.push_back({name, n, registers, aTransposed, bTransposed, swizzled, ""});
          }
  struct Fault {
    std::string without, report;
    bool unchecked; ///< whether it is also seen without the checker
  };
  const Fault faults[] = {
      {"proxy fence", "missing fence.proxy.async", false},
      {"barrier", "", false}, // a race, or bytes that were never written
      {"wgmma fence", "missing wgmma.fence", true},
      {"commit", "missing wait: thread", true},
      {"wait", "missing wait: thread", true},
      {"wait of all", "missing wait: thread", true},
      {"keeping operands", "missing wait: writes 4 bytes", false},
      {"same product", "warps of a warpgroup start different products", true},
  };
  std::vector<Form> broken;
  for (const Fault &fault : faults) {
    std::string name = "without_" + fault.without;
    std::replace(name.begin(), name.end(), ' ', '_');
    broken.push_back({name, 16, true, false, false, true, fault.without});
  }
  std::string text = "gpu.module @kernels {\nllvm.mlir.global internal @shared() {addr_space = 3 : i32, alignment = "
                     "1024 : i64} : !llvm.array<" +
                     std::to_string(sharedWords) + " x i32>\n";
  for (const auto *list : {&forms, &broken})
    for (const Form &form : *list)
      text += kernel(form);
  text += "}\n";
  mlir::DialectRegistry registry;
  registry.insert<mlir::arith::ArithDialect, mlir::cf::ControlFlowDialect, mlir::gpu::GPUDialect,
                  mlir::LLVM::LLVMDialect, mlir::NVVM::NVVMDialect, mlir::scf::SCFDialect>();
  mlir::MLIRContext context(registry);
  auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  pc::GpuTargetOptions options;
  options.archs = {"sm_90a"};
  options.emitCubins = false;
  options.emitHostImage = true;
  auto images = module ? pc::compileGpuModule(*module->getOps<mlir::gpu::GPUModuleOp>().begin(), options)
                       : llvm::FailureOr<llvm::SmallVector<pc::GpuImage>>(llvm::failure());
  expect(succeeded(images), "the kernels compile");
  KernelImage image;
  if (failed(images))
    return finishChecks();
  std::string error = loadKernelImage(images->back().bytes.data(), images->back().bytes.size(), image);
  expect(error.empty(), error);
  expect((*images)[0].archSpecific && (*images)[0].bytes.find(".target sm_90a") != std::string::npos,
         "PTX with wgmma is for sm_90a");
  if (!error.empty())
    return finishChecks();
  Arena arena;
  for (const Form &form : forms)
    for (bool check : {false, true})
      for (uint64_t order : {0, 1, 2, 3}) {
        std::string name = form.name + (check ? ", checked" : "") + ", order " + std::to_string(order) + ": ";
        std::string fault = arena.run(image, form, order, check);
        expect(fault.empty(), name + fault);
        std::string wrong = fault.empty() ? arena.verify(form) : "";
        expect(wrong.empty(), name + wrong);
      }
  for (auto [form, fault] : llvm::zip_equal(broken, faults))
    for (bool check : {true, false})
      for (uint64_t order : {0, 1, 2, 3}) {
        if (!check && !fault.unchecked)
          continue;
        std::string report = arena.run(image, form, order, check);
        expect(!report.empty() && report.find(fault.report) != std::string::npos,
               form.name + ", order " + std::to_string(order) + ": \"" + report + "\" lacks \"" + fault.report + "\"");
        if (getenv("PC_VERBOSE") && order == 0)
          llvm::outs() << report << "\n";
      }
  return finishChecks();
}
