//===- MappedFile.h - a file to read, mapped into memory ------------------===//
#ifndef PCRT_CORE_MAPPEDFILE_H
#define PCRT_CORE_MAPPEDFILE_H

#include <cstdint>
#include <string>

namespace pcrt {

/// The bytes of a file. Movable, not copyable.
class MappedFile {
public:
  MappedFile() = default;
  /// Throws PCRT_BAD_DATA naming the file if it cannot be read.
  explicit MappedFile(const std::string &path);
  MappedFile(MappedFile &&other) noexcept { swap(other); }
  MappedFile &operator=(MappedFile &&other) noexcept {
    swap(other);
    return *this;
  }
  ~MappedFile();

  const unsigned char *data() const { return bytes; }
  int64_t size() const { return length; }
  const std::string &path() const { return name; }

private:
  void swap(MappedFile &other) noexcept;

  std::string name;
  const unsigned char *bytes = nullptr;
  int64_t length = 0;
};

} // namespace pcrt

#endif // PCRT_CORE_MAPPEDFILE_H
