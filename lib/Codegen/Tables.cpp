//===- Tables.cpp - Constant tables of a program, in the LLVM dialect --------------------===//
#include "Tables.h"

using namespace mlir;
using namespace pc;

Tables::Tables(ModuleOp module) : module(module), builder(module.getContext()) {
  builder.setInsertionPointToEnd(module.getBody());
}

Type Tables::typeOf(const Field &field) {
  if (field.kind == Field::I32)
    return builder.getI32Type();
  if (field.kind == Field::I64)
    return builder.getI64Type();
  return LLVM::LLVMPointerType::get(builder.getContext());
}

Type Tables::typeOf(const Entry &entry) {
  SmallVector<Type> types;
  for (const Field &field : entry)
    types.push_back(typeOf(field));
  return LLVM::LLVMStructType::getLiteral(builder.getContext(), types);
}

std::string Tables::text(StringRef value) {
  auto [it, inserted] = strings.try_emplace(value, "pc_text" + std::to_string(strings.size()));
  if (inserted) {
    std::string bytes = value.str() + '\0';
    auto type = LLVM::LLVMArrayType::get(builder.getI8Type(), bytes.size());
    LLVM::GlobalOp::create(builder, module.getLoc(), type, /*isConstant=*/true, LLVM::Linkage::Private, it->second,
                           builder.getStringAttr(bytes));
  }
  return it->second;
}

Value Tables::build(OpBuilder &b, const Field &field) {
  Location loc = module.getLoc();
  if (field.kind == Field::I32)
    return LLVM::ConstantOp::create(b, loc, b.getI32Type(), field.number);
  if (field.kind == Field::I64)
    return LLVM::ConstantOp::create(b, loc, b.getI64Type(), field.number);
  if (field.text.empty() && field.kind == Field::Symbol)
    return LLVM::ZeroOp::create(b, loc, typeOf(field));
  return LLVM::AddressOfOp::create(b, loc, typeOf(field), field.kind == Field::Text ? text(field.text) : field.text);
}

Value Tables::build(OpBuilder &b, const Entry &entry) {
  Location loc = module.getLoc();
  Value result = LLVM::UndefOp::create(b, loc, typeOf(entry));
  for (auto [i, field] : llvm::enumerate(entry))
    result = LLVM::InsertValueOp::create(b, loc, result, build(b, field), ArrayRef<int64_t>{static_cast<int64_t>(i)});
  return result;
}

std::string Tables::bytes(StringRef name, StringRef value) {
  auto type = LLVM::LLVMArrayType::get(builder.getI8Type(), value.size());
  LLVM::GlobalOp::create(builder, module.getLoc(), type, /*isConstant=*/true, LLVM::Linkage::Internal, name,
                         builder.getStringAttr(value), /*alignment=*/64);
  return name.str();
}

void Tables::replace(StringRef name, int64_t index, const Field &value) {
  for (auto insert : module.lookupSymbol<LLVM::GlobalOp>(name).getOps<LLVM::InsertValueOp>())
    if (insert.getPosition() == ArrayRef<int64_t>{index}) {
      OpBuilder b(insert);
      insert.getValueMutable().assign(build(b, value));
    }
}

std::string Tables::array(StringRef name, ArrayRef<Entry> entries) {
  if (entries.empty())
    return "";
  Location loc = module.getLoc();
  auto type = LLVM::LLVMArrayType::get(typeOf(entries[0]), entries.size());
  auto global =
      LLVM::GlobalOp::create(builder, loc, type, /*isConstant=*/true, LLVM::Linkage::Internal, name, Attribute());
  OpBuilder b(module.getContext());
  b.createBlock(&global.getInitializerRegion());
  Value result = LLVM::UndefOp::create(b, loc, type);
  for (auto [i, entry] : llvm::enumerate(entries))
    result = LLVM::InsertValueOp::create(b, loc, result, build(b, entry), ArrayRef<int64_t>{static_cast<int64_t>(i)});
  LLVM::ReturnOp::create(b, loc, result);
  return name.str();
}

void Tables::publish(StringRef name, const Entry &entry) {
  Location loc = module.getLoc();
  auto global = LLVM::GlobalOp::create(builder, loc, typeOf(entry), /*isConstant=*/true, LLVM::Linkage::External, name,
                                       Attribute());
  OpBuilder b(module.getContext());
  b.createBlock(&global.getInitializerRegion());
  LLVM::ReturnOp::create(b, loc, build(b, entry));
}
