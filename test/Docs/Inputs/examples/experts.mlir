func.func @step() {
  %up = pc.parameter "up" dims ["experts", "expert_ffn", "embed"] init <fill, 1.0> source <"up", shape = [4, 6, 8], start = [0, 0, 0], size = [4, 6, 8]> : tensor<4x6x8xf32>
  %down = pc.parameter "down" dims ["embed", "experts", "expert_ffn"] init <fill, 1.0> source <"down", shape = [8, 4, 6], start = [0, 0, 0], size = [8, 4, 6]> : tensor<8x4x6xf32>
  %x = pc.input loss_weights dims ["batch", "sequence", "embed"] : tensor<4x8x8xf32>
  %mask = pc.input targets dims ["batch", "sequence", "experts"] : tensor<4x8x4xf32>
  %h = pc.einsum "b s e, n f e, b s n -> b s n f" %x, %up, %mask routed 1 : (tensor<4x8x8xf32>, tensor<4x6x8xf32>, tensor<4x8x4xf32>) -> tensor<4x8x4x6xf32>
  %y = pc.einsum "b s n f, e n f, b s n -> b s e" %h, %down, %mask routed 1 : (tensor<4x8x4x6xf32>, tensor<8x4x6xf32>, tensor<4x8x4xf32>) -> tensor<4x8x8xf32>
  pc.output logits "y" %y : tensor<4x8x8xf32>
  return
}
