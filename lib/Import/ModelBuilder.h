//===- ModelBuilder.h - Builds the model program of a configuration -------------------===//
// One builder, driven by the form of a family's layers (Family.h). Parameters keep Hugging Face's layout, with
// `kv_heads`, `group` and `head_dim` as separate dims. Einsums name the dims of their operands in that order, so
// nothing is transposed. Model.cpp has leaves and the parts around layers, ModelAttention.cpp has attention, and
// ModelLayers.cpp has the rest of a layer.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_IMPORT_MODELBUILDER_H
#define PC_LIB_IMPORT_MODELBUILDER_H

#include "Model.h"
#include "Routing.h"

#include "mlir/IR/Builders.h"
#include "pcrt/description.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/Twine.h"
#include <cmath>

namespace pc {

/// Writes one model at the builder's insertion point. Its state is the stack and layer that are being built (`form`,
/// `prefix`, `layer`), the location of new ops (`at`, `in`), and the sizes of dims by name. The sizes of "sequence" and
/// "ffn" change while the model is built.
class ModelBuilder {
public:
  ModelBuilder(mlir::OpBuilder &builder, const ModelConfig &config, const ImportOptions &options);

  /// Writes leaves, layers, head and loss.
  void build();

private:
  using Dims = llvm::ArrayRef<llvm::StringRef>;

  /// Builds an encoder, a decoder, or the only stack of layers: from tokens to the result of the last norm.
  mlir::Value stack(mlir::Value table, mlir::Value tokens, int64_t layers);

  //===-- leaves -------------------------------------------------------------------===//

  /// Sizes of dims by their names.
  llvm::SmallVector<int64_t> sizes(Dims dims) {
    llvm::SmallVector<int64_t> result;
    for (llvm::StringRef dim : dims)
      result.push_back(names.lookup(dim));
    return result;
  }
  mlir::RankedTensorType type(Dims dims) { return mlir::RankedTensorType::get(sizes(dims), f32); }

  /// One number per token; for documents, computed from the token that ends them.
  mlir::Value input(InputKind kind, mlir::Type element);
  /// The random input of the next dropout of the model.
  mlir::Value random() {
    return InputOp::create(builder, loc, mlir::RankedTensorType::get({PCRT_RANDOM_COUNT}, builder.getI32Type()),
                           InputKind::Random, builder.getStrArrayAttr({"random"}), nullptr, nullptr,
                           builder.getI64IntegerAttr(numDropouts++), nullptr, nullptr, nullptr);
  }

  /// A parameter that is a part of the Hugging Face tensor `name` of shape `shape`, viewed in the shape `view` if there
  /// is one: `size` elements from `start` on.
  mlir::Value box(llvm::StringRef name, llvm::StringRef suffix, Dims dims, double std, double fill,
                  llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> start, llvm::ArrayRef<int64_t> size,
                  llvm::ArrayRef<int64_t> view = {});

  /// A parameter that is a whole tensor. `merged` has the number of `dims` in each dim of the Hugging Face tensor; if
  /// it is empty, the number is 1.
  mlir::Value parameter(llvm::StringRef name, Dims dims, double std, llvm::ArrayRef<int64_t> merged = {},
                        double fill = 0);

  /// The weights `name` of this layer's experts, each a tensor of the file, concatenated along the dim "experts".
  mlir::Value expertsParameter(llvm::StringRef name, Dims dims);

  /// The token embedding, which may also be the head. The padding row is initialized with zeros.
  mlir::Value tokenTable(llvm::StringRef name);

  mlir::Value ropeTable(TableKind kind, const Rotation &rope);

  //===-- pieces -------------------------------------------------------------------===//

  /// Sets the name of the following ops, in the model or in this layer.
  void at(const llvm::Twine &name) { loc = mlir::NameLoc::get(builder.getStringAttr(name)); }
  std::string layerName(const llvm::Twine &name) { return (form->layers + llvm::Twine(layer) + "." + name).str(); }
  void in(const llvm::Twine &name) { at(layerName(name)); }

  /// Single ops, at the current location.
  mlir::Value einsum(llvm::StringRef spec, mlir::ValueRange inputs, Dims dims) {
    return EinsumOp::create(builder, loc, type(dims), spec, inputs);
  }
  mlir::Value like(mlir::Value x, llvm::StringRef spec, mlir::ValueRange inputs) {
    return EinsumOp::create(builder, loc, x.getType(), spec, inputs);
  }
  mlir::Value dropout(mlir::Value x, int64_t parts) {
    return parts ? DropoutOp::create(builder, loc, x.getType(), x, random(), mlir::ValueRange(), drop(parts)) : x;
  }
  DropAttr drop(int64_t parts) { return parts ? DropAttr::get(builder.getContext(), parts) : DropAttr(); }
  mlir::Value add(mlir::Value a, mlir::Value b) { return AddOp::create(builder, loc, a.getType(), a, b); }
  mlir::Value scaled(mlir::Value x, double factor) {
    return ScaleOp::create(builder, loc, x.getType(), x, builder.getF64FloatAttr(factor));
  }
  mlir::Value constant(double number) {
    return ConstantOp::create(builder, loc, mlir::RankedTensorType::get({}, f32), builder.getF64FloatAttr(number));
  }

  /// Adds a bias over the trailing dims of x: `spec` broadcasts it.
  mlir::Value bias(mlir::Value x, mlir::Value b, llvm::StringRef spec) { return add(x, like(x, spec, {b})); }

  mlir::Value norm(mlir::Value x, llvm::StringRef name, llvm::StringRef dim);
  /// The norm `name` of a layer; x itself if there is none.
  mlir::Value layerNorm(mlir::Value x, llvm::StringRef name);

  /// The RMS norm of all heads of a token together, `dims` after batch and sequence.
  mlir::Value normOfAll(mlir::Value x, llvm::StringRef name, Dims dims, llvm::StringRef letters);

  mlir::Value positionEmbedding();

  /// All tokens are of type 0.
  mlir::Value typeEmbedding();

  /// The ops between the layers and the head.
  mlir::Value headTransform(mlir::Value x);

  /// The loss of each target, [batch, sequence]: cross-entropy, with label smoothing and z-loss if the options say so.
  mlir::Value lossOf(mlir::Value logits, mlir::Value targets);

  /// 0, 1, 2, ... from `first` on, as numbers.
  mlir::Value count(int64_t size, int64_t first);

  /// Attention with linear biases: slope * (t - s), [kv_heads, group, 2 sequence - 1]. If the number n of heads is a
  /// power of two, head i has the slope 2^(-8 (i + 1) / n). For another number, heads from the largest power of two on
  /// take slopes between these, which are slopes of twice as many heads (O. Press et al., "Train short, test long",
  /// 2021).
  mlir::Value alibi();

  /// One number per head and distance, chosen by the bucket of the distance, [kv_heads, group, 2 sequence - 1]. All
  /// layers of a stack use those of its first layer.
  mlir::Value relativeBias();

  /// The addends of scores by distance, or null.
  mlir::Value addendsOfScores();

  /// `addends` may be null. Queries see all keys of an encoder.
  mlir::Value attention(mlir::Value q, mlir::Value k, mlir::Value v, mlir::Value addends, mlir::Value sinks,
                        bool causal);

  mlir::Value activate(mlir::Value x) { return ActivationOp::create(builder, loc, x.getType(), config.activation, x); }

  static constexpr llvm::StringRef Q[] = {"batch", "sequence", "kv_heads", "group", "head_dim"};
  static constexpr llvm::StringRef KV[] = {"batch", "sequence", "kv_heads", "head_dim"};
  static constexpr llvm::StringRef Source[] = {"batch", "source_sequence", "kv_heads", "head_dim"};
  static constexpr llvm::StringRef X[] = {"batch", "sequence", "embed"};
  static constexpr llvm::StringRef F[] = {"batch", "sequence", "ffn"};

  //===-- a layer ------------------------------------------------------------------===//

  enum Part { Query, Key, Values };

  /// The standard deviation of the initial values of a weight with `inputs` inputs.
  double deviation(int64_t inputs) const {
    return form->stdByWidth ? config.initStd / std::sqrt(double(inputs)) : config.initStd;
  }

  /// The weight and the bias (null if there is none) of queries, keys or values of attention `block`. Sets the
  /// location.
  std::pair<mlir::Value, mlir::Value> projection(llvm::StringRef block, Part part, Dims heads);

  /// `kv` are the dims of keys and values.
  mlir::Value project(llvm::StringRef block, mlir::Value y, Part part, Dims kv);

  mlir::Value headNorm(mlir::Value x, llvm::StringRef part, Dims heads, llvm::StringRef letters);

  /// The standard deviation of the initial values of weights whose products are added to the residual stream.
  double outputStd(int64_t inputs) const {
    return form->smallOutputs ? config.initStd / std::sqrt(2.0 * config.layers) : deviation(inputs);
  }

  /// Attention `block` of y to `source`, which is y itself or the result of the encoder.
  mlir::Value attentionBlock(llvm::StringRef block, mlir::Value y, mlir::Value source);

  /// Attention of y to itself, with queries, and keys and values, that are computed from few numbers per token (MLA).
  mlir::Value latentAttention(mlir::Value y);
  /// The RMS norm `name` of these latent values.
  mlir::Value latentNorm(mlir::Value x, const llvm::Twine &name, llvm::StringRef dim);
  mlir::Value rotated(mlir::Value x, int64_t first);
  mlir::Value columns(mlir::Value x, int64_t from, Dims dims);

  /// The linear layer `name` between "embed" and "ffn"; `part`: 0 and 1 are the halves of the rows of `gateUp`.
  mlir::Value linear(mlir::Value x, llvm::StringRef name, bool down, int64_t part);

  mlir::Value mlpBlock(mlir::Value y);
  /// The MLP in addition to experts.
  mlir::Value sharedExperts(mlir::Value y);

  /// The block of experts: each token is processed by the experts that it has chosen.
  mlir::Value expertsBlock(mlir::Value y);

  /// Builds the block of experts with clamped gates and biases.
  mlir::Value clampedExperts(mlir::Value y, const Routing &routing);
  /// The einsum of `inputs` for the experts that tokens have chosen.
  mlir::Value routedBy(const Routing &routing, Dims dims, llvm::StringRef spec, mlir::ValueRange inputs);

  mlir::Value layerOf(mlir::Value x);

  mlir::OpBuilder &builder;
  const ModelConfig &config;
  const LayerForm *form; ///< the form of the stack that is being built
  std::string prefix;
  int64_t batch, sequence, targetLength, layer = 0, numDropouts = 0;
  std::optional<int64_t> documents; ///< the token that ends them
  double labelSmoothing, zLoss;     ///< settings of the loss
  int64_t numParameters = 0;        ///< the number so far; parameters of experts count separately
  LoadBalance balance;              ///< the loss of an uneven load of experts, if there is one
  mlir::Value starts;               ///< the starts of documents
  mlir::Value encoded;              ///< the result of the encoder
  mlir::Value relative;             ///< addends of scores by distance, for all layers
  mlir::Type f32;
  llvm::StringMap<int64_t> names;
  mlir::Location loc = mlir::NameLoc::get(builder.getStringAttr("model"));
  llvm::SmallVector<std::pair<mlir::Value, mlir::Value>, 2> ropes; ///< cos and sin
};

} // namespace pc

#endif
