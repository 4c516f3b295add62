//===- Triple.cpp - A random model, mesh and order of tactics ------------------------------===//
#include "Triple.h"

#include "pc/Import/Import.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"
#include <random>

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

struct Axis {
  std::string name;
  int64_t size;
  bool tensor; ///< tensor parallel; otherwise data parallel
};

/// One to three axes of 2 to 8 ranks in all.
std::vector<Axis> drawMesh(Dice &dice) {
  std::vector<Axis> mesh;
  int64_t ranks = 1;
  for (const char *name : {"x", "y", "z"}) {
    int64_t size = dice.between(2, ranks == 1 ? 4 : 3);
    if (ranks * size > 8)
      break;
    mesh.push_back({name, size, dice.chance(60)});
    ranks *= size;
    if (dice.chance(35))
      break;
  }
  return mesh;
}

} // namespace

Triple::Triple(uint64_t seed) {
  Dice dice(seed);
  std::vector<Axis> mesh = drawMesh(dice);
  int64_t data = 1, tensor = 1, tensorAxes = 0;
  for (const Axis &axis : mesh) {
    (axis.tensor ? tensor : data) *= axis.size;
    tensorAxes += axis.tensor;
  }
  int64_t microbatches = dice.between(1, 3);
  batch = data * microbatches * (data * microbatches <= 4 ? dice.between(1, 2) : 1);
  sequence = dice.between(3, 6);

  // Heads, ffn and vocabulary divide among the tensor ranks; the vocabulary is padded. Where one axis has more ranks
  // than there are key/value heads, these are replicated.
  std::string family = dice.oneOf<const char *>({"gpt2", "llama", "mistral", "qwen2", "qwen3"});
  int64_t heads = tensor * dice.between(1, 2), kvHeads = heads, headDim = 2 * dice.between(1, 2);
  if (family != "gpt2" && dice.chance(70)) {
    kvHeads = tensor;
    if (tensorAxes == 1 && dice.chance(60))
      do
        kvHeads = dice.between(1, tensor);
      while (tensor % kvHeads);
  }
  int64_t layers = dice.between(1, 2), ffn = tensor * dice.between(1, 3), vocabulary = dice.between(9, 21);
  int64_t embed = family == "gpt2" ? heads * headDim : 2 * dice.between(2, 5);
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
    os << "}";
  }

  step = {"pc-pad-vocabulary{multiple=" + std::to_string(tensor) + "}",
          "pc-differentiate{microbatches=" + std::to_string(microbatches) +
              " optimizer=" + dice.oneOf<const char *>({"adamw", "sgd"}) + "}"};
  dice.shuffle(mesh);
  std::string meshText;
  for (const Axis &axis : mesh)
    meshText += (meshText.empty() ? "" : ",") + axis.name + "=" + std::to_string(axis.size);
  dice.shuffle(mesh);
  placed = {"pc-set-mesh{mesh=" + meshText + "}"};
  for (const Axis &axis : mesh)
    placed.push_back((axis.tensor ? "pc-tensor-parallel{axis=" : "pc-data-parallel{axis=") + axis.name + "}");
  placed.push_back("pc-fuse-moves");
  placed.push_back("pc-verify-placed");
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
         llvm::join(step, ", ") + "; " + llvm::join(placed, ", ");
}
