//===- EmbedImages.cpp - Embeds compiled GPU images in a program ---------------------------------===//
// Compiles the gpu.module, stores each image as a constant with 64-byte alignment, and adds the table of images to the
// program of every stage. The gpu.module is then erased.
//===-----------------------------------------------------------------------------===//
#include "../Gpu/Images.h"
#include "Tables.h"
#include "pc/Codegen/Codegen.h"
#include "pcrt/pcrt.h"

using namespace mlir;

static_assert(static_cast<int>(pc::GpuImageKind::Cubin) == PCRT_CUBIN &&
              static_cast<int>(pc::GpuImageKind::Ptx) == PCRT_PTX &&
              static_cast<int>(pc::GpuImageKind::Host) == PCRT_HOST_IMAGE);

/// The images become a constant of the module, and the table of images points into it.
LogicalResult pc::embedImages(ModuleOp module, ArrayRef<std::string> archs, bool standIn) {
  auto devices = llvm::to_vector(module.getOps<gpu::GPUModuleOp>());
  if (devices.empty())
    return success();
  GpuTargetOptions options;
  if (!archs.empty())
    options.archs.assign(archs.begin(), archs.end());
  options.emitHostImage = standIn;
  options.emitCubins = !standIn;
  FailureOr<SmallVector<GpuImage>> images = compileGpuModule(devices[0], options);
  if (failed(images))
    return failure();
  devices[0].erase();
  Tables tables(module);
  SmallVector<pcrt_image> table;
  for (auto [i, image] : llvm::enumerate(*images))
    table.push_back({.kind = static_cast<int>(image.kind),
                     .arch = image.arch,
                     .arch_specific = image.archSpecific,
                     .data = tables.bytes("pc_image" + std::to_string(i), image.bytes),
                     .bytes = static_cast<int64_t>(image.bytes.size())});
  const pcrt_image *rows = tables.array<pcrt_image>("pc_images", table);
  for (auto global : module.getOps<LLVM::GlobalOp>()) // the programs of all stages
    if (global.getSymName().starts_with("pc_program")) {
      tables.set(global.getSymName(), &pcrt_program::num_images, table.size());
      tables.set(global.getSymName(), &pcrt_program::images, rows);
    }
  return success();
}
