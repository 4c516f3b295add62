//===- pc-merge.cpp - Adds an adapter to the weights of its base ----------===//
// Input: a Hugging Face directory and a LoRA adapter as PEFT saves it. Output: a directory like the first one, with the
// same files, dtypes and shards, in which each weight W with an adapter is W + alpha / r * B A. Sums are in f32 and are
// rounded once. The output has its name only when it is complete.
//===----------------------------------------------------------------------===//
#include "base/AdapterSettings.h"
#include "base/Failure.h"
#include "base/ModelFiles.h"
#include "base/Safetensors.h"
#include "base/TensorSum.h"
#include "base/Types.h"
#include "pcrt/version.h"
#include "pcrt/weights.h"

#include <csignal>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

using namespace pcrt;
namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

static const char usage[] =
    R"(usage: pc-merge BASE ADAPTER -o DIR

Writes the model of directory BASE, with the LoRA adapter of directory ADAPTER added to its weights, to DIR, which must
not exist yet. ADAPTER is a directory that PEFT, or a program of pc-compile --lora, has saved. DIR has the files of BASE
with the same dtypes and shards, and loads in transformers.

Options
  -o DIR             the directory to write
  --version          print the version
  --help             show this text

exit codes: 0 ok, 2 usage, or an adapter of another model than BASE, 6 the directory cannot be written, 9 a damaged file.

example:
  pc-merge llama tuned -o llama-tuned
)";

namespace {

/// The two matrices of a weight.
struct Pair {
  const StoredTensor *a = nullptr, *b = nullptr;
};

using Floats = std::vector<float>;

Floats read(const StoredTensor &tensor) {
  Floats values(size_t(product(tensor.shape)));
  loadFloats(tensor, 0, int64_t(values.size()), values.data());
  return values;
}

Floats transposed(const Floats &values, int64_t rows, int64_t columns) {
  Floats result(values.size());
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      result[size_t(j * rows + i)] = values[size_t(i * columns + j)];
  return result;
}

/// An adapter and the weights of its base.
class Adapter {
public:
  explicit Adapter(const std::string &directory)
      : path(directory + "/" + adapterFile), settings(readAdapterSettings(directory)), tensors(Safetensors::open(path)),
        rank(settings["r"]), scale(float(settings["lora_alpha"].get<double>() / double(rank))),
        inputsFirst(settings.value("fan_in_fan_out", false)) {
    for (const auto &[name, tensor] : tensors.tensors()) {
      std::string_view module = name;
      const char *const endings[] = {".lora_A.weight", ".lora_B.weight"};
      bool isB = module.ends_with(endings[1]);
      if (!module.starts_with(adapterPrefix) || !module.ends_with(endings[isB]))
        fail(PCRT_BAD_DATA, path + ": tensor '" + name + "' is not a matrix of LoRA");
      if (!isFloatDtype(tensor.dtype))
        fail(PCRT_BAD_DATA, path + ": tensor '" + name + "' has dtype " + tensor.dtype);
      module.remove_prefix(std::string_view(adapterPrefix).size());
      module.remove_suffix(std::string_view(endings[isB]).size());
      Pair &pair = pairs[std::string(module)];
      (isB ? pair.b : pair.a) = &tensor;
    }
    for (const auto &[module, pair] : pairs)
      if (!pair.a || !pair.b)
        fail(PCRT_BAD_DATA, path + ": '" + module + "' has no " + (pair.a ? "lora_B" : "lora_A") + ".weight");
  }

  /// Finds the weights of `base`. Throws PCRT_USAGE if one is missing or has another shape.
  std::map<const StoredTensor *, Pair> weightsIn(const Safetensors &base, const std::string &directory) const {
    std::map<const StoredTensor *, Pair> found;
    for (const auto &[module, pair] : pairs) {
      const StoredTensor *weight = base.findModelTensor(module + ".weight");
      if (!weight)
        fail(PCRT_USAGE, directory + " has no tensor '" + module + ".weight', to which " + path + " has an adapter");
      Dims shape = weight->shape;
      if (inputsFirst && shape.size() == 2)
        std::swap(shape[0], shape[1]);
      if (shape.size() != 2 || pair.a->shape != Dims{rank, shape[1]} || pair.b->shape != Dims{shape[0], rank})
        fail(PCRT_USAGE, path + ": '" + module + "' has matrices A " + describe(pair.a->shape) + " and B " +
                             describe(pair.b->shape) + " for rank " + std::to_string(rank) + ", but '" + module +
                             ".weight' in " + directory + " is " + describe(weight->shape));
      if (weight->dtype != "F32" && weight->dtype != "BF16")
        fail(PCRT_BAD_DATA, weight->file + ": tensor '" + module + ".weight' has dtype " + weight->dtype +
                                "; F32 and BF16 are merged");
      found[weight] = pair;
    }
    return found;
  }

  /// Calls f(row, values) with each row of a weight, merged.
  template <typename F> void merge(const StoredTensor &weight, const Pair &pair, F f) const {
    int64_t rows = weight.shape[0], columns = weight.shape[1];
    Floats a = read(*pair.a), b = read(*pair.b);
    // The weight's rows are those of B, or of A if inputs are first.
    const Floats left = inputsFirst ? transposed(a, rank, rows) : b;
    const Floats right = inputsFirst ? transposed(b, columns, rank) : a;
    Floats row(size_t(columns), 0), sum;
    for (int64_t i = 0; i < rows; ++i) {
      sum.assign(size_t(columns), 0);
      for (int64_t r = 0; r < rank; ++r)
        for (int64_t j = 0; j < columns; ++j)
          sum[size_t(j)] += left[size_t(i * rank + r)] * right[size_t(r * columns + j)];
      loadFloats(weight, i * columns, columns, row.data());
      for (int64_t j = 0; j < columns; ++j)
        row[size_t(j)] += scale * sum[size_t(j)];
      f(i, row);
    }
  }

private:
  std::string path;
  Json settings;
  Safetensors tensors;
  int64_t rank;
  float scale;
  bool inputsFirst;
  std::map<std::string, Pair> pairs; ///< By module.
};

/// A directory that gets its name when it is complete, and is removed if it does not.
class NewDirectory {
public:
  explicit NewDirectory(std::string directory) : path(std::move(directory)) {
    while (path.size() > 1 && path.back() == '/')
      path.pop_back();
    std::error_code error;
    if (isThere(path) && !(fs::is_directory(path, error) && fs::is_empty(path, error)))
      fail(PCRT_USAGE, path + " exists already; give another directory with -o");
    work = path + ".tmp-" + std::to_string(getpid());
    if (mkdir(work.c_str(), 0777) != 0)
      fail(PCRT_RESOURCE, withErrno("cannot make " + work));
  }
  ~NewDirectory() {
    std::error_code ignored;
    if (!work.empty())
      fs::remove_all(work, ignored);
  }

  const std::string &temporary() const { return work; }

  void commit() {
    if (rename(work.c_str(), path.c_str()) != 0)
      fail(PCRT_RESOURCE, withErrno("cannot rename " + work + " to " + path));
    work.clear();
  }

private:
  std::string path, work;
};

/// A file that is written; every failure is one of resources.
class Output {
public:
  explicit Output(std::string path) : path(std::move(path)) {
    fd = open(this->path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    require(fd >= 0);
  }
  ~Output() {
    if (fd >= 0)
      close(fd);
  }
  Output(const Output &) = delete;
  Output &operator=(const Output &) = delete;

  void write(const void *data, int64_t bytes, int64_t offset) {
    const char *from = static_cast<const char *>(data);
    while (bytes > 0) {
      ssize_t done = pwrite(fd, from, size_t(bytes), offset);
      require(done > 0);
      from += done, bytes -= done, offset += done;
    }
  }
  void finish() {
    require(fsync(fd) == 0);
    require(close(std::exchange(fd, -1)) == 0);
  }

private:
  void require(bool good) const {
    if (!good)
      fail(PCRT_RESOURCE, withErrno("cannot write " + path));
  }

  std::string path;
  int fd;
};

void copyTo(Output &output, const InputFile &file) {
  constexpr int64_t most = 8 << 20;
  for (int64_t at = 0; at < file.size(); at += most) {
    std::string piece = file.read(at, std::min(most, file.size() - at));
    output.write(piece.data(), int64_t(piece.size()), at);
  }
}

void copyFile(const std::string &from, const std::string &to) {
  Output output(to);
  copyTo(output, InputFile(from));
  output.finish();
}

/// Throws PCRT_USAGE if a run that saved the adapter had another base.
void checkBase(const std::string &directory, const Safetensors &base, const std::string &where) {
  std::string path = directory + "/trajectory.json";
  if (!isThere(path))
    return;
  Json trajectory = Json::parse(InputFile(path).text(), nullptr, /*allow_exceptions=*/false);
  const Json there = trajectory.is_object() ? trajectory.value("base", Json::object()) : Json::object();
  const Json sums = there.value("tensors", Json::object());
  for (const auto &[name, wanted] : sums.items()) {
    const StoredTensor *tensor = base.findModelTensor(name);
    if (!tensor || !isFloatDtype(tensor->dtype))
      fail(PCRT_USAGE,
           directory + " is an adapter of another model than " + where + ", which has no tensor '" + name + "'");
    TensorSum sum;
    Floats values(1 << 16);
    FloatReader reader(*tensor);
    for (int64_t at = 0, end = product(tensor->shape); at < end; at += int64_t(values.size())) {
      int64_t count = std::min<int64_t>(int64_t(values.size()), end - at);
      reader.read(at, count, values.data());
      sum.add(at, values.data(), count);
    }
    if (wanted != sum.text())
      fail(PCRT_USAGE, directory + " is an adapter of another model than " + where + ": tensor '" + name +
                           "' has checksum " + sum.text() + ", not " + wanted.get<std::string>());
  }
}

void writeMerged(const InputFile &file, const std::string &to, const Adapter &adapter,
                 const std::map<const StoredTensor *, Pair> &weights) {
  Output output(to);
  copyTo(output, file);
  for (const auto &[weight, pair] : weights) {
    if (weight->from != &file)
      continue;
    bool isBf16 = weight->dtype == "BF16";
    std::vector<uint16_t> rounded(size_t(weight->shape[1]));
    adapter.merge(*weight, pair, [&](int64_t row, const Floats &values) {
      int64_t count = int64_t(values.size()), bytes = count * (isBf16 ? 2 : 4);
      if (isBf16)
        toBf16(values.data(), rounded.data(), count);
      output.write(isBf16 ? static_cast<const void *>(rounded.data()) : values.data(), bytes,
                   weight->offset + row * bytes);
    });
  }
  output.finish();
}

void merge(const std::string &from, const std::string &directory, const std::string &to) {
  std::error_code error;
  if (!fs::is_directory(from, error))
    fail(PCRT_BAD_DATA, from + " is not a directory with a model");
  Adapter adapter(directory);
  Safetensors base = Safetensors::open(from);
  std::map<const StoredTensor *, Pair> weights = adapter.weightsIn(base, from);
  checkBase(directory, base, from);
  NewDirectory output(to);
  std::map<std::string, const InputFile *> files; // the files of tensors, by path
  for (const auto &[name, tensor] : base.tensors())
    files[tensor.file] = tensor.from;
  for (const auto &[path, file] : files)
    writeMerged(*file, output.temporary() + "/" + fs::path(path).filename().string(), adapter, weights);
  for (const std::string &within : {std::string(), std::string(templateDirectory) + "/"}) {
    fs::directory_iterator entry(from + "/" + within, error), end;
    for (; !error && entry != end; entry.increment(error)) {
      std::string name = within + entry->path().filename().string();
      bool isIndex = name == "model.safetensors.index.json" && !isThere(from + "/model.safetensors");
      if (entry->is_directory(error) || !(isTokenizerFile(name) || name == "config.json" || isIndex))
        continue;
      if (!within.empty())
        fs::create_directory(output.temporary() + "/" + within, error);
      copyFile(from + "/" + name, output.temporary() + "/" + name);
    }
  }
  output.commit();
}

int badUsage(const std::string &what) {
  fprintf(stderr, "pc-merge: error: %s; try 'pc-merge --help'\n", what.c_str());
  return PCRT_USAGE;
}

} // namespace

int main(int argc, char **argv) {
  signal(SIGXFSZ, SIG_IGN); // a limit on the sizes of files is an error of the write
  std::vector<std::string> places;
  std::string to;
  for (int at = 1; at < argc; ++at) {
    std::string word = argv[at];
    if (word == "--help" || word == "-h" || word == "--version") {
      bool good = word == "--version" ? printf("pc-merge %s\n", pcrt_version) > 0 : fputs(usage, stdout) >= 0;
      if (good && fflush(stdout) == 0)
        return PCRT_OK;
      perror("pc-merge: error: cannot write to standard output");
      return PCRT_RESOURCE;
    }
    if (word == "-o" && at + 1 < argc)
      to = argv[++at];
    else if (word.starts_with("-"))
      return badUsage(word == "-o" ? "-o needs a directory" : "unknown option '" + word + "'");
    else
      places.push_back(word);
  }
  if (places.size() != 2 || to.empty())
    return badUsage("pc-merge needs BASE, ADAPTER and -o DIR");
  try {
    merge(places[0], places[1], to);
  } catch (const Failure &failure) {
    fprintf(stderr, "pc-merge: error: %s\n", printable(failure.message).c_str());
    return failure.status;
  }
  return PCRT_OK;
}
