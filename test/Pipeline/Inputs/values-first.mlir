// Each of three layers has its own table, and all tables are read before the first layer begins.
pc.program "layers" batch 4 sequence 8 vocabulary 16 config "{}"
func.func @model() {
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<4x8xi32>
  %targets = pc.input targets dims ["batch", "sequence"] : tensor<4x8xi32>
  %weights = pc.input loss_weights dims ["batch", "sequence"] : tensor<4x8xf32>
  %t = pc.parameter "table" dims ["vocab", "embed"] init <normal, 2.0e-02> source <"table", shape = [16, 8], start = [0, 0], size = [16, 8]> : tensor<16x8xf32>
  %x0 = pc.embedding %t, %tokens : (tensor<16x8xf32>, tensor<4x8xi32>) -> tensor<4x8x8xf32> loc("table")
  %v0 = pc.parameter "h.0.value" dims ["vocab", "embed"] init <normal, 2.0e-02> source <"h.0.value", shape = [16, 8], start = [0, 0], size = [16, 8]> : tensor<16x8xf32>
  %e0 = pc.embedding %v0, %tokens : (tensor<16x8xf32>, tensor<4x8xi32>) -> tensor<4x8x8xf32> loc("h.0.value")
  %v1 = pc.parameter "h.1.value" dims ["vocab", "embed"] init <normal, 2.0e-02> source <"h.1.value", shape = [16, 8], start = [0, 0], size = [16, 8]> : tensor<16x8xf32>
  %e1 = pc.embedding %v1, %tokens : (tensor<16x8xf32>, tensor<4x8xi32>) -> tensor<4x8x8xf32> loc("h.1.value")
  %v2 = pc.parameter "h.2.value" dims ["vocab", "embed"] init <normal, 2.0e-02> source <"h.2.value", shape = [16, 8], start = [0, 0], size = [16, 8]> : tensor<16x8xf32>
  %e2 = pc.embedding %v2, %tokens : (tensor<16x8xf32>, tensor<4x8xi32>) -> tensor<4x8x8xf32> loc("h.2.value")
  %w0 = pc.parameter "h.0.fc" dims ["embed", "ffn"] init <normal, 2.0e-02> source <"h.0.fc", shape = [8, 8], start = [0, 0], size = [8, 8]> : tensor<8x8xf32>
  %y0 = pc.einsum "b s e, e f -> b s f" %x0, %w0 : (tensor<4x8x8xf32>, tensor<8x8xf32>) -> tensor<4x8x8xf32> loc("h.0.fc")
  %a0 = pc.activation tanh %y0 : (tensor<4x8x8xf32>) -> tensor<4x8x8xf32> loc("h.0.fc")
  %s0 = pc.add %a0, %e0 : (tensor<4x8x8xf32>, tensor<4x8x8xf32>) -> tensor<4x8x8xf32> loc("h.0")
  %x1 = pc.add %x0, %s0 : (tensor<4x8x8xf32>, tensor<4x8x8xf32>) -> tensor<4x8x8xf32> loc("h.0")
  %w1 = pc.parameter "h.1.fc" dims ["embed", "ffn"] init <normal, 2.0e-02> source <"h.1.fc", shape = [8, 8], start = [0, 0], size = [8, 8]> : tensor<8x8xf32>
  %y1 = pc.einsum "b s e, e f -> b s f" %x1, %w1 : (tensor<4x8x8xf32>, tensor<8x8xf32>) -> tensor<4x8x8xf32> loc("h.1.fc")
  %a1 = pc.activation tanh %y1 : (tensor<4x8x8xf32>) -> tensor<4x8x8xf32> loc("h.1.fc")
  %s1 = pc.add %a1, %e1 : (tensor<4x8x8xf32>, tensor<4x8x8xf32>) -> tensor<4x8x8xf32> loc("h.1")
  %x2 = pc.add %x1, %s1 : (tensor<4x8x8xf32>, tensor<4x8x8xf32>) -> tensor<4x8x8xf32> loc("h.1")
  %w2 = pc.parameter "h.2.fc" dims ["embed", "ffn"] init <normal, 2.0e-02> source <"h.2.fc", shape = [8, 8], start = [0, 0], size = [8, 8]> : tensor<8x8xf32>
  %y2 = pc.einsum "b s e, e f -> b s f" %x2, %w2 : (tensor<4x8x8xf32>, tensor<8x8xf32>) -> tensor<4x8x8xf32> loc("h.2.fc")
  %a2 = pc.activation tanh %y2 : (tensor<4x8x8xf32>) -> tensor<4x8x8xf32> loc("h.2.fc")
  %s2 = pc.add %a2, %e2 : (tensor<4x8x8xf32>, tensor<4x8x8xf32>) -> tensor<4x8x8xf32> loc("h.2")
  %x3 = pc.add %x2, %s2 : (tensor<4x8x8xf32>, tensor<4x8x8xf32>) -> tensor<4x8x8xf32> loc("h.2")
  %logits = pc.einsum "b s e, v e -> b s v" %x3, %t : (tensor<4x8x8xf32>, tensor<16x8xf32>) -> tensor<4x8x16xf32> loc("head")
  pc.output logits "logits" %logits : tensor<4x8x16xf32>
  %nll = pc.cross_entropy %logits, %targets : (tensor<4x8x16xf32>, tensor<4x8xi32>) -> tensor<4x8xf32> loc("loss")
  %loss = pc.einsum "b s, b s ->" %nll, %weights : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<f32> loc("loss")
  pc.output loss "loss" %loss : tensor<f32>
  return
}
