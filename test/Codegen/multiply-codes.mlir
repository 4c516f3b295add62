// A product of decoded floats of 8 bits, and its gradients, become products of the codes, with the contracted dims last
// in both operands. One kernel encodes a value in all orders that products read.
// RUN: pc-opt %s --pc-multiply-codes --split-input-file -o %t 2>&1 | FileCheck %s --check-prefix=REMARK
// RUN: FileCheck %s < %t
// Fusing the rest leaves these fusions as they are.
// RUN: pc-opt %s --pc-multiply-codes --pc-fuse=target=cuda --split-input-file -o %t.fused
// RUN: FileCheck %s < %t.fused

// Heads of 64 elements: a block of 128 contracted elements has two of them.
// CHECK-LABEL: func.func @layer
// CHECK: %[[W:.*]]:4 = pc.fusion (%[[V:.*]] = %{{.*}} : tensor<128x4x64xf32> ->
// CHECK-NEXT: %[[C:.*]], %[[S:.*]] = pc.encode float8 %[[V]]
// CHECK-NEXT: %[[CT:.*]] = pc.einsum "x0 x1 x2 -> x1 x2 x0" %[[C]] : (tensor<128x4x64xf8E4M3FN>) -> tensor<4x64x128xf8E4M3FN>
// CHECK-NEXT: %[[ST:.*]] = pc.einsum "x0 x1 x2 -> x1 x2 x0" %[[S]] : (tensor<1x2x1xf32>) -> tensor<2x1x1xf32>
// CHECK-NEXT: pc.yield %[[C]], %[[S]], %[[CT]], %[[ST]]
// The activation has scales for 128 contracted elements in the forward pass, and for 128 tokens in the gradient of the
// matrix.
// CHECK: %[[X:.*]]:4 = pc.fusion (%[[V:.*]] = %{{.*}} : tensor<2x128x128xbf16> ->
// CHECK-NEXT: %[[C:.*]], %[[S:.*]] = pc.encode float8 %[[V]] : (tensor<2x128x128xbf16>) -> (tensor<2x128x128xf8E4M3FN>, tensor<2x128x1xf32>)
// CHECK-NEXT: %[[ST:.*]] = pc.einsum "x0 x1 x2 -> x2 x0 x1" %[[S]] : (tensor<2x128x1xf32>) -> tensor<1x2x128xf32>
// CHECK-NEXT: %[[D:.*]], %[[T:.*]] = pc.encode float8 %[[V]] : (tensor<2x128x128xbf16>) -> (tensor<2x128x128xf8E4M3FN>, tensor<2x1x128xf32>)
// CHECK-NEXT: %[[DT:.*]] = pc.einsum "x0 x1 x2 -> x2 x0 x1" %[[D]]
// CHECK-NEXT: pc.yield %[[C]], %[[ST]], %[[T]], %[[DT]]
// CHECK: pc.fusion
// CHECK-NEXT: %[[S:.*]] = pc.einsum "x0 x1 x2 -> x1 x2 x0" %{{.*}} : (tensor<1x2x128xf32>) -> tensor<2x128x1xf32>
// CHECK-NEXT: %[[A:.*]] = pc.decode float8 %{{.*}}, %[[S]] : (tensor<2x128x128xf8E4M3FN>, tensor<2x128x1xf32>) -> tensor<2x128x128xbf16>
// CHECK-NEXT: %[[B:.*]] = pc.decode float8 %{{.*}}, %{{.*}} : (tensor<4x64x128xf8E4M3FN>, tensor<2x1x1xf32>) -> tensor<4x64x128xbf16>
// CHECK-NEXT: %[[Y:.*]] = pc.einsum "b s e, h d e -> b s h d" %[[A]], %[[B]]
// CHECK-NEXT: pc.yield %[[Y]] : tensor<2x128x4x64xbf16>
// A gradient in E5M2 is multiplied by E4M3.
// CHECK: pc.fusion
// CHECK-NEXT: pc.encode float8 %{{.*}} -> (tensor<2x128x4x64xf8E5M2>, tensor<2x128x2x1xf32>)
// CHECK: pc.fusion
// CHECK: pc.einsum "b s h d, e h d -> b s e"
// CHECK: pc.fusion
// CHECK: pc.einsum "e b s, h d b s -> e h d" {{.*}} -> tensor<128x4x64xf32>
// CHECK-NOT: pc.decode
func.func @layer(%x: tensor<2x128x128xbf16>, %w: tensor<128x4x64xf32>, %dy: tensor<2x128x4x64xbf16>)
    -> (tensor<2x128x4x64xbf16>, tensor<2x128x128xbf16>, tensor<128x4x64xf32>) {
  %wc, %ws = pc.encode float8 %w : (tensor<128x4x64xf32>) -> (tensor<128x4x64xf8E4M3FN>, tensor<1x2x1xf32>)
  %xc, %xs = pc.encode float8 %x : (tensor<2x128x128xbf16>) -> (tensor<2x128x128xf8E4M3FN>, tensor<2x128x1xf32>)
  %tc, %ts = pc.encode float8 %x : (tensor<2x128x128xbf16>) -> (tensor<2x128x128xf8E4M3FN>, tensor<2x1x128xf32>)
  %xd = pc.decode float8 %xc, %xs : (tensor<2x128x128xf8E4M3FN>, tensor<2x128x1xf32>) -> tensor<2x128x128xbf16>
  %wd = pc.decode float8 %wc, %ws : (tensor<128x4x64xf8E4M3FN>, tensor<1x2x1xf32>) -> tensor<128x4x64xbf16>
  %y = pc.einsum "b s e, e h d -> b s h d" %xd, %wd : (tensor<2x128x128xbf16>, tensor<128x4x64xbf16>) -> tensor<2x128x4x64xbf16>
  %gc, %gs = pc.encode float8 %dy : (tensor<2x128x4x64xbf16>) -> (tensor<2x128x4x64xf8E5M2>, tensor<2x128x2x1xf32>)
  %gd = pc.decode float8 %gc, %gs : (tensor<2x128x4x64xf8E5M2>, tensor<2x128x2x1xf32>) -> tensor<2x128x4x64xbf16>
  %dx = pc.einsum "b s h d, e h d -> b s e" %gd, %wd : (tensor<2x128x4x64xbf16>, tensor<128x4x64xbf16>) -> tensor<2x128x128xbf16>
  %hc, %hs = pc.encode float8 %dy : (tensor<2x128x4x64xbf16>) -> (tensor<2x128x4x64xf8E5M2>, tensor<2x1x4x64xf32>)
  %td = pc.decode float8 %tc, %ts : (tensor<2x128x128xf8E4M3FN>, tensor<2x1x128xf32>) -> tensor<2x128x128xbf16>
  %hd = pc.decode float8 %hc, %hs : (tensor<2x128x4x64xf8E5M2>, tensor<2x1x4x64xf32>) -> tensor<2x128x4x64xbf16>
  %dw = pc.einsum "b s e, b s h d -> e h d" %td, %hd : (tensor<2x128x128xbf16>, tensor<2x128x4x64xbf16>) -> tensor<128x4x64xf32>
  return %y, %dx, %dw : tensor<2x128x4x64xbf16>, tensor<2x128x128xbf16>, tensor<128x4x64xf32>
}

// -----

// Codes of another rank are transposed before their first reader.
// CHECK-LABEL: func.func @gathered
// CHECK: %[[CT:.*]] = pc.einsum "x0 x1 -> x1 x0" %{{.*}} : (tensor<256x128xf8E4M3FN>) -> tensor<128x256xf8E4M3FN>
// CHECK: %[[ST:.*]] = pc.einsum "x0 x1 -> x1 x0" %{{.*}} : (tensor<2x1xf32>) -> tensor<1x2xf32>
// CHECK: pc.fusion
// CHECK: pc.einsum "m k, n k -> m n"
func.func @gathered(%a: tensor<128x256xf8E4M3FN>, %s: tensor<128x2xf32>, %b: tensor<256x128xf8E4M3FN>, %t: tensor<2x1xf32>) -> tensor<128x128xbf16> {
  %x = pc.decode float8 %a, %s : (tensor<128x256xf8E4M3FN>, tensor<128x2xf32>) -> tensor<128x256xbf16>
  %y = pc.decode float8 %b, %t : (tensor<256x128xf8E4M3FN>, tensor<2x1xf32>) -> tensor<256x128xbf16>
  %z = pc.einsum "m k, k n -> m n" %x, %y : (tensor<128x256xbf16>, tensor<256x128xbf16>) -> tensor<128x128xbf16>
  return %z : tensor<128x128xbf16>
}

// -----

// The library has no product of two matrices with scales of squares, and none of E5M2 with E5M2; rows of 64 are not
// whole squares.
// REMARK: remark: pc-multiply-codes: 3 of 3 products with operands in fp8 decode them to bf16, because their dims on a rank are not multiples of 128 (of 16, with one scale per operand)
// CHECK-LABEL: func.func @others
// CHECK-NOT: pc.fusion
func.func @others(%a: tensor<128x256xf8E4M3FN>, %s: tensor<1x2xf32>, %e: tensor<128x256xf8E5M2>, %u: tensor<128x2xf32>, %n: tensor<64x256xf8E4M3FN>, %v: tensor<64x2xf32>)
    -> (tensor<128x128xbf16>, tensor<128x128xbf16>, tensor<64x64xbf16>) {
  %x = pc.decode float8 %a, %s : (tensor<128x256xf8E4M3FN>, tensor<1x2xf32>) -> tensor<128x256xbf16>
  %p = pc.einsum "m k, n k -> m n" %x, %x : (tensor<128x256xbf16>, tensor<128x256xbf16>) -> tensor<128x128xbf16>
  %y = pc.decode float8 %e, %u : (tensor<128x256xf8E5M2>, tensor<128x2xf32>) -> tensor<128x256xbf16>
  %q = pc.einsum "m k, n k -> m n" %y, %y : (tensor<128x256xbf16>, tensor<128x256xbf16>) -> tensor<128x128xbf16>
  %z = pc.decode float8 %n, %v : (tensor<64x256xf8E4M3FN>, tensor<64x2xf32>) -> tensor<64x256xbf16>
  %r = pc.einsum "m k, n k -> m n" %z, %z : (tensor<64x256xbf16>, tensor<64x256xbf16>) -> tensor<64x64xbf16>
  return %p, %q, %r : tensor<128x128xbf16>, tensor<128x128xbf16>, tensor<64x64xbf16>
}

// -----

// With one scale per operand, dims are multiples of 16. All products of an operand share its codes, which one kernel
// writes in both orders. It does not compute the operand, so that recomputation has the bits of the first pass.
// CHECK-LABEL: func.func @scaled
// CHECK-SAME: %[[X:[^:]*]]: tensor<2x24x48xbf16>, %[[W:[^:]*]]: tensor<48x5x32xf32>, %[[DY:[^:]*]]: tensor<2x24x5x32xbf16>, %[[SX:[^:]*]]: tensor<f32>, %[[SW:[^:]*]]: tensor<f32>, %[[SG:[^:]*]]: tensor<f32>
// CHECK: %[[WC:.*]]:2 = pc.fusion (%[[V:.*]] = %[[W]] : tensor<48x5x32xf32> -> tensor<48x5x32xf32>, %[[S:.*]] = %[[SW]] : tensor<f32> ->
// CHECK-NEXT: %[[C:.*]] = pc.encode_scaled %[[V]], %[[S]] : (tensor<48x5x32xf32>, tensor<f32>) -> tensor<48x5x32xf8E4M3FN>
// CHECK-NEXT: %[[CT:.*]] = pc.einsum "x0 x1 x2 -> x1 x2 x0" %[[C]] : (tensor<48x5x32xf8E4M3FN>) -> tensor<5x32x48xf8E4M3FN>
// CHECK-NEXT: pc.yield %[[C]], %[[CT]]
// CHECK: %[[G:.*]] = pc.activation gelu_tanh %[[X]]
// CHECK: %[[XC:.*]]:2 = pc.fusion (%[[V:.*]] = %[[G]] : tensor<2x24x48xbf16> -> tensor<2x24x48xbf16>, %[[S:.*]] = %[[SX]] : tensor<f32> ->
// CHECK-NEXT: %[[C:.*]] = pc.encode_scaled %[[V]], %[[S]]
// CHECK-NEXT: %[[CT:.*]] = pc.einsum "x0 x1 x2 -> x2 x0 x1" %[[C]]
// CHECK-NEXT: pc.yield %[[C]], %[[CT]]
// CHECK: pc.fusion (%[[P:.*]] = %[[XC]]#0 : tensor<2x24x48xf8E4M3FN> -> {{[^ ]*}}, %[[SP:.*]] = %[[SX]] : tensor<f32> -> tensor<f32>, %[[Q:.*]] = %[[WC]]#1 : tensor<5x32x48xf8E4M3FN> -> {{[^ ]*}}, %[[SQ:.*]] = %[[SW]] : tensor<f32> ->
// CHECK-NEXT: %[[A:.*]] = pc.decode float8 %[[P]], %[[SP]]
// CHECK-NEXT: %[[B:.*]] = pc.decode float8 %[[Q]], %[[SQ]]
// CHECK-NEXT: %[[Y:.*]] = pc.einsum "b s e, h d e -> b s h d" %[[A]], %[[B]]
// CHECK-NEXT: pc.yield %[[Y]] : tensor<2x24x5x32xbf16>
// CHECK: pc.fusion
// CHECK-NEXT: pc.encode_scaled %{{.*}} -> tensor<2x24x5x32xf8E5M2>
// CHECK: pc.einsum "b s h d, e h d -> b s e"
// CHECK: pc.einsum "e b s, h d b s -> e h d" {{.*}} -> tensor<48x5x32xf32>
// CHECK-NOT: pc.decode
func.func @scaled(%x: tensor<2x24x48xbf16>, %w: tensor<48x5x32xf32>, %dy: tensor<2x24x5x32xbf16>, %sx: tensor<f32>, %sw: tensor<f32>, %sg: tensor<f32>)
    -> (tensor<2x24x5x32xbf16>, tensor<2x24x48xbf16>, tensor<48x5x32xf32>) {
  %wc = pc.encode_scaled %w, %sw : (tensor<48x5x32xf32>, tensor<f32>) -> tensor<48x5x32xf8E4M3FN>
  %gelu = pc.activation gelu_tanh %x : (tensor<2x24x48xbf16>) -> tensor<2x24x48xbf16>
  %xc = pc.encode_scaled %gelu, %sx : (tensor<2x24x48xbf16>, tensor<f32>) -> tensor<2x24x48xf8E4M3FN>
  %xd = pc.decode float8 %xc, %sx : (tensor<2x24x48xf8E4M3FN>, tensor<f32>) -> tensor<2x24x48xbf16>
  %wd = pc.decode float8 %wc, %sw : (tensor<48x5x32xf8E4M3FN>, tensor<f32>) -> tensor<48x5x32xbf16>
  %y = pc.einsum "b s e, e h d -> b s h d" %xd, %wd : (tensor<2x24x48xbf16>, tensor<48x5x32xbf16>) -> tensor<2x24x5x32xbf16>
  %gc = pc.encode_scaled %dy, %sg : (tensor<2x24x5x32xbf16>, tensor<f32>) -> tensor<2x24x5x32xf8E5M2>
  %gd = pc.decode float8 %gc, %sg : (tensor<2x24x5x32xf8E5M2>, tensor<f32>) -> tensor<2x24x5x32xbf16>
  %dx = pc.einsum "b s h d, e h d -> b s e" %gd, %wd : (tensor<2x24x5x32xbf16>, tensor<48x5x32xbf16>) -> tensor<2x24x48xbf16>
  %dw = pc.einsum "b s e, b s h d -> e h d" %xd, %gd : (tensor<2x24x48xbf16>, tensor<2x24x5x32xbf16>) -> tensor<48x5x32xf32>
  return %y, %dx, %dw : tensor<2x24x5x32xbf16>, tensor<2x24x48xbf16>, tensor<48x5x32xf32>
}

// -----

// The library has no product of an operand with one scale and an operand with blocks, none of E5M2 with E5M2, and none of
// 24 rows.
// REMARK: remark: pc-multiply-codes: 3 of 3 products
// CHECK-LABEL: func.func @mixed
// CHECK-NOT: pc.fusion
func.func @mixed(%a: tensor<128x256xf8E4M3FN>, %s: tensor<f32>, %t: tensor<128x2xf32>, %e: tensor<128x256xf8E5M2>, %n: tensor<24x256xf8E4M3FN>)
    -> (tensor<128x128xbf16>, tensor<128x128xbf16>, tensor<24x128xbf16>) {
  %x = pc.decode float8 %a, %s : (tensor<128x256xf8E4M3FN>, tensor<f32>) -> tensor<128x256xbf16>
  %y = pc.decode float8 %a, %t : (tensor<128x256xf8E4M3FN>, tensor<128x2xf32>) -> tensor<128x256xbf16>
  %p = pc.einsum "m k, n k -> m n" %x, %y : (tensor<128x256xbf16>, tensor<128x256xbf16>) -> tensor<128x128xbf16>
  %z = pc.decode float8 %e, %s : (tensor<128x256xf8E5M2>, tensor<f32>) -> tensor<128x256xbf16>
  %q = pc.einsum "m k, n k -> m n" %z, %z : (tensor<128x256xbf16>, tensor<128x256xbf16>) -> tensor<128x128xbf16>
  %w = pc.decode float8 %n, %s : (tensor<24x256xf8E4M3FN>, tensor<f32>) -> tensor<24x256xbf16>
  %r = pc.einsum "m k, n k -> m n" %w, %x : (tensor<24x256xbf16>, tensor<128x256xbf16>) -> tensor<24x128xbf16>
  return %p, %q, %r : tensor<128x128xbf16>, tensor<128x128xbf16>, tensor<24x128xbf16>
}

// -----

// A value is computed in the kernel of its later codes only if no earlier codes read it. The earlier ones here belong to
// no product of the library.
// CHECK-LABEL: func.func @earlier
// CHECK: %[[G:.*]] = pc.activation gelu_tanh
// CHECK: pc.encode float8 %[[G]]
// CHECK: pc.fusion (%[[V:.*]] = %[[G]] :
// CHECK-NEXT: pc.encode float8 %[[V]]
func.func @earlier(%x: tensor<128x128xbf16>, %b: tensor<128x128xf8E4M3FN>, %s: tensor<1x1xf32>) -> (tensor<128x128xbf16>, tensor<128x128xbf16>) {
  %g = pc.activation gelu_tanh %x : (tensor<128x128xbf16>) -> tensor<128x128xbf16>
  %c, %cs = pc.encode float8 %g : (tensor<128x128xbf16>) -> (tensor<128x128xf8E4M3FN>, tensor<128x1xf32>)
  %d = pc.decode float8 %c, %cs : (tensor<128x128xf8E4M3FN>, tensor<128x1xf32>) -> tensor<128x128xbf16>
  %e, %es = pc.encode float8 %g : (tensor<128x128xbf16>) -> (tensor<128x128xf8E4M3FN>, tensor<1x128xf32>)
  %f = pc.decode float8 %e, %es : (tensor<128x128xf8E4M3FN>, tensor<1x128xf32>) -> tensor<128x128xbf16>
  %w = pc.decode float8 %b, %s : (tensor<128x128xf8E4M3FN>, tensor<1x1xf32>) -> tensor<128x128xbf16>
  %y = pc.einsum "k m, n k -> m n" %f, %w : (tensor<128x128xbf16>, tensor<128x128xbf16>) -> tensor<128x128xbf16>
  return %d, %y : tensor<128x128xbf16>, tensor<128x128xbf16>
}
