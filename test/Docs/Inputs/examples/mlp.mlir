func.func @step() {
  %x = pc.input loss_weights dims ["batch", "sequence", "embed"] : tensor<4x8x8xf32>
  %gamma = pc.parameter "gamma" dims ["embed"] init <fill, 1.0> source <"gamma", shape = [8], start = [0], size = [8]> : tensor<8xf32>
  %up = pc.parameter "up" dims ["embed", "ffn"] init <fill, 1.0> source <"up", shape = [8, 16], start = [0, 0], size = [8, 16]> : tensor<8x16xf32>
  %down = pc.parameter "down" dims ["ffn", "embed"] init <fill, 1.0> source <"down", shape = [16, 8], start = [0, 0], size = [16, 8]> : tensor<16x8xf32>
  %n, %rstd = pc.rms_norm %x, %gamma eps 1.0e-5 : (tensor<4x8x8xf32>, tensor<8xf32>) -> (tensor<4x8x8xf32>, tensor<4x8xf32>)
  %h = pc.einsum "b s e, e f -> b s f" %n, %up : (tensor<4x8x8xf32>, tensor<8x16xf32>) -> tensor<4x8x16xf32>
  %y = pc.einsum "b s f, f e -> b s e" %h, %down : (tensor<4x8x16xf32>, tensor<16x8xf32>) -> tensor<4x8x8xf32>
  pc.output logits "y" %y : tensor<4x8x8xf32>
  return
}
