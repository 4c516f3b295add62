//===- TokenizerFiles.cpp - The files that accompany a model's weights ----===//
// Reads every file that isTokenizerFile (base/ModelFiles.h) names, including those in the folder of chat templates.
//===----------------------------------------------------------------------===//
#include "data/TokenizerFiles.h"
#include "base/Failure.h"
#include "base/InputFile.h"
#include "pcrt/weights.h"

#include <algorithm>
#include <filesystem>

using namespace pcrt;
namespace fs = std::filesystem;

TokenizerFiles pcrt::readTokenizerFiles(const std::string &directory) {
  TokenizerFiles files;
  if (directory.empty())
    return files;
  for (const std::string within : {"", templateDirectory}) {
    std::error_code error, ignored;
    for (fs::directory_iterator entry(directory + "/" + within, error), end; entry != end && !error;
         entry.increment(error)) {
      std::string name = (within.empty() ? "" : within + "/") + entry->path().filename().string();
      if (!isTokenizerFile(name) || entry->is_directory(ignored))
        continue;
      std::string text = InputFile(entry->path()).text();
      if (isLfsPointer(text))
        fail(PCRT_BAD_DATA, entry->path().string() + " " + lfsPointerMessage);
      files[name] = std::move(text);
    }
  }
  return files;
}
