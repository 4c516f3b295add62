//===- Npy.h - Reads the headers of NumPy's files --------------------------===//
#ifndef PCRT_BASE_NPY_H
#define PCRT_BASE_NPY_H

#include "base/Block.h"
#include "base/InputFile.h"

#include <string>

namespace pcrt {

/// The array of a .npy file, little-endian and row major.
struct NpyArray {
  std::string dtype; ///< As NumPy writes it: "<f4", "|u1".
  std::string shape; ///< As NumPy writes it, without the parentheses: "100, 3".
  Dims dims;
  int64_t start = 0; ///< Bytes before the first element.

  int bytes() const { return dtype[2] - '0'; } ///< The bytes of an element.
};

/// Whether the file begins as a .npy file.
bool isNpy(const InputFile &file);

/// Reads the header, which is not trusted, and checks that the file has the number of elements that the header states.
/// `what` names an element in messages. Throws PCRT_BAD_DATA naming the file.
NpyArray readNpy(const InputFile &file, const std::string &what);

} // namespace pcrt

#endif // PCRT_BASE_NPY_H
