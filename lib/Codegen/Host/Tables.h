//===- Tables.h - Constant tables of a program, in the LLVM dialect --------------------===//
// Rows are values of the structs of runtime/include/pcrt/pcrt.h. In a row, a pointer to characters stands for a string
// constant of the program. Any other pointer stands for a symbol, and comes from symbol(), array() or bytes().
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_HOST_TABLES_H
#define PC_LIB_CODEGEN_HOST_TABLES_H

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "pc/Codegen/Fields.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/bit.h"
#include "llvm/Support/StringSaver.h"

namespace pc {

/// Writes constants to the end of a module. Equal texts share one constant. Pointers in its rows point to names instead
/// of real data, so only this class may dereference them.
class Tables {
public:
  explicit Tables(mlir::ModuleOp module);

  /// Returns the value of a field that holds a string constant.
  const char *text(llvm::StringRef value) { return saver.save(value).data(); }
  /// Returns the value of a field that holds the address of a symbol; null if `name` is "".
  template <typename PointerT> PointerT symbol(llvm::StringRef name) {
    return name.empty() ? nullptr : reinterpret_cast<PointerT>(const_cast<char *>(text(name)));
  }
  /// Writes a global array of rows and returns its address, which is null for an empty array.
  template <typename T> const T *array(llvm::StringRef name, llvm::ArrayRef<T> rows) {
    if (!rows.empty())
      addArray(name, llvm::map_to_vector(rows, [](const T &row) { return cellsOf(row); }));
    return symbol<const T *>(rows.empty() ? "" : name);
  }
  /// Writes a global constant of these bytes, aligned to 64 bytes, and returns its address.
  const void *bytes(llvm::StringRef name, llvm::StringRef value);
  /// Writes a global struct with external linkage.
  template <typename T> void publish(llvm::StringRef name, const T &row) { addStruct(name, cellsOf(row)); }
  /// Sets a field of the struct that was published as `name`.
  template <typename T, typename FieldT>
  void set(llvm::StringRef name, FieldT T::*field, const std::type_identity_t<FieldT> &value) {
    T row{};
    int64_t index = 0, at = -1;
    forEachField(row, [&](const auto &one) {
      if (static_cast<const void *>(&one) == &(row.*field))
        at = index;
      ++index;
    });
    setCell(name, at, cellsOf(value)[0]);
  }

private:
  /// One scalar of a constant: an integer of 32 or 64 bits, a string, or the address of a symbol (null: zero).
  struct Cell {
    enum Kind { I32, I64, Text, Symbol } kind;
    int64_t number = 0;
    const char *name = nullptr;
  };
  using Cells = llvm::SmallVector<Cell>;

  /// Returns the fields of a row, flat and in order, as constants.
  template <typename T> static Cells cellsOf(const T &row) {
    Cells cells;
    forEachField(row, [&](const auto &field) {
      using FieldT = std::remove_cvref_t<decltype(field)>;
      if constexpr (std::is_same_v<FieldT, const char *>)
        cells.push_back({Cell::Text, 0, field});
      else if constexpr (std::is_pointer_v<FieldT>)
        cells.push_back({Cell::Symbol, 0, reinterpret_cast<const char *>(field)});
      else if constexpr (std::is_same_v<FieldT, float>)
        cells.push_back({Cell::I32, llvm::bit_cast<int32_t>(field)});
      else
        cells.push_back({sizeof(FieldT) == 4 ? Cell::I32 : Cell::I64, field});
      static_assert(sizeof(FieldT) == 4 || sizeof(FieldT) == 8);
    });
    return cells;
  }

  mlir::Type typeOf(const Cell &cell);
  mlir::Type typeOf(const Cells &row);
  mlir::Value build(mlir::OpBuilder &b, const Cell &cell);
  mlir::Value build(mlir::OpBuilder &b, const Cells &row);
  std::string textGlobal(llvm::StringRef value);
  /// These functions write the globals. A field can change until the module is translated.
  void addArray(llvm::StringRef name, llvm::ArrayRef<Cells> rows);
  void addStruct(llvm::StringRef name, const Cells &row);
  void setCell(llvm::StringRef name, int64_t index, const Cell &value);

  mlir::ModuleOp module;
  mlir::OpBuilder builder;
  llvm::BumpPtrAllocator allocator;
  llvm::UniqueStringSaver saver{allocator};
  llvm::StringMap<std::string> strings; ///< text -> its global
};

} // namespace pc

#endif
