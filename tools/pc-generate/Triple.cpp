//===- Triple.cpp - A random model, mesh and order of tactics ------------------------------===//
#include "Triple.h"

#include "pc/Driver/Plan.h"
#include "pc/Import/Import.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"
#include <random>
#include <utility>

namespace {

/// Random choices that are the same on every machine (no std distributions).
class Dice {
public:
  explicit Dice(uint64_t seed) : engine(seed * 0x9e3779b97f4a7c15ull + 1) {}
  int64_t between(int64_t low, int64_t high) { return low + static_cast<int64_t>(engine() % (high - low + 1)); }
  bool chance(int percent) { return between(1, 100) <= percent; }
  template <typename T> T oneOf(std::initializer_list<T> list) { return list.begin()[between(0, list.size() - 1)]; }
  template <typename T> void shuffle(std::vector<T> &list) {
    for (size_t i = list.size(); i > 1; --i)
      std::swap(list[i - 1], list[between(0, i - 1)]);
  }

private:
  std::mt19937_64 engine;
};

/// What a mesh axis is used for.
enum class Role {
  Data,
  Tensor,
  TensorAndSequence,
  Context,
  Ring,
  Naive,
  OptimizerShards,
  GradientShards,
  ParameterShards,
  // Axes of a grid: 2D has rows and columns, 2.5D depth too; 3D has i, j and l.
  Depth,
  Row,
  Column,
  I,
  J,
  L,
};

struct Axis {
  std::string name;
  int64_t size;
  Role role;

  bool isZero() const {
    return role == Role::OptimizerShards || role == Role::GradientShards || role == Role::ParameterShards;
  }
  bool isGrid() const { return role >= Role::Depth; }
  bool splitsBatch() const {
    return role == Role::Data || role == Role::Naive || isZero() || (isGrid() && role != Role::Column);
  }
  bool splitsHeads() const {
    return role == Role::Tensor || role == Role::TensorAndSequence || role == Role::Context || role == Role::Column ||
           role == Role::L;
  }
  bool splitsSequence() const { return role == Role::TensorAndSequence || role == Role::Context || role == Role::Ring; }
  /// Moves over it meet matrix products: gathers of weights or activations, sums of activations.
  bool feedsProducts() const {
    return size > 1 &&
           (role == Role::TensorAndSequence || role == Role::ParameterShards || (isGrid() && role != Role::Depth));
  }
  /// Weights are split over it along what is left of them.
  bool splitsWidth() const { return isZero() || isGrid(); }
  /// Its tactics, to be applied in this order; a grid's are those of one of its axes.
  std::vector<std::string> tactics(Dice &dice, const std::string &grid) const;
};

std::vector<std::string> Axis::tactics(Dice &dice, const std::string &grid) const {
  switch (role) {
  case Role::Data:
    return {"pc-data-parallel{axis=" + name + "}"};
  case Role::Tensor:
    return {"pc-tensor-parallel{axis=" + name + "}"};
  case Role::TensorAndSequence:
    return {"pc-tensor-parallel{axis=" + name + "}", "pc-sequence-parallel{axis=" + name + "}"};
  case Role::Context:
    return {"pc-context-parallel{axis=" + name + " form=heads}"};
  case Role::Ring: // behind pc-zigzag, a tactic of the step
    return {"pc-context-parallel{axis=" + name + " form=ring}"};
  case Role::Naive:
    return {"pc-data-parallel{axis=" + name + " mode=naive}"};
  case Role::OptimizerShards:
    return {"pc-zero{axis=" + name + " stage=1}"};
  case Role::GradientShards:
    return {"pc-zero{axis=" + name + " stage=2}"};
  case Role::ParameterShards:
    return {"pc-zero{axis=" + name + " stage=3" + (dice.chance(30) ? " reshard-after-forward=false}" : "}")};
  case Role::Column:
  case Role::L:
    return {"pc-tensor-parallel{axis=" + grid + (dice.chance(30) ? " regather=false}" : "}")};
  case Role::Depth:
  case Role::Row:
  case Role::I:
  case Role::J:
    return {};
  }
  return {};
}

/// A grid of 4 or 8 ranks, and what its tactic's option `axis` and those behind it are.
std::vector<Axis> drawGrid(Dice &dice, std::string &tactic) {
  switch (dice.between(1, 3)) {
  case 1:
    tactic = "row,col form=2d";
    return {{"row", 2, Role::Row}, {"col", 2, Role::Column}};
  case 2:
    tactic = "depth,row,col form=2.5d";
    return {{"depth", 2, Role::Depth}, {"row", 2, Role::Row}, {"col", 2, Role::Column}};
  default:
    tactic = "i,j,l form=3d";
    return {{"i", 2, Role::I}, {"j", 2, Role::J}, {"l", 2, Role::L}};
  }
}

/// Stage 3 keeps some parameters gathered.
void keepSome(Dice &dice, llvm::StringRef family, std::vector<std::string> &tactics) {
  std::string keep = dice.oneOf<const char *>({"*", "*.0.*", "TABLE.*|*.0.*", "TABLE.*"});
  if (size_t at = keep.find("TABLE"); at != std::string::npos)
    keep.replace(at, 5, family == "gpt2" ? "wte" : "embed_tokens");
  for (std::string &tactic : tactics)
    if (llvm::StringRef(tactic).contains(" stage=3"))
      tactic.insert(tactic.size() - 1, " keep=" + keep);
}

/// One axis splits the sequence everywhere, and there is one root.
void keepOneOfAKind(std::vector<Axis> &mesh) {
  bool context = false, root = false;
  for (Axis &axis : mesh) {
    bool isContext = axis.role == Role::Context || axis.role == Role::Ring;
    if ((isContext && std::exchange(context, true)) || (axis.role == Role::Naive && std::exchange(root, true)))
      axis.role = Role::Data;
  }
}

/// One to three axes of 2 to 8 ranks in all (12 now and then); now and then one of a single rank.
std::vector<Axis> drawMesh(Dice &dice, std::string &grid) {
  std::vector<Axis> mesh;
  int64_t ranks = 1, most = dice.chance(10) ? 12 : 8;
  if (dice.chance(25)) {
    mesh = drawGrid(dice, grid);
    if (mesh.size() < 3 && dice.chance(50))
      mesh.push_back({"x", 2,
                      dice.oneOf({Role::Data, Role::OptimizerShards, Role::GradientShards, Role::ParameterShards,
                                  Role::Context, Role::Ring, Role::Naive})});
    return mesh;
  }
  for (const char *name : {"x", "y", "z"}) {
    int64_t size =
        ranks > 1 && dice.chance(10) ? 1 : (ranks == 1 ? dice.oneOf<int64_t>({2, 2, 3, 4}) : dice.between(2, 3));
    if (ranks * size > most)
      break;
    mesh.push_back(
        {name, size,
         dice.oneOf({Role::Data, Role::Data, Role::Tensor, Role::Tensor, Role::OptimizerShards, Role::GradientShards,
                     Role::ParameterShards, Role::ParameterShards, Role::TensorAndSequence, Role::TensorAndSequence,
                     Role::Context, Role::Ring, Role::Ring, Role::Naive})});
    ranks *= size;
    if (dice.chance(20))
      break;
  }
  // Two ZeRO axes would have to find two dims in every parameter.
  bool zero = false;
  for (Axis &axis : mesh) {
    if (zero && axis.isZero())
      axis.role = Role::Data;
    zero |= axis.isZero();
  }
  keepOneOfAKind(mesh);
  return mesh;
}

} // namespace

Triple::Triple(uint64_t seed) {
  Dice dice(seed);
  std::string grid;
  std::vector<Axis> axes = drawMesh(dice, grid);
  int64_t data = 1, tensor = 1, shards = 1, sequenceRanks = 1, tensorAxes = 0, contextRanks = 1, ringRanks = 0;
  for (const Axis &axis : axes) {
    data *= axis.splitsBatch() ? axis.size : 1;
    shards *= axis.splitsWidth() ? axis.size : 1;
    contextRanks *= axis.role == Role::Context ? axis.size : 1;
    tensor *= axis.splitsHeads() ? axis.size : 1;
    sequenceRanks *= axis.splitsSequence() ? axis.size : 1;
    tensorAxes += axis.splitsHeads();
    ringRanks = axis.role == Role::Ring ? axis.size : ringRanks;
  }
  sequenceRanks *= ringRanks ? 2 : 1; // two chunks a rank
  microbatches = dice.between(1, 3);
  batch = data * microbatches * (data * microbatches <= 4 ? dice.between(1, 2) : 1);
  sequence = sequenceRanks * dice.between(sequenceRanks > 1 ? 1 : 3, sequenceRanks > 1 ? 2 : 6);

  // Heads, ffn and vocabulary divide among the tensor ranks; the vocabulary is padded. Where one axis has more ranks
  // than there are key/value heads, these are replicated.
  std::string family = dice.oneOf<const char *>({"gpt2", "llama", "mistral", "qwen2", "qwen3"});
  int64_t heads = tensor * dice.between(1, 2), kvHeads = heads, headDim = 2 * dice.between(1, 2);
  if (family != "gpt2" && dice.chance(70)) {
    kvHeads = tensor;
    if (tensorAxes == 1 && contextRanks == 1 && grid.empty() && dice.chance(60))
      do
        kvHeads = dice.between(1, tensor);
      while (tensor % kvHeads);
  }
  int64_t layers = dice.between(1, 2), ffn = tensor * dice.between(1, 3);
  vocabulary = dice.between(9, 21);

  // What ZeRO splits is padded where it does not divide, if no grid splits it too.
  int64_t width = grid.empty() && dice.chance(40) ? 1 : shards;
  int64_t embed = width * 2 * dice.between(2, 5) + (width == 1 ? dice.between(0, 1) : 0);
  if (family == "gpt2") { // whose heads make up the width
    heads *= width;
    kvHeads = heads;
    while (heads * headDim < 6) // a norm of two elements forgets them
      headDim *= 2;
    embed = heads * headDim;
  }
  bool tied = dice.chance(50);
  llvm::raw_string_ostream os(config);
  if (family == "gpt2") {
    os << "{\"model_type\": \"gpt2\", \"vocab_size\": " << vocabulary << ", \"n_positions\": " << sequence
       << ", \"n_embd\": " << embed << ", \"n_layer\": " << layers << ", \"n_head\": " << heads
       << ", \"n_inner\": " << ffn << ", \"activation_function\": \""
       << dice.oneOf<const char *>({"gelu_new", "gelu", "relu"})
       << "\", \"resid_pdrop\": 0, \"embd_pdrop\": 0, \"attn_pdrop\": 0}";
  } else {
    os << "{\"model_type\": \"" << family << "\", \"vocab_size\": " << vocabulary << ", \"hidden_size\": " << embed
       << ", \"intermediate_size\": " << ffn << ", \"num_hidden_layers\": " << layers
       << ", \"num_attention_heads\": " << heads << ", \"num_key_value_heads\": " << kvHeads
       << ", \"head_dim\": " << headDim << ", \"tie_word_embeddings\": " << (tied ? "true" : "false");
    if (family == "mistral")
      os << ", \"sliding_window\": null";
    if (family == "llama" && dice.chance(40))
      os << ", \"attention_bias\": true, \"mlp_bias\": true";
    if (seed % 3 == 1) // an id, or how far from the last
      os << ", \"pad_token_id\": " << int64_t(seed % vocabulary) - (seed % 2 ? vocabulary : 0);
    os << "}";
  }

  optimizer = dice.oneOf<const char *>({"adamw", "adamw", "adamw", "sgd", "sgd", "none"});
  step = {"pc-pad-vocabulary{multiple=" + std::to_string(tensor) + "}",
          "pc-differentiate{microbatches=" + std::to_string(microbatches) + " optimizer=" + optimizer + "}"};
  if (!grid.empty())
    step.push_back("pc-decompose-norms");
  if (dice.chance(20))
    step.push_back("cse");
  bf16 = dice.chance(25);
  if (bf16)
    tactics.push_back("pc-mixed-precision{compute=bf16" + std::string(dice.chance(25) ? " residual=bf16" : "") +
                      (seed % 3 == 0 ? " tables=bf16" : "") +
                      (optimizer != "none" && dice.chance(25) ? " gradients=bf16}" : "}"));
  if (optimizer != "none" && dice.chance(25))
    tactics.push_back(std::string("pc-recompute{mode=") + dice.oneOf<const char *>({"full", "selective"}) + "}");
  if (ringRanks)
    tactics.push_back("pc-zigzag{ranks=" + std::to_string(ringRanks) + "}");
  step.insert(step.end(), tactics.begin(), tactics.end());
  size_t ofStep = tactics.size();
  dice.shuffle(axes);
  for (const Axis &axis : axes)
    mesh += (mesh.empty() ? "" : ",") + axis.name + "=" + std::to_string(axis.size);
  dice.shuffle(axes);
  pc::Plan plan;
  for (bool isZero : {false, true}) // ZeRO takes the dims that the others leave
    for (const Axis &axis : axes)
      if (axis.isZero() == isZero) {
        plan.mesh.push_back({axis.name, axis.size});
        for (std::string &tactic : axis.tactics(dice, grid))
          tactics.push_back(std::move(tactic));
      }
  int64_t bucketBytes = dice.between(0, 20000), prefetch = dice.between(0, 2);
  if (dice.chance(30))
    keepSome(dice, family, tactics);
  std::string windows;
  if (dice.chance(30))
    for (const Axis &axis : axes)
      if (axis.feedsProducts() && dice.chance(70))
        windows += (windows.empty() ? "" : ",") + axis.name;
  plan.tactics.assign(tactics.begin(), tactics.end());
  if (std::string padding = plan.padding(); !padding.empty())
    step.push_back(padding);
  placed = {"pc-set-mesh{mesh=" + mesh + "}"};
  placed.insert(placed.end(), tactics.begin() + ofStep, tactics.end());
  placed.push_back("pc-fuse-moves");
  placed.push_back("pc-verify-placed");
  late = {"pc-localize",
          "pc-verify-local",
          windows.empty() ? "pc-window-moves" : "pc-window-moves{axes=" + windows + "}",
          "pc-fuse",
          "pc-schedule{bucket-bytes=" + std::to_string(bucketBytes) + " prefetch=" + std::to_string(prefetch) + "}",
          "pc-verify-scheduled",
          "pc-plan-memory",
          "pc-verify-memory",
          "pc-verify-scheduled"};
  if (!windows.empty())
    tactics.push_back(late[2]);
}

mlir::OwningOpRef<mlir::ModuleOp> Triple::model(mlir::MLIRContext *context) const {
  llvm::SmallString<128> directory, file;
  if (llvm::sys::fs::createUniqueDirectory("pc-generate", directory))
    return {};
  file = directory;
  llvm::sys::path::append(file, "config.json");
  std::error_code error;
  llvm::raw_fd_ostream(file, error) << config;
  pcrt_status status = PCRT_OK;
  auto module = pc::importModel(context, directory, {batch, sequence}, status);
  llvm::sys::fs::remove_directories(directory);
  return module;
}

std::string Triple::text() const {
  return config + " batch " + std::to_string(batch) + " sequence " + std::to_string(sequence) + "; " +
         llvm::join(step, ", ") + "; " + llvm::join(placed, ", ") + "; " + llvm::join(late, ", ");
}
