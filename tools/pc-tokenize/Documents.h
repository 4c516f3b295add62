//===- Documents.h - The texts that pc-tokenize reads ----------------------===//
// Files are read in blocks of about a megabyte, so memory does not depend on their size.
//===----------------------------------------------------------------------===//
#ifndef PC_TOOLS_TOKENIZE_DOCUMENTS_H
#define PC_TOOLS_TOKENIZE_DOCUMENTS_H

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace pcrt {

/// The place of documents in a file: the whole file is one document; each line is one; each line is a JSON object with
/// a text; or each row of a column is one.
enum class Format { Text, Lines, JsonLines, Parquet };

/// A part of a file: whole lines, one document, or some rows.
struct TextBlock {
  Format format = Format::Text;
  std::string file;
  std::string text;              ///< Lines, or the document.
  int64_t line = 1, offset = 0;  ///< The number of the first line, and the offset of its first byte in the file.
  std::vector<std::string> rows; ///< The rows of a Parquet file; `line` is the number of the first.
};

/// Reads files one after the other. One thread uses it.
class DocumentReader {
public:
  virtual ~DocumentReader() = default;
  /// The next block; false at the end. Throws PCRT_BAD_DATA naming the file.
  virtual bool next(TextBlock &block) = 0;
  /// Bytes that were read so far.
  virtual int64_t position() const = 0;
};

/// Opens a file, or standard input if it is "-". Throws PCRT_BAD_DATA.
std::unique_ptr<DocumentReader> openDocuments(const std::string &file, Format format, const std::string &field);

/// Opens a Parquet file. Throws PCRT_BAD_DATA, or PCRT_USAGE if this build cannot read Parquet.
std::unique_ptr<DocumentReader> openParquet(const std::string &file, const std::string &field);

/// The format of a file by its name.
Format formatOf(const std::string &file);

/// Calls `each` with every document of a block, and its place for messages: "a.jsonl: line 3". Throws PCRT_BAD_DATA,
/// naming file and line, if a line is not JSON or has no text in `field`.
void forEachDocument(const TextBlock &block, const std::string &field,
                     const std::function<void(const std::string &text, const std::string &place)> &each);

} // namespace pcrt

#endif // PC_TOOLS_TOKENIZE_DOCUMENTS_H
