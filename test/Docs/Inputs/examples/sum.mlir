func.func @step() {
  %x = pc.input loss_weights dims ["batch"] : tensor<8xf32>
  %s = pc.einsum "b ->" %x : (tensor<8xf32>) -> tensor<f32>
  pc.output loss "loss" %s : tensor<f32>
  return
}
