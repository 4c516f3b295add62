//===- AlgorithmCache.cpp - Choices of algorithms that outlive a run ------===//
// The file is written under a temporary name and renamed, so that several processes may do so at once; the last one
// wins.
//===----------------------------------------------------------------------===//
#include "cuda/AlgorithmCache.h"
#include "base/CacheDirectory.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/stat.h>
#include <unistd.h>

using namespace pcrt::cuda;

/// mkdir -p; failures show when the file is opened.
static void makeDirectories(const std::string &path) {
  for (size_t end = path.find('/', 1); end != std::string::npos; end = path.find('/', end + 1))
    mkdir(path.substr(0, end).c_str(), 0777);
}

AlgorithmCache::AlgorithmCache(const std::string &name) {
  std::string directory = cacheDirectory();
  if (directory.empty())
    return;
  path = directory + "/";
  for (char c : name)
    path += isalnum((unsigned char)c) || strchr("-._", c) ? c : '_';
  FILE *file = fopen(path.c_str(), "re");
  if (!file)
    return;
  char key[512], value[4097];
  while (fscanf(file, "%511s %4096s", key, value) == 2)
    entries[key] = value;
  fclose(file);
}

bool AlgorithmCache::find(const std::string &key, void *value, size_t bytes) const {
  auto found = entries.find(key);
  if (found == entries.end() || found->second.size() != 2 * bytes)
    return false;
  for (size_t i = 0; i < bytes; ++i) {
    unsigned byte;
    if (sscanf(found->second.c_str() + 2 * i, "%2x", &byte) != 1)
      return false;
    static_cast<unsigned char *>(value)[i] = (unsigned char)byte;
  }
  return true;
}

void AlgorithmCache::insert(const std::string &key, const void *value, size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) {
    char byte[3];
    snprintf(byte, sizeof byte, "%02x", static_cast<const unsigned char *>(value)[i]);
    text += byte;
  }
  entries[key] = text;
  changed = true;
}

void AlgorithmCache::save() const {
  if (!changed || path.empty())
    return;
  makeDirectories(path);
  std::string temporary = path + "." + std::to_string(getpid());
  FILE *file = fopen(temporary.c_str(), "we");
  if (!file)
    return;
  bool good = true;
  for (auto &[key, value] : entries)
    good &= fprintf(file, "%s %s\n", key.c_str(), value.c_str()) > 0;
  good &= fclose(file) == 0;
  if (!good || rename(temporary.c_str(), path.c_str()) != 0)
    unlink(temporary.c_str());
}
