// A model with one layer of attention, and learned positions.
pc.program "gpt2" batch 2 sequence 8 vocabulary 16 config "{}"
func.func @model() {
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x8xi32>
  %targets = pc.input targets dims ["batch", "sequence"] : tensor<2x8xi32>
  %weights = pc.input loss_weights dims ["batch", "sequence"] : tensor<2x8xf32>
  %wte = pc.parameter "wte" dims ["vocab", "embed"] init <normal, 1.0> source <"wte", shape = [16, 4], start = [0, 0], size = [16, 4]> : tensor<16x4xf32>
  %wpe = pc.parameter "wpe" dims ["position", "embed"] init <normal, 1.0> source <"wpe", shape = [8, 4], start = [0, 0], size = [8, 4]> : tensor<8x4xf32>
  %w = pc.parameter "w" dims ["kv_heads", "head_dim", "embed"] init <normal, 1.0> source <"w", shape = [4, 4], start = [0, 0], size = [4, 4]> : tensor<2x2x4xf32>
  %out = pc.parameter "out" dims ["kv_heads", "group", "head_dim", "embed"] init <normal, 1.0> source <"out", shape = [4, 4], start = [0, 0], size = [4, 4]> : tensor<2x1x2x4xf32>
  %one = pc.parameter "one" dims ["group"] init <fill, 1.0> source <"one", shape = [1], start = [0], size = [1]> : tensor<1xf32>
  %gamma = pc.parameter "gamma" dims ["embed"] init <fill, 1.0> source <"gamma", shape = [4], start = [0], size = [4]> : tensor<4xf32>
  %e = pc.embedding %wte, %tokens : (tensor<16x4xf32>, tensor<2x8xi32>) -> tensor<2x8x4xf32>
  %index = pc.iota -> tensor<8xi32>
  %rows = pc.embedding %wpe, %index : (tensor<8x4xf32>, tensor<8xi32>) -> tensor<8x4xf32>
  %p = pc.einsum "s e -> b s e" %rows : (tensor<8x4xf32>) -> tensor<2x8x4xf32>
  %x = pc.add %e, %p : (tensor<2x8x4xf32>, tensor<2x8x4xf32>) -> tensor<2x8x4xf32>
  %k = pc.einsum "b s e, k d e -> b s k d" %x, %w : (tensor<2x8x4xf32>, tensor<2x2x4xf32>) -> tensor<2x8x2x2xf32>
  %q = pc.einsum "b s e, k d e, g -> b s k g d" %x, %w, %one : (tensor<2x8x4xf32>, tensor<2x2x4xf32>, tensor<1xf32>) -> tensor<2x8x2x1x2xf32>
  %o, %lse = pc.attention causal %q, %k, %k scale 0.5 : (tensor<2x8x2x1x2xf32>, tensor<2x8x2x2xf32>, tensor<2x8x2x2xf32>) -> (tensor<2x8x2x1x2xf32>, tensor<2x2x1x8xf32>)
  %y = pc.einsum "b s k g d, k g d e -> b s e" %o, %out : (tensor<2x8x2x1x2xf32>, tensor<2x1x2x4xf32>) -> tensor<2x8x4xf32>
  %z = pc.add %x, %y : (tensor<2x8x4xf32>, tensor<2x8x4xf32>) -> tensor<2x8x4xf32>
  %n, %mean, %rstd = pc.layer_norm %z, %gamma, %gamma eps 1.0e-5 : (tensor<2x8x4xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<2x8x4xf32>, tensor<2x8xf32>, tensor<2x8xf32>)
  %logits = pc.einsum "b s e, v e -> b s v" %n, %wte : (tensor<2x8x4xf32>, tensor<16x4xf32>) -> tensor<2x8x16xf32>
  pc.output logits "logits" %logits : tensor<2x8x16xf32>
  %nll = pc.cross_entropy %logits, %targets : (tensor<2x8x16xf32>, tensor<2x8xi32>) -> tensor<2x8xf32>
  %loss = pc.einsum "b s, b s ->" %nll, %weights : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}
