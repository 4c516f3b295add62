pc.mesh <dp = 1>
pc.program "scale" batch 4 sequence 1 vocabulary 5 config "{}"
pc.arena 256
func.func @step() {
  %w = pc.parameter "w" dims ["a"] init <fill, 1.0> source <"w", shape = [32], start = [0], size = [32]> global [32] layout <[_]> : tensor<32xf32, #pc.home<0>>
  %b = pc.scale %w by 2.0 : (tensor<32xf32, #pc.home<0>>) -> tensor<32xf32, #pc.home<128>>
  pc.update "w" %b : tensor<32xf32, #pc.home<128>>
  return
}
