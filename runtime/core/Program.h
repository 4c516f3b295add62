//===- Program.h - the description of a compiled program ------------------===//
//
// The JSON text of pcrt_program (runtime/README.md), read and checked once.
// Shapes are global; a rank holds the block that the layout gives it.
//
//===----------------------------------------------------------------------===//
#ifndef PCRT_CORE_PROGRAM_H
#define PCRT_CORE_PROGRAM_H

#include "core/Block.h"
#include "pcrt/pcrt.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace pcrt {

using Json = nlohmann::ordered_json;

/// A tensor of the program: where it lies in the arena, and which part of it.
struct Tensor {
  std::string name;
  int32_t dtype = PCRT_F32;
  Dims shape;
  Layout layout;      ///< Per dim, the mesh axes that split it, major to minor.
  int64_t offset = 0; ///< In the arena; unused for outputs.
};

/// A parameter: a box of a Hugging Face tensor.
struct Parameter : Tensor {
  Dims valid;
  std::string initKind; ///< "normal" or "constant".
  double std = 0, value = 0;
  uint64_t key = 0;
  std::string source; ///< Name of the Hugging Face tensor.
  Box box;
};

/// A tensor of the optimizer, of the shape of its parameter.
struct State : Tensor {
  int parameter = 0; ///< Index in Program::parameters.
};

struct Input : Tensor {
  std::string kind; ///< "tokens", "targets" or "hyper".
};

struct Constant : Tensor {
  std::string kind; ///< "rope_cos" or "rope_sin".
  std::vector<double> invFreq;
  double scale = 1;
};

struct Output : Tensor {
  std::string kind; ///< "loss", "grad_norm", "gradient" or "logits".
  Dims valid;
  int parameter = -1; ///< Of a gradient.
};

struct Program {
  /// Reads the description of `program`; throws a Failure where it is wrong.
  explicit Program(const pcrt_program &program);

  const pcrt_program &abi;
  Mesh mesh;
  bool training = true;
  int64_t microbatches = 1, batch = 0, sequence = 0, vocabulary = 0;
  std::string name, optimizer;
  std::vector<Parameter> parameters;
  std::vector<State> states;
  std::vector<Input> inputs;
  std::vector<Constant> constants;
  std::vector<Output> outputs;
  std::string weights; ///< Directory of the weights that the model was imported with, or empty.
  Json config, report;
};

/// "dp=2,tp=2", or "one rank".
std::string describeMesh(const Mesh &mesh);

} // namespace pcrt

#endif // PCRT_CORE_PROGRAM_H
