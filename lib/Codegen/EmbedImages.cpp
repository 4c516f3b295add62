//===- EmbedImages.cpp - The gpu.module of a program becomes constants of its object -------------===//
#include "Gpu/Images.h"
#include "Tables.h"
#include "pc/Codegen/Codegen.h"
#include "pcrt/pcrt.h"

using namespace mlir;

static_assert(static_cast<int>(pc::GpuImageKind::Cubin) == PCRT_CUBIN &&
              static_cast<int>(pc::GpuImageKind::Ptx) == PCRT_PTX &&
              static_cast<int>(pc::GpuImageKind::Host) == PCRT_HOST_IMAGE);

/// Fields of pcrt_program, counted from 0.
static constexpr int64_t numImagesField = 17, imagesField = 20;

LogicalResult pc::embedImages(ModuleOp module, ArrayRef<std::string> archs, bool standIn) {
  auto devices = llvm::to_vector(module.getOps<gpu::GPUModuleOp>());
  if (devices.empty())
    return success();
  GpuTargetOptions options;
  if (!archs.empty())
    options.archs.assign(archs.begin(), archs.end());
  options.emitHostImage = standIn;
  FailureOr<SmallVector<GpuImage>> images = compileGpuModule(devices[0], options);
  if (failed(images))
    return failure();
  devices[0].erase();
  Tables tables(module);
  SmallVector<Entry> table;
  for (auto [i, image] : llvm::enumerate(*images)) {
    std::string data = tables.bytes("pc_image" + std::to_string(i), image.bytes);
    table.push_back({Field::i32(static_cast<int>(image.kind)), Field::i32(image.arch), Field::i32(image.archSpecific),
                     Field::symbol(data), Field::i64(image.bytes.size())});
  }
  std::string symbol = tables.array("pc_images", table);
  for (auto global : module.getOps<LLVM::GlobalOp>()) // of every stage
    if (global.getSymName().starts_with("pc_program")) {
      tables.replace(global.getSymName(), numImagesField, Field::i32(table.size()));
      tables.replace(global.getSymName(), imagesField, Field::symbol(symbol));
    }
  return success();
}
