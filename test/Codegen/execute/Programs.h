//===- Programs.h - Small local programs as text, for execute-test --------===//
// A program of phase local is written op by op, then run and compared with the interpreter.
//===----------------------------------------------------------------------===//
#ifndef PC_TEST_CODEGEN_EXECUTE_PROGRAMS_H
#define PC_TEST_CODEGEN_EXECUTE_PROGRAMS_H

#include "../../Checks.h"

#include "mlir/IR/MLIRContext.h"
#include <cstdint>
#include <vector>

/// Compares a program (a file if `isFile`) with the interpreter, with and without pc-fuse. If `scale`, a factor of the
/// tolerance, is 1, a text is also compared with as many values in bf16 as the ops allow.
void check(mlir::MLIRContext &context, const std::string &name, const std::string &text, bool isFile, double scale = 1);

/// Tests views and lookups of rows by id (Views.cpp).
void checkViews(mlir::MLIRContext &context);

inline std::string join(const std::vector<int64_t> &sizes, const char *separator) {
  std::string text;
  for (int64_t size : sizes)
    text += (text.empty() ? "" : separator) + std::to_string(size);
  return text;
}
inline std::string type(const std::vector<int64_t> &shape, const char *element = "f32") {
  return "tensor<" + join(shape, "x") + (shape.empty() ? "" : "x") + element + ">";
}

/// A program under construction: parameters p0, p1, ... and outputs o0, o1, ...
struct Program {
  std::string body;
  int parameters = 0, outputs = 0;

  static std::string repeated(const char *what, size_t n) {
    std::string text;
    for (size_t i = 0; i < n; ++i)
      text += (i ? ", " : "") + std::string(what);
    return text;
  }
  /// Adds a parameter with random elements, which are near `mean` if that is not 0.
  std::string parameter(const std::vector<int64_t> &shape, double mean = 0) {
    if (shape.empty()) { // a box has dims
      std::string one = parameter({1}, mean), name = "%s" + std::to_string(parameters);
      op(name + " = pc.einsum \"d -> \" " + one + " : (tensor<1xf32>) -> tensor<f32>");
      return name;
    }
    std::string name = "p" + std::to_string(parameters++), list = "[" + join(shape, ", ") + "]";
    std::string start = "[" + repeated("0", shape.size()) + "]";
    body += "  %" + name + " = pc.parameter \"" + name + "\" dims [" + repeated("\"d\"", shape.size()) + "] init <" +
            (mean ? "fill, " + std::to_string(mean) : "normal, 1.0") + "> source <\"" + name + "\", shape = " + list +
            ", start = " + start + ", size = " + list + "> global " + list + " layout <[" +
            repeated("_", shape.size()) + "]> : " + type(shape) + "\n";
    return "%" + name;
  }
  std::string targets(const std::vector<int64_t> &shape) {
    body += "  %targets = pc.input targets dims [" + repeated("\"d\"", shape.size()) + "] global [" +
            join(shape, ", ") + "] layout <[" + repeated("_", shape.size()) + "]> : " + type(shape, "i32") + "\n";
    return "%targets";
  }
  /// Adds the input that holds the first position of each token's document.
  std::string starts(int64_t batch, int64_t sequence) {
    std::vector<int64_t> shape = {batch, sequence};
    body += "  %starts = pc.input starts key 2 dims [\"d\", \"d\"] global [" + join(shape, ", ") +
            "] layout <[_, _]> : " + type(shape, "i32") + "\n";
    return "%starts";
  }
  /// Adds the random words from which dropout number `key` draws.
  std::string words(int64_t key) {
    body += "  %words = pc.input random key " + std::to_string(key) +
            " dims [\"random\"] global [5] layout <[_]> : tensor<5xi32>\n";
    return "%words";
  }
  void op(const std::string &text) { body += "  " + text + "\n"; }
  void output(const std::string &value, const std::vector<int64_t> &shape) {
    body += "  pc.output gradient \"o" + std::to_string(outputs++) + "\" " + value + " global [" + join(shape, ", ") +
            "] layout <[" + repeated("_", shape.size()) + "]> : " + type(shape) + "\n";
  }
  std::string text(int64_t vocabulary = 7) const {
    return "module {\npc.mesh <dp = 1>\npc.program \"t\" batch 2 sequence 3 vocabulary " + std::to_string(vocabulary) +
           " config \"{}\"\nfunc.func @step() {\n" + body + "  return\n}\n}\n";
  }
};

#endif
