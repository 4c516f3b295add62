//===- Tensors.h - Reads safetensors files for pc-compare -----------------===//
// A separate reader, so that the tests and the runtime cannot have the same error. Every failure ends the process.
//===----------------------------------------------------------------------===//
#ifndef PC_TEST_ENDTOEND_TENSORS_H
#define PC_TEST_ENDTOEND_TENSORS_H

#include <cstdint>
#include <map>
#include <string>
#include <vector>

/// The exit codes, which are those of all tools.
enum ExitCode { Equal = 0, Usage = 2, Different = 5, Unreadable = 9 };

/// Prints the message and ends the process.
[[noreturn]] void die(ExitCode code, const std::string &message);

std::string readFile(const std::string &path);

/// A tensor of f32, row major.
struct FileTensor {
  std::vector<int64_t> shape;
  std::vector<float> values;
};

/// All tensors of a safetensors file, by name; only F32 is allowed.
std::map<std::string, FileTensor> readTensors(const std::string &path);

#endif
