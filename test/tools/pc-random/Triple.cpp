//===- Triple.cpp - A random model, mesh and order of tactics -------------===//
// The seed determines mesh, sizes and tactics. Sizes are multiples of what the tactics of the mesh's axes need; other
// families replace GPT-2's features by their own.
//===----------------------------------------------------------------------===//
#include "Triple.h"

#include "Dice.h"
#include "pc/Import/Import.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"
#include <utility>

namespace {

/// The requirements of a use of an axis on the model and the mesh.
enum : unsigned {
  Batch = 1, ///< is split
  Heads = 2,
  Sequence = 4,
  Width = 8, ///< weights are split along dims that other tactics have left whole
  /// Matrix products read or produce values that are moved over it (gathers of weights or activations, sums of
  /// activations).
  Products = 16,
  Last = 32,  ///< ZeRO splits dims that other tactics leave whole, and not every parameter has two such dims
  Ring = 64,  ///< after pc-zigzag, a tactic of the step; two chunks of the sequence per rank
  Root = 128, ///< one rank holds the whole value
};

/// A way to use a mesh axis: tactics in this order, where $ is the axis, and their requirements. The tactic of a grid,
/// whose axes are in one $, is listed with one of them. `sometimes` is an option that the last tactic sometimes has.
struct Use {
  unsigned needs;
  std::vector<std::string> tactics;
  std::string sometimes = "";
};
namespace uses {
const std::string tensorAlone = "pc-tensor-parallel{axis=$}";
const Use data{Batch, {"pc-data-parallel{axis=$}"}};
const Use expert{Batch, {"pc-expert-parallel{axis=$}"}};
const Use naive{Batch | Root, {"pc-data-parallel{axis=$ mode=naive}"}};
const Use tensor{Heads, {tensorAlone}};
const Use tensorAndSequence{Heads | Sequence | Products, {tensorAlone, "pc-sequence-parallel{axis=$}"}};
const Use context{Heads | Sequence, {"pc-context-parallel{axis=$ form=heads}"}};
const Use ring{Sequence | Ring, {"pc-context-parallel{axis=$ form=ring}"}};
const Use zero1{Batch | Width | Last, {"pc-zero{axis=$ stage=1}"}};
const Use zero2{Batch | Width | Last, {"pc-zero{axis=$ stage=2}"}};
const Use zero3{Batch | Width | Last | Products, {"pc-zero{axis=$ stage=3}"}, " reshard-after-forward=false"};
// Axes of a grid: 2D has rows and columns, 2.5D also has depth, and 3D has i, j and l.
const Use depth{Batch | Width, {}};
const Use row{Batch | Width | Products, {}};
const Use column{Heads | Width | Products, {tensorAlone}, " regather=false"};
const Use lastOfThree{Batch | Heads | Width | Products, {tensorAlone}, " regather=false"};
} // namespace uses

/// An axis of the mesh and its use.
struct Axis {
  std::string name;
  int64_t size;
  const Use *use;
  bool experts = false; ///< experts are split over it, in addition to other dims

  bool needs(unsigned what) const { return use->needs & what; }
  /// Its tactics.
  std::vector<std::string> tactics(Dice &dice, llvm::StringRef grid) const {
    std::vector<std::string> all = use->tactics;
    for (std::string &tactic : all)
      tactic.replace(tactic.find('$'), 1, needs(Width) && !needs(Last) ? grid.str() : name);
    if (experts)
      all.front().insert(all.front().size() - 1, " experts=true");
    if (!use->sometimes.empty() && dice.chance(30))
      all.back().insert(all.back().size() - 1, use->sometimes);
    return all;
  }
};

/// A grid of 4 or 8 ranks, and the option `axis` of its tactic, followed by the other options.
std::vector<Axis> drawGrid(Dice &dice, std::string &tactic) {
  switch (dice.between(1, 3)) {
  case 1:
    tactic = "row,col form=2d";
    return {{"row", 2, &uses::row}, {"col", 2, &uses::column}};
  case 2:
    tactic = "depth,row,col form=2.5d";
    return {{"depth", 2, &uses::depth}, {"row", 2, &uses::row}, {"col", 2, &uses::column}};
  default:
    tactic = "i,j,l form=3d";
    return {{"i", 2, &uses::row}, {"j", 2, &uses::row}, {"l", 2, &uses::lastOfThree}};
  }
}

/// Lets stage 3 keep some parameters gathered.
void keepSome(Dice &dice, llvm::StringRef family, std::vector<std::string> &tactics) {
  std::string keep = dice.oneOf<const char *>({"*", "*.0.*", "TABLE.*|*.0.*", "TABLE.*"});
  if (size_t at = keep.find("TABLE"); at != std::string::npos)
    keep.replace(at, 5,
                 family == "gpt2"   ? "wte"
                 : family == "bert" ? "word_embeddings"
                 : family == "t5"   ? "shared"
                                    : "embed_tokens");
  for (std::string &tactic : tactics)
    if (llvm::StringRef(tactic).contains(" stage=3"))
      tactic.insert(tactic.size() - 1, " keep=" + keep);
}

/// The axis of the experts, or null: one of data, ZeRO, context or 1D tensor parallelism, determined by the seed.
Axis *drawExperts(std::vector<Axis> &mesh, uint64_t seed) {
  std::vector<Axis *> able;
  for (Axis &axis : mesh)
    if (axis.needs(Last) ||
        llvm::is_contained({&uses::data, &uses::context, &uses::ring, &uses::tensor, &uses::tensorAndSequence},
                           axis.use))
      able.push_back(&axis);
  // The root scatters whole experts.
  bool hasRoot = llvm::any_of(mesh, [](const Axis &axis) { return axis.needs(Root); });
  if (hasRoot || able.empty() || seed % 12 == 0)
    return nullptr;
  Axis *axis = able[seed / 12 % able.size()];
  axis->experts = axis->use != &uses::data;
  if (!axis->experts)
    axis->use = &uses::expert;
  return axis;
}

/// Removes uses of axes, so that at most one axis splits the sequence everywhere, and at most one has a root.
void keepOneOfAKind(std::vector<Axis> &mesh) {
  bool hasContext = false, hasRoot = false;
  for (Axis &axis : mesh) {
    bool isContext = axis.use == &uses::context || axis.use == &uses::ring;
    if ((isContext && std::exchange(hasContext, true)) || (axis.needs(Root) && std::exchange(hasRoot, true)))
      axis.use = &uses::data;
  }
}

/// Draws one to three axes with 2 to 8 ranks in total (sometimes 12). Sometimes one axis has a single rank.
std::vector<Axis> drawMesh(Dice &dice, std::string &grid) {
  std::vector<Axis> mesh;
  int64_t ranks = 1, most = dice.chance(10) ? 12 : 8;
  if (dice.chance(25)) {
    mesh = drawGrid(dice, grid);
    if (mesh.size() < 3 && dice.chance(50))
      mesh.push_back({"x", 2,
                      dice.oneOf({&uses::data, &uses::zero1, &uses::zero2, &uses::zero3, &uses::context, &uses::ring,
                                  &uses::naive})});
    return mesh;
  }
  for (const char *name : {"x", "y", "z"}) {
    int64_t size =
        ranks > 1 && dice.chance(10) ? 1 : (ranks == 1 ? dice.oneOf<int64_t>({2, 2, 3, 4}) : dice.between(2, 3));
    if (ranks * size > most)
      break;
    mesh.push_back({name, size,
                    dice.oneOf({&uses::data, &uses::data, &uses::tensor, &uses::tensor, &uses::zero1, &uses::zero2,
                                &uses::zero3, &uses::zero3, &uses::tensorAndSequence, &uses::tensorAndSequence,
                                &uses::context, &uses::ring, &uses::ring, &uses::naive})});
    ranks *= size;
    if (dice.chance(20))
      break;
  }
  bool hasZero = false;
  for (Axis &axis : mesh) {
    if (hasZero && axis.needs(Last))
      axis.use = &uses::data;
    hasZero |= axis.needs(Last);
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
    data *= axis.needs(Batch) ? axis.size : 1;
    shards *= axis.needs(Width) ? axis.size : 1;
    contextRanks *= axis.use == &uses::context ? axis.size : 1;
    tensor *= axis.needs(Heads) ? axis.size : 1;
    sequenceRanks *= axis.needs(Sequence) ? axis.size : 1;
    tensorAxes += axis.needs(Heads);
    ringRanks = axis.needs(Ring) ? axis.size : ringRanks;
  }
  sequenceRanks *= ringRanks ? 2 : 1; // two chunks a rank
  int64_t microbatches = dice.between(1, 3);
  batch = data * microbatches * (data * microbatches <= 4 ? dice.between(1, 2) : 1);
  sequence = sequenceRanks * dice.between(sequenceRanks > 1 ? 1 : 3, sequenceRanks > 1 ? 2 : 6);

  // The tensor ranks divide heads, ffn and vocabulary; the vocabulary is padded. If one axis has more ranks than there
  // are key/value heads, these are replicated.
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

  // Dims that ZeRO splits unevenly are padded, unless a grid also splits them.
  int64_t width = grid.empty() && dice.chance(40) ? 1 : shards;
  int64_t embed = width * 2 * dice.between(2, 5) + (width == 1 ? dice.between(0, 1) : 0);
  if (family == "gpt2") { // its width is the width of all heads together
    heads *= width;
    kvHeads = heads;
    while (heads * headDim < 6) // a norm of two elements loses almost all information
      headDim *= 2;
    embed = heads * headDim;
  }
  bool tied = dice.chance(50);
  // Other families of the same sizes, determined by the seed. Windows of attention need the sequence in its order.
  bool inOrder = !ringRanks;
  if (family == "gpt2" && seed % 4 == 3)
    family = "bert";
  if (family == "qwen3" && seed % 2 && inOrder && grid.empty())
    family = "gemma2";
  if (family == "llama" && seed % 4 == 1 && inOrder)
    family = "t5";
  if (family == "mistral" && seed % 4 == 0)
    family = "mixtral";
  if (family == "qwen3" && seed % 4 == 0)
    family = "qwen3_moe";
  int64_t experts = 1 + seed / 4 % 5;
  bool dispatched = false;
  if (family == "mixtral" || family == "qwen3_moe")
    if (const Axis *axis = drawExperts(axes, seed)) {
      experts *= shards * (axis->needs(Width) ? 1 : axis->size); // ZeRO may also split the router along experts
      dispatched = axis->use != &uses::tensor && seed / 8 % 2;
    }
  if (family != "bert" && family != "t5" && seed % 5 == 4 && inOrder)
    documents = 1;
  sparse = seed % 3 == 0 || family == "bert";
  const char *dropout = seed % 4 == 2 ? "0.25" : "0";
  llvm::raw_string_ostream os(config);
  if (family == "gpt2") {
    os << "{\"model_type\": \"gpt2\", \"vocab_size\": " << vocabulary << ", \"n_positions\": " << sequence
       << ", \"n_embd\": " << embed << ", \"n_layer\": " << layers << ", \"n_head\": " << heads
       << ", \"n_inner\": " << ffn << ", \"activation_function\": \""
       << dice.oneOf<const char *>({"gelu_new", "gelu", "relu"}) << "\", \"resid_pdrop\": " << dropout
       << ", \"embd_pdrop\": " << dropout << ", \"attn_pdrop\": " << dropout << "}";
  } else if (family == "bert") {
    os << "{\"model_type\": \"bert\", \"vocab_size\": " << vocabulary << ", \"max_position_embeddings\": " << sequence
       << ", \"hidden_size\": " << embed << ", \"num_hidden_layers\": " << layers
       << ", \"num_attention_heads\": " << heads << ", \"intermediate_size\": " << ffn << ", \"hidden_act\": \""
       << dice.oneOf<const char *>({"gelu_new", "gelu", "relu"}) << "\", \"hidden_dropout_prob\": " << dropout
       << ", \"attention_probs_dropout_prob\": " << dropout << "}";
  } else if (family == "t5") {
    os << "{\"model_type\": \"t5\", \"vocab_size\": " << vocabulary << ", \"d_model\": " << embed
       << ", \"d_kv\": " << headDim << ", \"d_ff\": " << ffn << ", \"num_layers\": " << layers
       << ", \"num_decoder_layers\": " << 1 + seed % 3 << ", \"num_heads\": " << heads << ", \"feed_forward_proj\": \""
       << dice.oneOf<const char *>({"relu", "gated-gelu"}) << "\", \"relative_attention_num_buckets\": " << 4 + seed % 3
       << ", \"relative_attention_max_distance\": 5, \"dropout_rate\": " << (seed % 8 == 5 ? "0.25" : "0")
       << ", \"tie_word_embeddings\": " << (tied ? "true" : "false") << ", \"decoder_start_token_id\": 0}";
  } else {
    os << "{\"model_type\": \"" << family << "\", \"vocab_size\": " << vocabulary << ", \"hidden_size\": " << embed
       << ", \"intermediate_size\": " << ffn << ", \"num_hidden_layers\": " << layers
       << ", \"num_attention_heads\": " << heads << ", \"num_key_value_heads\": " << kvHeads
       << ", \"attention_dropout\": " << dropout << ", \"head_dim\": " << headDim
       << ", \"tie_word_embeddings\": " << (tied ? "true" : "false");
    if (family == "mistral" && !(seed % 2 && inOrder))
      os << ", \"sliding_window\": null";
    else if (family == "mistral" || family == "gemma2")
      os << ", \"sliding_window\": " << sequence / 2 + 1;
    // The loss for an uneven load is computed per microbatch, so with several microbatches it differs from the loss of
    // the whole batch.
    if (family == "mixtral" || family == "qwen3_moe")
      os << ", \"num_experts\": " << experts << ", \"num_experts_per_tok\": " << 1 + seed / 20 % experts
         << ", \"output_router_logits\": " << (microbatches == 1 && seed % 8 == 0 ? "true" : "false");
    if ((family == "mixtral" || family == "qwen3_moe") && seed % 3 == 2)
      capacity = 1 + seed / 7 % sequence;
    if ((family == "mixtral" || family == "qwen3_moe") && seed % 5 < 2)
      options.expertsLimit = 1 + static_cast<int64_t>(seed / 11 % 24);
    if (family == "qwen3_moe")
      os << ", \"moe_intermediate_size\": " << 2 * ffn << ", \"norm_topk_prob\": " << (seed % 8 ? "true" : "false")
         << ", \"decoder_sparse_step\": " << (layers > 1 ? 1 + seed / 16 % 2 : 1);
    if (family == "llama" && dice.chance(40))
      os << ", \"attention_bias\": true, \"mlp_bias\": true";
    if (seed % 3 == 1) // an id, or its distance from the last id
      os << ", \"pad_token_id\": " << int64_t(seed % vocabulary) - (seed % 2 ? vocabulary : 0);
    os << "}";
  }

  std::string optimizer = dice.oneOf<const char *>({"adamw", "adamw", "adamw", "sgd", "sgd", "none"});
  options.train = optimizer != "none";
  if (options.train)
    options.step.optimizer = optimizer;
  cse = dice.chance(20);
  std::vector<std::string> tactics;
  if (dice.chance(25))
    tactics.push_back("pc-mixed-precision{compute=bf16" + std::string(dice.chance(25) ? " residual=f32" : "") +
                      (seed % 3 == 0 ? " tables=bf16" : "") +
                      (options.train && dice.chance(25) ? " gradients=bf16}" : "}"));
  if (options.train && dice.chance(25))
    tactics.push_back(std::string("pc-recompute{mode=") + dice.oneOf<const char *>({"full", "selective"}) + "}");
  if (dispatched)
    tactics.push_back("pc-dispatch-experts");
  if (ringRanks)
    tactics.push_back("pc-zigzag{ranks=" + std::to_string(ringRanks) + "}");
  dice.shuffle(axes);
  pc::Plan &plan = options.plan;
  plan.microbatches = microbatches;
  for (const Axis &axis : axes)
    plan.mesh.push_back({axis.name, axis.size});
  dice.shuffle(axes);
  for (bool isZero : {false, true})
    for (const Axis &axis : axes)
      if (axis.needs(Last) == isZero)
        for (std::string &tactic : axis.tactics(dice, grid))
          tactics.push_back(std::move(tactic));
  options.schedule.bucketBytes = dice.between(0, 20000);
  options.schedule.prefetch = dice.between(0, 2);
  if (dice.chance(30))
    keepSome(dice, family, tactics);
  std::string windows;
  if (dice.chance(30))
    for (const Axis &axis : axes)
      if (axis.size > 1 && axis.needs(Products) && dice.chance(70))
        windows += (windows.empty() ? "" : ",") + axis.name;
  if (!windows.empty())
    tactics.push_back("pc-window-moves{axes=" + windows + "}");
  plan.tactics.assign(tactics.begin(), tactics.end());
}

mlir::OwningOpRef<mlir::ModuleOp> Triple::model(mlir::MLIRContext *context) const {
  llvm::SmallString<128> directory, file;
  if (llvm::sys::fs::createUniqueDirectory("pc-random", directory))
    return {};
  file = directory;
  llvm::sys::path::append(file, "config.json");
  std::error_code error;
  llvm::raw_fd_ostream(file, error) << config;
  pcrt_status status = PCRT_OK;
  auto module = pc::importModel(context, directory, {batch, sequence, std::nullopt, documents, capacity}, status);
  llvm::sys::fs::remove_directories(directory);
  return module;
}

std::string Triple::text() const {
  auto tactics = llvm::map_range(options.plan.tactics, [](const pc::Tactic &tactic) { return tactic.text(); });
  return config + " batch " + std::to_string(batch) + " sequence " + std::to_string(sequence) +
         (documents ? " documents " + std::to_string(*documents) : "") +
         (capacity ? " capacity " + std::to_string(*capacity) : "") +
         (options.expertsLimit ? " experts-limit " + std::to_string(options.expertsLimit) : "") + " microbatches " +
         std::to_string(options.plan.microbatches) + " " + optimizer() + (cse ? " cse" : "") + " bucket-bytes " +
         std::to_string(options.schedule.bucketBytes) + " prefetch " + std::to_string(options.schedule.prefetch) +
         "; <" + options.plan.meshText() + "> " + llvm::join(tactics, ", ");
}
