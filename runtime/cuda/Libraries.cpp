//===- Libraries.cpp - Finding and opening NVIDIA's libraries -------------===//
// Searches the directories that PCRT_CUDA_LIBRARIES names, the loader's own path, and the places where CUDA toolkits,
// containers and Python packages (nvidia-*) install libraries. Versions are checked after opening; each message says
// what to install.
//===----------------------------------------------------------------------===//
#include "cuda/Libraries.h"
#include "base/Failure.h"

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <glob.h>
#include <link.h>
#include <unistd.h>

using namespace pcrt;
using namespace pcrt::cuda;

namespace {

/// The names of a library: for users, for the loader and for packages.
struct Library {
  const char *name;
  std::vector<const char *> sonames; ///< Newest first.
  const char *wheel;                 ///< Its folder in site-packages/nvidia, or null.
  const char *advice;                ///< What to do if it is missing.
};

const Library driverLibrary = {
    "the CUDA driver",
    {"libcuda.so.1"},
    nullptr,
    "install NVIDIA's driver 575 or newer (on a machine without a GPU, compile with --target=cpu)"};
const Library blasLibrary = {
    "cuBLASLt",
    {"libcublasLt.so.13", "libcublasLt.so.12"},
    "cu13",
    "install CUDA, or 'pip install nvidia-cublas', or set PCRT_CUDA_LIBRARIES to its directory"};
const Library dnnLibrary = {
    "cuDNN",
    {"libcudnn.so.9"},
    "cudnn",
    "install cuDNN 9, or 'pip install nvidia-cudnn-cu13', or set PCRT_CUDA_LIBRARIES to its directory"};
const Library ncclLibrary = {
    "NCCL",
    {"libnccl.so.2"},
    "nccl",
    "install NCCL, or 'pip install nvidia-nccl-cu13', or set PCRT_CUDA_LIBRARIES to its directory"};

std::string environment(const char *name) {
  const char *value = getenv(name);
  return value ? value : "";
}

/// Adds the directories that match a pattern.
void addMatches(const std::string &pattern, std::vector<std::string> &directories) {
  glob_t matches{};
  if (glob(pattern.c_str(), 0, nullptr, &matches) == 0)
    for (size_t i = 0; i < matches.gl_pathc; ++i)
      directories.push_back(matches.gl_pathv[i]);
  globfree(&matches);
}

/// The installation to which the python3 on PATH belongs. Links are not followed, because a virtual environment's
/// python3 is a link.
std::string pythonPrefix() {
  std::string path = environment("PATH");
  for (size_t start = 0; start < path.size();) {
    size_t end = std::min(path.find(':', start), path.size());
    std::string directory = path.substr(start, end - start);
    if (access((directory + "/python3").c_str(), X_OK) == 0 && directory.ends_with("/bin"))
      return directory.substr(0, directory.size() - strlen("/bin"));
    start = end + 1;
  }
  return "";
}

std::vector<std::string> overrides() {
  std::vector<std::string> directories;
  std::string value = environment("PCRT_CUDA_LIBRARIES");
  for (size_t start = 0; start < value.size();) {
    size_t end = std::min(value.find(':', start), value.size());
    if (end > start)
      directories.push_back(value.substr(start, end - start));
    start = end + 1;
  }
  return directories;
}

/// The places of a library in the order of the search: whole paths, and plain sonames for the loader. The order of
/// directories is the same for all libraries, so that a directory that has all of them provides all.
std::vector<std::string> placesOf(const Library &library) {
  std::vector<std::string> directories = overrides(), files;
  size_t own = directories.size();
  if (!library.wheel) {
    directories.push_back("/usr/local/nvidia/lib64"); // containers
  } else {
    for (const char *variable : {"CUDA_HOME", "CUDA_PATH"})
      if (std::string root = environment(variable); !root.empty())
        directories.push_back(root + "/lib64");
    directories.push_back("/usr/local/cuda/lib64");
    std::vector<std::string> roots;
    for (const std::string &prefix : {environment("VIRTUAL_ENV"), pythonPrefix()})
      if (!prefix.empty())
        for (const char *packages : {"/lib/python3*/site-packages/nvidia", "/local/lib/python3*/dist-packages/nvidia",
                                     "/lib/python3/dist-packages/nvidia"})
          addMatches(prefix + packages, roots);
    for (const std::string &root : roots)
      for (const char *folder : {library.wheel, strcmp(library.wheel, "cu13") ? library.wheel : "cublas"})
        addMatches(root + "/" + folder + "/lib", directories);
  }
  for (size_t i = 0; i <= directories.size(); ++i) {
    if (i == own)
      files.insert(files.end(), library.sonames.begin(), library.sonames.end());
    if (i < directories.size())
      for (const char *soname : library.sonames)
        files.push_back(directories[i] + "/" + soname);
  }
  return files;
}

constexpr char standinPrefix[] = "standin:";

Opened open(const Library &library) {
  Opened opened;
  if (standinChosen()) {
    std::string file = environment("PCRT_CUDA_LIBRARIES").substr(strlen(standinPrefix));
    opened.handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!opened.handle)
      fail(PCRT_RESOURCE, std::string("cannot load the stand-in of PCRT_CUDA_LIBRARIES: ") + dlerror());
    opened.path = file;
    return opened;
  }
  std::string searched, problems;
  for (const std::string &file : placesOf(library)) {
    bool plain = file.find('/') == std::string::npos;
    if (!plain && access(file.c_str(), F_OK) != 0) {
      searched += (searched.empty() ? "" : ", ") + file;
      continue;
    }
    opened.handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (opened.handle)
      break;
    searched += (searched.empty() ? "" : ", ") + file;
    if (!plain) // the library exists, but cannot be loaded
      problems += std::string("; ") + dlerror();
  }
  if (!opened.handle)
    fail(PCRT_RESOURCE, std::string(library.name) + " was not found on this machine; looked for " + searched +
                            problems + "; " + library.advice);
  link_map *map = nullptr;
  if (dlinfo(opened.handle, RTLD_DI_LINKMAP, &map) == 0 && map)
    opened.path = map->l_name;
  return opened;
}

void bindSymbols(const Library &library, const Opened &opened, const std::vector<Symbol> &symbols) {
  std::string missing;
  int count = 0;
  for (const Symbol &symbol : symbols) {
    *symbol.address = dlsym(opened.handle, symbol.name);
    if (!*symbol.address && symbol.required && ++count <= 3)
      missing += (missing.empty() ? "" : ", ") + std::string(symbol.name);
  }
  if (!missing.empty())
    fail(PCRT_RESOURCE, std::string(library.name) + " (" + opened.path + ") is too old: it has no " + missing +
                            (count > 3 ? " and " + std::to_string(count - 3) + " more" : "") + "; " + library.advice);
}

void requireVersion(const Library &library, const Opened &opened, bool good, const std::string &found,
                    const std::string &needed) {
  if (!good)
    fail(PCRT_RESOURCE, std::string(library.name) + " (" + opened.path + ") has version " + found + ", but " + needed +
                            " is needed; " + library.advice);
}

} // namespace

bool pcrt::cuda::standinChosen() { return environment("PCRT_CUDA_LIBRARIES").starts_with(standinPrefix); }

std::string pcrt::cuda::describeDriverVersion(int64_t version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}
std::string pcrt::cuda::describeCudnnVersion(int64_t version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}
std::string pcrt::cuda::describeCublasVersion(int64_t version) { return describeCudnnVersion(version); }
std::string pcrt::cuda::describeNcclVersion(int64_t version) { return describeCudnnVersion(version); }

void pcrt::cuda::load(Driver &driver, Opened *out) {
  Opened opened = open(driverLibrary);
  bindSymbols(driverLibrary, opened, driver.symbols());
  int version = 0;
  driver.cuDriverGetVersion(&version);
  opened.version = version;
  // Older drivers run the communicators of a captured graph one after the other.
  requireVersion(driverLibrary, opened, version >= 12090, describeDriverVersion(version), "12.9 or newer");
  if (out)
    *out = opened;
}

void pcrt::cuda::load(CublasLt &blas, Opened *out) {
  Opened opened = open(blasLibrary);
  bindSymbols(blasLibrary, opened, blas.symbols());
  opened.version = int64_t(blas.cublasLtGetVersion());
  if (out)
    *out = opened;
}

void pcrt::cuda::load(Cudnn &cudnn, Opened *out) {
  Opened opened = open(dnnLibrary);
  bindSymbols(dnnLibrary, opened, cudnn.symbols());
  opened.version = int64_t(cudnn.cudnnGetVersion());
  requireVersion(dnnLibrary, opened, opened.version >= 90600 && opened.version != 91000 && opened.version != 91001,
                 describeCudnnVersion(opened.version), "9.6 or newer (but not 9.10.0 and 9.10.1)");
  if (out)
    *out = opened;
}

void pcrt::cuda::load(Nccl &nccl, Opened *out) {
  Opened opened = open(ncclLibrary);
  bindSymbols(ncclLibrary, opened, nccl.symbols());
  int version = 0;
  nccl.ncclGetVersion(&version);
  opened.version = version;
  requireVersion(ncclLibrary, opened, version >= 22600, describeNcclVersion(version), "2.26 or newer");
  if (out)
    *out = opened;
}
