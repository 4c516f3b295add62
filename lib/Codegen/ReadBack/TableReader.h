//===- TableReader.h - Reads a program's tables back ----------------------------------------===//
// This is the inverse of Tables.h, without shared code: constants of the LLVM dialect become values of the structs of
// pcrt.h again. A string is a pointer to its characters. Any other pointer points to the name of its symbol.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_READBACK_TABLEREADER_H
#define PC_LIB_CODEGEN_READBACK_TABLEREADER_H

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "pc/Codegen/Fields.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/bit.h"
#include "llvm/Support/StringSaver.h"

#include <vector>

namespace pc {

/// Reads constants of one module. The structs that it returns point to texts and names that the reader owns, so the
/// reader must outlive them.
class TableReader {
public:
  explicit TableReader(mlir::ModuleOp module);

  /// Returns the struct at a symbol; std::nullopt if there is no such struct with the right number of fields.
  template <typename T> std::optional<T> structOf(llvm::StringRef symbol) {
    mlir::Value value = initializer(symbol);
    T row{};
    if (!value || !read(value, row))
      return std::nullopt;
    return row;
  }

  /// Returns the `count` rows of the table to which a field points; std::nullopt if the table has more or fewer rows.
  template <typename T> std::optional<std::vector<T>> rowsOf(const T *field, int64_t count) {
    if (!field)
      return count == 0 ? std::optional(std::vector<T>()) : std::nullopt;
    mlir::Value value = initializer(nameOf(field));
    auto type = value ? mlir::dyn_cast<mlir::LLVM::LLVMArrayType>(value.getType()) : mlir::LLVM::LLVMArrayType();
    if (!type || static_cast<int64_t>(type.getNumElements()) != count)
      return std::nullopt;
    std::vector<T> rows(type.getNumElements());
    std::vector<mlir::Value> elements = elementsOf(value, rows.size());
    for (auto [element, row] : llvm::zip_equal(elements, rows))
      if (!read(element, row))
        return std::nullopt;
    return rows;
  }

  /// The symbol to which a field points; "" for null.
  static llvm::StringRef nameOf(const void *field) {
    return field ? llvm::StringRef(static_cast<const char *>(field)) : llvm::StringRef();
  }
  template <typename R, typename... Ps> static llvm::StringRef nameOf(R (*field)(Ps...)) {
    return nameOf(reinterpret_cast<const void *>(field));
  }

private:
  mlir::Value initializer(llvm::StringRef symbol);
  /// The elements of a constant that is built by insertvalue; null for elements that were not inserted.
  static std::vector<mlir::Value> elementsOf(mlir::Value aggregate, size_t count);
  bool number(mlir::Value value, int64_t &result);
  /// Reads a pointer, which is null or has the form that the file comment describes.
  bool pointer(mlir::Value value, bool isText, const char *&result);

  template <typename T> bool read(mlir::Value value, T &row) {
    if (!value)
      return false;
    // A scalar is a row of one field.
    auto type = mlir::dyn_cast<mlir::LLVM::LLVMStructType>(value.getType());
    if (!type)
      return false;
    std::vector<mlir::Value> elements = elementsOf(value, type.getBody().size());
    size_t index = 0;
    bool ok = true;
    forEachField(row, [&](auto &field) {
      ok = ok && index < elements.size() && scalar(elements[index], field);
      ++index;
    });
    return ok && elements.size() == index;
  }

  template <typename T> bool scalar(mlir::Value value, T &field) {
    if (!value)
      return false;
    if constexpr (std::is_pointer_v<T>) {
      const char *text = nullptr;
      bool ok = pointer(value, std::is_same_v<T, const char *>, text);
      field = reinterpret_cast<T>(const_cast<char *>(text));
      return ok;
    } else {
      int64_t read = 0;
      if (!number(value, read))
        return false;
      if constexpr (std::is_same_v<T, float>)
        field = llvm::bit_cast<float>(static_cast<int32_t>(read));
      else
        field = static_cast<T>(read);
      return true;
    }
  }

  llvm::StringMap<mlir::LLVM::GlobalOp> globals; ///< by name
  llvm::BumpPtrAllocator allocator;
  llvm::UniqueStringSaver saver{allocator};
};

} // namespace pc

#endif
