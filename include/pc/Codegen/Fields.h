//===- Fields.h - The fields of a C struct, one by one ---------------------------------===//
// A program's tables are values of the runtime's own C structs (pcrt.h, host_image.h), whose fields are set by name.
// The object file is written from those values, so the struct is the only list of its fields.
//===-----------------------------------------------------------------------------===//
#ifndef PC_CODEGEN_FIELDS_H
#define PC_CODEGEN_FIELDS_H

#include <type_traits>

// A row must name all of its fields. In files that include this header, code that leaves one out does not compile.
#pragma clang diagnostic error "-Wmissing-designated-field-initializers"

namespace pc {

/// Calls f(field) for every scalar in `row`, in the order of their addresses. Elements of arrays count one by one. A
/// scalar is a row of one field.
template <typename T, typename F> constexpr void forEachField(T &row, F &&f) {
  if constexpr (std::is_array_v<T>) {
    for (auto &element : row)
      forEachField(element, f);
  } else if constexpr (std::is_class_v<T>) {
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wc++26-extensions" // a structured binding of as many names as there are fields
    auto &[... fields] = row;
#pragma clang diagnostic pop
    (forEachField(fields, f), ...);
  } else {
    f(row);
  }
}

} // namespace pc

#endif
