// The smallest program with every kind of dim: a tied embedding, one hidden layer with a residual, and cross-entropy.
pc.program "toy" batch 8 sequence 8 vocabulary 512 config "{}"
func.func @model() {
  %w = pc.parameter "wte" dims ["vocab", "embed"] init <normal, 2.0e-02>
    source <"wte", shape = [512, 6], start = [0, 0], size = [512, 6]> : tensor<512x6xf32>
  %w1 = pc.parameter "up" dims ["embed", "ffn"] init <normal, 2.0e-02>
    source <"up", shape = [6, 24], start = [0, 0], size = [6, 24]> : tensor<6x24xf32>
  %w2 = pc.parameter "down" dims ["ffn", "embed"] init <normal, 2.0e-02>
    source <"down", shape = [24, 6], start = [0, 0], size = [24, 6]> : tensor<24x6xf32>
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<8x8xi32>
  %targets = pc.input targets dims ["batch", "sequence"] : tensor<8x8xi32>
  %x = pc.embedding %w, %tokens : (tensor<512x6xf32>, tensor<8x8xi32>) -> tensor<8x8x6xf32>
  %h = pc.einsum "b s e, e f -> b s f" %x, %w1 : (tensor<8x8x6xf32>, tensor<6x24xf32>) -> tensor<8x8x24xf32>
  %a = pc.activation silu %h : (tensor<8x8x24xf32>) -> tensor<8x8x24xf32>
  %y = pc.einsum "b s f, f e -> b s e" %a, %w2 : (tensor<8x8x24xf32>, tensor<24x6xf32>) -> tensor<8x8x6xf32>
  %z = pc.add %x, %y : (tensor<8x8x6xf32>, tensor<8x8x6xf32>) -> tensor<8x8x6xf32>
  %logits = pc.einsum "b s e, v e -> b s v" %z, %w : (tensor<8x8x6xf32>, tensor<512x6xf32>) -> tensor<8x8x512xf32>
  pc.output logits "logits" %logits : tensor<8x8x512xf32>
  %nll = pc.cross_entropy %logits, %targets : (tensor<8x8x512xf32>, tensor<8x8xi32>) -> tensor<8x8xf32>
  %sum = pc.einsum "b s ->" %nll : (tensor<8x8xf32>) -> tensor<f32>
  %loss = pc.scale %sum by 1.5625e-02 : (tensor<f32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}
