//===- Arrays.h - Inputs that a program has by name ------------------------===//
//
// --data image=img-*.npy,label=y.npy names .npy files for each input of kind "data"; a safetensors file has a tensor of
// that name. A safetensors file without a name before it has a tensor for each input. Rows of several files follow each
// other; a sample is a row of every input.
//
//===----------------------------------------------------------------------===//
#ifndef PCRT_DATA_ARRAYS_H
#define PCRT_DATA_ARRAYS_H

#include "base/Safetensors.h"
#include "data/SampleOrder.h"
#include "data/Samples.h"

#include <deque>
#include <map>

namespace pcrt {

/// The rows of one input, which come from one file or several.
class NamedArray {
public:
  /// `input` is an input of a program. Its first two dims are microbatches and rows; the others are the shape of a row.
  explicit NamedArray(const Input &input)
      : name(input.name), row(input.shape.begin() + 2, input.shape.end()), dtype(input.dtype), below(input.below) {}

  /// Adds the rows of the tensor at `start` of `file`. `kind` says whether its elements are floats ('f'), signed
  /// integers ('i'), unsigned integers ('u') or something else. `type` is the type as the file writes it. Throws
  /// PCRT_BAD_DATA if the input is of another type or shape.
  void add(const InputFile &file, int64_t start, const Dims &shape, char kind, int bytes, const std::string &type);

  int64_t rows() const { return pieces.empty() ? 0 : pieces.back().first + pieces.back().rows; }
  const Dims &rowShape() const { return row; }

  /// Reads a row as f32 or i32. `raw` has room for `rawBytes()`. Throws PCRT_BAD_DATA, naming file and row, if an index
  /// is not below the bound of the input.
  void read(int64_t index, char *raw, void *out) const;
  int64_t rawBytes() const { return product(row) * 8; }

  const std::string name;

private:
  struct Piece {
    const InputFile *file;
    int64_t start, first, rows; ///< The position of the first element; the array's rows among all.
    int bytes;
    bool isSigned;
  };
  std::vector<Piece> pieces;
  Dims row;
  int32_t dtype;
  int64_t below;
};

class Arrays : public SampleData {
public:
  /// Throws as openSamples.
  Arrays(const Options &options, const Program &program, bool training);

  std::vector<File> filesRead() const override { return read; }
  int64_t windows() const override { return order ? order->windows(0) : rows; }
  std::string what() const override { return "samples"; }
  std::string describe(int64_t first, int64_t count) const override;
  std::unique_ptr<Loader> loader(const Program &program, int rank, MeanOver meanOver) const override;

  /// The index of a sample's row, which is the same in every input.
  int64_t rowOfSample(int64_t sample) const { return order ? order->of(sample).window : sample % rows; }
  const NamedArray &of(const std::string &name) const { return all.at(name); }

private:
  void open(const std::string &spec, const std::string &path, const std::string &name);
  void addNpy(NamedArray &array, const InputFile &file);
  void addTensor(NamedArray &array, const Safetensors &from, const std::string &path);

  std::map<std::string, NamedArray> all;
  std::vector<File> read;
  std::deque<InputFile> files;
  std::deque<Safetensors> shards;
  int64_t rows = 0;
  std::optional<SampleOrder> order; ///< None: in their order.
};

} // namespace pcrt

#endif // PCRT_DATA_ARRAYS_H
