//===- Tables.cpp - Constant tables of a program, in the LLVM dialect --------------------===//
// Writes rows of pcrt structs as LLVM constants. While a row is built, its pointers point to names of symbols or to
// texts (Cell). The constants are written field by field, so that padding and order equal those of the struct.
//===-----------------------------------------------------------------------------===//
#include "Tables.h"

using namespace mlir;
using namespace pc;

Tables::Tables(ModuleOp module) : module(module), builder(module.getContext()) {
  builder.setInsertionPointToEnd(module.getBody());
}

Type Tables::typeOf(const Cell &cell) {
  if (cell.kind == Cell::I32)
    return builder.getI32Type();
  if (cell.kind == Cell::I64)
    return builder.getI64Type();
  return LLVM::LLVMPointerType::get(builder.getContext());
}

Type Tables::typeOf(const Cells &row) {
  auto types = llvm::map_to_vector(row, [&](const Cell &cell) { return typeOf(cell); });
  return LLVM::LLVMStructType::getLiteral(builder.getContext(), types);
}

/// The global of a text, which is created at its first use.
std::string Tables::textGlobal(StringRef value) {
  auto [it, inserted] = strings.try_emplace(value, "pc_text" + std::to_string(strings.size()));
  if (inserted) {
    std::string bytes = value.str() + '\0';
    auto type = LLVM::LLVMArrayType::get(builder.getI8Type(), bytes.size());
    LLVM::GlobalOp::create(builder, module.getLoc(), type, /*isConstant=*/true, LLVM::Linkage::Private, it->second,
                           builder.getStringAttr(bytes));
  }
  return it->second;
}

/// A cell is a number, the address of a symbol or text, or null.
Value Tables::build(OpBuilder &b, const Cell &cell) {
  Location loc = module.getLoc();
  Type type = typeOf(cell);
  if (cell.kind == Cell::I32 || cell.kind == Cell::I64)
    return LLVM::ConstantOp::create(b, loc, type, cell.number);
  if (!cell.name)
    return LLVM::ZeroOp::create(b, loc, type);
  return LLVM::AddressOfOp::create(b, loc, type, cell.kind == Cell::Text ? textGlobal(cell.name) : cell.name);
}

Value Tables::build(OpBuilder &b, const Cells &row) {
  Location loc = module.getLoc();
  Value result = LLVM::UndefOp::create(b, loc, typeOf(row));
  for (auto [i, cell] : llvm::enumerate(row))
    result = LLVM::InsertValueOp::create(b, loc, result, build(b, cell), ArrayRef<int64_t>{static_cast<int64_t>(i)});
  return result;
}

const void *Tables::bytes(StringRef name, StringRef value) {
  auto type = LLVM::LLVMArrayType::get(builder.getI8Type(), value.size());
  LLVM::GlobalOp::create(builder, module.getLoc(), type, /*isConstant=*/true, LLVM::Linkage::Internal, name,
                         builder.getStringAttr(value), /*alignment=*/64);
  return symbol<const void *>(name);
}

/// Replaces a cell after the table was written, by changing the insertion of its value.
void Tables::setCell(StringRef name, int64_t index, const Cell &value) {
  for (auto insert : module.lookupSymbol<LLVM::GlobalOp>(name).getOps<LLVM::InsertValueOp>())
    if (insert.getPosition() == ArrayRef<int64_t>{index}) {
      OpBuilder b(insert);
      insert.getValueMutable().assign(build(b, value));
    }
}

/// Writes the rows as one global array.
void Tables::addArray(StringRef name, ArrayRef<Cells> rows) {
  Location loc = module.getLoc();
  auto type = LLVM::LLVMArrayType::get(typeOf(rows[0]), rows.size());
  auto global =
      LLVM::GlobalOp::create(builder, loc, type, /*isConstant=*/true, LLVM::Linkage::Internal, name, Attribute());
  OpBuilder b(module.getContext());
  b.createBlock(&global.getInitializerRegion());
  Value result = LLVM::UndefOp::create(b, loc, type);
  for (auto [i, row] : llvm::enumerate(rows))
    result = LLVM::InsertValueOp::create(b, loc, result, build(b, row), ArrayRef<int64_t>{static_cast<int64_t>(i)});
  LLVM::ReturnOp::create(b, loc, result);
}

void Tables::addStruct(StringRef name, const Cells &row) {
  Location loc = module.getLoc();
  auto global = LLVM::GlobalOp::create(builder, loc, typeOf(row), /*isConstant=*/true, LLVM::Linkage::External, name,
                                       Attribute());
  OpBuilder b(module.getContext());
  b.createBlock(&global.getInitializerRegion());
  LLVM::ReturnOp::create(b, loc, build(b, row));
}
