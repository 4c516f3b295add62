//===- Safetensors.cpp - Headers of safetensors files -------------------------------===//
// A header is JSON after eight bytes of length. Everything in it is checked before use, since files are not trusted:
// lengths, ranges, overlaps, and that sizes fit shape and dtype. Tensor data is read only to compare two tied tensors.
//===-----------------------------------------------------------------------------===//
#include "Safetensors.h"
#include "pc/Support/Diagnostics.h"
#include "pc/Support/ReadJson.h"
#include "pc/Support/Source.h"
#include "pcrt/weights.h"

#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

using namespace mlir;
using namespace pc;
using ErrorFn = llvm::function_ref<InFlightDiagnostic(StringRef)>;

/// Bytes of an element; 0 for an unknown type.
static int64_t bytesOf(StringRef dtype) {
  return llvm::StringSwitch<int64_t>(dtype)
      .Cases({"F64", "I64", "U64"}, 8)
      .Cases({"F32", "I32", "U32"}, 4)
      .Cases({"F16", "BF16", "I16", "U16"}, 2)
      .Cases({"I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2"}, 1)
      .Default(0);
}

/// One entry of the header: shape, dtype and the range of its bytes.
static LogicalResult readEntry(StringRef file, StringRef name, const llvm::json::Value &value, uint64_t dataBytes,
                               TensorEntry &entry, std::pair<uint64_t, uint64_t> &range, ErrorFn emitError) {
  const llvm::json::Object *object = value.getAsObject();
  const llvm::json::Array *shape = object ? object->getArray("shape") : nullptr;
  const llvm::json::Array *offsets = object ? object->getArray("data_offsets") : nullptr;
  auto dtype = object ? object->getString("dtype") : std::nullopt;
  if (!shape || !offsets || !dtype || offsets->size() != 2)
    return emitError(file) << "tensor '" << escaped(name) << "' lacks dtype, shape or data_offsets";
  entry.dtype = dtype->str();
  int64_t size = bytesOf(*dtype);
  if (!size)
    return emitError(file) << "tensor '" << escaped(name) << "' has unknown dtype '" << escaped(*dtype) << "'";
  uint64_t bytes = size;
  for (const llvm::json::Value &dim : *shape) {
    auto n = dim.getAsInteger();
    if (!n || *n < 0 || (*n && bytes > (uint64_t(1) << 62) / *n))
      return emitError(file) << "tensor '" << escaped(name) << "' has an impossible shape";
    bytes *= *n;
    entry.shape.push_back(*n);
  }
  auto begin = (*offsets)[0].getAsUINT64(), end = (*offsets)[1].getAsUINT64();
  if (!begin || !end || *begin > *end || *end > dataBytes)
    return emitError(file) << "tensor '" << escaped(name) << "' has data_offsets outside the file's " << dataBytes
                           << " bytes of data; the file may be truncated";
  if (*end - *begin != bytes)
    return emitError(file) << "tensor '" << escaped(name) << "' has " << *end - *begin
                           << " bytes, but its shape and dtype need " << bytes;
  range = {*begin, *end};
  return success();
}

/// The text of a file; null after an error.
static std::unique_ptr<llvm::MemoryBuffer> read(StringRef path, ErrorFn emitError) {
  std::string why;
  std::unique_ptr<llvm::MemoryBuffer> buffer = readFile(path, why);
  why = buffer ? pcrt::whyNoContents(buffer->getBuffer()) : "cannot be read: " + pcrt::whyNotOpened(path.str(), why);
  if (why.empty())
    return buffer;
  emitError(path) << (buffer ? "the file " : "") << why;
  return nullptr;
}

/// Reads the header of a safetensors file. A file has the length of the header, a JSON header with names, types, shapes
/// and ranges, and then the data.
static LogicalResult readHeader(StringRef path, TensorIndex &index, ErrorFn emitError) {
  std::unique_ptr<llvm::MemoryBuffer> buffer = read(path, emitError);
  if (!buffer)
    return failure();
  StringRef bytes = buffer->getBuffer();
  if (bytes.size() < 8)
    return emitError(path) << "the file is too short for a safetensors header (" << bytes.size() << " bytes)";
  uint64_t length = llvm::support::endian::read64le(bytes.data());
  // The format limits a header to 100 MB.
  if (length > bytes.size() - 8 || length > (uint64_t(100) << 20))
    return emitError(path) << "the header length " << length << " does not fit a file of " << bytes.size()
                           << " bytes; the file may be truncated, or not a safetensors file";
  auto header = readJson(bytes.substr(8, length));
  if (!header)
    return emitError(path) << "the header is not JSON: " << llvm::toString(header.takeError());
  const llvm::json::Object *object = header->getAsObject();
  if (!object)
    return emitError(path) << "the header is not a JSON object";
  SmallVector<std::pair<uint64_t, uint64_t>> ranges;
  for (const auto &[key, value] : *object) {
    StringRef name = key;
    if (name == "__metadata__")
      continue;
    TensorEntry entry;
    std::pair<uint64_t, uint64_t> range;
    if (failed(readEntry(path, name, value, bytes.size() - 8 - length, entry, range, emitError)))
      return failure();
    ranges.push_back(range);
    entry.file = path;
    entry.begin = 8 + length + range.first;
    entry.bytes = range.second - range.first;
    if (!index.try_emplace(name, std::move(entry)).second)
      return emitError(path) << "tensor '" << escaped(name) << "' is in two files of the checkpoint";
  }
  llvm::sort(ranges);
  // The ranges are sorted by their first byte. If any two of them overlap, then two neighbours also overlap.
  for (size_t i = 1; i < ranges.size(); ++i)
    if (ranges[i].first < ranges[i - 1].second)
      return emitError(path) << "the data_offsets of two tensors overlap at byte " << ranges[i].first;
  return success();
}

/// One file, or an index with the file of each tensor; without either, an empty index.
FailureOr<TensorIndex> pc::readTensorIndex(StringRef directory, ErrorFn emitError) {
  TensorIndex index;
  SmallString<256> path(directory);
  llvm::sys::path::append(path, "model.safetensors");
  if (pcrt::isThere(path.str().str())) {
    if (failed(readHeader(path, index, emitError)))
      return failure();
    return index;
  }
  path = directory;
  llvm::sys::path::append(path, "model.safetensors.index.json");
  if (!pcrt::isThere(path.str().str()))
    return index;
  std::unique_ptr<llvm::MemoryBuffer> buffer = read(path, emitError);
  if (!buffer)
    return failure();
  auto parsed = readJson(buffer->getBuffer());
  const llvm::json::Object *object = parsed ? parsed->getAsObject() : nullptr;
  const llvm::json::Object *map = object ? object->getObject("weight_map") : nullptr;
  if (!map) {
    if (!parsed)
      llvm::consumeError(parsed.takeError());
    return emitError(path) << "the index has no object 'weight_map'";
  }
  // Each shard is read once, in the order of its name, so that errors do not depend on the order of a hash table.
  llvm::StringSet<> seen;
  SmallVector<std::string> shards;
  for (const auto &[name, file] : *map) {
    auto text = file.getAsString();
    // The index must not lead out of the directory.
    if (!text || text->contains('/') || text->contains(".."))
      return emitError(path) << "the index has an invalid file name for tensor '" << escaped(StringRef(name)) << "'";
    if (seen.insert(*text).second)
      shards.push_back(text->str());
  }
  llvm::sort(shards);
  for (const std::string &shard : shards) {
    SmallString<256> file(directory);
    llvm::sys::path::append(file, shard);
    if (failed(readHeader(file, index, emitError)))
      return failure();
  }
  for (const auto &[name, file] : *map)
    if (!index.contains(StringRef(name)))
      return emitError(path) << "tensor '" << escaped(StringRef(name)) << "' is not in the shard that the index names";
  return index;
}

/// Compares the bytes only if dtype, shape and size are equal.
bool pc::areEqual(const TensorEntry &a, const TensorEntry &b) {
  auto bytes = [](const TensorEntry &x) { return llvm::MemoryBuffer::getFileSlice(x.file, x.bytes, x.begin); };
  if (a.dtype != b.dtype || a.shape != b.shape || a.bytes != b.bytes)
    return false;
  auto first = bytes(a), second = bytes(b);
  return first && second && (*first)->getBuffer() == (*second)->getBuffer();
}

/// Returns true if a file is named like weights of PyTorch, TensorFlow, Flax, llama.cpp, ..., or is a safetensors file
/// with a name that no index mentions. Other .bin files may be tokens.
static bool isNamedAsWeights(StringRef name) {
  if (name.ends_with(".bin"))
    return name.starts_with("pytorch_model") || name.starts_with("model") || name.contains("-of-");
  constexpr StringRef endings[] = {".safetensors", ".bin.index.json", ".pt",   ".pth",  ".ckpt", ".ckpt.index", ".h5",
                                   ".msgpack",     ".gguf",           ".ggml", ".onnx", ".npz",  ".ot"};
  return llvm::any_of(endings, [&](StringRef ending) { return name.ends_with(ending); });
}

/// Takes the first name in alphabetical order, so that the message does not depend on the file system.
std::string pc::otherWeights(StringRef directory) {
  std::string first;
  std::error_code error;
  for (llvm::sys::fs::directory_iterator entry(directory, error), end; entry != end && !error; entry.increment(error)) {
    StringRef name = llvm::sys::path::filename(entry->path());
    if (isNamedAsWeights(name) && (first.empty() || name < first))
      first = name;
  }
  return first;
}
