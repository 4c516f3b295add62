//===- HostTable.cpp - The table of a host image (pcrt/host_image.h) ---------------------------===//
// Writes the rows of host_image.h into a module as constants. While a row is built, its pointer fields hold pointers to
// LLVM constants; `record` replaces them.
//===-----------------------------------------------------------------------------===//
#include "HostPass.h"
#include "pc/Codegen/Fields.h"
#include "pcrt/host_image.h"

#include "llvm/ADT/SmallVectorExtras.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/DerivedTypes.h"

using namespace llvm;

namespace {
/// Builds rows of host_image.h as constants of the module.
struct Table {
  Module &module;
  LLVMContext &context = module.getContext();

  Constant *global(Constant *value) {
    return new GlobalVariable(module, value->getType(), /*isConstant=*/true, GlobalValue::PrivateLinkage, value);
  }
  const char *string(StringRef text) {
    return reinterpret_cast<const char *>(global(ConstantDataArray::getString(context, text)));
  }
  auto function(const std::string &name) { return reinterpret_cast<void (*)(void **)>(module.getFunction(name)); }
  template <typename T> Constant *record(const T &row) {
    SmallVector<Constant *> fields;
    pc::forEachField(row, [&](auto field) {
      if constexpr (std::is_pointer_v<decltype(field)>)
        fields.push_back(field ? reinterpret_cast<Constant *>(const_cast<void *>((const void *)field))
                               : ConstantPointerNull::get(PointerType::get(context, 0)));
      else
        fields.push_back(ConstantInt::get(Type::getInt32Ty(context), field));
      static_assert(std::is_pointer_v<decltype(field)> || sizeof(field) == 4);
    });
    return ConstantStruct::getAnon(context, fields);
  }
  template <typename T> const T *array(ArrayRef<T> rows) {
    if (rows.empty())
      return nullptr;
    SmallVector<Constant *> elements = map_to_vector(rows, [&](const T &row) { return record(row); });
    return reinterpret_cast<const T *>(
        global(ConstantArray::get(ArrayType::get(elements.front()->getType(), elements.size()), elements)));
  }
};
} // namespace

/// The table is data of the image, written field by field like the tables of a program.
void pc::toolchain::addHostTable(Module &module, const std::vector<HostKernel> &kernels,
                                 const std::vector<HostSite> &sites, StringRef suffix, StringRef checkedSuffix) {
  Table table{module};
  SmallVector<pcrt_host_kernel> rows;
  for (const HostKernel &kernel : kernels) {
    auto ranges = map_to_vector(
        kernel.shared, [](auto range) { return pcrt_host_range{.offset = range.first, .bytes = range.second}; });
    rows.push_back({.name = table.string(kernel.name),
                    .entry = table.function("pc_entry_" + kernel.name + suffix.str()),
                    .checked = table.function("pc_entry_" + kernel.name + checkedSuffix.str()),
                    .synchronizes = kernel.synchronizes,
                    .shared_bytes = static_cast<uint32_t>(kernel.sharedBytes),
                    .shared_extent = static_cast<uint32_t>(kernel.sharedExtent),
                    .num_shared = static_cast<uint32_t>(ranges.size()),
                    .shared = table.array<pcrt_host_range>(ranges),
                    .block = {kernel.block[0], kernel.block[1], kernel.block[2]},
                    .exact = kernel.exact,
                    .num_params = static_cast<uint32_t>(kernel.paramBytes.size()),
                    .param_bytes = table.array<uint32_t>(kernel.paramBytes)});
  }
  auto places = map_to_vector(sites, [&](const HostSite &site) {
    return pcrt_host_site{.kind = site.kind, .kernel = table.string(site.kernel), .text = table.string(site.text)};
  });
  Constant *head = table.record(pcrt_host_module{.version = PCRT_HOST_IMAGE_VERSION,
                                                 .num_kernels = static_cast<uint32_t>(rows.size()),
                                                 .kernels = table.array<pcrt_host_kernel>(rows),
                                                 .num_sites = static_cast<uint32_t>(places.size()),
                                                 .sites = table.array<pcrt_host_site>(places)});
  new GlobalVariable(module, head->getType(), /*isConstant=*/true, GlobalValue::ExternalLinkage, head,
                     "pc_standin_module");
}
