//===- PCGeneration.td - Ops of programs that generate text ----------------------------------===//
// Caches of keys and values, attention to them, and the random numbers that choose tokens. pc-generate-steps writes
// these ops, and few parts of the compiler need to know them, so their classes are in a separate header
// (pc/IR/Generation.h).
//===-----------------------------------------------------------------------------------------===//
#ifndef PC_IR_PCGENERATION_TD
#define PC_IR_PCGENERATION_TD

include "pc/IR/PCBase.td"
include "pc/IR/FactorOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

class PC_Generating<string name, list<Trait> traits = []>
    : Op<PC_Dialect, name, traits # [Pure, DeclareOpInterfaceMethods<FactorOpInterface>]>;

/// An op on a cache, which may have its positions in parts: [r, b, n, k, t, d] instead of [b, n, k, t, d]. Ranks may split
/// the parts.
class PC_InParts<string cache> {
  string text =
    // Without parts, a dim that is whole.
    "::pc::IndexedDim getIndexedDim() { return {" # cache # "(), hasParts() ? 0 : -1}; }\n"
    "bool hasParts() { return ::mlir::cast<::mlir::RankedTensorType>(" # cache # "().getType()).getRank() == 6; }\n";
}

def PC_CacheWriteOp : PC_Generating<"cache_write", [IndexedOpInterface]> {
  let summary = "Writes the keys or the values of tokens into a cache: `b n k t d, b s k d, b s, b s -> b n k t d`";
  let description = [{
    The cache has n slots for sequences of up to t tokens. The result is the cache with row x[b, s, k, :] at [b, slots[b, s], k, positions[b, s], :]. A
    token whose slot or position is outside of the cache writes nothing. No two tokens may have the same slot and
    position. n, t and s are whole.

    A cache may have its positions in parts: `r b n k t d, b s k d, b s, b s -> r b n k t d`. Then part r has the positions from r t to r t + t - 1.
    `offset` is the first part of the block.

    The kernel writes into the cache, so operand and result must share a home (`pc-verify-memory`).

    Example: `%k = pc.cache_write %x into %cache at %slots, %positions : (tensor<1x3x2x16x8xf32>, tensor<1x4x2x8xf32>, tensor<1x4xi32>, tensor<1x4xi32>) -> tensor<1x3x2x16x8xf32>`
  }];
  let arguments = (ins AnyRankedTensor:$cache, AnyRankedTensor:$x, AnyRankedTensor:$slots, AnyRankedTensor:$positions,
                       Optional<AnyRankedTensor>:$offset);
  let results = (outs AnyRankedTensor:$result);
  let extraClassDeclaration = PC_InParts<"getCache">.text;
  let assemblyFormat = [{
    $x `into` $cache `at` $slots `,` $positions (`offset` $offset^)? attr-dict `:` functional-type(operands, $result)
  }];
}

def PC_CachedAttentionOp : PC_Generating<"cached_attention", [IndexedOpInterface, AttrSizedOperandSegments]> {
  let summary = "Attention of tokens to the cache of their slot, up to their own position";
  let description = [{
    q: [b, s, k, g, d], the caches of keys and values: [b, n, k, t, d] -> o: [b, s, k, g, d]. Token (b, s) sees the
    positions 0 to positions[b, s] of slot slots[b, s], so keys that are not yet written are never read. The result of a token whose slot is outside of
    the cache is 0.

    `scale`, `window`, `softcap`, `bias` and `sinks` have the meaning that they have for causal `pc.attention`. A bias
    has 2t - 1 entries per head; entry i - p + t - 1 is added to the score of a query at position p and key i.

    Factors `b s k g d, b n k t d, b n k t d, b s, b s -> b s k g d`, bias `k g w`, sinks `k g`. n, t, d and w are whole.

    If the caches have their positions in parts (`pc.cache_write`), the op returns for each part the attention to this
    part, and the logarithm of the sum of e^score: `b s k g d, r b n k t d, r b n k t d, b s, b s -> r b s k g d, b s k
    g r`. The attention is then the sum of the results, weighted by the softmax of these logarithms. A part in which a
    token sees no key has the result 0 and the logarithm -1e30. Sinks belong to part 0.

    Constraints: (C1) a window is at least 1; (C2) a cap is positive; (C3) a bias has 2t - 1 entries per head; with
    parts, 2rt - 1 entries, where r counts the parts of all ranks.

    Example: `%o = pc.cached_attention %q, %k, %v at %slots, %positions scale 0.5 : (tensor<1x4x2x1x8xf32>, tensor<1x3x2x16x8xf32>, tensor<1x3x2x16x8xf32>, tensor<1x4xi32>, tensor<1x4xi32>) -> tensor<1x4x2x1x8xf32>`
  }];
  let arguments = (ins AnyRankedTensor:$q, AnyRankedTensor:$keys, AnyRankedTensor:$values, AnyRankedTensor:$slots, AnyRankedTensor:$positions,
                       Optional<AnyRankedTensor>:$bias, Optional<AnyRankedTensor>:$sinks, Optional<AnyRankedTensor>:$offset, F64Attr:$scale,
                       OptionalAttr<I64Attr>:$window, OptionalAttr<F64Attr>:$softcap);
  let results = (outs AnyRankedTensor:$o, Optional<AnyRankedTensor>:$lse);
  let hasVerifier = 1;
  let extraClassDeclaration = PC_InParts<"getKeys">.text;
  let assemblyFormat = [{
    $q `,` $keys `,` $values `at` $slots `,` $positions (`bias` $bias^)? (`sinks` $sinks^)? (`offset` $offset^)? `scale` $scale (`window` $window^)?
    (`softcap` $softcap^)? attr-dict `:` functional-type(operands, results)
  }];
}

def PC_GumbelOp : PC_Generating<"gumbel", [IndexedOpInterface, AttrSizedOperandSegments]> {
  let summary = "Logits with Gumbel noise, whose largest entry is a sample of their softmax: `b m v, b m c, b m u -> b m v`";
  let description = [{
    `sampling` [b, m, 4] has the temperature T of each row first (`pc.sampling_threshold`), and `seeds` [b, m, 3] the two words of the
    request's seed, low word first, and the position of the token. Where T is 0, the result is the logits. Elsewhere it is
    logits / T + noise, and -infinity for logits less than `above` [b, m], if that is given. The noise of class v is
    -log(-log(u)), where u = (w + 0.5) / 2^23, and w is the upper 23 bits of word v mod 4 of Philox4x32-10 with the seed as key and the counter
    (v / 4, position, 0, 2^30). So the class with the largest result depends only on the row, its seed and its position, and each plan and
    each batch chooses the same tokens.

    c and u are whole. v may be split: `offset` is the first class of the block.

    Example: `%y = pc.gumbel %logits, %sampling, %seeds : (tensor<1x3x64xf32>, tensor<1x3x4xf32>, tensor<1x3x3xi32>) -> tensor<1x3x64xf32>`
  }];
  let arguments = (ins AnyRankedTensor:$logits, AnyRankedTensor:$sampling, AnyRankedTensor:$seeds,
                       Optional<AnyRankedTensor>:$above, Optional<AnyRankedTensor>:$offset);
  let results = (outs AnyRankedTensor:$result);
  let extraClassDeclaration = PC_IndexedDim<"getLogits", -1>.text;
  let assemblyFormat = [{
    $logits `,` $sampling `,` $seeds (`above` $above^)? (`offset` $offset^)? attr-dict `:` functional-type(operands, $result)
  }];
}

def PC_SamplingThresholdOp : PC_Generating<"sampling_threshold"> {
  let summary = "The smallest logit with which a token may be chosen, after top-k, top-p and min-p: `b m v, b m c -> b m`";
  let description = [{
    `sampling` [b, m, 4] has for each row the temperature T, k, p and the minimum share. The result is the smallest
    logit that remains after three steps. First, the k largest logits remain (0: all). Of these, a class remains if the
    probabilities softmax(logits / T) of the classes with larger logits add up to less than p (1: all). Of these, a
    class remains if its probability is at least the minimum share times the largest probability (0: all). If logits are
    equal, all of them remain or none. The result is -infinity if all remain, and at temperature 0.

    v and c are whole.

    Example: `%l = pc.sampling_threshold %logits, %sampling : (tensor<1x3x64xf32>, tensor<1x3x4xf32>) -> tensor<1x3xf32>`
  }];
  let arguments = (ins AnyRankedTensor:$logits, AnyRankedTensor:$sampling);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$logits `,` $sampling attr-dict `:` functional-type(operands, $result)";
}

#endif
