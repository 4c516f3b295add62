// The gradient of each token's loss depends on the losses of all tokens.
func.func @model() {
  %x = pc.parameter "x" dims ["sequence", "embed"] init <normal, 1.0> source <"x", shape = [8, 4], start = [0, 0], size = [8, 4]> : tensor<8x4xf32>
  %w = pc.parameter "w" dims ["vocab", "embed"] init <normal, 1.0> source <"w", shape = [16, 4], start = [0, 0], size = [16, 4]> : tensor<16x4xf32>
  %targets = pc.input targets dims ["sequence"] : tensor<8xi32>
  %logits = pc.einsum "s e, v e -> s v" %x, %w : (tensor<8x4xf32>, tensor<16x4xf32>) -> tensor<8x16xf32>
  %nll = pc.cross_entropy %logits, %targets : (tensor<8x16xf32>, tensor<8xi32>) -> tensor<8xf32>
  %sum = pc.einsum "s ->" %nll : (tensor<8xf32>) -> tensor<f32>
  %loss = pc.exp %sum : (tensor<f32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}
