//===- Toolkit.cpp - Finds CUDA's libdevice and ptxas, runs ptxas and parses its output --------===//
// Looks for the toolkit in CUDA_HOME and similar variables, next to the `ptxas` in PATH, and in usual places. Messages
// name all of them. ptxas runs once per architecture, all at the same time; its -v output gives registers and spills.
//===-----------------------------------------------------------------------------===//
#include "Compile.h"

#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/Program.h"

using namespace mlir;
namespace fs = llvm::sys::fs;
namespace path = llvm::sys::path;

/// "sm_90a" is architecture 90 with features that no other architecture has.
std::optional<pc::toolchain::Arch> pc::toolchain::parseArch(StringRef name) {
  Arch arch;
  arch.name = name.str();
  StringRef digits = name;
  if (!digits.consume_front("sm_"))
    return std::nullopt;
  arch.specific = digits.consume_back("a");
  if (digits.getAsInteger(10, arch.number) || arch.number < 80 || arch.number > 121 ||
      (arch.specific && arch.number < 90))
    return std::nullopt;
  arch.ptx = arch.number < 100                          ? "+ptx80"
             : arch.number == 100 || arch.number == 101 ? "+ptx86"
             : arch.number == 120                       ? "+ptx87"
                                                        : "+ptx88";
  return arch;
}

/// Looks for ptxas and libdevice in the given path, or in the usual environment variables and folders. Each is taken
/// from the first root that has it.
pc::toolchain::Toolkit pc::toolchain::findToolkit(StringRef cudaPath) {
  SmallVector<std::string> roots;
  if (!cudaPath.empty()) {
    roots.push_back(cudaPath.str());
  } else {
    // A variable that contains the default folder is ignored: that folder is searched anyway, after the place of ptxas.
    for (const char *name : {"CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"})
      if (std::optional<std::string> value = llvm::sys::Process::GetEnv(name); value && *value != "/usr/local/cuda")
        roots.push_back(*value);
    if (auto ptxas = llvm::sys::findProgramByName("ptxas")) {
      SmallString<128> real;
      if (!fs::real_path(*ptxas, real))
        roots.push_back(path::parent_path(path::parent_path(real)).str());
    }
    roots.push_back("/usr/local/cuda");
    roots.push_back("/usr/lib/nvidia-cuda-toolkit"); // the place in Debian
  }
  Toolkit toolkit;
  // The two files may be in different places; for each, the first place that has it is used.
  auto pick = [](std::string &where, StringRef root, StringRef below) {
    SmallString<128> file(root);
    path::append(file, below);
    if (where.empty() && fs::exists(file))
      where = file.str().str();
  };
  for (const std::string &root : roots) {
    pick(toolkit.ptxas, root, "bin/ptxas");
    pick(toolkit.libdevice, root, "nvvm/libdevice/libdevice.10.bc");
    pick(toolkit.libdevice, root, "libdevice/libdevice.10.bc");
  }
  toolkit.searched = llvm::join(roots, ", ");
  return toolkit;
}

/// The first number before `unit`, as in "16 bytes stack frame"; 0 if there is none.
static int64_t numberBefore(StringRef line, StringRef unit) {
  size_t end = line.find(unit);
  if (end == StringRef::npos)
    return 0;
  StringRef head = line.take_front(end).rtrim();
  size_t begin = head.find_last_not_of("0123456789");
  int64_t number = 0;
  head.drop_front(begin == StringRef::npos ? 0 : begin + 1).getAsInteger(10, number);
  return number;
}

/// ptxas prints the figures of a kernel on the lines after its name.
std::vector<pc::GpuKernelUse> pc::toolchain::parsePtxasFigures(StringRef words) {
  std::vector<GpuKernelUse> kernels;
  for (StringRef line : llvm::split(words, '\n')) {
    if (line.contains("Compiling entry function '")) {
      GpuKernelUse use;
      use.kernel = line.split('\'').second.split('\'').first.str();
      kernels.push_back(std::move(use));
    }
    if (kernels.empty())
      continue;
    GpuKernelUse &use = kernels.back();
    if (line.contains("bytes stack frame")) {
      use.stack = numberBefore(line, " bytes stack frame");
      use.spillStores = numberBefore(line, " bytes spill stores");
      use.spillLoads = numberBefore(line, " bytes spill loads");
    } else if (size_t used = line.find("Used "); used != StringRef::npos) {
      use.registers = numberBefore(line, " registers");
      use.shared = numberBefore(line, " bytes smem");
    }
  }
  return kernels;
}

/// Reports the other messages of ptxas about a kernel: warnings, and advisories, which are information with a code, as
/// in "(C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized".
static void warnOfAdvisories(Operation *op, const pc::toolchain::Arch &arch, StringRef words) {
  for (StringRef line : llvm::split(words, '\n'))
    if (line.contains("warning") || line.contains(" (C"))
      op->emitWarning() << "ptxas for " << arch.name << " says: " << line.split(':').second.trim();
}

namespace {
/// One running ptxas and its temporary files.
struct Job {
  llvm::SmallString<128> ptx, cubin, log;
  llvm::sys::ProcessInfo process;
};
} // namespace

/// Runs one process of ptxas per architecture, all at the same time. Their files are temporary.
LogicalResult pc::toolchain::assemble(Operation *op, StringRef ptxas, ArrayRef<Arch> archs, ArrayRef<std::string> texts,
                                      SmallVectorImpl<GpuImage> &images) {
  std::vector<Job> jobs(archs.size());
  auto remove = llvm::scope_exit([&] {
    for (Job &job : jobs)
      for (StringRef file : {job.ptx, job.cubin, job.log})
        if (!file.empty())
          fs::remove(file);
  });
  std::string error;
  // Starts all processes first and waits for them afterwards.
  for (auto [job, arch, text] : llvm::zip(jobs, archs, texts)) {
    for (auto [file, suffix] : {std::pair(&job.ptx, "ptx"), {&job.cubin, "cubin"}, {&job.log, "log"}})
      if (std::error_code code = fs::createTemporaryFile("pc-kernels", suffix, *file))
        return op->emitError() << "cannot make a temporary file: " << code.message();
    std::error_code code;
    llvm::raw_fd_ostream stream(job.ptx, code);
    stream << text;
    stream.close();
    if (code || stream.has_error()) {
      stream.clear_error();
      return op->emitError() << "cannot write " << job.ptx;
    }
    std::string name = "-arch=" + arch.name;
    std::optional<StringRef> redirects[] = {StringRef(""), StringRef(job.log), StringRef(job.log)};
    bool failed = false;
    job.process = llvm::sys::ExecuteNoWait(ptxas, {ptxas, "-O3", "-v", name, job.ptx, "-o", job.cubin}, std::nullopt,
                                           redirects, 0, &error, &failed);
    if (failed)
      return op->emitError() << "cannot run " << ptxas << ": " << error;
  }
  LogicalResult result = success();
  for (auto [job, arch] : llvm::zip(jobs, archs)) {
    llvm::sys::ProcessInfo done = llvm::sys::Wait(job.process, std::nullopt, &error);
    auto log = llvm::MemoryBuffer::getFile(job.log);
    StringRef words = log ? (*log)->getBuffer() : "";
    auto cubin = llvm::MemoryBuffer::getFile(job.cubin);
    if (done.ReturnCode != 0 || !cubin) {
      result = op->emitError() << "ptxas rejected the kernels for " << arch.name << ": " << words.trim();
      continue;
    }
    warnOfAdvisories(op, arch, words);
    images.push_back(
        {GpuImageKind::Cubin, arch.number, arch.specific, (*cubin)->getBuffer().str(), parsePtxasFigures(words), {}});
  }
  return result;
}
