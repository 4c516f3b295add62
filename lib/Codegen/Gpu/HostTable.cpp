//===- HostTable.cpp - the table of a host image (pcrt/host_image.h) ---------------------------===//
#include "HostPass.h"
#include "pcrt/host_image.h"

#include "llvm/IR/Constants.h"
#include "llvm/IR/DerivedTypes.h"

using namespace llvm;

namespace {
/// Constants of the module.
struct Table {
  Module &module;
  LLVMContext &context = module.getContext();
  Type *i32 = Type::getInt32Ty(context);
  PointerType *pointer = PointerType::get(context, 0);

  Constant *word(uint64_t value) { return ConstantInt::get(i32, value); }
  Constant *global(Constant *value) {
    return new GlobalVariable(module, value->getType(), /*isConstant=*/true, GlobalValue::PrivateLinkage, value);
  }
  Constant *string(StringRef text) { return global(ConstantDataArray::getString(context, text)); }
  Constant *record(ArrayRef<Constant *> fields) { return ConstantStruct::getAnon(context, fields); }
  /// A pointer to the elements, which all have one type.
  Constant *array(ArrayRef<Constant *> elements) {
    if (elements.empty())
      return ConstantPointerNull::get(pointer);
    return global(ConstantArray::get(ArrayType::get(elements.front()->getType(), elements.size()), elements));
  }
};
} // namespace

void pc::toolchain::addHostTable(Module &module, const std::vector<HostKernel> &kernels,
                                 const std::vector<HostSite> &sites, StringRef suffix, StringRef checkedSuffix) {
  Table table{module};
  SmallVector<Constant *> rows, places;
  for (const HostKernel &kernel : kernels) {
    SmallVector<Constant *> ranges, sizes;
    for (auto [offset, bytes] : kernel.shared)
      ranges.push_back(table.record({table.word(offset), table.word(bytes)}));
    for (uint32_t bytes : kernel.paramBytes)
      sizes.push_back(table.word(bytes));
    // The fields of pcrt_host_kernel; each has its own alignment, so the layouts agree.
    rows.push_back(table.record(
        {table.string(kernel.name), module.getFunction("pc_entry_" + kernel.name + suffix.str()),
         module.getFunction("pc_entry_" + kernel.name + checkedSuffix.str()), table.word(kernel.synchronizes),
         table.word(kernel.sharedBytes), table.word(kernel.sharedExtent), table.word(kernel.shared.size()),
         table.array(ranges), table.word(kernel.block[0]), table.word(kernel.block[1]), table.word(kernel.block[2]),
         table.word(kernel.exact), table.word(kernel.paramBytes.size()), table.array(sizes)}));
  }
  for (const HostSite &site : sites)
    places.push_back(table.record({table.word(site.kind), table.string(site.kernel), table.string(site.text)}));
  Constant *head = table.record({table.word(PCRT_HOST_IMAGE_VERSION), table.word(rows.size()), table.array(rows),
                                 table.word(places.size()), table.array(places)});
  new GlobalVariable(module, head->getType(), /*isConstant=*/true, GlobalValue::ExternalLinkage, head,
                     "pc_standin_module");
}
