// Three layers of three parameters: La holds a0 a1 a2, Lb b0 b1 b2, Lc c0 c1 c2. Each of the three sequences is one number x; the program
// learns to say the next number: y = sum_i x a_i b_i c_i.
module {
  pc.program "three-layers" batch 3 sequence 1 vocabulary 16 config "{}"
  func.func @model() {
    %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<3x1xi32>
    %targets = pc.input targets dims ["batch", "sequence"] : tensor<3x1xi32>
    %x = pc.cast %tokens : (tensor<3x1xi32>) -> tensor<3x1xf32> loc("x")
    %a = pc.parameter "La" dims ["unit"] init <fill, 5.000000e-01> source <"La", shape = [3], start = [0], size = [3]> : tensor<3xf32> loc("La")
    %ha = pc.einsum "b s, i -> b s i" %x, %a : (tensor<3x1xf32>, tensor<3xf32>) -> tensor<3x1x3xf32> loc("La")
    %b = pc.parameter "Lb" dims ["unit"] init <fill, 5.000000e-01> source <"Lb", shape = [3], start = [0], size = [3]> : tensor<3xf32> loc("Lb")
    %hb = pc.einsum "b s i, i -> b s i" %ha, %b : (tensor<3x1x3xf32>, tensor<3xf32>) -> tensor<3x1x3xf32> loc("Lb")
    %c = pc.parameter "Lc" dims ["unit"] init <fill, 5.000000e-01> source <"Lc", shape = [3], start = [0], size = [3]> : tensor<3xf32> loc("Lc")
    %y = pc.einsum "b s i, i -> b s" %hb, %c : (tensor<3x1x3xf32>, tensor<3xf32>) -> tensor<3x1xf32> loc("Lc")
    %t = pc.cast %targets : (tensor<3x1xi32>) -> tensor<3x1xf32> loc("loss")
    %d = pc.sub %y, %t : (tensor<3x1xf32>, tensor<3x1xf32>) -> tensor<3x1xf32> loc("loss")
    %sum = pc.einsum "b s, b s ->" %d, %d : (tensor<3x1xf32>, tensor<3x1xf32>) -> tensor<f32> loc("loss")
    %loss = pc.scale %sum by 0.33333333333333331 : (tensor<f32>) -> tensor<f32> loc("loss")
    pc.output loss "loss" %loss : tensor<f32> loc("loss")
    return
  }
}
