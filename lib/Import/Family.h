//===- Family.h - The differences between families of models --------------------===//
// A family is a row of a table (Families.cpp): the names of its keys and tensors, the meaning of absent keys, and the
// parts of its layers. The reader of config.json and the model builder use only rows, and never ask for the family's
// name.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_IMPORT_FAMILY_H
#define PC_LIB_IMPORT_FAMILY_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <optional>

namespace pc {

/// The norms of a family.
enum class NormKind {
  Layer,     ///< layer norm, with a bias
  RMS,       ///< RMS norm
  RMSPlusOne ///< RMS norm by 1 + the weight
};

/// How the weights of queries, keys and values are stored in the file.
enum class Projections {
  Apart,   ///< three tensors
  Columns, ///< thirds of the columns of one, [embed, 3 embed]
  Rows,    ///< rows of one tensor, those of queries first
  ByHead   ///< rows of one tensor, head by head: its query, its key, its value
};

/// A layer and the parts around the layers. Names are from the file, without the prefix and the layer's number. If a
/// name is empty, the model does not have the part.
struct LayerForm {
  llvm::StringRef prefix = "model.", tokens = "embed_tokens", positions = "", tokenTypes = "", embedNorm = "",
                  layers = "layers.", finalNorm = "norm", head = "lm_head";
  /// Without the prefix: a linear layer `.dense`, an activation and a norm `.LayerNorm` before the head, and the head's
  /// bias by its full name.
  llvm::StringRef headTransform = "", headBias = "";
  NormKind norm = NormKind::RMS;
  /// Norms before attention and before the MLP, and after them, before the residual sum.
  llvm::StringRef beforeAttention = "input_layernorm", afterAttention = "", beforeMlp = "post_attention_layernorm",
                  afterMlp = "";
  llvm::StringRef attention = "self_attn", q = "q_proj", k = "k_proj", v = "v_proj", qkv = "", out = "o_proj";
  /// Attention to the result of an encoder, and the norm before it.
  llvm::StringRef cross = "", beforeCross = "";
  llvm::StringRef sinks = "";        ///< an extra score of attention per head, for a key whose value is 0
  llvm::StringRef relativeBias = ""; ///< a tensor of the first layer: addends of scores by distance, for all layers
  llvm::StringRef mlp = "mlp", gate = "", up = "", down = "", gateUp = "";
  /// Names in a mixture of experts: the router, the prefix of an expert's number, and the weights of an expert.
  /// A layer without experts has the MLP.
  llvm::StringRef router = "", experts = "", expertGate = "gate_proj", expertUp = "up_proj", expertDown = "down_proj";
  /// Gate and up of experts whose weights are stacked in the file, inputs first, and have biases; columns of gate and
  /// up alternate. The router also has a bias, and gate and up are clamped before their product.
  llvm::StringRef expertGateUp = "";
  /// `sharedExperts` names an MLP that works on every token, in addition to the experts. `correction` names an
  /// untrained tensor that is added to the experts' sigmoid scores for the choice.
  llvm::StringRef sharedExperts = "", correction = "";
  bool latent = false; ///< queries, and keys and values, are computed from few numbers per token (MLA)
  Projections projections = Projections::Apart;
  enum { NoNorm, OfHeads, OfAll } qkNorm = NoNorm; ///< RMS norms q_norm and k_norm, per head or over all heads
  bool inputsFirst = false;                        ///< weights are [inputs, outputs]
  /// Weights start with a deviation of 1 / sqrt(inputs). Those of queries are smaller by the root of a head's width,
  /// because scores are not divided by it. Norms start like embeddings.
  bool stdByWidth = false;
  bool smallOutputs = false; ///< weights before residual sums start smaller by the root of twice the layers
  /// Whether tokens see only earlier tokens and predict the next one. Otherwise they see all, and predict masked
  /// tokens.
  bool causal = true;
  bool alibi = false;        ///< scores decrease with the distance of a key, with a slope per head
  bool scaledTokens = false; ///< embeddings of tokens are multiplied by the root of their width
};

/// The keys of config.json whose names differ between families. An empty name means that there is no such key.
struct FamilyKeys {
  llvm::StringRef embed = "hidden_size", otherEmbed = "", layers = "num_hidden_layers", otherLayers = "",
                  heads = "num_attention_heads", otherHeads = "", ffn = "intermediate_size",
                  positions = "max_position_embeddings", normEps = "rms_norm_eps", initStd = "initializer_range",
                  activation = "hidden_act", embedDrop = "", attentionDrop = "attention_dropout", residualDrop = "",
                  window = "sliding_window", theta = "rope_theta", rotaryPart = "", tokenTypes = "";
};

/// The keys of a mixture of experts, and their defaults.
struct ExpertKeys {
  llvm::StringRef count = "", otherCount = "";
  llvm::StringRef ffn = "";       ///< the width of an expert; "": the width of an MLP
  llvm::StringRef normalize = ""; ///< whether weights of the chosen experts add up to 1; "": they always do
  llvm::StringRef every = "";     ///< the key for N if only every N-th layer has experts; "": all layers have experts
  llvm::StringRef without = "";   ///< the list of layers without experts
  /// `first` is the number of layers without experts at the beginning. `shared` is the width of the shared MLP, in
  /// units of an expert's width.
  llvm::StringRef first = "", shared = "";
  /// The number of groups of experts, the number of groups from which a token chooses, and the factor of weights.
  llvm::StringRef groups = "", keptGroups = "", scale = "";
  /// Keys of clamped experts: `slope` is the factor of a gate in its sigmoid, and `limit` the clamp.
  llvm::StringRef slope = "", limit = "";
  int64_t usual = 8, perToken = 2, usualFfn = 0;
  bool normalizes = false; ///< `normalize`
  bool balances = true;    ///< the family supports the loss of an uneven load
};

/// How a family states which layers have a sliding window.
enum class WindowKeys {
  None,
  Always,      ///< all layers
  Switched,    ///< `use_sliding_window`, `max_window_layers`, or `layer_types`
  Alternating, ///< all except every `windowPattern`th, or `layer_types`
  Listed       ///< `attention_types`, a list of lists and how often each is repeated
};

/// The types of rotary embeddings in transformers that this compiler supports, as bits.
enum RopeTypes { NoRope = 0, PlainRope = 1, LinearRope = 2, Llama3Rope = 4, YarnRope = 8, AnyRope = 15 };

/// Defaults of the fields fit most decoders; a row of the table states only what differs. All texts are literals.
struct Family {
  llvm::StringRef type;
  FamilyKeys keys = {};
  LayerForm form = {};
  const LayerForm *encoder = nullptr; ///< the encoder, to whose result all layers attend

  // The defaults of keys.
  int64_t positions = 2048;
  std::optional<int64_t> kvHeads = std::nullopt; ///< num_key_value_heads; 0: the number of heads; unset: no such key
  std::optional<int64_t> headDim = std::nullopt; ///< head_dim; 0: hidden_size / heads; unset: no such key
  int64_t ffnFactor = 0;                         ///< the width of an MLP, in embeddings; 0: its key is required
  double normEps = 1e-6;
  double fixedEps = 0; ///< used if there is no key
  bool tied = false;
  llvm::StringRef activation = "silu"; ///< "" if there is no key: gelu_tanh
  bool tanhGelu = false;               ///< "gelu" means its approximation
  double embedDrop = 0, attentionDrop = 0, residualDrop = 0;
  bool hasPadding = true;                        ///< the embedding has a padding row
  std::optional<int64_t> padding = std::nullopt; ///< pad_token_id

  // Keys of single families.
  ExpertKeys experts = {};
  bool biasOfQKV = false;                       ///< queries, keys and values have biases, always
  bool biasOfOutput = false, biasOfMlp = false; ///< and biases after them, always
  llvm::StringRef attentionBias = "";           ///< the bias of all projections of attention
  bool attentionBiasAbsent = false;
  llvm::StringRef allBias = "";   ///< the bias of all matrices
  llvm::StringRef mlpBias = "";   ///< the bias of the MLP, and pretraining_tp with it
  llvm::StringRef parallel = "";  ///< attention and MLP read the same input; true if absent
  llvm::StringRef normFirst = ""; ///< norms are before blocks, or after residual sums
  bool normsAfterSums = false;    ///< norms are after residual sums, always
  llvm::StringRef scoreDim = "";  ///< scores are divided by its root, instead of the root of head_dim
  bool unscaled = false;          ///< scores are not divided
  /// attn_logit_softcapping and final_logit_softcapping; 0: none; no such key: none.
  std::optional<double> scoreCap = std::nullopt, logitCap = std::nullopt;
  WindowKeys windows = WindowKeys::None;
  int64_t window = 4096; ///< the default; 0: none
  int64_t windowPattern = 0;
  bool patternKey = false; ///< sliding_window_pattern
  unsigned ropes = AnyRope;
  double theta = 10000, rotaryPart = 1;
  bool ropeRequired = false;  ///< the default of transformers fits no published config
  bool ropeOfWindows = false; ///< layers with windows have separate rotary embeddings
  int64_t firstPosition = 0;  ///< the row of the position table for position 0
  /// `sameAsEmbed` is a key that must be absent or equal the width of the embedding. `onlyZero` is a key that must be
  /// 0.
  llvm::StringRef sameAsEmbed = "", onlyZero = "";
  /// A key that must be absent or have the given word as its value.
  std::pair<llvm::StringRef, llvm::StringRef> onlyWord = {};
  /// Flags that must have their default value.
  llvm::ArrayRef<std::pair<const char *, bool>> onlyFlags = {};
  /// Keys that transformers does not read.
  llvm::ArrayRef<const char *> ignored = {};
  /// Keys that the configuration class has but the model does not use, unlike other families. They are ignored, with a
  /// warning if they are set.
  llvm::ArrayRef<const char *> unused = {};
  /// Prefixes of checkpoint tensors that training does not need, such as those of other heads.
  llvm::ArrayRef<const char *> otherTensors = {};
  /// Tensors of checkpoints that are copies of other tensors, with their originals.
  llvm::ArrayRef<std::pair<const char *, const char *>> copies = {};
};

/// All families except GPT-2 and T5, whose keys have separate readers.
llvm::ArrayRef<Family> families();
extern const Family gpt2Family;
/// The family of T5, with or without a gated MLP.
const Family &t5Family(bool isGated);

} // namespace pc

#endif
