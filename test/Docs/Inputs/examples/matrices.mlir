func.func @step() {
  %norm = pc.input loss_weights dims [] : tensor<f32>
  %hyper = pc.input hyper dims ["hyper"] : tensor<9xf32>
  %w0 = pc.parameter "w0" dims ["rows", "columns"] init <fill, 1.0> source <"w0", shape = [4, 6], start = [0, 0], size = [4, 6]> : tensor<4x6xf32>
  %w1 = pc.parameter "w1" dims ["rows", "columns"] init <fill, 1.0> source <"w1", shape = [4, 6], start = [0, 0], size = [4, 6]> : tensor<4x6xf32>
  %c = pc.clip_coefficient %norm, %hyper : (tensor<f32>, tensor<9xf32>) -> tensor<f32>
  %u0 = pc.einsum ", a b -> a b" %c, %w0 : (tensor<f32>, tensor<4x6xf32>) -> tensor<4x6xf32>
  %p0 = pc.einsum "a b, c b -> a c" %u0, %u0 : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x4xf32>
  pc.output gradient "w0" %p0 : tensor<4x4xf32>
  %u1 = pc.einsum ", a b -> a b" %c, %w1 : (tensor<f32>, tensor<4x6xf32>) -> tensor<4x6xf32>
  %p1 = pc.einsum "a b, c b -> a c" %u1, %u1 : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x4xf32>
  pc.output gradient "w1" %p1 : tensor<4x4xf32>
  return
}
