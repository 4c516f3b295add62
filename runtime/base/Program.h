//===- Program.h - The description of a compiled program ------------------===//
// The JSON text of pcrt_program (runtime/README.md), read and checked once. Shapes are global and in elements; a rank
// holds the block that the layout gives it. A program does not change after it was read, so all threads may use it.
//===----------------------------------------------------------------------===//
#ifndef PCRT_BASE_PROGRAM_H
#define PCRT_BASE_PROGRAM_H

#include "base/Block.h"
#include "pcrt/pcrt.h"
#include "pcrt/weights.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace pcrt {

using Json = nlohmann::ordered_json;

/// A tensor of the program: where its block lies in the arena, and which part of the tensor the block is.
struct Tensor {
  std::string name;
  int32_t dtype = PCRT_F32;
  Dims shape;
  Layout layout;         ///< Per dim, the mesh axes that split it, major to minor.
  std::vector<int> root; ///< Mesh axes on which only coordinate 0 holds the value.
  int64_t offset = 0;    ///< In the arena; unused for outputs.
  bool varies = false;   ///< Each replica of local SGD has its own value.

  /// Whether `rank` holds its block of this tensor. If not, the memory is undefined.
  bool isOn(const Mesh &mesh, int rank) const {
    return std::all_of(root.begin(), root.end(), [&](int axis) { return mesh.coordinate(rank, axis) == 0; });
  }
};

/// A box of a Hugging Face tensor, and where it lies in a parameter.
struct Part {
  Dims start, size; ///< In the valid part of the parameter, or of its state.
  uint64_t key = 0;
  std::string source; ///< Name of the Hugging Face tensor.
  Dims shape;         ///< Its shape in the file.
  Box box;            ///< A box of `shape`, or of another shape with as many elements (`view`).

  /// Returns a rank's block of the parameter relative to this part. The block may begin before the part and end after
  /// it.
  Block inPart(Block block) const {
    for (size_t dim = 0; dim < start.size(); ++dim)
      block.start[dim] -= start[dim];
    return block;
  }
};

/// The optimizer's settings for a group of parameters: numbers that multiply or replace those of a run's flags.
struct ParameterGroup {
  std::string name;
  double lrFactor = 1, decayFactor = 1;
  std::optional<double> decay, beta1, beta2, eps, ema;

  /// The settings as text, such as "lr x0.1, decay 0".
  std::string settings() const;
};

/// A parameter: a box of a Hugging Face tensor, or several boxes one after the other along a dim.
struct Parameter : Tensor {
  Dims valid;
  std::optional<ParameterGroup> group;
  bool frozen = false;  ///< Steps and rounds never change it.
  std::string initKind; ///< PCRT_INIT_NORMAL or PCRT_INIT_CONSTANT.
  double std = 0, value = 0;
  int64_t zeroBegin = 0, zeroEnd = 0; ///< Elements of `valid` that start as zeros: one row, or no element.
  std::vector<Part> parts;            ///< One or more, which cover `valid`.

  /// Whether the parameter belongs to an adapter, and not to the base.
  bool isAdapter() const { return parts[0].source.starts_with(adapterPrefix); }
};

/// A tensor of the optimizer that belongs to a parameter.
struct State : Tensor {
  int parameter = 0;       ///< Index in Program::parameters.
  std::vector<Part> parts; ///< One for each part of its parameter. They are the same boxes if the shapes are equal.
  Dims dims;               ///< Only for PCRT_SCALE, which has no parts: the parameter's dims that it has.
};

/// The keys or the values of one attention, of a program that generates text: [groups, slots, heads, context, width],
/// or [parts, groups, slots, heads, context / parts, width].
struct Cache : Tensor {
  std::string of; ///< The attention.

  int64_t parts() const { return shape.size() == 6 ? shape[0] : 1; }
  int64_t groups() const { return shape[shape.size() - 5]; }
  int64_t slots() const { return shape[shape.size() - 4]; }
  int64_t context() const { return parts() * shape[shape.size() - 2]; }
};

/// A tensor that the runtime fills before every step.
struct Input : Tensor {
  std::string kind; ///< "tokens", "targets", "loss_weights", "shifted", "starts", "positions", "data", "hyper" or
                    ///< "random".
  ParameterGroup
      group; ///< For "hyper": the group to which these hyperparameters apply; the default one has all other parameters.
  int64_t below = 0; ///< For "data" that are indices: each must be less than this.
  int64_t key = 0;   ///< For "random": the number of the dropout in the model. For "starts" and "positions": what ends
                     ///< documents. For "shifted": the token before the targets.

  /// Whether the input has one number for each target, not for each token.
  bool isByTarget() const { return kind == "targets" || kind == "loss_weights" || kind == "shifted"; }
  /// Whether each row of the batch has a part of the input: [microbatch, row, ...].
  bool isByRow() const { return kind == "data" || isByToken(); }
  /// Whether each token, or target, of the batch has one element: [microbatch, row, position].
  bool isByToken() const {
    return kind == "tokens" || kind == "targets" || kind == "loss_weights" || kind == "starts" || kind == "positions" ||
           kind == "shifted";
  }
};

/// A table that the runtime computes once: cosines or sines of positions, [position, frequency].
struct Constant : Tensor {
  std::string kind; ///< "rope_cos" or "rope_sin".
  std::vector<double> invFreq;
  double scale = 1;
};

/// A tensor that a step passes to the runtime by a callback (pcrt_output in pcrt.h).
struct Output : Tensor {
  std::string kind; ///< "loss", "grad_norm", "gradient", "logits", "generated" or PCRT_ROUTING.
  Dims valid;
  int parameter = -1;            ///< For a gradient: the index of its parameter.
  int64_t layer = 0, chosen = 0; ///< For a routing: the layer, and the number of experts per token.
};

/// The program of one stage of a pipeline, or of all ranks if there is no pipeline.
struct Program {
  /// Reads the description of `program`; throws a Failure if it is wrong.
  explicit Program(const pcrt_program &program);

  const pcrt_program &abi;
  Mesh mesh;
  int64_t zigzag = 0; ///< Ranks that split the sequence in zigzag order; 0: it has its own order.

  /// Returns the position in the sequence of local index `index`.
  int64_t position(int64_t index) const {
    if (!zigzag)
      return index;
    int64_t chunk = sequence / (2 * zigzag), block = index / (2 * chunk), within = index % (2 * chunk);
    return within < chunk ? block * chunk + within : (2 * zigzag - 1 - block) * chunk + within - chunk;
  }

  bool masked = false; ///< Targets are not the next tokens, so a run needs --targets.
  bool training = true;
  bool generates = false; ///< It generates text: it has caches, and a scheduler fills its inputs.
  int64_t microbatches = 1, batch = 0, sequence = 0, vocabulary = 0;
  int64_t targetSequence = 0; ///< Targets per sequence: the number of tokens, unless an encoder reads the tokens.
  std::string name, optimizer;
  std::vector<Parameter> parameters;
  std::vector<State> states;
  std::vector<Cache> caches;
  std::vector<Input> inputs;
  std::vector<Constant> constants;
  std::vector<Output> outputs;
  std::string weights; ///< Directory of the weights that the model was imported with, or empty.
  std::string config;  ///< The text of config.json.
  Json adapter;        ///< PEFT's adapter_config.json without the place of the base; null: there is no adapter.
  Json report;         ///< In a pipeline, the one of stage 0 covers all stages.
  Json configMeans;    ///< The keys of config.json that define the model, and their values (runtime/README.md).
  std::vector<std::pair<std::string, std::string>>
      ties; ///< Names under which files may also store a weight, with the name of the tensor itself.

  /// Local SGD: each coordinate on mesh axis `axis` (-1: no such axis) is a replica with its own parameters and states.
  /// A round ends after `every` steps; pcrt_program::round then averages the replicas' parameters.
  struct Rounds {
    int axis = -1;
    int64_t replicas = 1, every = 1;
    double rate = 0, momentum = 0;
    bool codes = false; ///< Replicas send each other codes of 8 bits.

    bool any() const { return axis >= 0; }
    /// Whether a round ends after `steps` steps.
    bool endsAfter(int64_t steps) const { return any() && steps % every == 0; }
  } rounds;

  bool hasAdapter() const { return !adapter.is_null(); }
  /// "rank 16, alpha 32, on q_proj, v_proj", or "none".
  std::string describeAdapter() const;

  int64_t replicaOf(int rank) const { return rounds.any() ? mesh.coordinate(rank, rounds.axis) : 0; }
  /// The state `name` of a parameter, or null.
  const State *stateOf(const Parameter &parameter, const std::string &name) const {
    for (const State &state : states)
      if (state.name == name && &parameters[state.parameter] == &parameter)
        return &state;
    return nullptr;
  }

  /// The stage of this program, which is its coordinate on mesh axis `stageAxis`, or -1 if there is one program for all
  /// ranks. `stages` has all stages by coordinate, including this one.
  int stageAxis = -1, stage = 0;
  std::vector<const Program *> stages{this};

  /// Returns text about the parameter groups and frozen parameters, separated by "; ". For each, it has the settings
  /// and the numbers of tensors and elements. Returns "none" if there are none.
  std::string groups() const;
  /// The plan as the report prints it; empty if there is no report.
  std::string plan() const;
  /// Returns the position of `rank`, which runs this program, among the ranks that hold its block of a parameter's
  /// tensor. Returns nullopt if an earlier stage also has the tensor, or if `rank` does not hold the tensor.
  std::optional<Holder> holderOf(const Tensor &tensor, const Parameter &parameter, int rank) const;
  /// Whether `rank` is the first of these ranks, which writes the block.
  bool writes(const Tensor &tensor, const Parameter &parameter, int rank) const {
    std::optional<Holder> holder = holderOf(tensor, parameter, rank);
    return holder && holder->index == 0;
  }

  Program(const Program &) = delete;
  Program &operator=(const Program &) = delete;
};

/// Whether any rank of any stage has an arena on disk.
inline bool keepsOnDisk(const Program &program) {
  return std::any_of(program.stages.begin(), program.stages.end(),
                     [](const Program *stage) { return stage->abi.disk_bytes > 0; });
}

/// The programs of an executable: one, or one for each stage.
class Programs {
public:
  /// Reads the programs of all stages; throws a Failure if one is wrong.
  explicit Programs(const pcrt_program &first);

  const Program &first() const { return *all.front(); }
  const Program &of(int rank) const;

private:
  std::vector<std::unique_ptr<Program>> all;
};

/// The mesh as text: "dp=2,tp=2", or "one rank".
std::string describeMesh(const Mesh &mesh);

} // namespace pcrt

#endif // PCRT_BASE_PROGRAM_H
