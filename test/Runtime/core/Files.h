//===- Files.h - Files and failures in the tests of the core's parts ------===//
// Helpers of core-data, core-kinds and core-unit: they make small files, and turn a Failure into text.
//===----------------------------------------------------------------------===//
#ifndef PCRT_TEST_CORE_FILES_H
#define PCRT_TEST_CORE_FILES_H

#include "../../Checks.h"
#include "base/Failure.h"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>
#include <string>

using namespace pcrt;

inline std::mt19937 randomBits(7);

inline int pick(int least, int most) { return least + int(randomBits() % unsigned(most - least + 1)); }

/// The message of the Failure that `f` throws; empty if it throws none. Another status than the expected one is a
/// problem.
template <typename F> inline std::string failureOf(F &&f, pcrt_status status = PCRT_BAD_DATA) {
  try {
    f();
  } catch (const Failure &failure) {
    expect(failure.status == status, "status of: " + failure.message);
    return failure.message;
  }
  return "";
}

inline void writeFile(const std::string &path, const std::string &bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

/// A safetensors file.
inline std::string safetensors(const std::string &header, const std::string &data) {
  std::string length(8, '\0');
  uint64_t size = header.size();
  memcpy(length.data(), &size, 8);
  return length + header + data;
}

#endif // PCRT_TEST_CORE_FILES_H
