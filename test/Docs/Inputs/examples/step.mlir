pc.program "words" batch 4 sequence 1 vocabulary 8 config "{}"
func.func @step() {
  %0 = pc.parameter "w" dims ["vocab", "out"] init <normal, 1.000000e+00> source <"w", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
  %1 = pc.input tokens dims ["microbatch", "batch"] : tensor<1x4xi32>
  %2:2 = pc.accumulate (%arg0 = %1 : tensor<1x4xi32> -> tensor<4xi32>) {
    %8 = pc.embedding %0, %arg0 : (tensor<8x6xf32>, tensor<4xi32>) -> tensor<4x6xf32>
    %9 = pc.einsum "b o, b o ->" %8, %8 : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<f32>
    %10 = pc.seed : tensor<f32>
    %11 = pc.einsum ", b o -> b o" %10, %8 : (tensor<f32>, tensor<4x6xf32>) -> tensor<4x6xf32>
    %12 = pc.einsum ", b o -> b o" %10, %8 : (tensor<f32>, tensor<4x6xf32>) -> tensor<4x6xf32>
    %13 = pc.add %11, %12 : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
    %14 = pc.embedding_grad %13, %arg0 : (tensor<4x6xf32>, tensor<4xi32>) -> tensor<8x6xf32>
    pc.yield %9, %14 : tensor<f32>, tensor<8x6xf32>
  } : tensor<f32>, tensor<8x6xf32>
  pc.output loss "loss" %2#0 : tensor<f32>
  pc.output gradient "w" %2#1 : tensor<8x6xf32>
  %3 = pc.einsum "x0 x1, x0 x1 ->" %2#1, %2#1 : (tensor<8x6xf32>, tensor<8x6xf32>) -> tensor<f32>
  %4 = pc.input hyper dims ["hyper"] : tensor<9xf32>
  %5 = pc.sqrt %3 : (tensor<f32>) -> tensor<f32>
  pc.output grad_norm "grad_norm" %5 : tensor<f32>
  %6 = pc.clip_coefficient %5, %4 : (tensor<f32>, tensor<9xf32>) -> tensor<f32>
  %7 = pc.sgd %0, %2#1, %6, %4 : (tensor<8x6xf32>, tensor<8x6xf32>, tensor<f32>, tensor<9xf32>) -> tensor<8x6xf32>
  pc.update "w" %7 : tensor<8x6xf32>
  return
}
