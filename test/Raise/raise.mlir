// A decoder layer whose norms, attention, activation and loss are written in pieces becomes ops that compute the same.
// RUN: pc-opt %s --pc-raise -o %t.raised && FileCheck %s < %t.raised
// RUN: pc-opt %s --pc-differentiate -o %t.pieces && pc-opt %t.raised --pc-differentiate -o %t.ops && pc-equal %t.pieces %t.ops
// A compile raises by itself.
// RUN: pc-compile %s --mesh dp=2,tp=2 --zero=3 --to=placed -o %t.placed && pc-equal %t.pieces %t.placed

// CHECK-NOT: pc.{{exp|log|sqrt|recip|select}}
// CHECK: pc.rms_norm %{{.*}}, %{{.*}} eps 1.0{{0*}}e-05
// CHECK-NOT: pc.{{exp|log|sqrt|recip|select}}
// CHECK: pc.attention causal {{.*}} scale 0.353
// CHECK-NOT: pc.{{exp|log|sqrt|recip|select}}
// CHECK: pc.layer_norm
// CHECK-NOT: pc.{{exp|log|sqrt|recip|select}}
// CHECK: pc.activation silu
// CHECK-NOT: pc.{{exp|log|sqrt|recip|select}}
// CHECK: pc.logsumexp
// CHECK-NOT: pc.{{exp|log|sqrt|recip|select}}
module {
  pc.program "pieces" batch 4 sequence 6 vocabulary 20 config "{}"
  func.func @model() {
    %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<4x6xi32>
    %wte = pc.parameter "wte" dims ["vocab", "embed"] init <normal, 1.0> source <"wte", shape = [20, 16], start = [0, 0], size = [20, 16]> : tensor<20x16xf32>
    %x = pc.embedding %wte, %tokens : (tensor<20x16xf32>, tensor<4x6xi32>) -> tensor<4x6x16xf32> loc("embedding")
    %one = pc.constant 1.0 : tensor<f32>
    %eps = pc.constant 1.0e-05 : tensor<f32>
    %epsbs = pc.einsum "-> b s" %eps : (tensor<f32>) -> tensor<4x6xf32>

    // RMS norm that computes the root first.
    %g = pc.parameter "h.0.g" dims ["embed"] init <normal, 1.0> source <"h.0.g", shape = [16], start = [0], size = [16]> : tensor<16xf32>
    %xx = pc.einsum "b s e, b s e -> b s" %x, %x : (tensor<4x6x16xf32>, tensor<4x6x16xf32>) -> tensor<4x6xf32>
    %ms = pc.scale %xx by 0.0625 : (tensor<4x6xf32>) -> tensor<4x6xf32>
    %mse = pc.add %epsbs, %ms : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
    %inverse = pc.recip %mse : (tensor<4x6xf32>) -> tensor<4x6xf32>
    %rstd = pc.sqrt %inverse : (tensor<4x6xf32>) -> tensor<4x6xf32>
    %gx = pc.einsum "b s e, e -> b s e" %x, %g : (tensor<4x6x16xf32>, tensor<16xf32>) -> tensor<4x6x16xf32>
    %n = pc.einsum "b s, b s e -> b s e" %rstd, %gx : (tensor<4x6xf32>, tensor<4x6x16xf32>) -> tensor<4x6x16xf32>

    // Attention of two heads, [batch, heads, queries, keys].
    %wq = pc.parameter "h.0.q" dims ["kv_heads", "head_dim", "embed"] init <normal, 0.2> source <"h.0.q", shape = [16, 16], start = [0, 0], size = [16, 16]> : tensor<2x8x16xf32>
    %wk = pc.parameter "h.0.k" dims ["kv_heads", "head_dim", "embed"] init <normal, 0.2> source <"h.0.k", shape = [16, 16], start = [0, 0], size = [16, 16]> : tensor<2x8x16xf32>
    %wv = pc.parameter "h.0.v" dims ["kv_heads", "head_dim", "embed"] init <normal, 0.2> source <"h.0.v", shape = [16, 16], start = [0, 0], size = [16, 16]> : tensor<2x8x16xf32>
    %q = pc.einsum "b s e, h d e -> b h s d" %n, %wq : (tensor<4x6x16xf32>, tensor<2x8x16xf32>) -> tensor<4x2x6x8xf32>
    %k = pc.einsum "b s e, h d e -> b h s d" %n, %wk : (tensor<4x6x16xf32>, tensor<2x8x16xf32>) -> tensor<4x2x6x8xf32>
    %v = pc.einsum "b s e, h d e -> b h s d" %n, %wv : (tensor<4x6x16xf32>, tensor<2x8x16xf32>) -> tensor<4x2x6x8xf32>
    %kt = pc.einsum "b h t d -> b h d t" %k : (tensor<4x2x6x8xf32>) -> tensor<4x2x8x6xf32>
    %raw = pc.einsum "b h s d, b h d t -> b h s t" %q, %kt : (tensor<4x2x6x8xf32>, tensor<4x2x8x6xf32>) -> tensor<4x2x6x6xf32>
    %scores = pc.scale %raw by 0.35355339 : (tensor<4x2x6x6xf32>) -> tensor<4x2x6x6xf32>
    %places = pc.iota -> tensor<6xi32>
    %count = pc.cast %places : (tensor<6xi32>) -> tensor<6xf32>
    %s = pc.einsum "s -> b h s t" %count : (tensor<6xf32>) -> tensor<4x2x6x6xf32>
    %t = pc.einsum "t -> b h s t" %count : (tensor<6xf32>) -> tensor<4x2x6x6xf32>
    %low = pc.constant -1.0e+30 : tensor<f32>
    %lows = pc.einsum "-> b h s t" %low : (tensor<f32>) -> tensor<4x2x6x6xf32>
    %masked = pc.select less %s, %t, %lows, %scores : (tensor<4x2x6x6xf32>, tensor<4x2x6x6xf32>, tensor<4x2x6x6xf32>, tensor<4x2x6x6xf32>) -> tensor<4x2x6x6xf32>
    %e = pc.exp %masked : (tensor<4x2x6x6xf32>) -> tensor<4x2x6x6xf32>
    %sum = pc.einsum "b h s t -> b h s" %e : (tensor<4x2x6x6xf32>) -> tensor<4x2x6xf32>
    %isum = pc.recip %sum : (tensor<4x2x6xf32>) -> tensor<4x2x6xf32>
    %p = pc.einsum "b h s t, b h s -> b h s t" %e, %isum : (tensor<4x2x6x6xf32>, tensor<4x2x6xf32>) -> tensor<4x2x6x6xf32>
    %o = pc.einsum "b h s t, b h t d -> b s h d" %p, %v : (tensor<4x2x6x6xf32>, tensor<4x2x6x8xf32>) -> tensor<4x6x2x8xf32>
    %wo = pc.parameter "h.0.o" dims ["embed", "kv_heads", "head_dim"] init <normal, 0.2> source <"h.0.o", shape = [16, 16], start = [0, 0], size = [16, 16]> : tensor<16x2x8xf32>
    %a = pc.einsum "b s h d, e h d -> b s e" %o, %wo : (tensor<4x6x2x8xf32>, tensor<16x2x8xf32>) -> tensor<4x6x16xf32>
    %r = pc.add %x, %a : (tensor<4x6x16xf32>, tensor<4x6x16xf32>) -> tensor<4x6x16xf32>

    // Layer norm with a shift.
    %g2 = pc.parameter "h.0.g2" dims ["embed"] init <normal, 1.0> source <"h.0.g2", shape = [16], start = [0], size = [16]> : tensor<16xf32>
    %b2 = pc.parameter "h.0.b2" dims ["embed"] init <normal, 1.0> source <"h.0.b2", shape = [16], start = [0], size = [16]> : tensor<16xf32>
    %total = pc.einsum "b s e -> b s" %r : (tensor<4x6x16xf32>) -> tensor<4x6xf32>
    %mean = pc.scale %total by 0.0625 : (tensor<4x6xf32>) -> tensor<4x6xf32>
    %means = pc.einsum "b s -> b s e" %mean : (tensor<4x6xf32>) -> tensor<4x6x16xf32>
    %c = pc.sub %r, %means : (tensor<4x6x16xf32>, tensor<4x6x16xf32>) -> tensor<4x6x16xf32>
    %cc = pc.einsum "b s e, b s e -> b s" %c, %c : (tensor<4x6x16xf32>, tensor<4x6x16xf32>) -> tensor<4x6xf32>
    %var = pc.scale %cc by 0.0625 : (tensor<4x6xf32>) -> tensor<4x6xf32>
    %vare = pc.add %var, %epsbs : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
    %std = pc.sqrt %vare : (tensor<4x6xf32>) -> tensor<4x6xf32>
    %istd = pc.recip %std : (tensor<4x6xf32>) -> tensor<4x6xf32>
    %cn = pc.einsum "b s e, b s -> b s e" %c, %istd : (tensor<4x6x16xf32>, tensor<4x6xf32>) -> tensor<4x6x16xf32>
    %cg = pc.einsum "b s e, e -> b s e" %cn, %g2 : (tensor<4x6x16xf32>, tensor<16xf32>) -> tensor<4x6x16xf32>
    %shift = pc.einsum "e -> b s e" %b2 : (tensor<16xf32>) -> tensor<4x6x16xf32>
    %ln = pc.add %shift, %cg : (tensor<4x6x16xf32>, tensor<4x6x16xf32>) -> tensor<4x6x16xf32>

    // silu
    %w1 = pc.parameter "h.0.up" dims ["ffn", "embed"] init <normal, 0.2> source <"h.0.up", shape = [24, 16], start = [0, 0], size = [24, 16]> : tensor<24x16xf32>
    %u = pc.einsum "b s e, f e -> b s f" %ln, %w1 : (tensor<4x6x16xf32>, tensor<24x16xf32>) -> tensor<4x6x24xf32>
    %minus = pc.scale %u by -1.0 : (tensor<4x6x24xf32>) -> tensor<4x6x24xf32>
    %exp = pc.exp %minus : (tensor<4x6x24xf32>) -> tensor<4x6x24xf32>
    %ones = pc.einsum "-> b s f" %one : (tensor<f32>) -> tensor<4x6x24xf32>
    %more = pc.add %exp, %ones : (tensor<4x6x24xf32>, tensor<4x6x24xf32>) -> tensor<4x6x24xf32>
    %sigmoid = pc.recip %more : (tensor<4x6x24xf32>) -> tensor<4x6x24xf32>
    %silu = pc.einsum "b s f, b s f -> b s f" %sigmoid, %u : (tensor<4x6x24xf32>, tensor<4x6x24xf32>) -> tensor<4x6x24xf32>
    %w2 = pc.parameter "h.0.down" dims ["embed", "ffn"] init <normal, 0.2> source <"h.0.down", shape = [16, 24], start = [0, 0], size = [16, 24]> : tensor<16x24xf32>
    %d = pc.einsum "b s f, e f -> b s e" %silu, %w2 : (tensor<4x6x24xf32>, tensor<16x24xf32>) -> tensor<4x6x16xf32>

    // A loss of logarithms of sums.
    %logits = pc.einsum "b s e, v e -> b s v" %d, %wte : (tensor<4x6x16xf32>, tensor<20x16xf32>) -> tensor<4x6x20xf32>
    %el = pc.exp %logits : (tensor<4x6x20xf32>) -> tensor<4x6x20xf32>
    %sl = pc.einsum "b s v -> b s" %el : (tensor<4x6x20xf32>) -> tensor<4x6xf32>
    %z = pc.log %sl : (tensor<4x6xf32>) -> tensor<4x6xf32>
    %zz = pc.einsum "b s, b s ->" %z, %z : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<f32>
    pc.output loss "loss" %zz : tensor<f32>
    return
  }
}
