// RUN: pc-opt %s -split-input-file -verify-diagnostics

// Each case breaks one constraint that a verifier of the dialect cites.

// expected-error@+1 {{mesh axis 'dp' is named twice (C1)}}
pc.mesh <dp = 2, dp = 4>

// -----

// expected-error@+1 {{mesh axis 'tp' has size 0 (C2)}}
pc.mesh <dp = 2, tp = 0>

// -----

// expected-error@+1 {{has -64 bytes, but must have a multiple of 64, at least 0 (C1)}}
pc.arena -64

// -----

// expected-error@+1 {{the placement has 1 dims, but the tensor has 2 (C1)}}
func.func private @rank(tensor<8x8xf32, #pc.place<[dp]>>)

// -----

// expected-error@+1 {{axis 'dp' occurs twice in a placement (C2)}}
func.func private @twice(tensor<8x8xf32, #pc.place<[dp, dp]>>)

// -----

// expected-error@+1 {{axis 'dp' occurs twice in a placement (C2)}}
func.func private @splitAndPartial(tensor<8x8xf32, #pc.place<[dp, _] sum(dp)>>)

// -----

// expected-error@+1 {{partial axes need a kind and alphabetical order (C3)}}
func.func private @order(tensor<8x8xf32, #pc.place<[_, _] sum(tp, dp)>>)

// -----

func.func @factors(%x: tensor<8x4xf32>, %w: tensor<5x6xf32>) {
  // expected-error@+1 {{needs one size for factor 'k', but dim 1 of operand 0 is 4 and dim 0 of operand 1 is 5 (F2)}}
  %y = pc.einsum "m k, k n -> m n" %x, %w : (tensor<8x4xf32>, tensor<5x6xf32>) -> tensor<8x6xf32>
  return
}

// -----

func.func @spec(%x: tensor<8x4xf32>) {
  // expected-error@+1 {{the spec does not match 1 operands and 1 results (F1)}}
  %y = pc.einsum "m k, k n" %x : (tensor<8x4xf32>) -> tensor<8x6xf32>
  return
}

// -----

func.func @rankOfSpec(%x: tensor<8x4xf32>) {
  // expected-error@+1 {{expects rank 3, got 'tensor<8x4xf32>' (F1)}}
  %y = pc.einsum "m k j -> m" %x : (tensor<8x4xf32>) -> tensor<8xf32>
  return
}

// -----

func.func @mixed(%x: tensor<8xf32, #pc.place<[_]>>) {
  // expected-error@+1 {{mixes placed and unplaced tensors (F3)}}
  %y = pc.exp %x : (tensor<8xf32, #pc.place<[_]>>) -> tensor<8xf32>
  return
}

// -----

pc.mesh <a = 2, b = 2>
func.func @axisOrder(%x: tensor<8xf32, #pc.place<[(a, b)]>>, %y: tensor<8xf32, #pc.place<[(b, a)]>>) {
  // expected-error@+1 {{factor 'x0' has two different splits, ["a", "b"] and ["b", "a"] (F4)}}
  %z = pc.add %x, %y : (tensor<8xf32, #pc.place<[(a, b)]>>, tensor<8xf32, #pc.place<[(b, a)]>>) -> tensor<8xf32, #pc.place<[(a, b)]>>
  return
}

// -----

// The reduction is missing: a contracted dim is split, but the type of the result is whole.
pc.mesh <tp = 2>
func.func @missingReduction(%x: tensor<8x4xf32, #pc.place<[_, tp]>>, %w: tensor<4x6xf32, #pc.place<[tp, _]>>) {
  // expected-error@+1 {{has no legal placement on axis 'tp': operands split on dim 1, split on dim 0; results whole (F5)}}
  %y = pc.einsum "m k, k n -> m n" %x, %w : (tensor<8x4xf32, #pc.place<[_, tp]>>, tensor<4x6xf32, #pc.place<[tp, _]>>) -> tensor<8x6xf32, #pc.place<[_, _]>>
  return
}

// -----

// Two partial operands of a product are not a partial product.
pc.mesh <tp = 2>
func.func @partialTimesPartial(%x: tensor<8xf32, #pc.place<[_] sum(tp)>>) {
  // expected-error@+1 {{has no legal placement on axis 'tp'}}
  %y = pc.einsum "i, i -> i" %x, %x : (tensor<8xf32, #pc.place<[_] sum(tp)>>, tensor<8xf32, #pc.place<[_] sum(tp)>>) -> tensor<8xf32, #pc.place<[_] sum(tp)>>
  return
}

// -----

// A nonlinear op reads addends.
pc.mesh <tp = 2>
func.func @nonlinear(%x: tensor<8xf32, #pc.place<[_] sum(tp)>>) {
  // expected-error@+1 {{has no legal placement on axis 'tp': operands partial sum; results partial sum (F5)}}
  %y = pc.activation silu %x : (tensor<8xf32, #pc.place<[_] sum(tp)>>) -> tensor<8xf32, #pc.place<[_] sum(tp)>>
  return
}

// -----

// The normed dim must stay whole.
pc.mesh <tp = 2>
func.func @wholeFactor(%x: tensor<8x4xf32, #pc.place<[_, tp]>>, %g: tensor<4xf32, #pc.place<[tp]>>) {
  // expected-error@+1 {{has no legal placement on axis 'tp'}}
  %y, %r = pc.rms_norm %x, %g eps 1.0e-05 : (tensor<8x4xf32, #pc.place<[_, tp]>>, tensor<4xf32, #pc.place<[tp]>>) -> (tensor<8x4xf32, #pc.place<[_, tp]>>, tensor<8xf32, #pc.place<[_]>>)
  return
}

// -----

pc.mesh <tp = 4>
func.func @divides(%x: tensor<6xf32, #pc.place<[tp]>>) {
  // expected-error@+1 {{has size 6, not divisible by 4 (F6)}}
  %y = pc.exp %x : (tensor<6xf32, #pc.place<[tp]>>) -> tensor<6xf32, #pc.place<[tp]>>
  return
}

// -----

pc.mesh <tp = 2>
func.func @unknownAxis(%x: tensor<6xf32, #pc.place<[dp]>>) {
  // expected-error@+1 {{axis 'dp' is not in the mesh (F6)}}
  %y = pc.exp %x : (tensor<6xf32, #pc.place<[dp]>>) -> tensor<6xf32, #pc.place<[dp]>>
  return
}

// -----

pc.mesh <tp = 2>
func.func @noAxis(%x: tensor<6xf32, #pc.place<[_] sum(tp)>>) {
  // expected-error@+1 {{needs at least one axis (M1)}}
  %y = pc.all_reduce sum %x on [] : (tensor<6xf32, #pc.place<[_] sum(tp)>>) -> tensor<6xf32, #pc.place<[_]>>
  return
}

// -----

pc.mesh <tp = 2>
func.func @localShape(%x: tensor<6xf32>) {
  // expected-error@+1 {{over 2 ranks cannot be 'tensor<18xf32>' (M2)}}
  %y = pc.all_gather %x dim 0 on ["tp"] : (tensor<6xf32>) -> tensor<18xf32>
  return
}

// -----

pc.mesh <tp = 2>
func.func @reduceWhole(%x: tensor<6xf32, #pc.place<[_]>>) {
  // expected-error@+1 {{does not apply to 'tensor<6xf32, #pc.place<[_]>>' (M3)}}
  %y = pc.all_reduce sum %x on ["tp"] : (tensor<6xf32, #pc.place<[_]>>) -> tensor<6xf32, #pc.place<[_]>>
  return
}

// -----

// A partial sum cannot be reduced by a maximum.
pc.mesh <tp = 2>
func.func @wrongKind(%x: tensor<6xf32, #pc.place<[_] sum(tp)>>) {
  // expected-error@+1 {{does not apply to}}
  %y = pc.all_reduce max %x on ["tp"] : (tensor<6xf32, #pc.place<[_] sum(tp)>>) -> tensor<6xf32, #pc.place<[_]>>
  return
}

// -----

// Only the minor end of a dim's list can be gathered: the blocks would not be contiguous.
pc.mesh <a = 2, b = 2>
func.func @majorGather(%x: tensor<8xf32, #pc.place<[(a, b)]>>) {
  // expected-error@+1 {{does not apply to}}
  %y = pc.all_gather %x dim 0 on ["a"] : (tensor<8xf32, #pc.place<[(a, b)]>>) -> tensor<8xf32, #pc.place<[b]>>
  return
}

// -----

// A move changes its own axis and nothing else.
pc.mesh <a = 2, b = 2>
func.func @tooMuch(%x: tensor<8xf32, #pc.place<[a] sum(b)>>) {
  // expected-error@+1 {{makes #pc.place<[a]> of #pc.place<[a] sum(b)>, not #pc.place<[_]> (M3)}}
  %y = pc.all_reduce sum %x on ["b"] : (tensor<8xf32, #pc.place<[a] sum(b)>>) -> tensor<8xf32, #pc.place<[_]>>
  return
}

// -----

func.func @accumulateStack(%x: tensor<2x4xf32>, %y: tensor<3x4xf32>) {
  // expected-error@+1 {{operands need the same leading dim of microbatches, got 'tensor<3x4xf32>' (C1)}}
  pc.accumulate (%a = %x : tensor<2x4xf32> -> tensor<4xf32>, %b = %y : tensor<3x4xf32> -> tensor<4xf32>) {
    pc.yield
  }
  return
}

// -----

pc.mesh <dp = 2>
func.func @accumulateSplit(%x: tensor<2x4xf32, #pc.place<[dp, _]>>) {
  // expected-error@+1 {{the dim of microbatches must not be split (C1)}}
  pc.accumulate (%a = %x : tensor<2x4xf32, #pc.place<[dp, _]>> -> tensor<4xf32, #pc.place<[_]>>) {
    pc.yield
  }
  return
}

// -----

func.func @accumulateArgument(%x: tensor<2x4xf32>) {
  // expected-error@+1 {{block argument of type 'tensor<5xf32>' does not fit operand 'tensor<2x4xf32>' (C2)}}
  pc.accumulate (%a = %x : tensor<2x4xf32> -> tensor<5xf32>) {
    pc.yield
  }
  return
}

// -----

func.func @accumulateYield(%x: tensor<2x4xf32>) {
  // expected-error@+1 {{yielded value 0 has type 'tensor<4xf32>', but the result has type 'tensor<5xf32>' (C3)}}
  %r = pc.accumulate (%a = %x : tensor<2x4xf32> -> tensor<4xf32>) {
    pc.yield %a : tensor<4xf32>
  } : tensor<5xf32>
  return
}

// -----

func.func @fusion(%x: tensor<4xf32>) {
  // expected-error@+1 {{body must yield 1 values (C2)}}
  %r = pc.fusion (%a = %x : tensor<4xf32> -> tensor<4xf32>) {
    pc.yield
  } : tensor<4xf32>
  return
}

// -----

func.func @fusionArgument(%x: tensor<4xf32>) {
  // expected-error@+1 {{does not fit operand 'tensor<4xf32>' (C1)}}
  %r = pc.fusion (%a = %x : tensor<4xf32> -> tensor<5xf32>) {
    pc.yield %a : tensor<5xf32>
  } : tensor<5xf32>
  return
}

// -----

func.func @parameterDims() {
  // expected-error@+1 {{names 1 dims, but its type is 'tensor<2x2xf32>' (C1)}}
  %w = pc.parameter "w" dims ["embed"] init <fill, 0.0> source <"w", shape = [4], start = [0], size = [4]> : tensor<2x2xf32>
  return
}

// -----

func.func @parameterValid() {
  // expected-error@+1 {{'valid' is larger than the tensor (C2)}}
  %w = pc.parameter "w" dims ["embed"] init <fill, 0.0> source <"w", shape = [8], start = [0], size = [8]> valid [8] : tensor<4xf32>
  return
}

// -----

func.func @parameterSource() {
  // expected-error@+1 {{source box has 6 elements, but the parameter has 4 (C3)}}
  %w = pc.parameter "w" dims ["embed"] init <fill, 0.0> source <"w", shape = [8], start = [0], size = [6]> : tensor<4xf32>
  return
}

// -----

pc.mesh <tp = 2>
func.func @outputPartial(%x: tensor<f32, #pc.place<[] sum(tp)>>) {
  // expected-error@+1 {{value is partial}}
  pc.output loss "loss" %x : tensor<f32, #pc.place<[] sum(tp)>>
  return
}

// -----

pc.mesh <dp = 2>
func.func @startArgument(%x: tensor<4xf32>) {
  // expected-error@+1 {{does not fit operand 'tensor<4xf32>' (C1)}}
  %t = pc.start (%a = %x : tensor<4xf32> -> tensor<8xf32>) {
    %0 = pc.all_reduce sum %a on ["dp"] : (tensor<8xf32>) -> tensor<8xf32>
    pc.yield %0 : tensor<8xf32>
  } : !pc.ticket
  %y = pc.wait %t : tensor<8xf32>
  return
}

// -----

pc.mesh <dp = 2>
func.func @startComputes(%x: tensor<4xf32>) {
  // expected-error@+1 {{op 0 of the body must move argument 0 with traffic, and its result must be yielded as value 0 (C2)}}
  %t = pc.start (%a = %x : tensor<4xf32> -> tensor<4xf32>) {
    %0 = pc.exp %a : (tensor<4xf32>) -> tensor<4xf32>
    pc.yield %0 : tensor<4xf32>
  } : !pc.ticket
  %y = pc.wait %t : tensor<4xf32>
  return
}

// -----

pc.mesh <dp = 2>
func.func @startEmpty(%x: tensor<4xf32>) {
  // expected-error@+1 {{body must be 1 to 64 moves, one per operand, and a yield of their results (C2)}}
  %t = pc.start (%a = %x : tensor<4xf32> -> tensor<4xf32>) {
    pc.yield %a : tensor<4xf32>
  } : !pc.ticket
  %y = pc.wait %t : tensor<4xf32>
  return
}

// -----

pc.mesh <dp = 2, tp = 2>
func.func @startTwoGroups(%x: tensor<4xf32>) {
  // expected-error@+1 {{contains moves over different axes (C2)}}
  %t = pc.start (%a = %x : tensor<4xf32> -> tensor<4xf32>, %b = %x : tensor<4xf32> -> tensor<4xf32>) {
    %0 = pc.all_reduce sum %a on ["dp"] : (tensor<4xf32>) -> tensor<4xf32>
    %1 = pc.all_reduce sum %b on ["tp"] : (tensor<4xf32>) -> tensor<4xf32>
    pc.yield %0, %1 : tensor<4xf32>, tensor<4xf32>
  } : !pc.ticket
  %y:2 = pc.wait %t : tensor<4xf32>, tensor<4xf32>
  return
}

// -----

pc.mesh <dp = 2>
func.func @startNoWait(%x: tensor<4xf32>) {
  // expected-error@+1 {{needs exactly one pc.wait, in the same block (C3)}}
  %t = pc.start (%a = %x : tensor<4xf32> -> tensor<4xf32>) {
    %0 = pc.all_reduce sum %a on ["dp"] : (tensor<4xf32>) -> tensor<4xf32>
    pc.yield %0 : tensor<4xf32>
  } : !pc.ticket
  return
}

// -----

func.func @waitNoStart(%t: !pc.ticket) {
  // expected-error@+1 {{waits for a ticket that is not the result of a pc.start (C1)}}
  %y = pc.wait %t : tensor<4xf32>
  return
}

// -----

pc.mesh <dp = 2>
func.func @waitType(%x: tensor<4xf32>) {
  %t = pc.start (%a = %x : tensor<4xf32> -> tensor<4xf32>) {
    %0 = pc.all_reduce sum %a on ["dp"] : (tensor<4xf32>) -> tensor<4xf32>
    pc.yield %0 : tensor<4xf32>
  } : !pc.ticket
  // expected-error@+1 {{result 0 has type 'tensor<8xf32>', but its move returns 'tensor<4xf32>' (C2)}}
  %y = pc.wait %t : tensor<8xf32>
  return
}

// -----

func.func @indices(%table: tensor<8x4xf32>, %ids: tensor<2xf32>) {
  // expected-error@+1 {{operand 1 must be i32, got 'tensor<2xf32>' (T1)}}
  %y = pc.embedding %table, %ids : (tensor<8x4xf32>, tensor<2xf32>) -> tensor<2x4xf32>
  return
}

// -----

func.func @padding_below(%table: tensor<8x4xf32>, %ids: tensor<2xi32>, %o: tensor<i32>) {
  // expected-error@+1 {{has padding id -1, which is not a row of 'tensor<8x4xf32>' (C1)}}
  %y = pc.embedding %table, %ids offset %o padding -1 : (tensor<8x4xf32>, tensor<2xi32>, tensor<i32>) -> tensor<2x4xf32>
  return
}

// -----

func.func @padding_behind(%dy: tensor<2x4xf32>, %ids: tensor<2xi32>) {
  // expected-error@+1 {{has padding id 8, which is not a row of 'tensor<8x4xf32>' (C1)}}
  %y = pc.embedding_grad %dy, %ids padding 8 : (tensor<2x4xf32>, tensor<2xi32>) -> tensor<8x4xf32>
  return
}

// -----

func.func @no_source() {
  // expected-error@+1 {{needs a source, the box of a tensor in checkpoints, such as: source <"w", shape}}
  %w = pc.parameter "w" dims ["embed"] init <fill, 0.0> : tensor<4xf32>
  return
}

// -----

func.func @parts_and_source() {
  // expected-error@+1 {{has both a source and parts (C5)}}
  %w = pc.parameter "w" dims ["embed"] init <fill, 0.0> source <"w", shape = [4], start = [0], size = [4]>
    along 0 parts [#pc.part<"a", key = 0, size = 4, source = <"a", shape = [4], start = [0], size = [4]>>] : tensor<4xf32>
  return
}

// -----

func.func @part_box() {
  // expected-error@+1 {{source box has 2 elements, but the part has 3 (C3)}}
  %w = pc.parameter "w" dims ["embed"] init <fill, 0.0>
    along 0 parts [#pc.part<"a", key = 0, size = 3, source = <"a", shape = [4], start = [0], size = [2]>>] : tensor<4xf32>
  return
}

// -----

func.func @parts_sum() {
  // expected-error@+1 {{has parts with a total of 3 indices along dim 0 of size 4 (C5)}}
  %w = pc.parameter "w" dims ["embed"] init <fill, 0.0>
    along 0 parts [#pc.part<"a", key = 0, size = 3, source = <"a", shape = [3], start = [0], size = [3]>>] : tensor<4xf32>
  return
}

// -----

func.func @parts_dim() {
  // expected-error@+1 {{cannot be divided into parts along dim 1: there is no such dim, or it is empty (C5)}}
  %w = pc.parameter "w" dims ["embed"] init <fill, 0.0>
    along 1 parts [#pc.part<"a", key = 0, size = 4, source = <"a", shape = [4], start = [0], size = [4]>>] : tensor<4xf32>
  return
}

// -----

func.func @packed_heads(%x: tensor<2x8x2x4x6xf32>) {
  // expected-error@+1 {{packs 4 heads, but 3 query heads, a key and a value make 5 (C1)}}
  %q, %k, %v = pc.split_qkv %x : (tensor<2x8x2x4x6xf32>) -> (tensor<2x8x2x3x6xf32>, tensor<2x8x2x6xf32>, tensor<2x8x2x6xf32>)
  return
}

// -----

func.func @one_table(%q: tensor<2x8x2x1x6xf32>, %k: tensor<2x8x2x6xf32>, %c: tensor<f32>) {
  // expected-error@+1 {{takes either two tables or none, got 1 (C2)}}
  %x = pc.join_qkv %q, %k, %k rope %c : (tensor<2x8x2x1x6xf32>, tensor<2x8x2x6xf32>, tensor<2x8x2x6xf32>, tensor<f32>) -> tensor<2x8x2x3x6xf32>
  return
}

// -----

func.func @wide_tables(%x: tensor<2x8x2x3x6xf32>, %c: tensor<8x6xf32>) {
  // expected-error@+1 {{has tables wider than half a head (C2)}}
  %q, %k, %v = pc.split_qkv %x rope %c, %c : (tensor<2x8x2x3x6xf32>, tensor<8x6xf32>, tensor<8x6xf32>) -> (tensor<2x8x2x1x6xf32>, tensor<2x8x2x6xf32>, tensor<2x8x2x6xf32>)
  return
}

// -----

pc.program "toy" batch 2 sequence 8 vocabulary 16 config "{}" zigzag 2
func.func @packed_zigzag(%x: tensor<2x8x2x3x6xf32>) {
  // expected-error@+1 {{needs keys in the order of their positions, not in zigzag order (C2)}}
  %o, %lse = pc.packed_attention causal %x scale 1.0 : (tensor<2x8x2x3x6xf32>) -> (tensor<2x8x2x1x6xf32>, tensor<2x2x1x8xf32>)
  return
}

// -----

func.func @zero_row() {
  // expected-error@+1 {{has no row 15, which would start as zeros (C4)}}
  %p = pc.parameter "p" dims ["vocab"] init <normal, 2.0e-02, zero_row = 15> source <"p", shape = [15], start = [0], size = [15]> valid [15] : tensor<16xf32>
  return
}

// -----

func.func @data(%x: tensor<8xf32>) {
  // expected-error@+1 {{result 0 must be f32 or bf16, got 'tensor<8xi32>' (T1)}}
  %y = pc.exp %x : (tensor<8xf32>) -> tensor<8xi32>
  return
}

// -----

func.func @view(%x: tensor<8xi32>) {
  // expected-error@+1 {{changes the element type from 'tensor<8xi32>' to 'tensor<4xf32>' (T4)}}
  %y = pc.columns %x from 4 : (tensor<8xi32>) -> tensor<4xf32>
  return
}

// -----

func.func @statistics(%x: tensor<2x8xbf16>, %g: tensor<8xf32>) {
  // expected-error@+1 {{result 1 must be f32, got 'tensor<2xbf16>' (T2)}}
  %y, %r = pc.rms_norm %x, %g eps 1.0e-5 : (tensor<2x8xbf16>, tensor<8xf32>) -> (tensor<2x8xbf16>, tensor<2xbf16>)
  return
}

// -----

func.func @task() {
  // expected-error @+1 {{'pc.task' op needs a chunk and a microbatch (C1)}}
  pc.task weight
  return
}

// -----

func.func @call(%x: tensor<8xf32>) {
  // expected-error @+1 {{'pc.call' op calls 'call', which is not a private function of one block (C1)}}
  pc.call @call(%x) : (tensor<8xf32>) -> ()
  return
}

// -----

func.func private @task(%x: tensor<8xf32>) {
  return
}
func.func @call(%x: tensor<4xf32>) {
  // expected-error @+1 {{'pc.call' op has a different type than 'task': '(tensor<8xf32>) -> ()' (C2)}}
  pc.call @task(%x) : (tensor<4xf32>) -> ()
  return
}

// -----

func.func @microbatch(%s: tensor<2x8xf32>) {
  // expected-error @+1 {{'pc.microbatch' op does not have an element 2 in 'tensor<2x8xf32>' (C1)}}
  %m = pc.microbatch %s[2] : tensor<2x8xf32> -> tensor<8xf32>
  return
}

// -----

func.func @microbatch(%s: tensor<2x8xf32>) {
  // expected-error @+1 {{'pc.microbatch' op cannot be 'tensor<4xf32>', an element of 'tensor<2x8xf32>' (C2)}}
  %m = pc.microbatch %s[1] : tensor<2x8xf32> -> tensor<4xf32>
  return
}

// -----

func.func @send(%x: tensor<8xf32>) {
  // expected-error @+1 {{'pc.send' op stage, flow and message must be at least 0, and slots at least 1 (C1)}}
  pc.send %x to 1 flow 0 message 0 slots 0 : tensor<8xf32>
  return
}

// -----

func.func @addend(%x: tensor<f32, #pc.place<[] sum(pp)>>) {
  // expected-error @+1 {{'pc.addend' op needs a placed operand that is whole on 'pp'}}
  %y = pc.addend %x on ["pp"] : (tensor<f32, #pc.place<[] sum(pp)>>) -> tensor<f32, #pc.place<[] sum(pp)>>
  return
}

// -----

pc.mesh <tp = 2>
func.func @shift(%x: tensor<8xf32>) {
  // expected-error @+1 {{'pc.slice' op shift must be at least 0 and below the 2 ranks (M2)}}
  %y = pc.slice %x dim 0 shift 2 on ["tp"] : (tensor<8xf32>) -> tensor<4xf32>
  return
}

// -----

pc.mesh <tp = 2>
func.func @shift_placed(%x: tensor<8xf32, #pc.place<[_]>>) {
  // expected-error @+1 {{'pc.slice' op has a shift, which is allowed in local programs only (M3)}}
  %y = pc.slice %x dim 0 shift 1 on ["tp"] : (tensor<8xf32, #pc.place<[_]>>) -> tensor<8xf32, #pc.place<[tp]>>
  return
}

// -----

pc.mesh <row = 2, col = 4>
func.func @with_size(%x: tensor<8xf32>) {
  // expected-error @+1 {{'pc.permute' op has 2 ranks on its own axes, but 4 on the axes after 'with' (M2)}}
  %y = pc.permute %x shift 0 on ["row"] with ["col"] : (tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

pc.mesh <row = 2, col = 2>
func.func @with_own(%x: tensor<8xf32>) {
  // expected-error @+1 {{'pc.slice' op needs axes after 'with' that differ from its own (M1)}}
  %y = pc.slice %x dim 0 on ["row"] with ["row"] : (tensor<8xf32>) -> tensor<4xf32>
  return
}

// -----

pc.mesh <tp = 2>
func.func @insert(%x: tensor<4xf32>, %base: tensor<4xf32>) {
  // expected-error @+1 {{'pc.insert' op base 'tensor<4xf32>' must have the type of the result (C1)}}
  %y = pc.insert %x into %base dim 0 on ["tp"] : (tensor<4xf32>, tensor<4xf32>) -> tensor<8xf32>
  return
}

// -----

func.func @stack(%x: tensor<4xf32>) {
  // expected-error @+1 {{'pc.stack' op has 2 operands for 1 entries (C1)}}
  %y = pc.stack %x, %x : (tensor<4xf32>, tensor<4xf32>) -> tensor<1x4xf32>
  return
}

// -----

func.func @unstack(%x: tensor<2x4xf32>) {
  // expected-error @+1 {{'pc.unstack' op reads entry 2 of 2 (C1)}}
  %y = pc.unstack %x at 2 : (tensor<2x4xf32>) -> tensor<4xf32>
  return
}

// -----

pc.mesh <tp = 2>
func.func @unstack(%x: tensor<2x4xf32, #pc.place<[tp, _]>>) {
  // expected-error @+1 {{'pc.unstack' op}}
  %y = pc.unstack %x at 1 : (tensor<2x4xf32, #pc.place<[tp, _]>>) -> tensor<4xf32, #pc.place<[_]>>
  return
}

// -----

func.func @columns(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'pc.columns' op has from 0, step 0, every 1; steps are at least 1, and all of them have 32 bits (C1)}}
  %y = pc.columns %x dim 0 from 0 step 0 : (tensor<4x8xf32>) -> tensor<2x8xf32>
  return
}

// -----

func.func @columns(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'pc.columns' op has from -2147483648, step 1, every 2; steps are at least 1, and all of them have 32 bits (C1)}}
  %y = pc.columns %x from -2147483648 every 2 : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @columns(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'pc.columns' op the spec does not match 1 operands and 1 results (F1)}}
  %y = pc.columns %x dim 2 from 0 : (tensor<4x8xf32>) -> tensor<4x6xf32>
  return
}

// -----

func.func @columns(%x: tensor<f32>) {
  // expected-error @+1 {{'pc.columns' op the spec does not match 1 operands and 1 results (F1)}}
  %y = pc.columns %x from 0 : (tensor<f32>) -> tensor<f32>
  return
}

// -----

func.func @columns(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'pc.columns' op needs one size for factor 'y0', but dim 1 of operand 0 is 8 and dim 1 of result 0 is 6 (F2)}}
  %y = pc.columns %x dim 0 from 0 : (tensor<4x8xf32>) -> tensor<4x6xf32>
  return
}

// -----

module {
  pc.mesh <tp = 2>
  func.func @columns(%x: tensor<4x8xf32, #pc.place<[tp, _]>>) {
    // expected-error @+1 {{'pc.columns' op}}
    %y = pc.columns %x dim 0 from 1 step 2 : (tensor<4x8xf32, #pc.place<[tp, _]>>) -> tensor<2x8xf32, #pc.place<[tp, _]>>
    return
  }
}

// -----

func.func @reshape(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{'pc.reshape' op has different dim names, or a different order of them, on its two sides (C1)}}
  %y = pc.reshape "b (h w) -> b w h" %x : (tensor<4x6xf32>) -> tensor<4x2x3xf32>
  return
}

// -----

func.func @reshape(%x: tensor<4x4xf32>) {
  // expected-error @+1 {{'pc.reshape' op has the name 'h' twice on one side (C1)}}
  %y = pc.reshape "b (h h) -> b h h" %x : (tensor<4x4xf32>) -> tensor<4x2x2xf32>
  return
}

// -----

func.func @reshape(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{'pc.reshape' op the spec does not match 1 operands and 1 results (F1)}}
  %y = pc.reshape "b ((h) w) -> b h w" %x : (tensor<4x6xf32>) -> tensor<4x2x3xf32>
  return
}

// -----

func.func @reshape(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{'pc.reshape' op has 6 elements along 'h w', but 8 in its result (C2)}}
  %y = pc.reshape "b (h w) -> b h w" %x : (tensor<4x6xf32>) -> tensor<4x2x4xf32>
  return
}

// -----

// Both types have equal numbers of elements, but not along each pair of dims.
func.func @reshape(%x: tensor<6x5x4xf32>) {
  // expected-error @+1 {{'pc.reshape' op has 6 elements along 'a b', but 4 in its result (C2)}}
  %y = pc.reshape "(a b) x (c d) -> a b x c d" %x : (tensor<6x5x4xf32>) -> tensor<2x2x5x2x3xf32>
  return
}

// -----

func.func @reshape(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{'pc.reshape' op expects rank 3, got 'tensor<4x2x1x3xf32>' (F1)}}
  %y = pc.reshape "b (h w) -> b h w" %x : (tensor<4x6xf32>) -> tensor<4x2x1x3xf32>
  return
}

// -----

module {
  pc.mesh <tp = 2>
  func.func @reshape(%x: tensor<4x6xf32, #pc.place<[_, tp]>>) {
    // expected-error @+1 {{'pc.reshape' op}}
    %y = pc.reshape "b (w h) -> b w h" %x : (tensor<4x6xf32, #pc.place<[_, tp]>>) -> tensor<4x3x2xf32, #pc.place<[_, _, tp]>>
    return
  }
}

// -----

func.func @lookup(%table: tensor<8x4xf32>, %ids: tensor<8xi32>) {
  // expected-error @+1 {{'pc.embedding' op the spec does not match 2 operands and 1 results (F1)}}
  %y = pc.embedding %table, %ids batch 2 : (tensor<8x4xf32>, tensor<8xi32>) -> tensor<8x4xf32>
  return
}

// -----

func.func @lookup(%table: tensor<8x4xf32>, %ids: tensor<7x3xi32>) {
  // expected-error @+1 {{'pc.embedding' op needs one size for factor 'b0', but dim 0 of operand 0 is 8 and dim 0 of operand 1 is 7 (F2)}}
  %y = pc.embedding %table, %ids batch 1 : (tensor<8x4xf32>, tensor<7x3xi32>) -> tensor<8x3xf32>
  return
}

// -----

func.func @resize(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'pc.resize' op the spec does not match 1 operands and 1 results (F1)}}
  %y = pc.resize %x dim 2 : (tensor<4x8xf32>) -> tensor<4x6xf32>
  return
}

// -----

func.func @resize(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'pc.resize' op needs one size for factor 'x0', but dim 0 of operand 0 is 4 and dim 0 of result 0 is 3 (F2)}}
  %y = pc.resize %x dim 1 : (tensor<4x8xf32>) -> tensor<3x6xf32>
  return
}

// -----

module {
  pc.mesh <tp = 2>
  func.func @resize(%x: tensor<4x8xf32, #pc.place<[_, tp]>>) {
    // expected-error @+1 {{'pc.resize' op}}
    %y = pc.resize %x dim 1 : (tensor<4x8xf32, #pc.place<[_, tp]>>) -> tensor<4x6xf32, #pc.place<[_, tp]>>
    return
  }
}

// -----

// expected-error@+1 {{a threshold must be from 1 to 65535, got 65536 (C1)}}
func.func @drops_all() attributes { a = #pc.drop<65536> } { return }

// -----

// expected-error@+1 {{expected positive sizes, split dims in ascending order and a non-negative shift (C2)}}
func.func @split_order() attributes { a = #pc.drop<6554, global = [4, 8, 8], split = [2, 0]> } { return }

// -----

// expected-error@+1 {{expected positive sizes, split dims in ascending order and a non-negative shift (C2)}}
func.func @split_beyond() attributes { a = #pc.drop<6554, global = [4, 8], split = [2]> } { return }

// -----

// expected-error@+1 {{expected 'global', 'split' or 'shift'}}
func.func @drop_word() attributes { a = #pc.drop<6554, whole = [4, 8]> } { return }

// -----

func.func @keyless() {
  // expected-error@+1 {{needs a key of at least 0 (C1)}}
  %r = pc.input random dims ["random"] : tensor<5xi32>
  return
}

// -----

func.func @key_of_tokens() {
  // expected-error@+1 {{must not have a key for an input of this kind (C1)}}
  %r = pc.input tokens key 3 dims ["batch", "sequence"] : tensor<2x8xi32>
  return
}

// -----

func.func @dropout_of_rows(%x: tensor<8xf32>, %r: tensor<5xi32>) {
  // expected-error@+1 {{needs an operand with a batch dim and a sequence dim, got 'tensor<8xf32>' (C1)}}
  %y = pc.dropout %x random %r drop <6554> : (tensor<8xf32>, tensor<5xi32>) -> tensor<8xf32>
  return
}

// -----

func.func @dropout_of_a_block(%x: tensor<2x8xf32>, %r: tensor<5xi32>) {
  // expected-error@+1 {{has 0 offsets for 1 split dims (C2)}}
  %y = pc.dropout %x random %r drop <6554, global = [4, 8], split = [0]> : (tensor<2x8xf32>, tensor<5xi32>) -> tensor<2x8xf32>
  return
}

// -----

func.func @dropout_of_many_dims(%x: tensor<2x8xf32>, %r: tensor<5xi32>) {
  // expected-error@+1 {{has 3 sizes after 'global', but drops elements of 2 dims (C2)}}
  %y = pc.dropout %x random %r drop <6554, global = [4, 8, 3]> : (tensor<2x8xf32>, tensor<5xi32>) -> tensor<2x8xf32>
  return
}

// -----

func.func @words_for_nothing(%q: tensor<2x8x2x1x6xf32>, %k: tensor<2x8x2x6xf32>, %r: tensor<5xi32>) {
  // expected-error@+1 {{needs both or neither of 'random' and 'drop' (C1)}}
  %o, %lse = pc.attention %q, %k, %k random %r scale 1.0 : (tensor<2x8x2x1x6xf32>, tensor<2x8x2x6xf32>, tensor<2x8x2x6xf32>, tensor<5xi32>) -> (tensor<2x8x2x1x6xf32>, tensor<2x2x1x8xf32>)
  return
}

// -----

func.func @window_of_nothing(%q: tensor<2x8x2x1x6xf32>, %k: tensor<2x8x2x6xf32>) {
  // expected-error@+1 {{has a window of 0 (C3)}}
  %o, %lse = pc.attention causal %q, %k, %k scale 1.0 window 0 : (tensor<2x8x2x1x6xf32>, tensor<2x8x2x6xf32>, tensor<2x8x2x6xf32>) -> (tensor<2x8x2x1x6xf32>, tensor<2x2x1x8xf32>)
  return
}

// -----

func.func @window_both_ways(%q: tensor<2x8x2x1x6xf32>, %k: tensor<2x8x2x6xf32>) {
  // expected-error@+1 {{has a window of 4 but is not causal (C3)}}
  %o, %lse = pc.attention %q, %k, %k scale 1.0 window 4 : (tensor<2x8x2x1x6xf32>, tensor<2x8x2x6xf32>, tensor<2x8x2x6xf32>) -> (tensor<2x8x2x1x6xf32>, tensor<2x2x1x8xf32>)
  return
}

// -----

func.func @documents_both_ways(%q: tensor<2x8x2x1x6xf32>, %k: tensor<2x8x2x6xf32>, %n: tensor<2x8xi32>) {
  // expected-error@+1 {{has document starts but is not causal (C3)}}
  %o, %lse = pc.attention %q, %k, %k starts %n scale 1.0 : (tensor<2x8x2x1x6xf32>, tensor<2x8x2x6xf32>, tensor<2x8x2x6xf32>, tensor<2x8xi32>) -> (tensor<2x8x2x1x6xf32>, tensor<2x2x1x8xf32>)
  return
}

// -----

func.func @cap_of_nothing(%q: tensor<2x8x2x1x6xf32>, %k: tensor<2x8x2x6xf32>) {
  // expected-error@+1 {{must have a positive cap (C4)}}
  %o, %lse = pc.attention %q, %k, %k scale 1.0 softcap 0.0 : (tensor<2x8x2x1x6xf32>, tensor<2x8x2x6xf32>, tensor<2x8x2x6xf32>) -> (tensor<2x8x2x1x6xf32>, tensor<2x2x1x8xf32>)
  return
}

// -----

func.func @few_addends(%q: tensor<2x8x2x1x6xf32>, %k: tensor<2x8x2x6xf32>, %b: tensor<2x1x8xf32>) {
  // expected-error@+1 {{has a bias of 8 entries per head, which does not fit (C5)}}
  %o, %lse = pc.attention %q, %k, %k bias %b scale 1.0 : (tensor<2x8x2x1x6xf32>, tensor<2x8x2x6xf32>, tensor<2x8x2x6xf32>, tensor<2x1x8xf32>) -> (tensor<2x8x2x1x6xf32>, tensor<2x2x1x8xf32>)
  return
}

// -----

func.func @window_of_a_part(%q: tensor<2x8x2x1x6xf32>, %k: tensor<2x8x2x6xf32>, %n: tensor<8xi32>) {
  // expected-error@+1 {{has only a part of the queries, so it cannot have a window, a bias, sinks or document starts (C6)}}
  %o, %lse = pc.attention causal %q, %k, %k sees %n scale 1.0 window 4 : (tensor<2x8x2x1x6xf32>, tensor<2x8x2x6xf32>, tensor<2x8x2x6xf32>, tensor<8xi32>) -> (tensor<2x8x2x1x6xf32>, tensor<2x2x1x8xf32>)
  return
}

// -----

func.func @sinks_of_a_part(%q: tensor<2x8x2x1x6xf32>, %k: tensor<2x8x2x6xf32>, %s: tensor<2x1xf32>, %n: tensor<8xi32>) {
  // expected-error@+1 {{has only a part of the queries, so it cannot have a window, a bias, sinks or document starts (C6)}}
  %o, %lse = pc.attention causal %q, %k, %k sinks %s sees %n scale 1.0 : (tensor<2x8x2x1x6xf32>, tensor<2x8x2x6xf32>, tensor<2x8x2x6xf32>, tensor<2x1xf32>, tensor<8xi32>) -> (tensor<2x8x2x1x6xf32>, tensor<2x2x1x8xf32>)
  return
}

// -----

func.func @chooses_too_many(%x: tensor<2x8x6xf32>) {
  // expected-error@+1 {{chooses 7 of 6 (C1)}}
  %y = pc.top_k %x k 7 : (tensor<2x8x6xf32>) -> tensor<2x8x6xf32>
  return
}

// -----

func.func @routes_by_nothing(%x: tensor<2x8x6xf32>) {
  // expected-error@+1 {{'routed' needs a mask after the other operands (C1)}}
  %y = pc.einsum "b s n -> b s n" %x routed 2 : (tensor<2x8x6xf32>) -> tensor<2x8x6xf32>
  return
}

// -----

func.func @routes_to_none(%x: tensor<2x8x6xf32>) {
  // expected-error@+1 {{'routed' is 0; expected at least 1 (C2)}}
  %y = pc.einsum "b s n, b s n -> b s n" %x, %x routed 0 : (tensor<2x8x6xf32>, tensor<2x8x6xf32>) -> tensor<2x8x6xf32>
  return
}

// -----

func.func @routes_by_a_diagonal(%x: tensor<2x8xf32>, %m: tensor<8x8xf32>) {
  // expected-error@+1 {{'routed' needs a mask without diagonals, but factor 'n' appears in two dims (C3)}}
  %y = pc.einsum "b n, n n -> b n" %x, %m routed 2 : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  return
}

// -----

// expected-error@+1 {{the form for routed tokens needs a tensor of at least 3 dims, and a count and dims of at least 1 (C1)}}
func.func @rows_of_too_many_dims(%x: tensor<2x8xf32, #pc.rows<4 of 3>>) {
  return
}

// -----

func.func @chooses_none(%x: tensor<2x8x6xf32>) {
  // expected-error@+1 {{chooses 0 of 6 (C1)}}
  %y = pc.top_k %x k 0 : (tensor<2x8x6xf32>) -> tensor<2x8x6xf32>
  return
}

// -----

func.func @chooses_for_no_tokens(%x: tensor<8x6xf32>) {
  // expected-error@+1 {{a layer's choices must be [batch, sequence, experts] (C2)}}
  %y = pc.top_k %x k 2 layer 0 : (tensor<8x6xf32>) -> tensor<8x6xf32>
  return
}

// -----

func.func @groups_of_one(%x: tensor<2x8x6xf32>) {
  // expected-error@+1 {{cannot divide 6 entries into 6 groups of at least two (C1)}}
  %y = pc.top_groups %x groups 6 keep 2 : (tensor<2x8x6xf32>) -> tensor<2x8x6xf32>
  return
}

// -----

func.func @keeps_too_many(%x: tensor<2x8x6xf32>) {
  // expected-error@+1 {{keeps 4 of 3 (C1)}}
  %y = pc.top_groups %x groups 3 keep 4 : (tensor<2x8x6xf32>) -> tensor<2x8x6xf32>
  return
}

// -----

func.func @recurrence_of_other_dims(%a: tensor<2x8xf32>, %b: tensor<2x8x6xf32>) {
  // expected-error@+1 {{"b s, b s c -> b c s" must name the dims of a, b and the result, which has b's dims (C1)}}
  %h = pc.recurrence "b s, b s c -> b c s" along "s" %a, %b : (tensor<2x8xf32>, tensor<2x8x6xf32>) -> tensor<2x6x8xf32>
  return
}

// -----

func.func @recurrence_of_more_dims_of_a(%a: tensor<2x8x3xf32>, %b: tensor<2x8x6xf32>) {
  // expected-error@+1 {{dim 'n' of "b s n, b s c -> b s c" is not a dim of b (C2)}}
  %h = pc.recurrence "b s n, b s c -> b s c" along "s" %a, %b : (tensor<2x8x3xf32>, tensor<2x8x6xf32>) -> tensor<2x8x6xf32>
  return
}

// -----

func.func @recurrence_of_a_diagonal(%a: tensor<2x8xf32>, %b: tensor<2x8x8xf32>) {
  // expected-error@+1 {{dim 's' of "b s, b s s -> b s s" occurs twice in one value (C2)}}
  %h = pc.recurrence "b s, b s s -> b s s" along "s" %a, %b : (tensor<2x8xf32>, tensor<2x8x8xf32>) -> tensor<2x8x8xf32>
  return
}

// -----

func.func @recurrence_along_no_dim(%a: tensor<2x8xf32>, %b: tensor<2x8x6xf32>) {
  // expected-error@+1 {{runs along 't', which is not a dim of "b s, b s c -> b s c" (C3)}}
  %h = pc.recurrence "b s, b s c -> b s c" along "t" %a, %b : (tensor<2x8xf32>, tensor<2x8x6xf32>) -> tensor<2x8x6xf32>
  return
}

// -----

func.func @recurrence_with_no_text(%a: tensor<2x8xf32>, %b: tensor<2x8x6xf32>) {
  // expected-error@+1 {{the spec does not match 2 operands and 1 results (F1)}}
  %h = pc.recurrence "" along "s" %a, %b : (tensor<2x8xf32>, tensor<2x8x6xf32>) -> tensor<2x8x6xf32>
  return
}

// -----

func.func @gradient_along_no_dim(%a: tensor<2x8xf32>, %b: tensor<2x8x6xf32>) {
  // expected-error@+1 {{runs along 't', which is not a dim of "b s, b s c -> b s c" (C3)}}
  %da, %db = pc.recurrence_grad "b s, b s c -> b s c" along "t" %a, %b, %b : (tensor<2x8xf32>, tensor<2x8x6xf32>, tensor<2x8x6xf32>) -> (tensor<2x8xf32>, tensor<2x8x6xf32>)
  return
}

// -----

func.func @recurrence_of_rounded_factors(%a: tensor<2x8xbf16>, %b: tensor<2x8x6xf32>) {
  // expected-error@+1 {{operand 0 must be f32, got 'tensor<2x8xbf16>' (T2)}}
  %h = pc.recurrence "b s, b s c -> b s c" along "s" %a, %b : (tensor<2x8xbf16>, tensor<2x8x6xf32>) -> tensor<2x8x6xf32>
  return
}

// -----

// A rank that has a part of the steps does not know the state before them.
pc.mesh <cp = 2>
func.func @recurrence_of_parts(%a: tensor<2x8xf32, #pc.place<[_, cp]>>, %b: tensor<2x8x6xf32, #pc.place<[_, cp, _]>>) {
  // expected-error@+1 {{has no legal placement on axis 'cp'}}
  %h = pc.recurrence "b s, b s c -> b s c" along "s" %a, %b : (tensor<2x8xf32, #pc.place<[_, cp]>>, tensor<2x8x6xf32, #pc.place<[_, cp, _]>>) -> tensor<2x8x6xf32, #pc.place<[_, cp, _]>>
  return
}

// -----

// If a dim that a lacks is split, da is a partial sum on each rank.
pc.mesh <tp = 2>
func.func @gradient_of_part_of_the_channels(%a: tensor<2x8xf32, #pc.place<[_, _]>>, %h: tensor<2x8x6xf32, #pc.place<[_, _, tp]>>) {
  // expected-error@+1 {{has no legal placement on axis 'tp'}}
  %da, %db = pc.recurrence_grad "b s, b s c -> b s c" along "s" %a, %h, %h : (tensor<2x8xf32, #pc.place<[_, _]>>, tensor<2x8x6xf32, #pc.place<[_, _, tp]>>, tensor<2x8x6xf32, #pc.place<[_, _, tp]>>) -> (tensor<2x8xf32, #pc.place<[_, _]>>, tensor<2x8x6xf32, #pc.place<[_, _, tp]>>)
  return
}

// -----

func.func @takes_of_no_sequence(%x: tensor<8x6xf32>) {
  // expected-error@+1 {{expects rank 3, got 'tensor<8x6xf32>' (F1)}}
  %y = pc.admit %x capacity 2 : (tensor<8x6xf32>) -> tensor<8x6xf32>
  return
}

// -----

// A rank that has a part of a sequence does not know which of its tokens an expert takes.
pc.mesh <cp = 2>
func.func @takes_of_parts(%x: tensor<2x8x6xf32, #pc.place<[_, cp, _]>>) {
  // expected-error@+1 {{has no legal placement on axis 'cp'}}
  %y = pc.admit %x capacity 2 : (tensor<2x8x6xf32, #pc.place<[_, cp, _]>>) -> tensor<2x8x6xf32, #pc.place<[_, cp, _]>>
  return
}

// -----

func.func @takes_none(%x: tensor<2x8x6xf32>) {
  // expected-error@+1 {{must have a capacity of at least 1, got 0 (C1)}}
  %y = pc.admit %x capacity 0 : (tensor<2x8x6xf32>) -> tensor<2x8x6xf32>
  return
}

// -----

func.func @no_rows_in_a_round(%x: tensor<2x8x6xf32>) {
  // expected-error@+1 {{must have a limit of at least 1 row, got 0 (C1)}}
  %y = pc.round_of_rows %x round 0 of 1 limit 0 : (tensor<2x8x6xf32>) -> tensor<2x8x6xf32>
  return
}

// -----

func.func @round_behind_the_last(%x: tensor<2x8x6xf32>) {
  // expected-error@+1 {{is round 2 of 2 (C2)}}
  %y = pc.round_of_rows %x round 2 of 2 limit 3 : (tensor<2x8x6xf32>) -> tensor<2x8x6xf32>
  return
}

// -----

// The number of rows must be that of the rank's block.
pc.mesh <ep = 2>
func.func @round_of_a_part(%x: tensor<2x8x6xf32, #pc.place<[_, _, ep]>>) {
  // expected-error@+1 {{has no legal placement on axis 'ep'}}
  %y = pc.round_of_rows %x round 0 of 2 limit 3 : (tensor<2x8x6xf32, #pc.place<[_, _, ep]>>) -> tensor<2x8x6xf32, #pc.place<[_, _, ep]>>
  return
}

// -----

func.func @rotates_odd_pairs(%x: tensor<2x8x6xf32>, %c: tensor<8x2xf32>) {
  // expected-error@+1 {{rotates adjacent pairs, so the head size 6 and the first element 1 must be even (C2)}}
  %y = pc.rope interleaved %x, %c, %c first 1 : (tensor<2x8x6xf32>, tensor<8x2xf32>, tensor<8x2xf32>) -> tensor<2x8x6xf32>
  return
}

// -----

func.func @rounds_scores(%x: tensor<2x8x6xf32>) {
  // expected-error@+1 {{result 0 must be f32, got 'tensor<2x8x6xbf16>' (T2)}}
  %y = pc.softmax %x : (tensor<2x8x6xf32>) -> tensor<2x8x6xbf16>
  return
}

// -----

func.func @rotates_too_much(%x: tensor<2x8x6xf32>, %c: tensor<8x4xf32>) {
  // expected-error@+1 {{rotates 8 elements from element 0 on, but the head has 6 (C1)}}
  %y = pc.rope %x, %c, %c : (tensor<2x8x6xf32>, tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<2x8x6xf32>
  return
}

// -----

func.func @view_of_more() {
  // expected-error@+1 {{'w' has a view of 8 elements, but its shape has 6 (C1)}}
  %w = pc.parameter "w" dims ["embed"] init <normal, 2.0e-02> source <"w", shape = [6], start = [0, 0], size = [4, 1], view = [4, 2]> : tensor<4xf32>
  return
}

// -----

func.func @gradient_of_no_bias(%q: tensor<2x8x2x1x6xf32>, %k: tensor<2x8x2x6xf32>, %l: tensor<2x2x1x8xf32>) {
  // expected-error@+1 {{has a gradient of a bias, but no bias (C7)}}
  %g:4 = pc.attention_grad %q, %k, %k, %q, %l, %q scale 1.0 : (tensor<2x8x2x1x6xf32>, tensor<2x8x2x6xf32>, tensor<2x8x2x6xf32>, tensor<2x8x2x1x6xf32>, tensor<2x2x1x8xf32>, tensor<2x8x2x1x6xf32>) -> (tensor<2x8x2x1x6xf32>, tensor<2x8x2x6xf32>, tensor<2x8x2x6xf32>, tensor<2x2x1x15xf32>)
  return
}

// -----

func.func @pieces_behind() {
  // expected-error@+1 {{needs pieces in ascending order that start at 0, with one value each (C1)}}
  %i = pc.iota pieces [1, 3] values [0, 2] -> tensor<8xi32>
  return
}

// -----

func.func @pieces_from() {
  // expected-error@+1 {{needs pieces in ascending order that start at 0, with one value each (C1)}}
  %i = pc.iota from 2 pieces [0, 3] values [0, 2] -> tensor<8xi32>
  return
}

// -----

func.func @pieces_without_values() {
  // expected-error@+1 {{needs pieces in ascending order that start at 0, with one value each (C1)}}
  %i = pc.iota pieces [0, 3, 5] values [0, 2] -> tensor<8xi32>
  return
}

// -----

// expected-error@+1 {{has 4 targets per sequence, which needs at least 1, 'masked' and no zigzag order (C2)}}
pc.program "toy" batch 2 sequence 8 vocabulary 16 targets 4 config "{}"

// -----

// expected-error@+1 {{has 4 targets per sequence, which needs at least 1, 'masked' and no zigzag order (C2)}}
pc.program "toy" batch 2 sequence 8 vocabulary 16 masked targets 4 config "{}" zigzag 2

// -----

pc.mesh <ep = 2>
func.func @dense(%x: tensor<2x4x3xf32>, %chosen: tensor<4x4xf32>) {
  // expected-error @+1 {{'pc.all_to_all_rows' op operand and result must be f32 or bf16 in the form for routed tokens, with the dims of the mask, whose last dim must be the dim of experts and of the move (C1)}}
  %y = pc.all_to_all_rows %x routed 2 of %chosen from 0 to 1 on ["ep"] : (tensor<2x4x3xf32>, tensor<4x4xf32>) -> tensor<4x2x3xf32>
  return
}

// -----

pc.mesh <ep = 2>
func.func @own_mask(%x: tensor<2x4x3xf32, #pc.rows<4 of 2>>, %chosen: tensor<2x4xf32>) {
  // expected-error @+1 {{'pc.all_to_all_rows' op mask 'tensor<2x4xf32>' must be the mask of the whole group (C2)}}
  %y = pc.all_to_all_rows %x routed 2 of %chosen from 0 to 1 on ["ep"] : (tensor<2x4x3xf32, #pc.rows<4 of 2>>, tensor<2x4xf32>) -> tensor<4x2x3xf32, #pc.rows<8 of 2>>
  return
}

// -----

pc.mesh <ep = 2>
func.func @few_rows(%x: tensor<2x4x3xf32, #pc.rows<4 of 2>>, %chosen: tensor<4x4xf32>) {
  // expected-error @+1 {{'pc.all_to_all_rows' op operand and result must have 4 and 8 routed tokens (C3)}}
  %y = pc.all_to_all_rows %x routed 2 of %chosen from 0 to 1 on ["ep"] : (tensor<2x4x3xf32, #pc.rows<4 of 2>>, tensor<4x4xf32>) -> tensor<4x2x3xf32, #pc.rows<4 of 2>>
  return
}

// -----

func.func private @of_rows(%x: tensor<2x4x3xf32, #pc.rows<4 of 2>>) {
  return
}
func.func @passes_entries(%x: tensor<2x4x3xf32>) {
  // expected-error @+1 {{has a different type than 'of_rows'}}
  pc.call @of_rows(%x) : (tensor<2x4x3xf32>) -> ()
  return
}

// -----

func.func @nameless() {
  // expected-error@+1 {{needs a name of letters, digits, '_', '-' and '.' (C2)}}
  %x = pc.input data dims ["batch"] : tensor<4xf32>
  return
}

// -----

func.func @bad_name() {
  // expected-error@+1 {{needs a name of letters, digits, '_', '-' and '.' (C2)}}
  %x = pc.input data "a=b" dims ["batch"] : tensor<4xf32>
  return
}

// -----

func.func @name_of_tokens() {
  // expected-error@+1 {{must not have a name for an input of this kind (C2)}}
  %x = pc.input tokens "x" dims ["batch", "sequence"] : tensor<4x8xi32>
  return
}

// -----

func.func @half_data() {
  // expected-error@+1 {{'x' holds 'bf16', not f32 or i32 (C3)}}
  %x = pc.input data "x" dims ["batch"] : tensor<4xbf16>
  return
}

// -----

func.func @indices_without_bound() {
  // expected-error@+1 {{holds indices, so it needs 'below n' with n at least 1 (C3)}}
  %x = pc.input data "x" dims ["batch"] : tensor<4xi32>
  return
}

// -----

func.func @bound_of_numbers() {
  // expected-error@+1 {{has a 'below' that is not a bound of indices (C3)}}
  %x = pc.input data "x" below 3 dims ["batch"] : tensor<4xf32>
  return
}

// -----

func.func @without_batch() {
  // expected-error@+1 {{'x' has no first dim named "batch" (C4)}}
  %x = pc.input data "x" dims ["rows"] : tensor<4xf32>
  return
}

// -----

func.func @cache_of_another_size(%c: tensor<1x3x2x16x8xf32>, %x: tensor<1x4x2x4xf32>, %i: tensor<1x4xi32>) {
  // expected-error@+1 {{needs one size for factor 'd', but dim 4 of operand 0 is 8 and dim 3 of operand 1 is 4 (F2)}}
  %y = pc.cache_write %x into %c at %i, %i : (tensor<1x3x2x16x8xf32>, tensor<1x4x2x4xf32>, tensor<1x4xi32>, tensor<1x4xi32>) -> tensor<1x3x2x16x8xf32>
  return
}

// -----

func.func @slots_that_are_numbers(%c: tensor<1x3x2x16x8xf32>, %x: tensor<1x4x2x8xf32>, %i: tensor<1x4xf32>) {
  // expected-error@+1 {{operand 2 must be i32, got 'tensor<1x4xf32>' (T1)}}
  %y = pc.cache_write %x into %c at %i, %i : (tensor<1x3x2x16x8xf32>, tensor<1x4x2x8xf32>, tensor<1x4xf32>, tensor<1x4xf32>) -> tensor<1x3x2x16x8xf32>
  return
}

// -----

func.func @cached_window(%q: tensor<1x4x2x1x8xf32>, %c: tensor<1x3x2x16x8xf32>, %i: tensor<1x4xi32>) {
  // expected-error@+1 {{has a window of 0 (C1)}}
  %o = pc.cached_attention %q, %c, %c at %i, %i scale 0.5 window 0 : (tensor<1x4x2x1x8xf32>, tensor<1x3x2x16x8xf32>, tensor<1x3x2x16x8xf32>, tensor<1x4xi32>, tensor<1x4xi32>) -> tensor<1x4x2x1x8xf32>
  return
}

// -----

func.func @cached_cap(%q: tensor<1x4x2x1x8xf32>, %c: tensor<1x3x2x16x8xf32>, %i: tensor<1x4xi32>) {
  // expected-error@+1 {{must have a positive cap (C2)}}
  %o = pc.cached_attention %q, %c, %c at %i, %i scale 0.5 softcap -1.0 : (tensor<1x4x2x1x8xf32>, tensor<1x3x2x16x8xf32>, tensor<1x3x2x16x8xf32>, tensor<1x4xi32>, tensor<1x4xi32>) -> tensor<1x4x2x1x8xf32>
  return
}

// -----

func.func @cached_parts(%q: tensor<1x4x2x1x8xf32>, %c: tensor<2x1x3x2x8x8xf32>, %i: tensor<1x4xi32>) {
  // expected-error@+1 {{the spec does not match 5 operands and 1 results (F1)}}
  %o = pc.cached_attention %q, %c, %c at %i, %i scale 0.5 : (tensor<1x4x2x1x8xf32>, tensor<2x1x3x2x8x8xf32>, tensor<2x1x3x2x8x8xf32>, tensor<1x4xi32>, tensor<1x4xi32>) -> tensor<2x1x4x2x1x8xf32>
  return
}

// -----

func.func @cached_bias(%q: tensor<1x4x2x1x8xf32>, %c: tensor<1x3x2x16x8xf32>, %i: tensor<1x4xi32>, %b: tensor<2x1x19xf32>) {
  // expected-error@+1 {{has a bias of type 'tensor<2x1x19xf32>', which does not fit 16 positions (C3)}}
  %o = pc.cached_attention %q, %c, %c at %i, %i bias %b scale 0.5 : (tensor<1x4x2x1x8xf32>, tensor<1x3x2x16x8xf32>, tensor<1x3x2x16x8xf32>, tensor<1x4xi32>, tensor<1x4xi32>, tensor<2x1x19xf32>) -> tensor<1x4x2x1x8xf32>
  return
}

// -----

func.func @carry_shape(%x: tensor<8xf32, #pc.space<disk>>) {
  // expected-error @+1 {{'pc.carry' op must change the space and nothing else, but makes 'tensor<4xf32>' of 'tensor<8xf32, #pc.space<disk>>' (C1)}}
  %y = pc.carry %x : (tensor<8xf32, #pc.space<disk>>) -> tensor<4xf32>
  return
}

// -----

func.func @carry_nowhere(%x: tensor<8xf32>) {
  // expected-error @+1 {{'pc.carry' op must change the space and nothing else}}
  %y = pc.carry %x : (tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

pc.mesh <tp = 2>
func.func @carry_placement(%x: tensor<8xf32, #pc.place<[tp] in disk>>) {
  // expected-error @+1 {{'pc.carry' op must change the space and nothing else}}
  %y = pc.carry %x : (tensor<8xf32, #pc.place<[tp] in disk>>) -> tensor<8xf32, #pc.place<[_]>>
  return
}

// -----

// A carry in that was dropped.
func.func @compute_on_disk(%x: tensor<8xf32, #pc.space<disk>>) {
  // expected-error @+1 {{'pc.scale' op uses 'tensor<8xf32, #pc.space<disk>>', which is not on the device; pc.carry brings it there}}
  %y = pc.scale %x by 2.0 : (tensor<8xf32, #pc.space<disk>>) -> tensor<8xf32, #pc.space<disk>>
  return
}

// -----

func.func @both_directions(%x: tensor<8xf32, #pc.space<disk>>, %y: tensor<8xf32>) {
  // expected-error @+1 {{'pc.start' op contains different carries, or carries and other moves (C2)}}
  %t = pc.start (%a = %x : tensor<8xf32, #pc.space<disk>> -> tensor<8xf32, #pc.space<disk>>, %b = %y : tensor<8xf32> -> tensor<8xf32>) {
    %0 = pc.carry %a : (tensor<8xf32, #pc.space<disk>>) -> tensor<8xf32>
    %1 = pc.carry %b : (tensor<8xf32>) -> tensor<8xf32, #pc.space<disk>>
    pc.yield %0, %1 : tensor<8xf32>, tensor<8xf32, #pc.space<disk>>
  } : !pc.ticket
  %r:2 = pc.wait %t : tensor<8xf32>, tensor<8xf32, #pc.space<disk>>
  return
}

// -----

// expected-error @+1 {{'pc.arena' op has -64 bytes}}
pc.arena 64 disk -64

// -----

// expected-error @+1 {{expected 'sum' or 'max', then 'root', then 'in'}}
func.func private @space(tensor<8xf32, #pc.place<[_] on>>)

// -----

func.func @codes(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{has codes 'tensor<4x3xi8>', which must be i8 and have the shape of 'tensor<4x6xf32>' (C1)}}
  %c, %s = pc.encode dynamic %x : (tensor<4x6xf32>) -> (tensor<4x3xi8>, tensor<2x3xf32>)
  return
}

// -----

func.func @blocks(%c: tensor<4x6xi8>, %s: tensor<2x4xf32>) {
  // expected-error @+1 {{has scales 'tensor<2x4xf32>', whose sizes must divide the sizes of 'tensor<4x6xf32>' (C2)}}
  %x = pc.decode dynamic %c, %s : (tensor<4x6xi8>, tensor<2x4xf32>) -> tensor<4x6xf32>
  return
}

// -----

func.func @unsignedIntegers(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{has a code that is linear and unsigned, which does not exist (C3)}}
  %c, %s = pc.encode linear unsigned %x : (tensor<4x6xf32>) -> (tensor<4x6xi8>, tensor<2x3xf32>)
  return
}

// -----

func.func @unsignedFloats(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{has a code that is float8 and unsigned, which does not exist (C3)}}
  %c, %s = pc.encode float8 unsigned %x : (tensor<4x6xf32>) -> (tensor<4x6xf8E4M3FN>, tensor<2x3xf32>)
  return
}

// -----

func.func @integersAsFloats(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{has codes 'tensor<4x6xi8>', which must be f8E4M3FN or f8E5M2}}
  %c, %s = pc.encode float8 %x : (tensor<4x6xf32>) -> (tensor<4x6xi8>, tensor<2x3xf32>)
  return
}

// -----

func.func @narrowIntegers(%x: tensor<4x6xbf16>) {
  // expected-error @+1 {{only the value of float8 may be bf16 (C3)}}
  %c, %s = pc.encode linear %x : (tensor<4x6xbf16>) -> (tensor<4x6xi8>, tensor<2x3xf32>)
  return
}

// -----

func.func @scalarOfBlocks(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{expects rank 2, got 'tensor<f32>' (F1)}}
  %c, %s = pc.encode float8 %x : (tensor<4x6xf32>) -> (tensor<4x6xf8E4M3FN>, tensor<f32>)
  return
}

// -----

func.func @scaleForIntegers(%m: tensor<f32>) {
  // expected-error @+1 {{computes a scale of type 'tensor<f32>' for 'i8' from 'tensor<f32>', which must be scalars and a float of 8 bits (C1)}}
  %s = pc.float8_scale i8 %m : (tensor<f32>) -> tensor<f32>
  return
}

// -----

func.func @scaledIntegers(%x: tensor<4x6xf32>, %s: tensor<f32>) {
  // expected-error @+1 {{but needs a scalar, and codes of this shape in f8E4M3FN or f8E5M2 (C1)}}
  %c = pc.encode_scaled %x, %s : (tensor<4x6xf32>, tensor<f32>) -> tensor<4x6xi8>
  return
}

// -----

// The magnitude of an incomplete maximum is not a part of the maximum of magnitudes.
pc.mesh <dp = 2>
func.func @magnitudeOfPartialMaximum(%x: tensor<4x6xf32, #pc.place<[_, _] max(dp)>>) {
  // expected-error @+1 {{has no legal placement on axis 'dp'}}
  %m = pc.max_magnitude "a b -> a" %x : (tensor<4x6xf32, #pc.place<[_, _] max(dp)>>) -> tensor<4xf32, #pc.place<[_] max(dp)>>
  return
}

// -----

func.func @addFloats(%c: tensor<4x6xf8E4M3FN>) {
  // expected-error @+1 {{operand 0 must be f32 or bf16, got 'tensor<4x6xf8E4M3FN>' (T1)}}
  %x = pc.add %c, %c : (tensor<4x6xf8E4M3FN>, tensor<4x6xf8E4M3FN>) -> tensor<4x6xf8E4M3FN>
  return
}

// -----

func.func @notCodes(%c: tensor<4x6xi32>, %s: tensor<2x3xf32>) {
  // expected-error @+1 {{which must be i8}}
  %x = pc.decode dynamic %c, %s : (tensor<4x6xi32>, tensor<2x3xf32>) -> tensor<4x6xf32>
  return
}

// -----

// A rank would have half of a block.
pc.mesh <dp = 4>
func.func @halfBlocks(%x: tensor<8x6xf32, #pc.place<[dp, _]>>) {
  // expected-error @+1 {{has size 2, not divisible by 4 (F6)}}
  %c, %s = pc.encode dynamic %x : (tensor<8x6xf32, #pc.place<[dp, _]>>) -> (tensor<8x6xi8, #pc.place<[dp, _]>>, tensor<2x3xf32, #pc.place<[dp, _]>>)
  return
}

// -----

// A sum in codes.
pc.mesh <dp = 2>
func.func @codesOfBlocks(%x: tensor<32x24xf32, #pc.place<[_, _] sum(dp)>>) {
  // expected-error @+1 {{cannot send codes of 'tensor<32x24xf32, #pc.place<[_, _] sum(dp)>>', because blocks of [16, 16] do not divide the part of a rank (C4)}}
  %y = pc.all_reduce sum %x on ["dp"] wire <int8, [16, 16]> : (tensor<32x24xf32, #pc.place<[_, _] sum(dp)>>) -> tensor<32x24xf32, #pc.place<[_, _]>>
  return
}

// -----

pc.mesh <dp = 4>
func.func @codesOfHalfBlocks(%x: tensor<32x64xf32, #pc.place<[_, _] sum(dp)>>) {
  // expected-error @+1 {{because blocks of [16, 16] do not divide the part of a rank (C4)}}
  %y = pc.reduce_scatter sum %x dim 0 on ["dp"] wire <int8, [16, 16]> : (tensor<32x64xf32, #pc.place<[_, _] sum(dp)>>) -> tensor<32x64xf32, #pc.place<[dp, _]>>
  return
}

// -----

pc.mesh <dp = 2>
func.func @codesOfMaxima(%x: tensor<32x64xf32, #pc.place<[_, _] max(dp)>>) {
  // expected-error @+1 {{can send addends as codes only for a sum of f32, but adds}}
  %y = pc.all_reduce max %x on ["dp"] wire <int8, [16, 16]> : (tensor<32x64xf32, #pc.place<[_, _] max(dp)>>) -> tensor<32x64xf32, #pc.place<[_, _]>>
  return
}

// -----

// expected-error @+1 {{codes must have 8 or 4 bits and blocks of 256 elements, got 2 bits and blocks of 256 (C1)}}
func.func private @bits() attributes {wire = #pc.wire<int2, [16, 16]>}

// -----

// expected-error @+1 {{got 8 bits and blocks of 128 (C1)}}
func.func private @block() attributes {wire = #pc.wire<int8, [8, 16]>}

// -----

func.func @tooFewBytes(%x: tensor<32x64xf32>) {
  // expected-error @+1 {{has codes 'tensor<1x2x4x260xi8>', which are not int4 codes of one addend of type 'tensor<32x64xf32>' (C1)}}
  %c = pc.encode_addend %x <int4, [16, 16]> on ["dp"] : tensor<32x64xf32> -> tensor<1x2x4x260xi8>
  return
}

// -----

func.func @addendsOfAnotherShape(%c: tensor<2x2x4x260xi8>) {
  // expected-error @+1 {{which are not int8 codes of addends of type 'tensor<64x64xf32>' (C1)}}
  %x = pc.decode_sum %c <int8, [16, 16]> : tensor<2x2x4x260xi8> -> tensor<64x64xf32>
  return
}

// -----

func.func @addCodes(%c: tensor<4x6xi8>) {
  // expected-error @+1 {{operand 0 must be f32 or bf16, got 'tensor<4x6xi8>' (T1)}}
  %x = pc.add %c, %c : (tensor<4x6xi8>, tensor<4x6xi8>) -> tensor<4x6xi8>
  return
}
