func.func @model() {
  %x = pc.input data "x" dims ["batch", "embed"] : tensor<4x8xf32>
  %gamma = pc.parameter "gamma" dims ["embed"] init <normal, 1.0> source <"gamma", shape = [8], start = [0], size = [8]> : tensor<8xf32>
  %squares = pc.einsum "b e, b e -> b" %x, %x : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4xf32>
  %mean = pc.scale %squares by 1.250000e-01 : (tensor<4xf32>) -> tensor<4xf32>
  %eps = pc.constant 1.000000e-05 : tensor<f32>
  %wide = pc.einsum "-> b" %eps : (tensor<f32>) -> tensor<4xf32>
  %more = pc.add %mean, %wide : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %root = pc.sqrt %more : (tensor<4xf32>) -> tensor<4xf32>
  %rstd = pc.recip %root : (tensor<4xf32>) -> tensor<4xf32>
  %y = pc.einsum "b e, b, e -> b e" %x, %rstd, %gamma : (tensor<4x8xf32>, tensor<4xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  %loss = pc.einsum "b e, b e ->" %y, %y : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}
