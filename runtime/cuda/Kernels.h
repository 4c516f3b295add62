//===- Kernels.h - The generated kernels of a program on a CUDA device ----===//
// A program carries its kernels compiled for several architectures. The device alone determines the image, without
// trial and error: the stand-in's image, otherwise a cubin for this device, otherwise PTX that the driver compiles.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CUDA_KERNELS_H
#define PCRT_CUDA_KERNELS_H

#include "cuda/Session.h"

namespace pcrt::cuda {

/// The image of `images` for a device, or null. `arch` is 90 for sm_90; it is ignored with `standin`.
const pcrt_image *chooseImage(const pcrt_image *images, int count, int arch, bool standin);

/// "sm_90a, compute_80 (PTX)", for messages.
std::string describeImages(const pcrt_image *images, int count);

/// The loaded module of one program, which it owns. The rank's thread calls it.
class Kernels {
public:
  /// Loads the image and finds every kernel. Throws PCRT_RESOURCE if no image suits the device, PCRT_INTERNAL if a
  /// kernel is missing or needs more than the device has.
  Kernels(Session &session, const pcrt_program &program);
  ~Kernels();

  /// Enqueues kernel `index` on the compute stream.
  Result launch(int index, void *const *args);

  const pcrt_image &image() const { return *chosen; }

private:
  Session &session;
  const pcrt_program &program;
  const pcrt_image *chosen = nullptr;
  Module module = nullptr;
  std::vector<Function> functions;
  std::vector<void *> parameters; ///< Addresses of the arguments of one launch.
};

} // namespace pcrt::cuda

#endif // PCRT_CUDA_KERNELS_H
