func.func @model() {
  %w = pc.parameter "w" dims ["vocab", "out"] init <normal, 1.0>
    source <"w", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
  %x = pc.input tokens dims ["batch"] : tensor<4xi32>
  %y = pc.embedding %w, %x : (tensor<8x6xf32>, tensor<4xi32>) -> tensor<4x6xf32>
  %loss = pc.einsum "b o, b o ->" %y, %y : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}
