//===- NoParquet.cpp - A build without Apache Arrow -----------------------===//
// Parquet files are refused by name.
//===----------------------------------------------------------------------===//
#include "Documents.h"
#include "base/Failure.h"

std::unique_ptr<pcrt::DocumentReader> pcrt::openParquet(const std::string &file, const std::string &) {
  fail(PCRT_USAGE,
       file + ": this pc-tokenize was built without Parquet; install Apache Arrow's C++ library (libparquet-dev) "
              "and build again, or convert the file to JSON lines");
}
