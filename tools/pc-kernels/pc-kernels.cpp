//===- pc-kernels.cpp - Compiles the gpu.module of an IR file -------------===//
// Prints, as text for people and tests, what pc-compile --target=cuda puts into an executable, one image at a time.
//===----------------------------------------------------------------------===//
#include "Count/Accesses.h"
#include "Gpu/Images.h"
#include "pc/IR/PC.h"
#include "pc/Support/Diagnostics.h"
#include "pc/Support/Output.h"
#include "pc/Support/Source.h"
#include "pc/Support/ToolMain.h"
#include "pcrt/pcrt.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Index/IR/IndexDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/JSON.h"

namespace cl = llvm::cl;

enum class Emit { Ptx, Cubin, Host, Table, Sites, Accesses };
static cl::OptionCategory category("pc-kernels options");
static cl::opt<std::string> input(cl::Positional, cl::desc("<file.mlir>"), cl::init("-"), cl::cat(category));
static cl::opt<std::string> output("o", cl::desc("Output file (default: standard output)"), cl::init("-"),
                                   cl::cat(category));
static const std::string archText =
    "GPU architectures to compile for (default " + llvm::join(pc::defaultArchs, ",") + ")";
static cl::list<std::string> archs("arch", cl::desc(archText), cl::CommaSeparated, cl::cat(category));
static cl::opt<std::string> cudaPath("cuda-path",
                                     cl::desc("Directory of the CUDA toolkit, the only place that is searched"),
                                     cl::cat(category));
static cl::opt<Emit> emit(
    "emit", cl::desc("What to write"), cl::init(Emit::Ptx),
    cl::values(clEnumValN(Emit::Ptx, "ptx", "PTX for newer devices"),
               clEnumValN(Emit::Cubin, "cubin", "cubin of the first architecture"),
               clEnumValN(Emit::Host, "host", "shared object for the emulated CUDA driver"),
               clEnumValN(Emit::Table, "table", "resource use reported by ptxas, one JSON line per kernel"),
               clEnumValN(Emit::Sites, "sites", "numbered barriers and waits of the host image"),
               clEnumValN(Emit::Accesses, "accesses", "loads and stores of the kernels, one JSON line per kernel")),
    cl::cat(category));

static void write(llvm::raw_ostream &os, const pc::GpuImage &image) {
  bool text = image.kind == pc::GpuImageKind::Ptx;
  os << llvm::StringRef(image.bytes).drop_back(text ? 1 : 0);
}

static void printTable(llvm::raw_ostream &os, llvm::ArrayRef<pc::GpuImage> images) {
  for (const pc::GpuImage &image : images)
    for (const pc::GpuKernelUse &use : image.use)
      os << llvm::json::Value(llvm::json::Object{{"kernel", use.kernel},
                                                 {"arch", (image.archSpecific ? "sm_" + std::to_string(image.arch) + "a"
                                                                              : "sm_" + std::to_string(image.arch))},
                                                 {"threads", use.threads},
                                                 {"registers", use.registers},
                                                 {"shared", use.shared},
                                                 {"stack", use.stack},
                                                 {"spill_stores", use.spillStores},
                                                 {"spill_loads", use.spillLoads}})
         << "\n";
}

static void printSites(llvm::raw_ostream &os, const pc::GpuImage &image) {
  for (const pc::GpuSite &site : image.sites)
    os << llvm::json::Value(llvm::json::Object{{"site", site.number}, {"kernel", site.kernel}, {"text", site.text}})
       << "\n";
}

/// Prints one line per kernel: for each buffer, whose size is unknown here, the bytes that all threads load and store,
/// by the width of the access.
static llvm::LogicalResult printAccesses(llvm::raw_ostream &os, mlir::gpu::GPUModuleOp kernels) {
  auto byWidth = [](const pc::Access &access) {
    llvm::json::Object object;
    for (auto [width, bytes] : access)
      object[std::to_string(width)] = bytes;
    return object;
  };
  for (auto kernel : kernels.getOps<mlir::gpu::GPUFuncOp>()) {
    if (!kernel.isKernel())
      continue;
    llvm::SmallVector<pc::CountedBuffer> unbounded;
    for (int64_t i = 0; i < kernel.getNumArguments(); ++i)
      unbounded.push_back({INT64_MAX, i});
    auto accesses = pc::countAccesses(kernel, unbounded);
    if (failed(accesses))
      return llvm::failure();
    llvm::json::Array buffers;
    for (const pc::Accesses &buffer : *accesses)
      buffers.push_back(llvm::json::Object{{"loaded", byWidth(buffer.loads)}, {"stored", byWidth(buffer.stores)}});
    os << llvm::json::Value(llvm::json::Object{{"kernel", kernel.getName()}, {"buffers", std::move(buffers)}}) << "\n";
  }
  return llvm::success();
}

/// Writes the form that --emit names of every gpu.module.
static pcrt_status writeKernels(mlir::ModuleOp module, const pc::GpuTargetOptions &options, llvm::raw_ostream &os) {
  for (auto kernels : module.getOps<mlir::gpu::GPUModuleOp>()) {
    if (emit == Emit::Accesses) {
      if (failed(printAccesses(os, kernels)))
        return PCRT_BAD_INPUT;
      continue;
    }
    auto images = pc::compileGpuModule(kernels, options);
    if (failed(images))
      return PCRT_BAD_INPUT;
    if (emit == Emit::Table) {
      printTable(os, *images);
      continue;
    }
    if (emit == Emit::Sites) {
      printSites(os, images->back());
      continue;
    }
    auto kind = emit == Emit::Ptx     ? pc::GpuImageKind::Ptx
                : emit == Emit::Cubin ? pc::GpuImageKind::Cubin
                                      : pc::GpuImageKind::Host;
    const auto *image = llvm::find_if(*images, [&](const pc::GpuImage &i) { return i.kind == kind; });
    if (image == images->end()) {
      pc::errs() << "pc-kernels: error: the program has no image of this kind\n";
      return PCRT_USAGE;
    }
    write(os, *image);
  }
  return PCRT_OK;
}

int main(int argc, char **argv) {
  pc::ToolMain tool(argc, argv, "pc-kernels");
  cl::HideUnrelatedOptions(category);
  std::string message;
  llvm::raw_string_ostream errors(message);
  if (!cl::ParseCommandLineOptions(
          argc, argv, "pc-kernels: compiles the gpu.module of an IR file, which pc-compile --to=kernels writes\n",
          &errors)) {
    pc::errs() << message;
    return PCRT_USAGE;
  }
  mlir::DialectRegistry registry;
  registry.insert<pc::PCDialect, mlir::affine::AffineDialect, mlir::arith::ArithDialect, mlir::cf::ControlFlowDialect,
                  mlir::func::FuncDialect, mlir::gpu::GPUDialect, mlir::index::IndexDialect, mlir::LLVM::LLVMDialect,
                  mlir::math::MathDialect, mlir::memref::MemRefDialect, mlir::NVVM::NVVMDialect,
                  mlir::nvgpu::NVGPUDialect, mlir::scf::SCFDialect, mlir::vector::VectorDialect>();
  mlir::MLIRContext context(registry);
  context.printOpOnDiagnostic(false);
  llvm::SourceMgr sources;
  mlir::SourceMgrDiagnosticHandler handler(sources, &context, pc::errs());
  if (failed(pc::checkOutputs("pc-kernels", {{"the program", input}}, {{"-o", output}})))
    return PCRT_USAGE;
  mlir::OwningOpRef<mlir::ModuleOp> module = pc::parseProgram(input, sources, &context);
  if (!module)
    return PCRT_BAD_INPUT;
  pc::GpuTargetOptions options;
  if (!archs.empty())
    options.archs.assign(archs.begin(), archs.end());
  options.emitHostImage = emit == Emit::Host || emit == Emit::Sites;
  options.emitCubins = emit == Emit::Cubin || emit == Emit::Table;
  options.cudaPath = cudaPath;
  pcrt_status status = PCRT_OK;
  std::string why = pc::writeOutput(output, [&](llvm::raw_ostream &os) {
    status = writeKernels(*module, options, os);
    return status == PCRT_OK;
  });
  if (why.empty())
    return status;
  pc::errs() << "pc-kernels: error: " << why << "\n";
  return PCRT_RESOURCE;
}
