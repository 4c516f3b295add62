pc.program "attention" batch 2 sequence 8 vocabulary 16 config "{}"
func.func @model() {
  %table = pc.parameter "table" dims ["vocab", "embed"] init <fill, 1.0> source <"table", shape = [16, 8], start = [0, 0], size = [16, 8]> : tensor<16x8xf32>
  %wq = pc.parameter "wq" dims ["embed", "kv_heads", "group", "head_dim"] init <fill, 1.0> source <"wq", shape = [8, 16], start = [0, 0], size = [8, 16]> : tensor<8x2x2x4xf32>
  %wk = pc.parameter "wk" dims ["embed", "kv_heads", "head_dim"] init <fill, 1.0> source <"wk", shape = [8, 8], start = [0, 0], size = [8, 8]> : tensor<8x2x4xf32>
  %wv = pc.parameter "wv" dims ["embed", "kv_heads", "head_dim"] init <fill, 1.0> source <"wv", shape = [8, 8], start = [0, 0], size = [8, 8]> : tensor<8x2x4xf32>
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x8xi32>
  %x = pc.embedding %table, %tokens : (tensor<16x8xf32>, tensor<2x8xi32>) -> tensor<2x8x8xf32>
  %q = pc.einsum "b s e, e k g d -> b s k g d" %x, %wq : (tensor<2x8x8xf32>, tensor<8x2x2x4xf32>) -> tensor<2x8x2x2x4xf32>
  %k = pc.einsum "b s e, e k d -> b s k d" %x, %wk : (tensor<2x8x8xf32>, tensor<8x2x4xf32>) -> tensor<2x8x2x4xf32>
  %v = pc.einsum "b s e, e k d -> b s k d" %x, %wv : (tensor<2x8x8xf32>, tensor<8x2x4xf32>) -> tensor<2x8x2x4xf32>
  %o, %lse = pc.attention causal %q, %k, %v scale 0.5 : (tensor<2x8x2x2x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>) -> (tensor<2x8x2x2x4xf32>, tensor<2x2x2x8xf32>)
  pc.output logits "o" %o : tensor<2x8x2x2x4xf32>
  return
}
