//===- SafetensorsWriter.h - Writing safetensors files from all ranks -----===//
// Rank 0 creates the file with its header and its full size. Then every rank writes the blocks that it owns to their
// places.
//===----------------------------------------------------------------------===//
#ifndef PCRT_BASE_SAFETENSORSWRITER_H
#define PCRT_BASE_SAFETENSORSWRITER_H

#include "base/FileStream.h"
#include "base/Program.h"

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace pcrt {

/// One file of tensors of f32 or codes. Every rank adds the same tensors and metadata, so that all compute the same
/// header and the same places. Data may be written between create() or open() and close().
class SafetensorsWriter {
public:
  /// Describes a file, which create() makes. A tensor that is added twice must have the same shape both times, and is
  /// stored once.
  explicit SafetensorsWriter(std::string path);
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter &) = delete;
  SafetensorsWriter &operator=(const SafetensorsWriter &) = delete;

  /// Elements of dtype I8 are stored as they are, all others as f32.
  void add(const std::string &name, const Dims &shape, int32_t dtype = PCRT_F32);
  void addMetadata(const std::string &key, const std::string &value);

  /// Creates the file, with its header and room for all data. Only rank 0 calls it. Throws PCRT_RESOURCE.
  void create();
  /// Opens the file. The other ranks call it after create(). Throws PCRT_RESOURCE.
  void open();

  /// Writes the part of a rank's block that lies inside the value to its place in the file. The rest of the block is
  /// padding. `data` is the block in `dtype`. Returns PCRT_OK, or PCRT_RESOURCE with the reason in errno. Allocates
  /// nothing. Only one thread may call this function at a time.
  pcrt_status write(int64_t place, const Dims &valid, const Block &block, const Box &box, int32_t dtype,
                    const void *data) const;
  /// Returns a stream for one of several writing threads, valid until close(). write() uses number 0. One thread must
  /// ask for all other numbers before the threads begin.
  FileStream &stream(size_t number);
  /// The position of a tensor in the file, for write. It is valid once all tensors were added.
  int64_t placeOf(const std::string &name) const;
  const Dims &shapeOf(const std::string &name) const { return tensors.at(name); }
  /// The bytes of an element in the file, and its dtype as the format writes it.
  int64_t widthOf(const std::string &name) const { return codes.count(name) ? 1 : 4; }
  const char *dtypeOf(const std::string &name) const { return codes.count(name) ? "I8" : "F32"; }
  /// The size of the whole file.
  int64_t bytes() const;
  const std::string &file() const { return path; }

  /// Writes everything to the disk. Throws PCRT_RESOURCE.
  void sync();
  void close();

private:
  const std::string &header() const;
  void openStreams();

  std::string path;
  std::map<std::string, Dims> tensors;
  std::set<std::string> codes; ///< The names of tensors of dtype I8.
  std::map<std::string, std::string> metadata;
  mutable std::string cachedHeader;              ///< Empty: not made yet.
  mutable std::map<std::string, int64_t> places; ///< By tensor: offset after the header.
  mutable int64_t dataBytes = 0;                 ///< After the header.
  int fd = -1, direct = -1;
  std::vector<std::unique_ptr<FileStream>> streams;
};

} // namespace pcrt

#endif // PCRT_BASE_SAFETENSORSWRITER_H
