//===- Link.cpp - Object file -> executable ---------------------------------------------------===//
// Runs the system's C++ driver with its output in a log, and turns the log into an error. Signals are blocked until the
// linker has ended, so that no partly written executable remains.
//===-----------------------------------------------------------------------------===//
#include "pc/Codegen/Codegen.h"
#include "pc/Support/NotedSignals.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/Signals.h"
#include <sys/resource.h>

using namespace mlir;

/// The reason why there was no room for `output`, or "". lld writes through mapped pages, so if the disk is full or a
/// file is too large, lld is killed by a signal, and its message does not explain the reason.
static StringRef whyNoRoom(StringRef words, StringRef output, ArrayRef<StringRef> inputs) {
  uint64_t needed = 0, bytes = 0;
  for (StringRef input : inputs)
    if (!llvm::sys::fs::file_size(input, bytes))
      needed += bytes;
  StringRef folder = llvm::sys::path::parent_path(output);
  auto space = llvm::sys::fs::disk_space(folder.empty() ? "." : folder);
  rlimit limit;
  if (!words.contains("due to signal"))
    return "";
  if (space && space->available < needed)
    return "No space left on device";
  return !getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur < needed ? "File too large" : "";
}

/// Calls the system's C++ compiler as linker. Messages contain `called` instead of the temporary name.
LogicalResult pc::linkExecutable(ModuleOp module, StringRef object, StringRef libraries, bool cuda, StringRef output,
                                 StringRef called) {
  SmallString<256> runtime(libraries);
  llvm::sys::path::append(runtime, "libpcrt.a");
  SmallString<256> noOneDnn(libraries);
  llvm::sys::path::append(noOneDnn, "libpcrt_no_onednn.a");
  if (!llvm::sys::fs::exists(runtime) || !llvm::sys::fs::exists(noOneDnn))
    return module.emitError() << "the runtime " << runtime
                              << " is missing; build the target pcrt, or install the project again";
  for (StringRef name : {"clang++-22", "c++", "g++"}) {
    auto driver = llvm::sys::findProgramByName(name);
    if (!driver)
      continue;
    SmallString<128> log;
    if (std::error_code code = llvm::sys::fs::createTemporaryFile("pc-link", "log", log))
      return module.emitError() << "cannot make a temporary file: " << code.message();
    llvm::sys::RemoveFileOnSignal(log);
    SmallVector<StringRef> arguments{*driver, object, "-o", output};
    // A CPU program uses oneDNN for matrix products. A CUDA program needs only the C++ library on the machine on which
    // it runs.
    if (cuda)
      arguments.append({"-Wl,--whole-archive", noOneDnn, "-Wl,--no-whole-archive", runtime});
    else
      arguments.append({runtime, "-ldnnl"});
    // A program links SHA-256 statically, from libcrypto.
    arguments.append({"-l:libcrypto.a", "-lpthread", "-ldl", "-Xlinker", "-rpath", "-Xlinker",
                      libraries}); // for the runtime's plug-ins
    if (name == "clang++-22" && llvm::sys::findProgramByName("ld.lld-22"))
      arguments.push_back("-fuse-ld=lld-22");
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
    arguments.push_back("-fsanitize=address,undefined"); // libpcrt.a was built in this way
#endif
#endif
    std::optional<StringRef> redirects[] = {StringRef(""), StringRef(log), StringRef(log)};
    int status = 0, signal = 0;
    { // a linker that outlives this process could write the file again after its removal
      pc::NotedSignals noted({SIGHUP, SIGINT, SIGTERM});
      status = llvm::sys::ExecuteAndWait(*driver, arguments, std::nullopt, redirects);
      signal = noted.first();
    }
    if (signal)
      raise(signal);
    auto words = llvm::MemoryBuffer::getFile(log);
    std::string message = words ? (*words)->getBuffer().trim().str() : "";
    llvm::sys::fs::remove(log);
    if (status == 0)
      return success();
    if (StringRef why = whyNoRoom(message, output, {object, cuda ? noOneDnn : runtime}); !why.empty())
      message = why.str();
    return module.emitError() << "cannot link " << called << ": " << message;
  }
  return module.emitError() << "linking needs clang++-22, c++ or g++, but none of them is in PATH; install one";
}
