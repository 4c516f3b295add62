//===- Image.cpp - Loads host images from memory --------------------------===//
// Writes the image to an anonymous file and opens it by dlopen through /proc/self/fd, then checks its version.
//===----------------------------------------------------------------------===//
#include "Kernel.h"

#include <cerrno>
#include <cstring>
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

namespace pc::standin {

const pcrt_host_kernel *KernelImage::find(const std::string &name) const {
  for (uint32_t i = 0; i < module->num_kernels; ++i)
    if (name == module->kernels[i].name)
      return &module->kernels[i];
  return nullptr;
}

std::string loadKernelImage(const void *data, size_t bytes, KernelImage &image) {
  if (bytes < 4 || std::memcmp(data, "\177ELF", 4) != 0)
    return "not a host image";
  int file = memfd_create("pc-kernels", MFD_CLOEXEC);
  if (file < 0)
    return std::string("cannot make an anonymous file: ") + std::strerror(errno);
  for (size_t done = 0; done < bytes;) {
    ssize_t n = write(file, static_cast<const char *>(data) + done, bytes - done);
    if (n < 0) {
      std::string reason = std::strerror(errno);
      close(file);
      return "cannot write an anonymous file: " + reason;
    }
    done += size_t(n);
  }
  std::string path = "/proc/self/fd/" + std::to_string(file);
  void *handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char *reason = dlerror();
    close(file);
    // "undefined symbol: pc_nvvm_..." names the instruction.
    return std::string(
               "cannot load the host image (an undefined pc_nvvm_X or pc_warp_X is an unsupported instruction): ") +
           reason;
  }
  auto *module = static_cast<const pcrt_host_module *>(dlsym(handle, "pc_standin_module"));
  if (!module || module->version != PCRT_HOST_IMAGE_VERSION) {
    dlclose(handle);
    close(file);
    return module ? "the host image was made by a different version" : "not a host image";
  }
  image.module = module;
  image.handle = handle;
  image.file = file; // the loader identifies images by this path, so its file number must stay in use
  return "";
}

void unloadKernelImage(KernelImage &image) {
  if (image.handle) {
    dlclose(image.handle);
    close(image.file);
  }
  image = {};
}

} // namespace pc::standin
