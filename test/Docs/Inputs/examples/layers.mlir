pc.program "two" batch 4 sequence 8 vocabulary 16 config "{}"
func.func @model() {
  %table = pc.parameter "table" dims ["vocab", "embed"] init <fill, 1.0> source <"table", shape = [16, 8], start = [0, 0], size = [16, 8]> : tensor<16x8xf32>
  %w0 = pc.parameter "h.0.w" dims ["embed", "embed"] init <fill, 1.0> source <"h.0.w", shape = [8, 8], start = [0, 0], size = [8, 8]> : tensor<8x8xf32>
  %w1 = pc.parameter "h.1.w" dims ["embed", "embed"] init <fill, 1.0> source <"h.1.w", shape = [8, 8], start = [0, 0], size = [8, 8]> : tensor<8x8xf32>
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<4x8xi32>
  %x = pc.embedding %table, %tokens : (tensor<16x8xf32>, tensor<4x8xi32>) -> tensor<4x8x8xf32>
  %y0 = pc.einsum "b s e, e f -> b s f" %x, %w0 : (tensor<4x8x8xf32>, tensor<8x8xf32>) -> tensor<4x8x8xf32> loc("h.0.up")
  %a0 = pc.activation silu %y0 : (tensor<4x8x8xf32>) -> tensor<4x8x8xf32> loc("h.0.act")
  %y1 = pc.einsum "b s e, e f -> b s f" %a0, %w1 : (tensor<4x8x8xf32>, tensor<8x8xf32>) -> tensor<4x8x8xf32> loc("h.1.up")
  %a1 = pc.activation silu %y1 : (tensor<4x8x8xf32>) -> tensor<4x8x8xf32> loc("h.1.act")
  %loss = pc.einsum "b s f, b s f ->" %a1, %a1 : (tensor<4x8x8xf32>, tensor<4x8x8xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}
