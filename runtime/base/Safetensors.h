//===- Safetensors.h - Reading safetensors files --------------------------===//
// A file consists of 8 bytes of header length, a JSON header and the data. The header is not trusted: all of it is
// checked when a file is opened. Data are read on demand.
//===----------------------------------------------------------------------===//
#ifndef PCRT_BASE_SAFETENSORS_H
#define PCRT_BASE_SAFETENSORS_H

#include "base/Block.h"
#include "base/InputFile.h"

#include <deque>
#include <map>
#include <string>
#include <vector>

namespace pcrt {

/// A tensor in a file that is open.
struct StoredTensor {
  std::string dtype; ///< As the format writes it: "F32", "BF16", ...
  Dims shape;
  const InputFile *from = nullptr; ///< The open file, which a Safetensors owns.
  int64_t offset = 0, bytes = 0;   ///< Where its data are in that file.
  std::string file;                ///< For messages.
};

/// The tensors of one file or of one checkpoint. A Safetensors owns the open files. A StoredTensor points to them and
/// must not outlive it. Any number of threads may read.
class Safetensors {
public:
  /// Opens a file, a directory with model.safetensors, or a directory with model.safetensors.index.json and its shards.
  /// Throws PCRT_BAD_DATA, naming the file and the tensor, if anything is wrong.
  static Safetensors open(const std::string &path);

  /// The tensor of that name, or null.
  const StoredTensor *find(const std::string &name) const;

  /// Like find, but also tries other names of the tensor (pcrt/weights.h).
  const StoredTensor *findModelTensor(const std::string &name) const;

  const std::map<std::string, StoredTensor> &tensors() const { return all; }
  /// Returns the "__metadata__" of the file, or of the last file if there are several.
  const std::map<std::string, std::string> &metadata() const { return meta; }

private:
  void addFile(const std::string &path);

  std::deque<InputFile> files; ///< Tensors point to them.
  std::map<std::string, StoredTensor> all;
  std::map<std::string, std::string> meta;
};

/// Whether `dtype` can be converted to f32 here: F32, F16, BF16 or F64.
bool isFloatDtype(const std::string &dtype);

/// Reads a tensor's elements as f32, in pieces. Small pieces that are near each other, like those of a split row, share
/// one system call. One thread uses a reader at a time. The tensor must outlive the reader.
class FloatReader {
public:
  /// The tensor must have a dtype for which isFloatDtype is true, or I8.
  explicit FloatReader(const StoredTensor &tensor);
  /// Reads `count` elements from element `first` on. Throws PCRT_BAD_DATA if the file cannot be read any more.
  void read(int64_t first, int64_t count, float *out);

private:
  const StoredTensor &tensor;
  int64_t width;                ///< Bytes of an element.
  int64_t start = 0, bytes = 0; ///< The bytes of the tensor that `window` holds.
  unsigned char window[1 << 14];
};

/// Reads elements [first, first + count) as f32.
inline void loadFloats(const StoredTensor &tensor, int64_t first, int64_t count, float *out) {
  FloatReader(tensor).read(first, count, out);
}

} // namespace pcrt

#endif // PCRT_BASE_SAFETENSORS_H
