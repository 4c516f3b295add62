//===- Parquet.cpp - Reads a column of texts of a Parquet file -------------===//
// Apache Arrow's library reads one row group after the other, and only the column of the text.
//===----------------------------------------------------------------------===//
#include "Documents.h"
#include "base/Failure.h"

#include <arrow/array.h>
#include <arrow/io/file.h>
#include <arrow/record_batch.h>
#include <arrow/table.h>
#include <parquet/arrow/reader.h>
#include <parquet/file_reader.h>

using namespace pcrt;

namespace {

class ParquetReader : public DocumentReader {
public:
  ParquetReader(std::string path, const std::string &field) : path(std::move(path)), field(field) {
    input = get(arrow::io::ReadableFile::Open(this->path));
    try { // the file reader throws; Arrow's own reader does not
      reader = get(parquet::arrow::OpenFile(input, arrow::default_memory_pool()));
    } catch (const std::exception &error) {
      failToRead(error.what());
    }
    std::shared_ptr<arrow::Schema> schema;
    check(reader->GetSchema(&schema));
    // Columns of the file are leaves, so a nested column before this one would shift its number.
    column = reader->parquet_reader()->metadata()->schema()->ColumnIndex(field);
    if (column < 0 || schema->GetFieldIndex(field) < 0)
      fail(PCRT_BAD_DATA,
           this->path + " has no column '" + printable(field) + "'; --field names the column of the text");
    arrow::Type::type type = schema->GetFieldByName(field)->type()->id();
    if (type != arrow::Type::STRING && type != arrow::Type::LARGE_STRING)
      fail(PCRT_BAD_DATA, this->path + ": column '" + printable(field) + "' has type " +
                              printable(schema->GetFieldByName(field)->type()->ToString()) + ", not string");
  }

  bool next(TextBlock &block) override {
    block = {Format::Parquet, path, "", row + 1, 0, {}};
    constexpr size_t most = 1 << 20;
    for (size_t bytes = 0; bytes < most; ++row, ++at) {
      while (!chunk || at == chunk->length())
        if (!nextChunk())
          return !block.rows.empty();
      if (chunk->IsNull(at))
        fail(PCRT_BAD_DATA, path + ": row " + std::to_string(row + 1) + " has no text in '" + printable(field) + "'");
      std::string_view text = chunk->type_id() == arrow::Type::STRING
                                  ? static_cast<const arrow::StringArray &>(*chunk).GetView(at)
                                  : static_cast<const arrow::LargeStringArray &>(*chunk).GetView(at);
      block.rows.emplace_back(text);
      bytes += text.size();
    }
    return true;
  }
  int64_t position() const override {
    auto position = input->Tell();
    return position.ok() ? *position : 0;
  }

private:
  [[noreturn]] void failToRead(const std::string &why) const {
    fail(PCRT_BAD_DATA, path + ": cannot read Parquet: " + printable(why));
  }
  void check(const arrow::Status &status) const {
    if (!status.ok())
      failToRead(status.ToString());
  }
  template <typename T> T get(arrow::Result<T> result) const {
    check(result.status());
    return std::move(result).ValueUnsafe();
  }

  /// Moves on to the next part of the column. Returns false at the end.
  bool nextChunk() {
    while (!texts || part == texts->num_chunks()) {
      if (group == reader->num_row_groups())
        return false;
      std::shared_ptr<arrow::Table> table = get(reader->ReadRowGroup(group++, {column}));
      texts = table->column(0);
      part = 0;
    }
    chunk = texts->chunk(part++);
    at = 0;
    return true;
  }

  std::string path, field;
  std::shared_ptr<arrow::io::ReadableFile> input;
  std::unique_ptr<parquet::arrow::FileReader> reader;
  int column = 0, group = 0, part = 0;
  std::shared_ptr<arrow::ChunkedArray> texts;
  std::shared_ptr<arrow::Array> chunk;
  int64_t row = 0, at = 0;
};

} // namespace

std::unique_ptr<DocumentReader> pcrt::openParquet(const std::string &file, const std::string &field) {
  return std::make_unique<ParquetReader>(file, field);
}
