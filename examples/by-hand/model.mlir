// A transformer of one layer: 2 heads of 8, 32 bytes of text per sequence. docs/by-hand.md explains it line by line.
module {
  pc.program "by-hand" batch 8 sequence 32 vocabulary 256 config "{}"
  func.func @model() {
    %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<8x32xi32>
    %targets = pc.input targets dims ["batch", "sequence"] : tensor<8x32xi32>
    %wte = pc.parameter "wte" dims ["vocab", "embed"] init <normal, 0.02> source <"wte", shape = [256, 16], start = [0, 0], size = [256, 16]> : tensor<256x16xf32>
    %x = pc.embedding %wte, %tokens : (tensor<256x16xf32>, tensor<8x32xi32>) -> tensor<8x32x16xf32> loc("embedding")
    %g = pc.parameter "h.0.norm" dims ["embed"] init <fill, 1.0> source <"h.0.norm", shape = [16], start = [0], size = [16]> : tensor<16xf32>
    %n, %rstd = pc.rms_norm %x, %g eps 1.0e-05 : (tensor<8x32x16xf32>, tensor<16xf32>) -> (tensor<8x32x16xf32>, tensor<8x32xf32>) loc("h.0.norm")
    %wq = pc.parameter "h.0.q" dims ["kv_heads", "group", "head_dim", "embed"] init <normal, 0.02> source <"h.0.q", shape = [16, 16], start = [0, 0], size = [16, 16]> : tensor<2x1x8x16xf32>
    %wk = pc.parameter "h.0.k" dims ["kv_heads", "head_dim", "embed"] init <normal, 0.02> source <"h.0.k", shape = [16, 16], start = [0, 0], size = [16, 16]> : tensor<2x8x16xf32>
    %wv = pc.parameter "h.0.v" dims ["kv_heads", "head_dim", "embed"] init <normal, 0.02> source <"h.0.v", shape = [16, 16], start = [0, 0], size = [16, 16]> : tensor<2x8x16xf32>
    %q = pc.einsum "b s e, k g d e -> b s k g d" %n, %wq : (tensor<8x32x16xf32>, tensor<2x1x8x16xf32>) -> tensor<8x32x2x1x8xf32> loc("h.0.q")
    %k = pc.einsum "b s e, k d e -> b s k d" %n, %wk : (tensor<8x32x16xf32>, tensor<2x8x16xf32>) -> tensor<8x32x2x8xf32> loc("h.0.k")
    %v = pc.einsum "b s e, k d e -> b s k d" %n, %wv : (tensor<8x32x16xf32>, tensor<2x8x16xf32>) -> tensor<8x32x2x8xf32> loc("h.0.v")
    %o, %lse = pc.attention causal %q, %k, %v scale 0.35355339 : (tensor<8x32x2x1x8xf32>, tensor<8x32x2x8xf32>, tensor<8x32x2x8xf32>) -> (tensor<8x32x2x1x8xf32>, tensor<8x2x1x32xf32>) loc("h.0.attention")
    %wo = pc.parameter "h.0.o" dims ["embed", "kv_heads", "group", "head_dim"] init <normal, 0.02> source <"h.0.o", shape = [16, 16], start = [0, 0], size = [16, 16]> : tensor<16x2x1x8xf32>
    %a = pc.einsum "b s k g d, e k g d -> b s e" %o, %wo : (tensor<8x32x2x1x8xf32>, tensor<16x2x1x8xf32>) -> tensor<8x32x16xf32> loc("h.0.o")
    %r = pc.add %x, %a : (tensor<8x32x16xf32>, tensor<8x32x16xf32>) -> tensor<8x32x16xf32> loc("h.0.o")
    %logits = pc.einsum "b s e, v e -> b s v" %r, %wte : (tensor<8x32x16xf32>, tensor<256x16xf32>) -> tensor<8x32x256xf32> loc("head")
    %each = pc.cross_entropy %logits, %targets : (tensor<8x32x256xf32>, tensor<8x32xi32>) -> tensor<8x32xf32> loc("loss")
    %w = pc.input loss_weights dims ["batch", "sequence"] : tensor<8x32xf32>
    %loss = pc.einsum "b s, b s ->" %each, %w : (tensor<8x32xf32>, tensor<8x32xf32>) -> tensor<f32> loc("loss")
    pc.output loss "loss" %loss : tensor<f32> loc("loss")
    return
  }
}
