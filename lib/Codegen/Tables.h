//===- Tables.h - Constant tables of a program, in the LLVM dialect --------------------===//
// The structs of runtime/include/pcrt/pcrt.h as LLVM types, and globals that hold them.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_TABLES_H
#define PC_LIB_CODEGEN_TABLES_H

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringMap.h"
#include <variant>

namespace pc {

/// One field of a struct constant: an integer of 32 or 64 bits, a string, or the address of a symbol ("" is null).
struct Field {
  enum Kind { I32, I64, Text, Symbol } kind;
  int64_t number = 0;
  std::string text;

  static Field i32(int64_t n) { return {I32, n, ""}; }
  static Field i64(int64_t n) { return {I64, n, ""}; }
  static Field string(llvm::StringRef s) { return {Text, 0, s.str()}; }
  static Field symbol(llvm::StringRef s) { return {Symbol, 0, s.str()}; }
};
using Entry = llvm::SmallVector<Field>;

class Tables {
public:
  explicit Tables(mlir::ModuleOp module);
  /// A global array of structs; all entries have the same kinds of fields. An empty one is a null pointer: returns "".
  std::string array(llvm::StringRef name, llvm::ArrayRef<Entry> entries);
  /// A global constant of these bytes, at a multiple of 64; returns `name`.
  std::string bytes(llvm::StringRef name, llvm::StringRef value);
  /// Sets field `index` of the struct that was published as `name`.
  void replace(llvm::StringRef name, int64_t index, const Field &value);
  /// A global struct that other objects see.
  void publish(llvm::StringRef name, const Entry &entry);
  /// A zero-terminated string constant.
  std::string text(llvm::StringRef value);

private:
  mlir::Type typeOf(const Field &field);
  mlir::Type typeOf(const Entry &entry);
  mlir::Value build(mlir::OpBuilder &b, const Field &field);
  mlir::Value build(mlir::OpBuilder &b, const Entry &entry);

  mlir::ModuleOp module;
  mlir::OpBuilder builder;
  llvm::StringMap<std::string> strings;
};

} // namespace pc

#endif
