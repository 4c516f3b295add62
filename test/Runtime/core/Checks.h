//===- Checks.h - what the tests of the core's parts share ----------------===//
#ifndef PCRT_TEST_CORE_CHECKS_H
#define PCRT_TEST_CORE_CHECKS_H

#include "core/Failure.h"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>
#include <string>

using namespace pcrt;

inline int problems = 0, checks = 0;
inline std::mt19937 randomBits(7);

inline int pick(int least, int most) { return least + int(randomBits() % unsigned(most - least + 1)); }

inline void expect(bool good, const std::string &what) {
  ++checks;
  if (good)
    return;
  if (++problems <= 20)
    printf("FAILED: %s\n", what.c_str());
}

/// The message of the failure of `f`; empty if there is none; an unexpected status is a problem.
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

/// Says how it went; the exit status.
inline int finishChecks() {
  printf("%d checks, %d failed\n", checks, problems);
  return problems != 0;
}

#endif // PCRT_TEST_CORE_CHECKS_H
