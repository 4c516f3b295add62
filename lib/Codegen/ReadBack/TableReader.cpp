//===- TableReader.cpp - Reads a program's tables back --------------------------------------===//
// Input: the LLVM dialect module of a program. Result: its tables as the structs of pcrt.h, whose pointers are names of
// symbols or texts. Values must be constants; any other value counts as missing.
//===-----------------------------------------------------------------------------===//
#include "TableReader.h"

#include "mlir/IR/Matchers.h"
#include "pc/Codegen/Codegen.h"
#include "pcrt/pcrt.h"

using namespace mlir;
using namespace pc;

TableReader::TableReader(ModuleOp module) {
  for (auto global : module.getOps<LLVM::GlobalOp>())
    globals[global.getSymName()] = global;
}

/// The initial value of a global; null unless its initializer is a single block that returns a value.
Value TableReader::initializer(StringRef symbol) {
  auto global = globals.lookup(symbol);
  Block *block = global ? global.getInitializerBlock() : nullptr;
  auto result =
      block && block->mightHaveTerminator() ? dyn_cast<LLVM::ReturnOp>(block->getTerminator()) : LLVM::ReturnOp();
  return result && result.getNumOperands() == 1 ? result.getOperand(0) : Value();
}

/// Constants are built by insertions of one element each.
std::vector<Value> TableReader::elementsOf(Value aggregate, size_t count) {
  std::vector<Value> elements(count);
  for (; auto insert = aggregate.getDefiningOp<LLVM::InsertValueOp>(); aggregate = insert.getContainer())
    if (ArrayRef<int64_t> at = insert.getPosition();
        at.size() == 1 && at[0] >= 0 && at[0] < static_cast<int64_t>(count))
      if (Value &element = elements[at[0]]; !element) // the last insertion counts
        element = insert.getValue();
  return elements;
}

bool TableReader::number(Value value, int64_t &result) {
  APInt constant;
  if (!matchPattern(value, m_ConstantInt(&constant)))
    return false;
  result = constant.getSExtValue();
  return true;
}

/// A null pointer, a text, or the address of a symbol.
bool TableReader::pointer(Value value, bool isText, const char *&result) {
  result = nullptr;
  if (value.getDefiningOp<LLVM::ZeroOp>())
    return true;
  auto address = value.getDefiningOp<LLVM::AddressOfOp>();
  if (!address)
    return false;
  StringRef name = address.getGlobalName();
  if (isText) {
    auto global = globals.lookup(name);
    auto bytes = global ? dyn_cast_or_null<StringAttr>(global.getValueOrNull()) : StringAttr();
    if (!bytes || !bytes.getValue().ends_with(StringRef("\0", 1)))
      return false;
    name = bytes.getValue().drop_back();
  }
  result = saver.save(name).data();
  return true;
}

//===---------------------------------------------------------------------------===//
// All tables as bytes
//===---------------------------------------------------------------------------===//

namespace {
/// Appends numbers and strings to one text, without padding or addresses, so that equal tables have equal bytes.
struct Bytes {
  void add(int64_t number) { text.append(reinterpret_cast<const char *>(&number), sizeof number); }
  void add(StringRef string) {
    add(static_cast<int64_t>(string.size()));
    text += string;
  }
  template <typename T> void addRows(ArrayRef<T> rows) {
    add(static_cast<int64_t>(rows.size()));
    for (const T &row : rows)
      forEachField(row, [&](const auto &field) {
        using FieldT = std::remove_cvref_t<decltype(field)>;
        if constexpr (std::is_same_v<FieldT, const char *>)
          add(StringRef(field ? field : ""));
        else if constexpr (std::is_pointer_v<FieldT>)
          add(TableReader::nameOf(field));
        else if constexpr (std::is_same_v<FieldT, float>)
          add(static_cast<int64_t>(llvm::bit_cast<int32_t>(field)));
        else
          add(static_cast<int64_t>(field));
      });
  }
  std::string text;
};
} // namespace

/// Follows the list of programs and appends the bytes of each table.
std::string pc::tableBytes(ModuleOp kernels) {
  TableReader reader(kernels);
  Bytes bytes;
  // Programs of stages form a list, linked by `next_stage`.
  for (std::string name = "pc_program"; !name.empty();) {
    auto program = reader.structOf<pcrt_program>(name);
    if (!program)
      return "";
    const pcrt_program &p = *program;
    // Fields are added as values, not as memory: a struct may contain padding and pointers.
    for (int64_t number :
         {int64_t(p.abi_version), p.arena_bytes, int64_t(p.target), int64_t(p.num_tickets), p.workspace_offset,
          p.workspace_bytes, int64_t(p.num_stages), int64_t(p.stage_axis), int64_t(p.stage), p.json_bytes})
      bytes.add(number);
    for (auto function : {p.step, p.evaluate, p.round})
      bytes.add(TableReader::nameOf(function));
    bool ok = true;
    auto table = [&](auto *rows, int64_t count) {
      auto found = reader.rowsOf(rows, count);
      ok = ok && found;
      if (found)
        bytes.addRows(ArrayRef(*found));
    };
    table(p.mesh_sizes, p.num_mesh_axes), table(p.mesh_names, p.num_mesh_axes), table(p.groups, p.num_groups);
    table(p.kernels, p.num_kernels), table(p.gemms, p.num_gemms), table(p.moves, p.num_moves);
    table(p.device_kernels, p.device_kernels ? p.num_kernels : 0), table(p.attentions, p.num_attentions);
    table(p.flows, p.num_flows);
    auto images = reader.rowsOf(p.images, p.num_images);
    if (!ok || !images)
      return "";
    // Images count by their contents, since they contain the code of the GPU.
    for (const pcrt_image &image : *images) {
      for (int64_t number : {image.kind, image.arch, image.arch_specific})
        bytes.add(number);
      auto data = kernels.lookupSymbol<LLVM::GlobalOp>(TableReader::nameOf(image.data));
      auto value = data ? dyn_cast_or_null<StringAttr>(data.getValueOrNull()) : StringAttr();
      bytes.add(value ? value.getValue().take_front(static_cast<size_t>(image.bytes)) : StringRef());
    }
    bytes.add(StringRef(p.json ? p.json : ""));
    name = TableReader::nameOf(p.next_stage).str();
  }
  return bytes.text;
}
