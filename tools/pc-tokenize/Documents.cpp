//===- Documents.cpp - The texts that pc-tokenize reads --------------------===//
// The texts are read in blocks, which end at the end of a line. The threads that tokenize also parse the lines.
//===----------------------------------------------------------------------===//
#include "Documents.h"
#include "base/Failure.h"
#include "base/InputFile.h"

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <optional>
#include <unistd.h>

using namespace pcrt;
using Json = nlohmann::json;

namespace {

constexpr size_t blockBytes = 1 << 20;
constexpr int64_t mostBytes = int64_t(1) << 30; ///< The largest size of a document.

/// Reads a file or standard input from beginning to end.
class Bytes {
public:
  explicit Bytes(const std::string &path) : name(path) {
    if (path != "-")
      file.emplace(path);
  }

  /// Appends up to `count` bytes and returns their number, which is 0 at the end.
  size_t read(std::string &to, size_t count) {
    size_t before = to.size();
    if (file)
      count = size_t(std::min<int64_t>(int64_t(count), file->size() - done));
    to.resize(before + count);
    if (file) {
      file->read(done, int64_t(count), to.data() + before);
    } else {
      ssize_t got;
      while ((got = ::read(STDIN_FILENO, to.data() + before, count)) < 0 && errno == EINTR) {
      }
      if (got < 0)
        fail(PCRT_BAD_DATA, withErrno("cannot read standard input"));
      to.resize(before + size_t(got));
    }
    done += int64_t(to.size() - before);
    return to.size() - before;
  }

  std::string name;
  int64_t done = 0;

private:
  std::optional<InputFile> file;
};

class LineReader : public DocumentReader {
public:
  LineReader(const std::string &file, Format format) : bytes(file), format(format) {}

  bool next(TextBlock &block) override {
    block = {format, bytes.name == "-" ? "standard input" : bytes.name, std::exchange(rest, ""), line, offset, {}};
    size_t searched = block.text.size(), end = std::string::npos;
    bool isWhole = format == Format::Text, ended = false;
    // Reads until it has a block that ends with a line, or the whole document.
    while (!ended && (isWhole || end == std::string::npos)) {
      ended = bytes.read(block.text, blockBytes) == 0;
      if (size_t found = block.text.rfind('\n'); !isWhole && found != std::string::npos && found >= searched)
        end = found + 1;
      searched = block.text.size();
      if (int64_t(searched) > mostBytes)
        fail(PCRT_BAD_DATA, block.file + ": a document has more than 2^30 bytes" +
                                (isWhole ? "; use --format=lines if each line is a document" : ""));
    }
    if (!isWhole && !ended) {
      rest = block.text.substr(end);
      block.text.resize(end);
    }
    line += std::count(block.text.begin(), block.text.end(), '\n');
    offset += int64_t(block.text.size());
    return !block.text.empty();
  }
  int64_t position() const override { return bytes.done; }

private:
  Bytes bytes;
  Format format;
  std::string rest; ///< The beginning of a line that belongs to the next block.
  int64_t line = 1, offset = 0;
};

bool isBlank(std::string_view text) { return text.find_first_not_of(" \t\r\n") == text.npos; }

std::string textOf(std::string_view line, const std::string &field, const std::string &place) {
  Json json;
  try {
    json = Json::parse(line);
  } catch (const Json::exception &error) {
    fail(PCRT_BAD_DATA, place + " is not JSON: " + printable(error.what()));
  }
  auto found = json.is_object() ? json.find(field) : json.end();
  if (!json.is_object() || found == json.end())
    fail(PCRT_BAD_DATA, place + " has no field '" + printable(field) + "'; --field names the field of the text");
  if (!found->is_string())
    fail(PCRT_BAD_DATA, place + ": field '" + printable(field) + "' is not a string, but " + found->type_name());
  return std::move(found->get_ref<std::string &>());
}

} // namespace

Format pcrt::formatOf(const std::string &file) {
  auto has = [&](std::string_view end) {
    return file.size() > end.size() && std::string_view(file).substr(file.size() - end.size()) == end;
  };
  return has(".parquet") ? Format::Parquet : has(".jsonl") || has(".ndjson") ? Format::JsonLines : Format::Text;
}

std::unique_ptr<DocumentReader> pcrt::openDocuments(const std::string &file, Format format, const std::string &field) {
  if (format == Format::Parquet)
    return openParquet(file, field);
  return std::make_unique<LineReader>(file, format);
}

void pcrt::forEachDocument(const TextBlock &block, const std::string &field,
                           const std::function<void(const std::string &, const std::string &)> &each) {
  if (block.format == Format::Text)
    return each(block.text, block.file);
  if (block.format == Format::Parquet) {
    for (size_t i = 0; i < block.rows.size(); ++i)
      each(block.rows[i], block.file + ": row " + std::to_string(block.line + int64_t(i)));
    return;
  }
  int64_t number = block.line;
  for (size_t begin = 0, end; begin < block.text.size(); begin = end + 1, ++number) {
    end = std::min(block.text.find('\n', begin), block.text.size());
    std::string_view line(block.text.data() + begin, end - begin);
    if (isBlank(line))
      continue;
    std::string place = block.file + ": line " + std::to_string(number);
    if (line.back() == '\r')
      line.remove_suffix(1);
    each(block.format == Format::JsonLines ? textOf(line, field, place) : std::string(line), place);
  }
}
