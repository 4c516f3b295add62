//===- Arrays.cpp - Inputs that a program has by name ----------------------===//
#include "data/Arrays.h"
#include "base/Failure.h"
#include "base/Npy.h"

#include <algorithm>
#include <cstring>

using namespace pcrt;

namespace {

bool isData(const Input &input) { return input.kind == "data"; }

/// Calls f(input) for every named input of all stages: once for each stage that reads it.
template <typename F> void forEachData(const Program &program, F f) {
  for (const Program *stage : program.stages)
    for (const Input &input : stage->inputs)
      if (isData(input))
        f(input);
}

/// Number `i` of `raw`, whose integers have `bytes` bytes. A number that is too large for int64 becomes negative.
int64_t integerAt(const char *raw, int64_t i, int bytes, bool isSigned) {
  uint64_t bits = 0;
  memcpy(&bits, raw + i * bytes, size_t(bytes));
  int unused = 64 - 8 * bytes;
  return isSigned ? int64_t(bits << unused) >> unused : int64_t(bits);
}

/// Copies rows of the data to a rank's blocks of the inputs.
class ArrayLoader : public Loader {
public:
  ArrayLoader(const Arrays &data, const Program &program, int rank, MeanOver meanOver)
      : data(data), program(program), meanOver(meanOver) {
    targetsCounted.resize(size_t(program.rounds.replicas));
    for (const Input &input : program.inputs) {
      Part &part = parts.emplace_back();
      if (!isData(input))
        continue;
      const NamedArray &array = data.of(input.name);
      part.array = &array;
      if (input.isOn(program.mesh, rank))
        part.block = blockOf(program.mesh, input.shape, input.layout, rank);
      else
        part.block = {Dims(input.shape.size(), 0), Dims(input.shape.size(), 0)};
      part.ofRow = {{part.block.start.begin() + 2, part.block.start.end()},
                    {part.block.size.begin() + 2, part.block.size.end()}};
      // Every rank checks all indices of a batch, so that all find the same error.
      part.row.resize(size_t(product(array.rowShape())) * (input.dtype == PCRT_I32 ? size_t(program.batch) : 1));
      raw.resize(std::max(raw.size(), size_t(array.rawBytes())));
    }
  }

  void fill(Samples samples, char *const *inputs) override {
    for (size_t i = 0; i < parts.size(); ++i)
      if (parts[i].array)
        fill(parts[i], program.inputs[i].dtype == PCRT_I32, samples, inputs[i]);
    int64_t ofReplica = program.batch / std::ssize(targetsCounted);
    std::fill(targetsCounted.begin(), targetsCounted.end(), meanOver == MeanOver::Batch ? samples.count : ofReplica);
  }

private:
  /// The part of an input that the rank holds.
  struct Part {
    const NamedArray *array = nullptr; ///< Null: it is not a named input.
    Block block, ofRow;
    std::vector<float> row; ///< One row; for indices (int32_t), all rows of the batch.
  };

  void fill(Part &part, bool areIndices, Samples samples, char *out) {
    int64_t elements = product(part.array->rowShape());
    auto read = [&](int64_t row, float *to) {
      part.array->read(data.rowOfSample(samples.first + row % samples.count), raw.data(), to);
    };
    for (int64_t row = 0; areIndices && row < program.batch; ++row)
      read(row, &part.row[size_t(row * elements)]);
    int64_t own = part.ofRow.elements() * 4;
    for (int64_t microbatch = 0; microbatch < part.block.size[0]; ++microbatch)
      for (int64_t index = 0; index < part.block.size[1]; ++index, out += own) {
        int64_t row = rowOf(program, microbatch + part.block.start[0], index + part.block.start[1]);
        const float *from = part.row.data();
        if (areIndices)
          from += row * elements;
        else
          read(row, part.row.data());
        forEachRun(part.array->rowShape(), part.ofRow,
                   [&](int64_t to, int64_t at, int64_t count) { memcpy(out + to * 4, from + at, size_t(count) * 4); });
      }
  }

  const Arrays &data;
  const Program &program;
  MeanOver meanOver;
  std::vector<Part> parts; ///< By input.
  std::vector<char> raw;
};

} // namespace

void NamedArray::add(const InputFile &file, int64_t start, const Dims &shape, char kind, int bytes,
                     const std::string &type) {
  auto refuse = [&](const std::string &why) { fail(PCRT_BAD_DATA, file.path() + ": '" + name + "' " + why); };
  bool wantsFloat = dtype == PCRT_F32;
  if (wantsFloat ? kind != 'f' || bytes != 4 : kind != 'i' && kind != 'u')
    refuse("has elements of " + type + ", and the program reads " +
           (wantsFloat ? "f32; save it after .astype('<f4')" : "integers; save it after .astype('<i4')"));
  if (shape.empty() || Dims(shape.begin() + 1, shape.end()) != row)
    refuse("has the shape " + describe(shape) + ", and the program reads rows of " + describe(row));
  if (shape[0])
    pieces.push_back({&file, start, rows(), shape[0], bytes, kind == 'i'});
}

void NamedArray::read(int64_t index, char *raw, void *out) const {
  auto after = std::upper_bound(pieces.begin(), pieces.end(), index,
                                [](int64_t index, const Piece &piece) { return index < piece.first; });
  const Piece &piece = *std::prev(after);
  int64_t elements = product(row), bytes = elements * piece.bytes, place = index - piece.first;
  if (dtype == PCRT_F32)
    return piece.file->read(piece.start + place * bytes, bytes, out);
  piece.file->read(piece.start + place * bytes, bytes, raw);
  auto *indices = static_cast<int32_t *>(out);
  for (int64_t i = 0; i < elements; ++i) {
    int64_t value = integerAt(raw, i, piece.bytes, piece.isSigned);
    if (value < 0 || value >= below)
      fail(PCRT_BAD_DATA, piece.file->path() + ": '" + name + "' has " +
                              (value < 0 && !piece.isSigned ? std::to_string(uint64_t(value)) : std::to_string(value)) +
                              " in row " + std::to_string(place) + ", and the program reads numbers from 0 to " +
                              std::to_string(below - 1));
    indices[i] = int32_t(value);
  }
}

void Arrays::addNpy(NamedArray &array, const InputFile &file) {
  NpyArray header = readNpy(file, "elements");
  array.add(file, header.start, header.dims, header.dtype[1], header.bytes(), "'" + header.dtype + "'");
}

void Arrays::addTensor(NamedArray &array, const Safetensors &from, const std::string &path) {
  const StoredTensor *tensor = from.find(array.name);
  if (!tensor)
    fail(PCRT_BAD_DATA, path + ": has no tensor '" + array.name + "'" +
                            (from.tensors().empty() ? "" : "; there is '" + from.tensors().begin()->first + "'"));
  int64_t elements = product(tensor->shape);
  char kind = tensor->dtype == "F32" ? 'f' : tensor->dtype[0] == 'I' ? 'i' : tensor->dtype[0] == 'U' ? 'u' : '?';
  array.add(*tensor->from, tensor->offset, tensor->shape, kind, elements ? int(tensor->bytes / elements) : 4,
            tensor->dtype);
}

/// `name` is the input whose file it is; an empty name means all inputs.
void Arrays::open(const std::string &spec, const std::string &path, const std::string &name) {
  InputFile file(path);
  int64_t before = name.empty() ? 0 : all.at(name).rows();
  if (isNpy(file)) {
    if (name.empty())
      fail(PCRT_USAGE, "--data " + path + ": an array needs the name of its input in front: NAME=" + path);
    addNpy(all.at(name), files.emplace_back(std::move(file)));
  } else {
    const Safetensors &shard = shards.emplace_back(Safetensors::open(path));
    for (auto &[own, array] : all)
      if (name.empty() || own == name)
        addTensor(array, shard, path);
  }
  const NamedArray &counted = name.empty() ? all.begin()->second : all.at(name);
  read.push_back({"--data", spec, path, counted.rows() - (name.empty() ? rows : before)});
  rows = all.begin()->second.rows();
}

Arrays::Arrays(const Options &options, const Program &program, bool training) {
  if (!options.targets.empty())
    fail(PCRT_USAGE,
         "--targets needs a program that reads tokens; this program has named inputs, so give a file for each: "
         "--data NAME=FILE,...");
  forEachData(program, [&](const Input &input) { all.try_emplace(input.name, input); });
  std::string names, name;
  for (auto &[own, array] : all)
    names += (names.empty() ? "" : ", ") + own;
  std::vector<std::string> items(1);
  for (char c : options.data)
    c == ',' ? (void)items.emplace_back() : items.back().push_back(c);
  for (const std::string &item : items) {
    size_t equals = item.find('=');
    if (equals != std::string::npos)
      name = item.substr(0, equals);
    if (equals != std::string::npos && !all.contains(name))
      fail(PCRT_USAGE, "--data " + item + ": this program has no input '" + name + "'; it has " + names);
    std::string pattern = equals == std::string::npos ? item : item.substr(equals + 1);
    for (const std::string &path : filesOf(pattern, "--data"))
      open((name.empty() ? "" : name + "=") + path, path, name);
  }
  const NamedArray &first = all.begin()->second;
  for (auto &[own, array] : all)
    if (array.rows() == 0)
      fail(PCRT_BAD_DATA, "--data " + options.data + " has no rows of the input '" + own + "'; give them as " + own +
                              "=FILE (inputs: " + names + ")");
    else if (array.rows() != first.rows())
      fail(PCRT_BAD_DATA, "--data " + options.data + ": '" + first.name + "' has " + std::to_string(first.rows()) +
                              " rows but '" + own + "' has " + std::to_string(array.rows()) +
                              "; a sample takes one row of every input");
  rows = first.rows();
  const HeldOut &heldOut = options.validation;
  if (!options.shuffle && !heldOut.every)
    return;
  order.emplace(std::vector<SampleOrder::Source>{{{rows}, 1}}, options.shuffle, options.seed, heldOut,
                heldOut.every && !training);
  if (order->windows(0) == 0)
    fail(PCRT_BAD_DATA, "--data " + options.data + ": of its " + std::to_string(rows) + " samples --validation 1/" +
                            std::to_string(heldOut.every) + " leaves none to read");
}

std::string Arrays::describe(int64_t first, int64_t count) const {
  return "rows of samples " + std::to_string(first) + " to " + std::to_string(first + count - 1);
}

std::unique_ptr<Loader> Arrays::loader(const Program &program, int rank, MeanOver meanOver) const {
  return std::make_unique<ArrayLoader>(*this, program, rank, meanOver);
}
