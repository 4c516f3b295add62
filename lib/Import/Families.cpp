//===- Families.cpp - The table of families ----------------------------------------------===//
// One row per architecture of Hugging Face transformers. `LayerForm` says which tensors a layer has and how they are
// named; `Family` adds the names of config keys, their defaults and the keys to ignore or to refuse. Defaults are those
// of the configuration classes of transformers. A new architecture of known parts needs only a row and a form here.
//===-----------------------------------------------------------------------------===//
#include "Family.h"

using namespace pc;

namespace {

constexpr LayerForm llamaForm = {.gate = "mlp.gate_proj", .up = "mlp.up_proj", .down = "mlp.down_proj"};

constexpr LayerForm with(LayerForm form, decltype(LayerForm::qkNorm) qkNorm) {
  form.qkNorm = qkNorm;
  return form;
}

constexpr LayerForm mixtralForm = {.router = "block_sparse_moe.gate",
                                   .experts = "block_sparse_moe.experts",
                                   .expertGate = "w1",
                                   .expertUp = "w3",
                                   .expertDown = "w2"};

/// Some layers may have an MLP instead of experts.
constexpr LayerForm qwen3MoeForm() {
  LayerForm form = with(llamaForm, LayerForm::OfHeads);
  form.router = "mlp.gate";
  form.experts = "mlp.experts";
  return form;
}

/// Experts with clamped gates, whose gate and up weights alternate in one tensor, and attention with sinks.
constexpr LayerForm gptOssForm() {
  LayerForm form = llamaForm;
  form.sinks = "sinks";
  form.router = "mlp.router";
  form.experts = "mlp.experts";
  form.expertGateUp = "gate_up_proj";
  return form;
}

/// Latent attention, and experts that are chosen in groups, in addition to an MLP that all tokens share.
constexpr LayerForm deepseekV3Form() {
  LayerForm form = llamaForm;
  form.latent = true;
  form.router = "mlp.gate";
  form.experts = "mlp.experts";
  form.sharedExperts = "mlp.shared_experts";
  form.correction = "e_score_correction_bias";
  return form;
}

/// Llama with Q, K, V in one tensor and gate, up in another.
constexpr LayerForm phi3Form() {
  LayerForm form = llamaForm;
  form.projections = Projections::Rows;
  form.qkv = "qkv_proj";
  form.gateUp = "mlp.gate_up_proj";
  return form;
}

/// Norms are only after the blocks, before the residual sum, and Q and K are normalized over all heads together.
constexpr LayerForm olmo2Form() {
  LayerForm form = with(llamaForm, LayerForm::OfAll);
  form.beforeAttention = form.beforeMlp = "";
  form.afterAttention = "post_attention_layernorm";
  form.afterMlp = "post_feedforward_layernorm";
  return form;
}

constexpr LayerForm gemmaForm() {
  LayerForm form = llamaForm;
  form.norm = NormKind::RMSPlusOne;
  form.scaledTokens = true;
  return form;
}

/// Norms before both blocks and after them.
constexpr LayerForm gemma2Form() {
  LayerForm form = gemmaForm();
  form.afterAttention = "post_attention_layernorm";
  form.beforeMlp = "pre_feedforward_layernorm";
  form.afterMlp = "post_feedforward_layernorm";
  return form;
}

constexpr LayerForm neoxForm = {.prefix = "gpt_neox.",
                                .tokens = "embed_in",
                                .finalNorm = "final_layer_norm",
                                .head = "embed_out",
                                .norm = NormKind::Layer,
                                .attention = "attention",
                                .qkv = "query_key_value",
                                .out = "dense",
                                .up = "mlp.dense_h_to_4h",
                                .down = "mlp.dense_4h_to_h",
                                .projections = Projections::ByHead};

/// Bloom: other names, the bias of distances (ALiBi), and a norm of the embeddings.
constexpr LayerForm bloomForm() {
  LayerForm form = neoxForm;
  form.prefix = "transformer.";
  form.tokens = "word_embeddings";
  form.embedNorm = "word_embeddings_layernorm";
  form.layers = "h.";
  form.finalNorm = "ln_f";
  form.head = "lm_head";
  form.attention = "self_attention";
  form.alibi = true;
  return form;
}

constexpr LayerForm optForm = {.prefix = "model.decoder.",
                               .positions = "embed_positions",
                               .finalNorm = "final_layer_norm",
                               .norm = NormKind::Layer,
                               .beforeAttention = "self_attn_layer_norm",
                               .beforeMlp = "final_layer_norm",
                               .out = "out_proj",
                               .up = "fc1",
                               .down = "fc2"};

constexpr LayerForm bertForm = {.prefix = "bert.",
                                .tokens = "embeddings.word_embeddings",
                                .positions = "embeddings.position_embeddings",
                                .tokenTypes = "embeddings.token_type_embeddings",
                                .embedNorm = "embeddings.LayerNorm",
                                .layers = "encoder.layer.",
                                .head = "cls.predictions.decoder",
                                .headTransform = "cls.predictions.transform",
                                .headBias = "cls.predictions.bias",
                                .norm = NormKind::Layer,
                                .beforeAttention = "attention.output.LayerNorm",
                                .beforeMlp = "output.LayerNorm",
                                .attention = "attention",
                                .q = "self.query",
                                .k = "self.key",
                                .v = "self.value",
                                .out = "output.dense",
                                .up = "intermediate.dense",
                                .down = "output.dense",
                                .causal = false};

constexpr LayerForm gpt2Form = {.prefix = "transformer.",
                                .tokens = "wte",
                                .positions = "wpe",
                                .layers = "h.",
                                .finalNorm = "ln_f",
                                .norm = NormKind::Layer,
                                .beforeAttention = "ln_1",
                                .beforeMlp = "ln_2",
                                .attention = "attn",
                                .qkv = "c_attn",
                                .out = "c_proj",
                                .up = "mlp.c_fc",
                                .down = "mlp.c_proj",
                                .projections = Projections::Columns,
                                .inputsFirst = true,
                                .smallOutputs = true};

/// GPT-2 with separate linear layers, whose weights have the outputs first.
constexpr LayerForm gptNeoForm() {
  LayerForm form = gpt2Form;
  form.attention = "attn.attention";
  form.qkv = "";
  form.out = "out_proj";
  form.projections = Projections::Apart;
  form.inputsFirst = form.smallOutputs = false;
  return form;
}

/// The tensors of T5's encoder or decoder; only the decoder has cross-attention.
constexpr LayerForm t5Form(bool isEncoder, bool isGated) {
  LayerForm form = {.prefix = "",
                    .tokens = "shared",
                    .layers = isEncoder ? "encoder.block." : "decoder.block.",
                    .finalNorm = isEncoder ? "encoder.final_layer_norm" : "decoder.final_layer_norm",
                    .beforeAttention = "layer.0.layer_norm",
                    .beforeMlp = isEncoder ? "layer.1.layer_norm" : "layer.2.layer_norm",
                    .attention = "layer.0.SelfAttention",
                    .q = "q",
                    .k = "k",
                    .v = "v",
                    .out = "o",
                    .relativeBias = "relative_attention_bias",
                    .mlp = isEncoder ? "layer.1.DenseReluDense" : "layer.2.DenseReluDense",
                    .up = isEncoder ? "layer.1.DenseReluDense.wi" : "layer.2.DenseReluDense.wi",
                    .down = isEncoder ? "layer.1.DenseReluDense.wo" : "layer.2.DenseReluDense.wo",
                    .stdByWidth = true,
                    .causal = !isEncoder};
  if (isGated) {
    form.gate = isEncoder ? "layer.1.DenseReluDense.wi_0" : "layer.2.DenseReluDense.wi_0";
    form.up = isEncoder ? "layer.1.DenseReluDense.wi_1" : "layer.2.DenseReluDense.wi_1";
  }
  if (!isEncoder) {
    form.cross = "layer.1.EncDecAttention";
    form.beforeCross = "layer.1.layer_norm";
  }
  return form;
}

// Windows are supported only if all layers have them or none.
constexpr std::pair<const char *, bool> qwen3MoeOnly[] = {{"use_sliding_window", false}};
constexpr const char *qwen3MoeIgnored[] = {"sliding_window", "max_window_layers"};
constexpr const char *phi3Ignored[] = {"embd_pdrop", "attention_bias", "original_max_position_embeddings"};
constexpr const char *deepseekV3Ignored[] = {
    "ep_size",      "moe_layer_freq",           "aux_loss_alpha", "seq_aux",       "topk_method",
    "scoring_func", "num_nextn_predict_layers", "num_mtp_layers", "pretraining_tp"};
// Weights of a module that predicts the token after the next one.
constexpr const char *deepseekV3Others[] = {"model.layers.61."};
constexpr const char *gptOssIgnored[] = {"hidden_act", "initial_context_length", "experts_per_token"};
constexpr const char *classifier[] = {"classifier_dropout"};
constexpr const char *gemmaIgnored[] = {"hidden_activation"};
constexpr const char *gemma2Ignored[] = {"hidden_act", "cache_implementation", "sliding_window_size"};
constexpr const char *gemma3Unused[] = {"attn_logit_softcapping"};
constexpr const char *qwen2Ignored[] = {"use_mrope"};
constexpr const char *optIgnored[] = {"activation_dropout"};
constexpr const char *bloomIgnored[] = {"attention_softmax_in_fp32",
                                        "bias_dropout_fusion",
                                        "masked_softmax_fusion",
                                        "n_inner",
                                        "pretraining_tp",
                                        "seq_length",
                                        "skip_bias_add",
                                        "skip_bias_add_qkv",
                                        "unk_token_id",
                                        "offset_alibi"};
constexpr std::pair<const char *, bool> causalOnly[] = {{"use_bidirectional_attention", false}};
constexpr std::pair<const char *, bool> bloomOnly[] = {{"apply_residual_connection_post_layernorm", false},
                                                       {"slow_but_exact", false}};
constexpr std::pair<const char *, bool> optOnly[] = {{"layer_norm_elementwise_affine", true},
                                                     {"_remove_final_layer_norm", false}};

constexpr std::pair<const char *, bool> bertOnly[] = {{"is_decoder", false}, {"add_cross_attention", false}};
// The last five belong to the pooler of other BERT variants.
constexpr const char *bertIgnored[] = {
    "classifier_dropout",   "directionality",       "pooler_fc_size", "pooler_num_attention_heads",
    "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type"};
constexpr const char *bertOthers[] = {"bert.pooler.", "bert.embeddings.position_ids", "cls.seq_relationship."};
constexpr std::pair<const char *, const char *> bertCopies[] = {
    {"cls.predictions.decoder.bias", "cls.predictions.bias"}};

constexpr std::pair<const char *, const char *> t5Copies[] = {{"encoder.embed_tokens.weight", "shared.weight"},
                                                              {"decoder.embed_tokens.weight", "shared.weight"}};
constexpr const char *t5Others[] = {"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"};
constexpr LayerForm t5Encoders[] = {t5Form(true, false), t5Form(true, true)};
constexpr Family t5Of(bool isGated) {
  return {.type = "t5",
          .form = t5Form(false, isGated),
          .encoder = &t5Encoders[isGated],
          .ropes = NoRope,
          .otherTensors = t5Others,
          .copies = t5Copies};
}
constexpr Family t5s[] = {t5Of(false), t5Of(true)};

constexpr Family table[] = {
    {.type = "llama",
     .form = llamaForm,
     .kvHeads = 0,
     .headDim = 0,
     .attentionBias = "attention_bias",
     .mlpBias = "mlp_bias"},
    {.type = "mistral",
     .form = llamaForm,
     .positions = 131072,
     .kvHeads = 8,
     .headDim = 0,
     .windows = WindowKeys::Always},
    {.type = "qwen2",
     .form = llamaForm,
     .positions = 32768,
     .kvHeads = 32,
     .headDim = 0,
     .biasOfQKV = true,
     .windows = WindowKeys::Switched,
     .ignored = qwen2Ignored},
    {.type = "qwen3",
     .form = with(llamaForm, LayerForm::OfHeads),
     .positions = 32768,
     .kvHeads = 32,
     .headDim = 128,
     .attentionBias = "attention_bias",
     .windows = WindowKeys::Switched},
    {.type = "mixtral",
     .form = mixtralForm,
     .positions = 131072,
     .kvHeads = 8,
     .headDim = 0,
     .normEps = 1e-5,
     .experts = {.count = "num_local_experts", .otherCount = "num_experts"},
     .windows = WindowKeys::Always,
     .window = 0,
     .theta = 1e6,
     .onlyZero = "router_jitter_noise"},
    {.type = "qwen3_moe",
     .form = qwen3MoeForm(),
     .positions = 32768,
     .kvHeads = 4,
     .headDim = 0,
     .experts = {.count = "num_experts",
                 .otherCount = "num_local_experts",
                 .ffn = "moe_intermediate_size",
                 .normalize = "norm_topk_prob",
                 .every = "decoder_sparse_step",
                 .without = "mlp_only_layers",
                 .usual = 128,
                 .perToken = 8,
                 .usualFfn = 768},
     .attentionBias = "attention_bias",
     .onlyFlags = qwen3MoeOnly,
     .ignored = qwen3MoeIgnored},
    {.type = "gpt_oss",
     .keys = {.activation = ""},
     .form = gptOssForm(),
     .positions = 131072,
     .kvHeads = 8,
     .headDim = 64,
     .normEps = 1e-5,
     .experts = {.count = "num_local_experts",
                 .otherCount = "num_experts",
                 .slope = "swiglu_alpha",
                 .limit = "swiglu_limit",
                 .usual = 128,
                 .perToken = 4},
     .attentionBias = "attention_bias",
     .attentionBiasAbsent = true,
     .windows = WindowKeys::Alternating,
     .window = 128,
     .windowPattern = 2,
     .ropes = PlainRope | YarnRope,
     .theta = 150000,
     .ropeRequired = true,
     .ignored = gptOssIgnored},
    {.type = "deepseek_v3",
     .form = deepseekV3Form(),
     .positions = 4096,
     .kvHeads = 128,
     .experts = {.count = "n_routed_experts",
                 .otherCount = "num_local_experts",
                 .ffn = "moe_intermediate_size",
                 .normalize = "norm_topk_prob",
                 .first = "first_k_dense_replace",
                 .shared = "n_shared_experts",
                 .groups = "n_group",
                 .keptGroups = "topk_group",
                 .scale = "routed_scaling_factor",
                 .usual = 256,
                 .perToken = 8,
                 .usualFfn = 2048,
                 .normalizes = true,
                 .balances = false},
     .attentionBias = "attention_bias",
     .ropes = PlainRope | YarnRope,
     .ignored = deepseekV3Ignored,
     .otherTensors = deepseekV3Others},
    {.type = "phi3",
     .keys = {.residualDrop = "resid_pdrop", .rotaryPart = "partial_rotary_factor"},
     .form = phi3Form(),
     .positions = 4096,
     .kvHeads = 0,
     .headDim = 0,
     .normEps = 1e-5,
     .padding = 32000,
     .windows = WindowKeys::Always,
     .window = 0,
     .ropes = PlainRope,
     .ignored = phi3Ignored},
    {.type = "olmo2",
     .form = olmo2Form(),
     .kvHeads = 0,
     .headDim = 0,
     .normEps = 1e-5,
     .padding = 1,
     .attentionBias = "attention_bias"},
    {.type = "gpt_neox",
     .keys = {.normEps = "layer_norm_eps",
              .embedDrop = "hidden_dropout",
              .residualDrop = "hidden_dropout",
              .theta = "rotary_emb_base",
              .rotaryPart = "rotary_pct"},
     .form = neoxForm,
     .normEps = 1e-5,
     .activation = "gelu",
     .hasPadding = false,
     .biasOfMlp = true,
     .attentionBias = "attention_bias",
     .attentionBiasAbsent = true,
     .parallel = "use_parallel_residual",
     .ropes = PlainRope,
     .rotaryPart = 0.25,
     .ignored = classifier},
    {.type = "gemma",
     .form = gemmaForm(),
     .positions = 8192,
     .kvHeads = 16,
     .headDim = 256,
     .tied = true,
     .activation = "gelu_pytorch_tanh",
     .tanhGelu = true,
     .padding = 0,
     .attentionBias = "attention_bias",
     .onlyFlags = causalOnly,
     .ignored = gemmaIgnored},
    {.type = "gemma2",
     .keys = {.activation = "hidden_activation"},
     .form = gemma2Form(),
     .positions = 8192,
     .kvHeads = 4,
     .headDim = 256,
     .tied = true,
     .activation = "gelu_pytorch_tanh",
     .padding = 0,
     .attentionBias = "attention_bias",
     .scoreDim = "query_pre_attn_scalar",
     .scoreCap = 50,
     .logitCap = 30,
     .windows = WindowKeys::Alternating,
     .windowPattern = 2,
     .onlyFlags = causalOnly,
     .ignored = gemma2Ignored},
    {.type = "gemma3_text",
     .keys = {.activation = "hidden_activation"},
     .form = with(gemma2Form(), LayerForm::OfHeads),
     .positions = 131072,
     .kvHeads = 4,
     .headDim = 256,
     .tied = true,
     .activation = "gelu_pytorch_tanh",
     .padding = 0,
     .attentionBias = "attention_bias",
     .scoreDim = "query_pre_attn_scalar",
     .logitCap = 0,
     .windows = WindowKeys::Alternating,
     .windowPattern = 6,
     .patternKey = true,
     .ropes = PlainRope | LinearRope,
     .theta = 1e6,
     .ropeOfWindows = true,
     .onlyFlags = causalOnly,
     .ignored = gemma2Ignored,
     .unused = gemma3Unused},
    {.type = "opt",
     .keys = {.ffn = "ffn_dim",
              .normEps = "",
              .initStd = "init_std",
              .activation = "activation_function",
              .residualDrop = "dropout"},
     .form = optForm,
     .fixedEps = 1e-5,
     .tied = true,
     .activation = "relu",
     .residualDrop = 0.1,
     .padding = 1,
     .allBias = "enable_bias",
     .normFirst = "do_layer_norm_before",
     .ropes = NoRope,
     .firstPosition = 2,
     .sameAsEmbed = "word_embed_proj_dim",
     .onlyZero = "layerdrop",
     .onlyFlags = optOnly,
     .ignored = optIgnored},
    {.type = "gpt_neo",
     .keys = {.layers = "num_layers",
              .otherLayers = "num_hidden_layers",
              .heads = "num_heads",
              .otherHeads = "num_attention_heads",
              .normEps = "layer_norm_epsilon",
              .activation = "activation_function",
              .embedDrop = "embed_dropout",
              .residualDrop = "resid_dropout",
              .window = "window_size"},
     .form = gptNeoForm(),
     .ffnFactor = 4,
     .normEps = 1e-5,
     .tied = true,
     .activation = "gelu_new",
     .hasPadding = false,
     .biasOfOutput = true,
     .biasOfMlp = true,
     .unscaled = true,
     .windows = WindowKeys::Listed,
     .window = 256,
     .ropes = NoRope,
     .ignored = classifier},
    {.type = "bloom",
     .keys = {.otherEmbed = "n_embed",
              .layers = "n_layer",
              .otherLayers = "num_hidden_layers",
              .heads = "n_head",
              .otherHeads = "num_attention_heads",
              .ffn = "",
              .positions = "",
              .normEps = "layer_norm_epsilon",
              .activation = "",
              .residualDrop = "hidden_dropout"},
     .form = bloomForm(),
     .ffnFactor = 4,
     .normEps = 1e-5,
     .tied = true,
     .activation = "",
     .hasPadding = false,
     .biasOfQKV = true,
     .biasOfOutput = true,
     .biasOfMlp = true,
     .ropes = NoRope,
     .onlyFlags = bloomOnly,
     .ignored = bloomIgnored},
    {.type = "bert",
     .keys = {.normEps = "layer_norm_eps",
              .embedDrop = "hidden_dropout_prob",
              .attentionDrop = "attention_probs_dropout_prob",
              .residualDrop = "hidden_dropout_prob",
              .tokenTypes = "type_vocab_size"},
     .form = bertForm,
     .positions = 512,
     .normEps = 1e-12,
     .tied = true,
     .activation = "gelu",
     .embedDrop = 0.1,
     .attentionDrop = 0.1,
     .residualDrop = 0.1,
     .padding = 0,
     .biasOfQKV = true,
     .biasOfOutput = true,
     .biasOfMlp = true,
     .normsAfterSums = true,
     .ropes = NoRope,
     .onlyWord = {"position_embedding_type", "absolute"},
     .onlyFlags = bertOnly,
     .ignored = bertIgnored,
     .otherTensors = bertOthers,
     .copies = bertCopies},
};

} // namespace

const Family pc::gpt2Family = {.type = "gpt2", .keys = {.positions = "n_positions"}, .form = gpt2Form, .ropes = NoRope};

const Family &pc::t5Family(bool isGated) { return t5s[isGated]; }

llvm::ArrayRef<Family> pc::families() { return table; }
