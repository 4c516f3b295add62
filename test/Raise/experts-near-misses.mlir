// Sums that are almost such a mixture of experts stay as they are, and so do their parameters.
// RUN: pc-opt %s --split-input-file -o %t.before && pc-opt %s --split-input-file --pc-raise -o %t.after && cmp %t.before %t.after

// Weights are not zero for other experts.
module {
  pc.program "experts" batch 4 sequence 3 vocabulary 16 config "{}"
  func.func @model() {
    %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<4x3xi32>
    %wte = pc.parameter "wte" dims ["vocab", "embed"] init <normal, 1.0> source <"wte", shape = [16, 8], start = [0, 0], size = [16, 8]> : tensor<16x8xf32>
    %x = pc.embedding %wte, %tokens : (tensor<16x8xf32>, tensor<4x3xi32>) -> tensor<4x3x8xf32> loc("embedding")
    %router = pc.parameter "h.0.router" dims ["choices", "embed"] init <normal, 1.0> source <"h.0.router", shape = [4, 8], start = [0, 0], size = [4, 8]> : tensor<4x8xf32>
    %logits = pc.einsum "b s e, n e -> b s n" %x, %router : (tensor<4x3x8xf32>, tensor<4x8xf32>) -> tensor<4x3x4xf32>
    %scores = pc.softmax %logits : (tensor<4x3x4xf32>) -> tensor<4x3x4xf32>
    %chosen = pc.top_k %scores k 2 : (tensor<4x3x4xf32>) -> tensor<4x3x4xf32>
    %weights = pc.einsum "b s n, b s n -> b s n" %scores, %chosen : (tensor<4x3x4xf32>, tensor<4x3x4xf32>) -> tensor<4x3x4xf32>
    %col0 = pc.columns %scores from 0 : (tensor<4x3x4xf32>) -> tensor<4x3x1xf32>
    %share0 = pc.einsum "b s u -> b s" %col0 : (tensor<4x3x1xf32>) -> tensor<4x3xf32>
    %up0 = pc.parameter "h.0.experts.0.up" dims ["ffn", "embed"] init <normal, 1.0> source <"h.0.experts.0.up", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
    %pre0 = pc.einsum "b s e, f e -> b s f" %x, %up0 : (tensor<4x3x8xf32>, tensor<6x8xf32>) -> tensor<4x3x6xf32>
    %h0 = pc.activation gelu %pre0 : (tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %down0 = pc.parameter "h.0.experts.0.down" dims ["embed", "ffn"] init <normal, 1.0> source <"h.0.experts.0.down", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
    %d0 = pc.einsum "b s f, e f -> b s e" %h0, %down0 : (tensor<4x3x6xf32>, tensor<8x6xf32>) -> tensor<4x3x8xf32>
    %p0 = pc.einsum "b s, b s e -> b s e" %share0, %d0 : (tensor<4x3xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %col1 = pc.columns %scores from 1 : (tensor<4x3x4xf32>) -> tensor<4x3x1xf32>
    %share1 = pc.einsum "b s u -> b s" %col1 : (tensor<4x3x1xf32>) -> tensor<4x3xf32>
    %up1 = pc.parameter "h.0.experts.1.up" dims ["ffn", "embed"] init <normal, 1.0> source <"h.0.experts.1.up", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
    %pre1 = pc.einsum "b s e, f e -> b s f" %x, %up1 : (tensor<4x3x8xf32>, tensor<6x8xf32>) -> tensor<4x3x6xf32>
    %h1 = pc.activation gelu %pre1 : (tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %down1 = pc.parameter "h.0.experts.1.down" dims ["embed", "ffn"] init <normal, 1.0> source <"h.0.experts.1.down", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
    %d1 = pc.einsum "b s f, e f -> b s e" %h1, %down1 : (tensor<4x3x6xf32>, tensor<8x6xf32>) -> tensor<4x3x8xf32>
    %p1 = pc.einsum "b s, b s e -> b s e" %share1, %d1 : (tensor<4x3xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %s1 = pc.add %p0, %p1 : (tensor<4x3x8xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %col2 = pc.columns %scores from 2 : (tensor<4x3x4xf32>) -> tensor<4x3x1xf32>
    %share2 = pc.einsum "b s u -> b s" %col2 : (tensor<4x3x1xf32>) -> tensor<4x3xf32>
    %up2 = pc.parameter "h.0.experts.2.up" dims ["ffn", "embed"] init <normal, 1.0> source <"h.0.experts.2.up", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
    %pre2 = pc.einsum "b s e, f e -> b s f" %x, %up2 : (tensor<4x3x8xf32>, tensor<6x8xf32>) -> tensor<4x3x6xf32>
    %h2 = pc.activation gelu %pre2 : (tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %down2 = pc.parameter "h.0.experts.2.down" dims ["embed", "ffn"] init <normal, 1.0> source <"h.0.experts.2.down", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
    %d2 = pc.einsum "b s f, e f -> b s e" %h2, %down2 : (tensor<4x3x6xf32>, tensor<8x6xf32>) -> tensor<4x3x8xf32>
    %p2 = pc.einsum "b s, b s e -> b s e" %share2, %d2 : (tensor<4x3xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %s2 = pc.add %s1, %p2 : (tensor<4x3x8xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %col3 = pc.columns %scores from 3 : (tensor<4x3x4xf32>) -> tensor<4x3x1xf32>
    %share3 = pc.einsum "b s u -> b s" %col3 : (tensor<4x3x1xf32>) -> tensor<4x3xf32>
    %up3 = pc.parameter "h.0.experts.3.up" dims ["ffn", "embed"] init <normal, 1.0> source <"h.0.experts.3.up", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
    %pre3 = pc.einsum "b s e, f e -> b s f" %x, %up3 : (tensor<4x3x8xf32>, tensor<6x8xf32>) -> tensor<4x3x6xf32>
    %h3 = pc.activation gelu %pre3 : (tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %down3 = pc.parameter "h.0.experts.3.down" dims ["embed", "ffn"] init <normal, 1.0> source <"h.0.experts.3.down", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
    %d3 = pc.einsum "b s f, e f -> b s e" %h3, %down3 : (tensor<4x3x6xf32>, tensor<8x6xf32>) -> tensor<4x3x8xf32>
    %p3 = pc.einsum "b s, b s e -> b s e" %share3, %d3 : (tensor<4x3xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %out = pc.add %s2, %p3 : (tensor<4x3x8xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %all = pc.einsum "b s e, v e -> b s v" %out, %wte : (tensor<4x3x8xf32>, tensor<16x8xf32>) -> tensor<4x3x16xf32>
    %z = pc.logsumexp %all : (tensor<4x3x16xf32>) -> tensor<4x3xf32>
    %zz = pc.einsum "b s, b s ->" %z, %z : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<f32>
    pc.output loss "loss" %zz : tensor<f32>
    return
  }
}

// -----

// Half of the experts are weighted by another choice.
module {
  pc.program "experts" batch 4 sequence 3 vocabulary 16 config "{}"
  func.func @model() {
    %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<4x3xi32>
    %wte = pc.parameter "wte" dims ["vocab", "embed"] init <normal, 1.0> source <"wte", shape = [16, 8], start = [0, 0], size = [16, 8]> : tensor<16x8xf32>
    %x = pc.embedding %wte, %tokens : (tensor<16x8xf32>, tensor<4x3xi32>) -> tensor<4x3x8xf32> loc("embedding")
    %router = pc.parameter "h.0.router" dims ["choices", "embed"] init <normal, 1.0> source <"h.0.router", shape = [4, 8], start = [0, 0], size = [4, 8]> : tensor<4x8xf32>
    %logits = pc.einsum "b s e, n e -> b s n" %x, %router : (tensor<4x3x8xf32>, tensor<4x8xf32>) -> tensor<4x3x4xf32>
    %scores = pc.softmax %logits : (tensor<4x3x4xf32>) -> tensor<4x3x4xf32>
    %chosen = pc.top_k %scores k 2 : (tensor<4x3x4xf32>) -> tensor<4x3x4xf32>
    %weights = pc.einsum "b s n, b s n -> b s n" %scores, %chosen : (tensor<4x3x4xf32>, tensor<4x3x4xf32>) -> tensor<4x3x4xf32>
    %chosen2 = pc.top_k %scores k 1 : (tensor<4x3x4xf32>) -> tensor<4x3x4xf32>
    %weights2 = pc.einsum "b s n, b s n -> b s n" %scores, %chosen2 : (tensor<4x3x4xf32>, tensor<4x3x4xf32>) -> tensor<4x3x4xf32>
    %col0 = pc.columns %weights from 0 : (tensor<4x3x4xf32>) -> tensor<4x3x1xf32>
    %share0 = pc.einsum "b s u -> b s" %col0 : (tensor<4x3x1xf32>) -> tensor<4x3xf32>
    %up0 = pc.parameter "h.0.experts.0.up" dims ["ffn", "embed"] init <normal, 1.0> source <"h.0.experts.0.up", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
    %pre0 = pc.einsum "b s e, f e -> b s f" %x, %up0 : (tensor<4x3x8xf32>, tensor<6x8xf32>) -> tensor<4x3x6xf32>
    %h0 = pc.activation gelu %pre0 : (tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %down0 = pc.parameter "h.0.experts.0.down" dims ["embed", "ffn"] init <normal, 1.0> source <"h.0.experts.0.down", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
    %d0 = pc.einsum "b s f, e f -> b s e" %h0, %down0 : (tensor<4x3x6xf32>, tensor<8x6xf32>) -> tensor<4x3x8xf32>
    %p0 = pc.einsum "b s, b s e -> b s e" %share0, %d0 : (tensor<4x3xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %col1 = pc.columns %weights from 1 : (tensor<4x3x4xf32>) -> tensor<4x3x1xf32>
    %share1 = pc.einsum "b s u -> b s" %col1 : (tensor<4x3x1xf32>) -> tensor<4x3xf32>
    %up1 = pc.parameter "h.0.experts.1.up" dims ["ffn", "embed"] init <normal, 1.0> source <"h.0.experts.1.up", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
    %pre1 = pc.einsum "b s e, f e -> b s f" %x, %up1 : (tensor<4x3x8xf32>, tensor<6x8xf32>) -> tensor<4x3x6xf32>
    %h1 = pc.activation gelu %pre1 : (tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %down1 = pc.parameter "h.0.experts.1.down" dims ["embed", "ffn"] init <normal, 1.0> source <"h.0.experts.1.down", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
    %d1 = pc.einsum "b s f, e f -> b s e" %h1, %down1 : (tensor<4x3x6xf32>, tensor<8x6xf32>) -> tensor<4x3x8xf32>
    %p1 = pc.einsum "b s, b s e -> b s e" %share1, %d1 : (tensor<4x3xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %s1 = pc.add %p0, %p1 : (tensor<4x3x8xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %col2 = pc.columns %weights2 from 2 : (tensor<4x3x4xf32>) -> tensor<4x3x1xf32>
    %share2 = pc.einsum "b s u -> b s" %col2 : (tensor<4x3x1xf32>) -> tensor<4x3xf32>
    %up2 = pc.parameter "h.0.experts.2.up" dims ["ffn", "embed"] init <normal, 1.0> source <"h.0.experts.2.up", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
    %pre2 = pc.einsum "b s e, f e -> b s f" %x, %up2 : (tensor<4x3x8xf32>, tensor<6x8xf32>) -> tensor<4x3x6xf32>
    %h2 = pc.activation gelu %pre2 : (tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %down2 = pc.parameter "h.0.experts.2.down" dims ["embed", "ffn"] init <normal, 1.0> source <"h.0.experts.2.down", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
    %d2 = pc.einsum "b s f, e f -> b s e" %h2, %down2 : (tensor<4x3x6xf32>, tensor<8x6xf32>) -> tensor<4x3x8xf32>
    %p2 = pc.einsum "b s, b s e -> b s e" %share2, %d2 : (tensor<4x3xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %s2 = pc.add %s1, %p2 : (tensor<4x3x8xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %col3 = pc.columns %weights2 from 3 : (tensor<4x3x4xf32>) -> tensor<4x3x1xf32>
    %share3 = pc.einsum "b s u -> b s" %col3 : (tensor<4x3x1xf32>) -> tensor<4x3xf32>
    %up3 = pc.parameter "h.0.experts.3.up" dims ["ffn", "embed"] init <normal, 1.0> source <"h.0.experts.3.up", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
    %pre3 = pc.einsum "b s e, f e -> b s f" %x, %up3 : (tensor<4x3x8xf32>, tensor<6x8xf32>) -> tensor<4x3x6xf32>
    %h3 = pc.activation gelu %pre3 : (tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %down3 = pc.parameter "h.0.experts.3.down" dims ["embed", "ffn"] init <normal, 1.0> source <"h.0.experts.3.down", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
    %d3 = pc.einsum "b s f, e f -> b s e" %h3, %down3 : (tensor<4x3x6xf32>, tensor<8x6xf32>) -> tensor<4x3x8xf32>
    %p3 = pc.einsum "b s, b s e -> b s e" %share3, %d3 : (tensor<4x3xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %out = pc.add %s2, %p3 : (tensor<4x3x8xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %all = pc.einsum "b s e, v e -> b s v" %out, %wte : (tensor<4x3x8xf32>, tensor<16x8xf32>) -> tensor<4x3x16xf32>
    %z = pc.logsumexp %all : (tensor<4x3x16xf32>) -> tensor<4x3xf32>
    %zz = pc.einsum "b s, b s ->" %z, %z : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<f32>
    pc.output loss "loss" %zz : tensor<f32>
    return
  }
}

// -----

// The weights are a sum over two choices.
module {
  pc.program "experts" batch 4 sequence 3 vocabulary 16 config "{}"
  func.func @model() {
    %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<4x3xi32>
    %wte = pc.parameter "wte" dims ["vocab", "embed"] init <normal, 1.0> source <"wte", shape = [16, 8], start = [0, 0], size = [16, 8]> : tensor<16x8xf32>
    %x = pc.embedding %wte, %tokens : (tensor<16x8xf32>, tensor<4x3xi32>) -> tensor<4x3x8xf32> loc("embedding")
    %router = pc.parameter "h.0.router" dims ["choices", "embed"] init <normal, 1.0> source <"h.0.router", shape = [4, 8], start = [0, 0], size = [4, 8]> : tensor<4x8xf32>
    %logits = pc.einsum "b s e, n e -> b s n" %x, %router : (tensor<4x3x8xf32>, tensor<4x8xf32>) -> tensor<4x3x4xf32>
    %scores = pc.softmax %logits : (tensor<4x3x4xf32>) -> tensor<4x3x4xf32>
    %chosen = pc.top_k %scores k 2 : (tensor<4x3x4xf32>) -> tensor<4x3x4xf32>
    %weights = pc.einsum "b s n, b s n -> b s n" %scores, %chosen : (tensor<4x3x4xf32>, tensor<4x3x4xf32>) -> tensor<4x3x4xf32>
    %chosen2 = pc.top_k %logits k 1 : (tensor<4x3x4xf32>) -> tensor<4x3x4xf32>
    %weights2 = pc.einsum "b s n, b s n -> b s n" %scores, %chosen2 : (tensor<4x3x4xf32>, tensor<4x3x4xf32>) -> tensor<4x3x4xf32>
    %both = pc.add %weights, %weights2 : (tensor<4x3x4xf32>, tensor<4x3x4xf32>) -> tensor<4x3x4xf32>
    %col0 = pc.columns %both from 0 : (tensor<4x3x4xf32>) -> tensor<4x3x1xf32>
    %share0 = pc.einsum "b s u -> b s" %col0 : (tensor<4x3x1xf32>) -> tensor<4x3xf32>
    %up0 = pc.parameter "h.0.experts.0.up" dims ["ffn", "embed"] init <normal, 1.0> source <"h.0.experts.0.up", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
    %pre0 = pc.einsum "b s e, f e -> b s f" %x, %up0 : (tensor<4x3x8xf32>, tensor<6x8xf32>) -> tensor<4x3x6xf32>
    %h0 = pc.activation gelu %pre0 : (tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %down0 = pc.parameter "h.0.experts.0.down" dims ["embed", "ffn"] init <normal, 1.0> source <"h.0.experts.0.down", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
    %d0 = pc.einsum "b s f, e f -> b s e" %h0, %down0 : (tensor<4x3x6xf32>, tensor<8x6xf32>) -> tensor<4x3x8xf32>
    %p0 = pc.einsum "b s, b s e -> b s e" %share0, %d0 : (tensor<4x3xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %col1 = pc.columns %both from 1 : (tensor<4x3x4xf32>) -> tensor<4x3x1xf32>
    %share1 = pc.einsum "b s u -> b s" %col1 : (tensor<4x3x1xf32>) -> tensor<4x3xf32>
    %up1 = pc.parameter "h.0.experts.1.up" dims ["ffn", "embed"] init <normal, 1.0> source <"h.0.experts.1.up", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
    %pre1 = pc.einsum "b s e, f e -> b s f" %x, %up1 : (tensor<4x3x8xf32>, tensor<6x8xf32>) -> tensor<4x3x6xf32>
    %h1 = pc.activation gelu %pre1 : (tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %down1 = pc.parameter "h.0.experts.1.down" dims ["embed", "ffn"] init <normal, 1.0> source <"h.0.experts.1.down", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
    %d1 = pc.einsum "b s f, e f -> b s e" %h1, %down1 : (tensor<4x3x6xf32>, tensor<8x6xf32>) -> tensor<4x3x8xf32>
    %p1 = pc.einsum "b s, b s e -> b s e" %share1, %d1 : (tensor<4x3xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %s1 = pc.add %p0, %p1 : (tensor<4x3x8xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %col2 = pc.columns %both from 2 : (tensor<4x3x4xf32>) -> tensor<4x3x1xf32>
    %share2 = pc.einsum "b s u -> b s" %col2 : (tensor<4x3x1xf32>) -> tensor<4x3xf32>
    %up2 = pc.parameter "h.0.experts.2.up" dims ["ffn", "embed"] init <normal, 1.0> source <"h.0.experts.2.up", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
    %pre2 = pc.einsum "b s e, f e -> b s f" %x, %up2 : (tensor<4x3x8xf32>, tensor<6x8xf32>) -> tensor<4x3x6xf32>
    %h2 = pc.activation gelu %pre2 : (tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %down2 = pc.parameter "h.0.experts.2.down" dims ["embed", "ffn"] init <normal, 1.0> source <"h.0.experts.2.down", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
    %d2 = pc.einsum "b s f, e f -> b s e" %h2, %down2 : (tensor<4x3x6xf32>, tensor<8x6xf32>) -> tensor<4x3x8xf32>
    %p2 = pc.einsum "b s, b s e -> b s e" %share2, %d2 : (tensor<4x3xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %s2 = pc.add %s1, %p2 : (tensor<4x3x8xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %col3 = pc.columns %both from 3 : (tensor<4x3x4xf32>) -> tensor<4x3x1xf32>
    %share3 = pc.einsum "b s u -> b s" %col3 : (tensor<4x3x1xf32>) -> tensor<4x3xf32>
    %up3 = pc.parameter "h.0.experts.3.up" dims ["ffn", "embed"] init <normal, 1.0> source <"h.0.experts.3.up", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
    %pre3 = pc.einsum "b s e, f e -> b s f" %x, %up3 : (tensor<4x3x8xf32>, tensor<6x8xf32>) -> tensor<4x3x6xf32>
    %h3 = pc.activation gelu %pre3 : (tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %down3 = pc.parameter "h.0.experts.3.down" dims ["embed", "ffn"] init <normal, 1.0> source <"h.0.experts.3.down", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
    %d3 = pc.einsum "b s f, e f -> b s e" %h3, %down3 : (tensor<4x3x6xf32>, tensor<8x6xf32>) -> tensor<4x3x8xf32>
    %p3 = pc.einsum "b s, b s e -> b s e" %share3, %d3 : (tensor<4x3xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %out = pc.add %s2, %p3 : (tensor<4x3x8xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %all = pc.einsum "b s e, v e -> b s v" %out, %wte : (tensor<4x3x8xf32>, tensor<16x8xf32>) -> tensor<4x3x16xf32>
    %z = pc.logsumexp %all : (tensor<4x3x16xf32>) -> tensor<4x3xf32>
    %zz = pc.einsum "b s, b s ->" %z, %z : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<f32>
    pc.output loss "loss" %zz : tensor<f32>
    return
  }
}

// -----

// One expert reads the result of another one.
module {
  pc.program "experts" batch 4 sequence 3 vocabulary 16 config "{}"
  func.func @model() {
    %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<4x3xi32>
    %wte = pc.parameter "wte" dims ["vocab", "embed"] init <normal, 1.0> source <"wte", shape = [16, 8], start = [0, 0], size = [16, 8]> : tensor<16x8xf32>
    %x = pc.embedding %wte, %tokens : (tensor<16x8xf32>, tensor<4x3xi32>) -> tensor<4x3x8xf32> loc("embedding")
    %router = pc.parameter "h.0.router" dims ["choices", "embed"] init <normal, 1.0> source <"h.0.router", shape = [4, 8], start = [0, 0], size = [4, 8]> : tensor<4x8xf32>
    %logits = pc.einsum "b s e, n e -> b s n" %x, %router : (tensor<4x3x8xf32>, tensor<4x8xf32>) -> tensor<4x3x4xf32>
    %scores = pc.softmax %logits : (tensor<4x3x4xf32>) -> tensor<4x3x4xf32>
    %chosen = pc.top_k %scores k 2 : (tensor<4x3x4xf32>) -> tensor<4x3x4xf32>
    %weights = pc.einsum "b s n, b s n -> b s n" %scores, %chosen : (tensor<4x3x4xf32>, tensor<4x3x4xf32>) -> tensor<4x3x4xf32>
    %col0 = pc.columns %weights from 0 : (tensor<4x3x4xf32>) -> tensor<4x3x1xf32>
    %share0 = pc.einsum "b s u -> b s" %col0 : (tensor<4x3x1xf32>) -> tensor<4x3xf32>
    %up0 = pc.parameter "h.0.experts.0.up" dims ["ffn", "embed"] init <normal, 1.0> source <"h.0.experts.0.up", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
    %pre0 = pc.einsum "b s e, f e -> b s f" %x, %up0 : (tensor<4x3x8xf32>, tensor<6x8xf32>) -> tensor<4x3x6xf32>
    %h0 = pc.activation gelu %pre0 : (tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %down0 = pc.parameter "h.0.experts.0.down" dims ["embed", "ffn"] init <normal, 1.0> source <"h.0.experts.0.down", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
    %d0 = pc.einsum "b s f, e f -> b s e" %h0, %down0 : (tensor<4x3x6xf32>, tensor<8x6xf32>) -> tensor<4x3x8xf32>
    %p0 = pc.einsum "b s, b s e -> b s e" %share0, %d0 : (tensor<4x3xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %col1 = pc.columns %weights from 1 : (tensor<4x3x4xf32>) -> tensor<4x3x1xf32>
    %share1 = pc.einsum "b s u -> b s" %col1 : (tensor<4x3x1xf32>) -> tensor<4x3xf32>
    %up1 = pc.parameter "h.0.experts.1.up" dims ["ffn", "embed"] init <normal, 1.0> source <"h.0.experts.1.up", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
    %pre1 = pc.einsum "b s e, f e -> b s f" %x, %up1 : (tensor<4x3x8xf32>, tensor<6x8xf32>) -> tensor<4x3x6xf32>
    %h1 = pc.activation gelu %pre1 : (tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %down1 = pc.parameter "h.0.experts.1.down" dims ["embed", "ffn"] init <normal, 1.0> source <"h.0.experts.1.down", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
    %d1 = pc.einsum "b s f, e f -> b s e" %h1, %down1 : (tensor<4x3x6xf32>, tensor<8x6xf32>) -> tensor<4x3x8xf32>
    %p1 = pc.einsum "b s, b s e -> b s e" %share1, %d1 : (tensor<4x3xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %s1 = pc.add %p0, %p1 : (tensor<4x3x8xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %col2 = pc.columns %weights from 2 : (tensor<4x3x4xf32>) -> tensor<4x3x1xf32>
    %share2 = pc.einsum "b s u -> b s" %col2 : (tensor<4x3x1xf32>) -> tensor<4x3xf32>
    %up2 = pc.parameter "h.0.experts.2.up" dims ["ffn", "embed"] init <normal, 1.0> source <"h.0.experts.2.up", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
    %pre2 = pc.einsum "b s e, f e -> b s f" %x, %up2 : (tensor<4x3x8xf32>, tensor<6x8xf32>) -> tensor<4x3x6xf32>
    %h2 = pc.activation gelu %pre2 : (tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %down2 = pc.parameter "h.0.experts.2.down" dims ["embed", "ffn"] init <normal, 1.0> source <"h.0.experts.2.down", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
    %d2 = pc.einsum "b s f, e f -> b s e" %h2, %down2 : (tensor<4x3x6xf32>, tensor<8x6xf32>) -> tensor<4x3x8xf32>
    %p2 = pc.einsum "b s, b s e -> b s e" %share2, %d2 : (tensor<4x3xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %s2 = pc.add %s1, %p2 : (tensor<4x3x8xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %col3 = pc.columns %weights from 3 : (tensor<4x3x4xf32>) -> tensor<4x3x1xf32>
    %share3 = pc.einsum "b s u -> b s" %col3 : (tensor<4x3x1xf32>) -> tensor<4x3xf32>
    %up3 = pc.parameter "h.0.experts.3.up" dims ["ffn", "embed"] init <normal, 1.0> source <"h.0.experts.3.up", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
    %pre3 = pc.einsum "b s e, f e -> b s f" %d2, %up3 : (tensor<4x3x8xf32>, tensor<6x8xf32>) -> tensor<4x3x6xf32>
    %h3 = pc.activation gelu %pre3 : (tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %down3 = pc.parameter "h.0.experts.3.down" dims ["embed", "ffn"] init <normal, 1.0> source <"h.0.experts.3.down", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
    %d3 = pc.einsum "b s f, e f -> b s e" %h3, %down3 : (tensor<4x3x6xf32>, tensor<8x6xf32>) -> tensor<4x3x8xf32>
    %p3 = pc.einsum "b s, b s e -> b s e" %share3, %d3 : (tensor<4x3xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %out = pc.add %s2, %p3 : (tensor<4x3x8xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %all = pc.einsum "b s e, v e -> b s v" %out, %wte : (tensor<4x3x8xf32>, tensor<16x8xf32>) -> tensor<4x3x16xf32>
    %z = pc.logsumexp %all : (tensor<4x3x16xf32>) -> tensor<4x3xf32>
    %zz = pc.einsum "b s, b s ->" %z, %z : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<f32>
    pc.output loss "loss" %zz : tensor<f32>
    return
  }
}

// -----

// One expert has another activation.
module {
  pc.program "experts" batch 4 sequence 3 vocabulary 16 config "{}"
  func.func @model() {
    %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<4x3xi32>
    %wte = pc.parameter "wte" dims ["vocab", "embed"] init <normal, 1.0> source <"wte", shape = [16, 8], start = [0, 0], size = [16, 8]> : tensor<16x8xf32>
    %x = pc.embedding %wte, %tokens : (tensor<16x8xf32>, tensor<4x3xi32>) -> tensor<4x3x8xf32> loc("embedding")
    %router = pc.parameter "h.0.router" dims ["choices", "embed"] init <normal, 1.0> source <"h.0.router", shape = [4, 8], start = [0, 0], size = [4, 8]> : tensor<4x8xf32>
    %logits = pc.einsum "b s e, n e -> b s n" %x, %router : (tensor<4x3x8xf32>, tensor<4x8xf32>) -> tensor<4x3x4xf32>
    %scores = pc.softmax %logits : (tensor<4x3x4xf32>) -> tensor<4x3x4xf32>
    %chosen = pc.top_k %scores k 2 : (tensor<4x3x4xf32>) -> tensor<4x3x4xf32>
    %weights = pc.einsum "b s n, b s n -> b s n" %scores, %chosen : (tensor<4x3x4xf32>, tensor<4x3x4xf32>) -> tensor<4x3x4xf32>
    %col0 = pc.columns %weights from 0 : (tensor<4x3x4xf32>) -> tensor<4x3x1xf32>
    %share0 = pc.einsum "b s u -> b s" %col0 : (tensor<4x3x1xf32>) -> tensor<4x3xf32>
    %up0 = pc.parameter "h.0.experts.0.up" dims ["ffn", "embed"] init <normal, 1.0> source <"h.0.experts.0.up", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
    %pre0 = pc.einsum "b s e, f e -> b s f" %x, %up0 : (tensor<4x3x8xf32>, tensor<6x8xf32>) -> tensor<4x3x6xf32>
    %h0 = pc.activation gelu %pre0 : (tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %down0 = pc.parameter "h.0.experts.0.down" dims ["embed", "ffn"] init <normal, 1.0> source <"h.0.experts.0.down", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
    %d0 = pc.einsum "b s f, e f -> b s e" %h0, %down0 : (tensor<4x3x6xf32>, tensor<8x6xf32>) -> tensor<4x3x8xf32>
    %p0 = pc.einsum "b s, b s e -> b s e" %share0, %d0 : (tensor<4x3xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %col1 = pc.columns %weights from 1 : (tensor<4x3x4xf32>) -> tensor<4x3x1xf32>
    %share1 = pc.einsum "b s u -> b s" %col1 : (tensor<4x3x1xf32>) -> tensor<4x3xf32>
    %up1 = pc.parameter "h.0.experts.1.up" dims ["ffn", "embed"] init <normal, 1.0> source <"h.0.experts.1.up", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
    %pre1 = pc.einsum "b s e, f e -> b s f" %x, %up1 : (tensor<4x3x8xf32>, tensor<6x8xf32>) -> tensor<4x3x6xf32>
    %h1 = pc.activation relu %pre1 : (tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %down1 = pc.parameter "h.0.experts.1.down" dims ["embed", "ffn"] init <normal, 1.0> source <"h.0.experts.1.down", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
    %d1 = pc.einsum "b s f, e f -> b s e" %h1, %down1 : (tensor<4x3x6xf32>, tensor<8x6xf32>) -> tensor<4x3x8xf32>
    %p1 = pc.einsum "b s, b s e -> b s e" %share1, %d1 : (tensor<4x3xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %s1 = pc.add %p0, %p1 : (tensor<4x3x8xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %col2 = pc.columns %weights from 2 : (tensor<4x3x4xf32>) -> tensor<4x3x1xf32>
    %share2 = pc.einsum "b s u -> b s" %col2 : (tensor<4x3x1xf32>) -> tensor<4x3xf32>
    %up2 = pc.parameter "h.0.experts.2.up" dims ["ffn", "embed"] init <normal, 1.0> source <"h.0.experts.2.up", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
    %pre2 = pc.einsum "b s e, f e -> b s f" %x, %up2 : (tensor<4x3x8xf32>, tensor<6x8xf32>) -> tensor<4x3x6xf32>
    %h2 = pc.activation gelu %pre2 : (tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %down2 = pc.parameter "h.0.experts.2.down" dims ["embed", "ffn"] init <normal, 1.0> source <"h.0.experts.2.down", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
    %d2 = pc.einsum "b s f, e f -> b s e" %h2, %down2 : (tensor<4x3x6xf32>, tensor<8x6xf32>) -> tensor<4x3x8xf32>
    %p2 = pc.einsum "b s, b s e -> b s e" %share2, %d2 : (tensor<4x3xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %s2 = pc.add %s1, %p2 : (tensor<4x3x8xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %col3 = pc.columns %weights from 3 : (tensor<4x3x4xf32>) -> tensor<4x3x1xf32>
    %share3 = pc.einsum "b s u -> b s" %col3 : (tensor<4x3x1xf32>) -> tensor<4x3xf32>
    %up3 = pc.parameter "h.0.experts.3.up" dims ["ffn", "embed"] init <normal, 1.0> source <"h.0.experts.3.up", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
    %pre3 = pc.einsum "b s e, f e -> b s f" %x, %up3 : (tensor<4x3x8xf32>, tensor<6x8xf32>) -> tensor<4x3x6xf32>
    %h3 = pc.activation gelu %pre3 : (tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %down3 = pc.parameter "h.0.experts.3.down" dims ["embed", "ffn"] init <normal, 1.0> source <"h.0.experts.3.down", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
    %d3 = pc.einsum "b s f, e f -> b s e" %h3, %down3 : (tensor<4x3x6xf32>, tensor<8x6xf32>) -> tensor<4x3x8xf32>
    %p3 = pc.einsum "b s, b s e -> b s e" %share3, %d3 : (tensor<4x3xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %out = pc.add %s2, %p3 : (tensor<4x3x8xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %all = pc.einsum "b s e, v e -> b s v" %out, %wte : (tensor<4x3x8xf32>, tensor<16x8xf32>) -> tensor<4x3x16xf32>
    %z = pc.logsumexp %all : (tensor<4x3x16xf32>) -> tensor<4x3xf32>
    %zz = pc.einsum "b s, b s ->" %z, %z : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<f32>
    pc.output loss "loss" %zz : tensor<f32>
    return
  }
}

// -----

// Two experts share a parameter.
module {
  pc.program "experts" batch 4 sequence 3 vocabulary 16 config "{}"
  func.func @model() {
    %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<4x3xi32>
    %wte = pc.parameter "wte" dims ["vocab", "embed"] init <normal, 1.0> source <"wte", shape = [16, 8], start = [0, 0], size = [16, 8]> : tensor<16x8xf32>
    %x = pc.embedding %wte, %tokens : (tensor<16x8xf32>, tensor<4x3xi32>) -> tensor<4x3x8xf32> loc("embedding")
    %router = pc.parameter "h.0.router" dims ["choices", "embed"] init <normal, 1.0> source <"h.0.router", shape = [4, 8], start = [0, 0], size = [4, 8]> : tensor<4x8xf32>
    %logits = pc.einsum "b s e, n e -> b s n" %x, %router : (tensor<4x3x8xf32>, tensor<4x8xf32>) -> tensor<4x3x4xf32>
    %scores = pc.softmax %logits : (tensor<4x3x4xf32>) -> tensor<4x3x4xf32>
    %chosen = pc.top_k %scores k 2 : (tensor<4x3x4xf32>) -> tensor<4x3x4xf32>
    %weights = pc.einsum "b s n, b s n -> b s n" %scores, %chosen : (tensor<4x3x4xf32>, tensor<4x3x4xf32>) -> tensor<4x3x4xf32>
    %col0 = pc.columns %weights from 0 : (tensor<4x3x4xf32>) -> tensor<4x3x1xf32>
    %share0 = pc.einsum "b s u -> b s" %col0 : (tensor<4x3x1xf32>) -> tensor<4x3xf32>
    %up0 = pc.parameter "h.0.experts.0.up" dims ["ffn", "embed"] init <normal, 1.0> source <"h.0.experts.0.up", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
    %pre0 = pc.einsum "b s e, f e -> b s f" %x, %up0 : (tensor<4x3x8xf32>, tensor<6x8xf32>) -> tensor<4x3x6xf32>
    %h0 = pc.activation gelu %pre0 : (tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %down0 = pc.parameter "h.0.experts.0.down" dims ["embed", "ffn"] init <normal, 1.0> source <"h.0.experts.0.down", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
    %d0 = pc.einsum "b s f, e f -> b s e" %h0, %down0 : (tensor<4x3x6xf32>, tensor<8x6xf32>) -> tensor<4x3x8xf32>
    %p0 = pc.einsum "b s, b s e -> b s e" %share0, %d0 : (tensor<4x3xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %col1 = pc.columns %weights from 1 : (tensor<4x3x4xf32>) -> tensor<4x3x1xf32>
    %share1 = pc.einsum "b s u -> b s" %col1 : (tensor<4x3x1xf32>) -> tensor<4x3xf32>
    %up1 = pc.parameter "h.0.experts.1.up" dims ["ffn", "embed"] init <normal, 1.0> source <"h.0.experts.1.up", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
    %pre1 = pc.einsum "b s e, f e -> b s f" %x, %up1 : (tensor<4x3x8xf32>, tensor<6x8xf32>) -> tensor<4x3x6xf32>
    %h1 = pc.activation gelu %pre1 : (tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %down1 = pc.parameter "h.0.experts.1.down" dims ["embed", "ffn"] init <normal, 1.0> source <"h.0.experts.1.down", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
    %d1 = pc.einsum "b s f, e f -> b s e" %h1, %down1 : (tensor<4x3x6xf32>, tensor<8x6xf32>) -> tensor<4x3x8xf32>
    %p1 = pc.einsum "b s, b s e -> b s e" %share1, %d1 : (tensor<4x3xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %s1 = pc.add %p0, %p1 : (tensor<4x3x8xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %col2 = pc.columns %weights from 2 : (tensor<4x3x4xf32>) -> tensor<4x3x1xf32>
    %share2 = pc.einsum "b s u -> b s" %col2 : (tensor<4x3x1xf32>) -> tensor<4x3xf32>
    %pre2 = pc.einsum "b s e, f e -> b s f" %x, %up1 : (tensor<4x3x8xf32>, tensor<6x8xf32>) -> tensor<4x3x6xf32>
    %h2 = pc.activation gelu %pre2 : (tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %down2 = pc.parameter "h.0.experts.2.down" dims ["embed", "ffn"] init <normal, 1.0> source <"h.0.experts.2.down", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
    %d2 = pc.einsum "b s f, e f -> b s e" %h2, %down2 : (tensor<4x3x6xf32>, tensor<8x6xf32>) -> tensor<4x3x8xf32>
    %p2 = pc.einsum "b s, b s e -> b s e" %share2, %d2 : (tensor<4x3xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %s2 = pc.add %s1, %p2 : (tensor<4x3x8xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %col3 = pc.columns %weights from 3 : (tensor<4x3x4xf32>) -> tensor<4x3x1xf32>
    %share3 = pc.einsum "b s u -> b s" %col3 : (tensor<4x3x1xf32>) -> tensor<4x3xf32>
    %up3 = pc.parameter "h.0.experts.3.up" dims ["ffn", "embed"] init <normal, 1.0> source <"h.0.experts.3.up", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
    %pre3 = pc.einsum "b s e, f e -> b s f" %x, %up3 : (tensor<4x3x8xf32>, tensor<6x8xf32>) -> tensor<4x3x6xf32>
    %h3 = pc.activation gelu %pre3 : (tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %down3 = pc.parameter "h.0.experts.3.down" dims ["embed", "ffn"] init <normal, 1.0> source <"h.0.experts.3.down", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
    %d3 = pc.einsum "b s f, e f -> b s e" %h3, %down3 : (tensor<4x3x6xf32>, tensor<8x6xf32>) -> tensor<4x3x8xf32>
    %p3 = pc.einsum "b s, b s e -> b s e" %share3, %d3 : (tensor<4x3xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %out = pc.add %s2, %p3 : (tensor<4x3x8xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %all = pc.einsum "b s e, v e -> b s v" %out, %wte : (tensor<4x3x8xf32>, tensor<16x8xf32>) -> tensor<4x3x16xf32>
    %z = pc.logsumexp %all : (tensor<4x3x16xf32>) -> tensor<4x3xf32>
    %zz = pc.einsum "b s, b s ->" %z, %z : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<f32>
    pc.output loss "loss" %zz : tensor<f32>
    return
  }
}

// -----

// One expert is used twice, and one not at all.
module {
  pc.program "experts" batch 4 sequence 3 vocabulary 16 config "{}"
  func.func @model() {
    %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<4x3xi32>
    %wte = pc.parameter "wte" dims ["vocab", "embed"] init <normal, 1.0> source <"wte", shape = [16, 8], start = [0, 0], size = [16, 8]> : tensor<16x8xf32>
    %x = pc.embedding %wte, %tokens : (tensor<16x8xf32>, tensor<4x3xi32>) -> tensor<4x3x8xf32> loc("embedding")
    %router = pc.parameter "h.0.router" dims ["choices", "embed"] init <normal, 1.0> source <"h.0.router", shape = [4, 8], start = [0, 0], size = [4, 8]> : tensor<4x8xf32>
    %logits = pc.einsum "b s e, n e -> b s n" %x, %router : (tensor<4x3x8xf32>, tensor<4x8xf32>) -> tensor<4x3x4xf32>
    %scores = pc.softmax %logits : (tensor<4x3x4xf32>) -> tensor<4x3x4xf32>
    %chosen = pc.top_k %scores k 2 : (tensor<4x3x4xf32>) -> tensor<4x3x4xf32>
    %weights = pc.einsum "b s n, b s n -> b s n" %scores, %chosen : (tensor<4x3x4xf32>, tensor<4x3x4xf32>) -> tensor<4x3x4xf32>
    %col0 = pc.columns %weights from 0 : (tensor<4x3x4xf32>) -> tensor<4x3x1xf32>
    %share0 = pc.einsum "b s u -> b s" %col0 : (tensor<4x3x1xf32>) -> tensor<4x3xf32>
    %up0 = pc.parameter "h.0.experts.0.up" dims ["ffn", "embed"] init <normal, 1.0> source <"h.0.experts.0.up", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
    %pre0 = pc.einsum "b s e, f e -> b s f" %x, %up0 : (tensor<4x3x8xf32>, tensor<6x8xf32>) -> tensor<4x3x6xf32>
    %h0 = pc.activation gelu %pre0 : (tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %down0 = pc.parameter "h.0.experts.0.down" dims ["embed", "ffn"] init <normal, 1.0> source <"h.0.experts.0.down", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
    %d0 = pc.einsum "b s f, e f -> b s e" %h0, %down0 : (tensor<4x3x6xf32>, tensor<8x6xf32>) -> tensor<4x3x8xf32>
    %p0 = pc.einsum "b s, b s e -> b s e" %share0, %d0 : (tensor<4x3xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %col1 = pc.columns %weights from 1 : (tensor<4x3x4xf32>) -> tensor<4x3x1xf32>
    %share1 = pc.einsum "b s u -> b s" %col1 : (tensor<4x3x1xf32>) -> tensor<4x3xf32>
    %up1 = pc.parameter "h.0.experts.1.up" dims ["ffn", "embed"] init <normal, 1.0> source <"h.0.experts.1.up", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
    %pre1 = pc.einsum "b s e, f e -> b s f" %x, %up1 : (tensor<4x3x8xf32>, tensor<6x8xf32>) -> tensor<4x3x6xf32>
    %h1 = pc.activation gelu %pre1 : (tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %down1 = pc.parameter "h.0.experts.1.down" dims ["embed", "ffn"] init <normal, 1.0> source <"h.0.experts.1.down", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
    %d1 = pc.einsum "b s f, e f -> b s e" %h1, %down1 : (tensor<4x3x6xf32>, tensor<8x6xf32>) -> tensor<4x3x8xf32>
    %p1 = pc.einsum "b s, b s e -> b s e" %share1, %d1 : (tensor<4x3xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %s1 = pc.add %p0, %p1 : (tensor<4x3x8xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %col2 = pc.columns %weights from 2 : (tensor<4x3x4xf32>) -> tensor<4x3x1xf32>
    %share2 = pc.einsum "b s u -> b s" %col2 : (tensor<4x3x1xf32>) -> tensor<4x3xf32>
    %up2 = pc.parameter "h.0.experts.2.up" dims ["ffn", "embed"] init <normal, 1.0> source <"h.0.experts.2.up", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
    %pre2 = pc.einsum "b s e, f e -> b s f" %x, %up2 : (tensor<4x3x8xf32>, tensor<6x8xf32>) -> tensor<4x3x6xf32>
    %h2 = pc.activation gelu %pre2 : (tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %down2 = pc.parameter "h.0.experts.2.down" dims ["embed", "ffn"] init <normal, 1.0> source <"h.0.experts.2.down", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
    %d2 = pc.einsum "b s f, e f -> b s e" %h2, %down2 : (tensor<4x3x6xf32>, tensor<8x6xf32>) -> tensor<4x3x8xf32>
    %p2 = pc.einsum "b s, b s e -> b s e" %share2, %d2 : (tensor<4x3xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %s2 = pc.add %s1, %p2 : (tensor<4x3x8xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %col3 = pc.columns %weights from 2 : (tensor<4x3x4xf32>) -> tensor<4x3x1xf32>
    %share3 = pc.einsum "b s u -> b s" %col3 : (tensor<4x3x1xf32>) -> tensor<4x3xf32>
    %up3 = pc.parameter "h.0.experts.3.up" dims ["ffn", "embed"] init <normal, 1.0> source <"h.0.experts.3.up", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
    %pre3 = pc.einsum "b s e, f e -> b s f" %x, %up3 : (tensor<4x3x8xf32>, tensor<6x8xf32>) -> tensor<4x3x6xf32>
    %h3 = pc.activation gelu %pre3 : (tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %down3 = pc.parameter "h.0.experts.3.down" dims ["embed", "ffn"] init <normal, 1.0> source <"h.0.experts.3.down", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
    %d3 = pc.einsum "b s f, e f -> b s e" %h3, %down3 : (tensor<4x3x6xf32>, tensor<8x6xf32>) -> tensor<4x3x8xf32>
    %p3 = pc.einsum "b s, b s e -> b s e" %share3, %d3 : (tensor<4x3xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %out = pc.add %s2, %p3 : (tensor<4x3x8xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %all = pc.einsum "b s e, v e -> b s v" %out, %wte : (tensor<4x3x8xf32>, tensor<16x8xf32>) -> tensor<4x3x16xf32>
    %z = pc.logsumexp %all : (tensor<4x3x16xf32>) -> tensor<4x3xf32>
    %zz = pc.einsum "b s, b s ->" %z, %z : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<f32>
    pc.output loss "loss" %zz : tensor<f32>
    return
  }
}

// -----

// All experts are chosen.
module {
  pc.program "experts" batch 4 sequence 3 vocabulary 16 config "{}"
  func.func @model() {
    %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<4x3xi32>
    %wte = pc.parameter "wte" dims ["vocab", "embed"] init <normal, 1.0> source <"wte", shape = [16, 8], start = [0, 0], size = [16, 8]> : tensor<16x8xf32>
    %x = pc.embedding %wte, %tokens : (tensor<16x8xf32>, tensor<4x3xi32>) -> tensor<4x3x8xf32> loc("embedding")
    %router = pc.parameter "h.0.router" dims ["choices", "embed"] init <normal, 1.0> source <"h.0.router", shape = [4, 8], start = [0, 0], size = [4, 8]> : tensor<4x8xf32>
    %logits = pc.einsum "b s e, n e -> b s n" %x, %router : (tensor<4x3x8xf32>, tensor<4x8xf32>) -> tensor<4x3x4xf32>
    %scores = pc.softmax %logits : (tensor<4x3x4xf32>) -> tensor<4x3x4xf32>
    %chosen = pc.top_k %scores k 4 : (tensor<4x3x4xf32>) -> tensor<4x3x4xf32>
    %weights = pc.einsum "b s n, b s n -> b s n" %scores, %chosen : (tensor<4x3x4xf32>, tensor<4x3x4xf32>) -> tensor<4x3x4xf32>
    %col0 = pc.columns %weights from 0 : (tensor<4x3x4xf32>) -> tensor<4x3x1xf32>
    %share0 = pc.einsum "b s u -> b s" %col0 : (tensor<4x3x1xf32>) -> tensor<4x3xf32>
    %up0 = pc.parameter "h.0.experts.0.up" dims ["ffn", "embed"] init <normal, 1.0> source <"h.0.experts.0.up", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
    %pre0 = pc.einsum "b s e, f e -> b s f" %x, %up0 : (tensor<4x3x8xf32>, tensor<6x8xf32>) -> tensor<4x3x6xf32>
    %h0 = pc.activation gelu %pre0 : (tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %down0 = pc.parameter "h.0.experts.0.down" dims ["embed", "ffn"] init <normal, 1.0> source <"h.0.experts.0.down", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
    %d0 = pc.einsum "b s f, e f -> b s e" %h0, %down0 : (tensor<4x3x6xf32>, tensor<8x6xf32>) -> tensor<4x3x8xf32>
    %p0 = pc.einsum "b s, b s e -> b s e" %share0, %d0 : (tensor<4x3xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %col1 = pc.columns %weights from 1 : (tensor<4x3x4xf32>) -> tensor<4x3x1xf32>
    %share1 = pc.einsum "b s u -> b s" %col1 : (tensor<4x3x1xf32>) -> tensor<4x3xf32>
    %up1 = pc.parameter "h.0.experts.1.up" dims ["ffn", "embed"] init <normal, 1.0> source <"h.0.experts.1.up", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
    %pre1 = pc.einsum "b s e, f e -> b s f" %x, %up1 : (tensor<4x3x8xf32>, tensor<6x8xf32>) -> tensor<4x3x6xf32>
    %h1 = pc.activation gelu %pre1 : (tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %down1 = pc.parameter "h.0.experts.1.down" dims ["embed", "ffn"] init <normal, 1.0> source <"h.0.experts.1.down", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
    %d1 = pc.einsum "b s f, e f -> b s e" %h1, %down1 : (tensor<4x3x6xf32>, tensor<8x6xf32>) -> tensor<4x3x8xf32>
    %p1 = pc.einsum "b s, b s e -> b s e" %share1, %d1 : (tensor<4x3xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %s1 = pc.add %p0, %p1 : (tensor<4x3x8xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %col2 = pc.columns %weights from 2 : (tensor<4x3x4xf32>) -> tensor<4x3x1xf32>
    %share2 = pc.einsum "b s u -> b s" %col2 : (tensor<4x3x1xf32>) -> tensor<4x3xf32>
    %up2 = pc.parameter "h.0.experts.2.up" dims ["ffn", "embed"] init <normal, 1.0> source <"h.0.experts.2.up", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
    %pre2 = pc.einsum "b s e, f e -> b s f" %x, %up2 : (tensor<4x3x8xf32>, tensor<6x8xf32>) -> tensor<4x3x6xf32>
    %h2 = pc.activation gelu %pre2 : (tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %down2 = pc.parameter "h.0.experts.2.down" dims ["embed", "ffn"] init <normal, 1.0> source <"h.0.experts.2.down", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
    %d2 = pc.einsum "b s f, e f -> b s e" %h2, %down2 : (tensor<4x3x6xf32>, tensor<8x6xf32>) -> tensor<4x3x8xf32>
    %p2 = pc.einsum "b s, b s e -> b s e" %share2, %d2 : (tensor<4x3xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %s2 = pc.add %s1, %p2 : (tensor<4x3x8xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %col3 = pc.columns %weights from 3 : (tensor<4x3x4xf32>) -> tensor<4x3x1xf32>
    %share3 = pc.einsum "b s u -> b s" %col3 : (tensor<4x3x1xf32>) -> tensor<4x3xf32>
    %up3 = pc.parameter "h.0.experts.3.up" dims ["ffn", "embed"] init <normal, 1.0> source <"h.0.experts.3.up", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
    %pre3 = pc.einsum "b s e, f e -> b s f" %x, %up3 : (tensor<4x3x8xf32>, tensor<6x8xf32>) -> tensor<4x3x6xf32>
    %h3 = pc.activation gelu %pre3 : (tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %down3 = pc.parameter "h.0.experts.3.down" dims ["embed", "ffn"] init <normal, 1.0> source <"h.0.experts.3.down", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
    %d3 = pc.einsum "b s f, e f -> b s e" %h3, %down3 : (tensor<4x3x6xf32>, tensor<8x6xf32>) -> tensor<4x3x8xf32>
    %p3 = pc.einsum "b s, b s e -> b s e" %share3, %d3 : (tensor<4x3xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %out = pc.add %s2, %p3 : (tensor<4x3x8xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %all = pc.einsum "b s e, v e -> b s v" %out, %wte : (tensor<4x3x8xf32>, tensor<16x8xf32>) -> tensor<4x3x16xf32>
    %z = pc.logsumexp %all : (tensor<4x3x16xf32>) -> tensor<4x3xf32>
    %zz = pc.einsum "b s, b s ->" %z, %z : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<f32>
    pc.output loss "loss" %zz : tensor<f32>
    return
  }
}

// -----

// A parameter has other initial values.
module {
  pc.program "experts" batch 4 sequence 3 vocabulary 16 config "{}"
  func.func @model() {
    %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<4x3xi32>
    %wte = pc.parameter "wte" dims ["vocab", "embed"] init <normal, 1.0> source <"wte", shape = [16, 8], start = [0, 0], size = [16, 8]> : tensor<16x8xf32>
    %x = pc.embedding %wte, %tokens : (tensor<16x8xf32>, tensor<4x3xi32>) -> tensor<4x3x8xf32> loc("embedding")
    %router = pc.parameter "h.0.router" dims ["choices", "embed"] init <normal, 1.0> source <"h.0.router", shape = [4, 8], start = [0, 0], size = [4, 8]> : tensor<4x8xf32>
    %logits = pc.einsum "b s e, n e -> b s n" %x, %router : (tensor<4x3x8xf32>, tensor<4x8xf32>) -> tensor<4x3x4xf32>
    %scores = pc.softmax %logits : (tensor<4x3x4xf32>) -> tensor<4x3x4xf32>
    %chosen = pc.top_k %scores k 2 : (tensor<4x3x4xf32>) -> tensor<4x3x4xf32>
    %weights = pc.einsum "b s n, b s n -> b s n" %scores, %chosen : (tensor<4x3x4xf32>, tensor<4x3x4xf32>) -> tensor<4x3x4xf32>
    %col0 = pc.columns %weights from 0 : (tensor<4x3x4xf32>) -> tensor<4x3x1xf32>
    %share0 = pc.einsum "b s u -> b s" %col0 : (tensor<4x3x1xf32>) -> tensor<4x3xf32>
    %up0 = pc.parameter "h.0.experts.0.up" dims ["ffn", "embed"] init <normal, 1.0> source <"h.0.experts.0.up", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
    %pre0 = pc.einsum "b s e, f e -> b s f" %x, %up0 : (tensor<4x3x8xf32>, tensor<6x8xf32>) -> tensor<4x3x6xf32>
    %h0 = pc.activation gelu %pre0 : (tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %down0 = pc.parameter "h.0.experts.0.down" dims ["embed", "ffn"] init <normal, 1.0> source <"h.0.experts.0.down", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
    %d0 = pc.einsum "b s f, e f -> b s e" %h0, %down0 : (tensor<4x3x6xf32>, tensor<8x6xf32>) -> tensor<4x3x8xf32>
    %p0 = pc.einsum "b s, b s e -> b s e" %share0, %d0 : (tensor<4x3xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %col1 = pc.columns %weights from 1 : (tensor<4x3x4xf32>) -> tensor<4x3x1xf32>
    %share1 = pc.einsum "b s u -> b s" %col1 : (tensor<4x3x1xf32>) -> tensor<4x3xf32>
    %up1 = pc.parameter "h.0.experts.1.up" dims ["ffn", "embed"] init <normal, 2.0> source <"h.0.experts.1.up", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
    %pre1 = pc.einsum "b s e, f e -> b s f" %x, %up1 : (tensor<4x3x8xf32>, tensor<6x8xf32>) -> tensor<4x3x6xf32>
    %h1 = pc.activation gelu %pre1 : (tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %down1 = pc.parameter "h.0.experts.1.down" dims ["embed", "ffn"] init <normal, 2.0> source <"h.0.experts.1.down", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
    %d1 = pc.einsum "b s f, e f -> b s e" %h1, %down1 : (tensor<4x3x6xf32>, tensor<8x6xf32>) -> tensor<4x3x8xf32>
    %p1 = pc.einsum "b s, b s e -> b s e" %share1, %d1 : (tensor<4x3xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %s1 = pc.add %p0, %p1 : (tensor<4x3x8xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %col2 = pc.columns %weights from 2 : (tensor<4x3x4xf32>) -> tensor<4x3x1xf32>
    %share2 = pc.einsum "b s u -> b s" %col2 : (tensor<4x3x1xf32>) -> tensor<4x3xf32>
    %up2 = pc.parameter "h.0.experts.2.up" dims ["ffn", "embed"] init <normal, 1.0> source <"h.0.experts.2.up", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
    %pre2 = pc.einsum "b s e, f e -> b s f" %x, %up2 : (tensor<4x3x8xf32>, tensor<6x8xf32>) -> tensor<4x3x6xf32>
    %h2 = pc.activation gelu %pre2 : (tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %down2 = pc.parameter "h.0.experts.2.down" dims ["embed", "ffn"] init <normal, 1.0> source <"h.0.experts.2.down", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
    %d2 = pc.einsum "b s f, e f -> b s e" %h2, %down2 : (tensor<4x3x6xf32>, tensor<8x6xf32>) -> tensor<4x3x8xf32>
    %p2 = pc.einsum "b s, b s e -> b s e" %share2, %d2 : (tensor<4x3xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %s2 = pc.add %s1, %p2 : (tensor<4x3x8xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %col3 = pc.columns %weights from 3 : (tensor<4x3x4xf32>) -> tensor<4x3x1xf32>
    %share3 = pc.einsum "b s u -> b s" %col3 : (tensor<4x3x1xf32>) -> tensor<4x3xf32>
    %up3 = pc.parameter "h.0.experts.3.up" dims ["ffn", "embed"] init <normal, 1.0> source <"h.0.experts.3.up", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
    %pre3 = pc.einsum "b s e, f e -> b s f" %x, %up3 : (tensor<4x3x8xf32>, tensor<6x8xf32>) -> tensor<4x3x6xf32>
    %h3 = pc.activation gelu %pre3 : (tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %down3 = pc.parameter "h.0.experts.3.down" dims ["embed", "ffn"] init <normal, 1.0> source <"h.0.experts.3.down", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
    %d3 = pc.einsum "b s f, e f -> b s e" %h3, %down3 : (tensor<4x3x6xf32>, tensor<8x6xf32>) -> tensor<4x3x8xf32>
    %p3 = pc.einsum "b s, b s e -> b s e" %share3, %d3 : (tensor<4x3xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %out = pc.add %s2, %p3 : (tensor<4x3x8xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %all = pc.einsum "b s e, v e -> b s v" %out, %wte : (tensor<4x3x8xf32>, tensor<16x8xf32>) -> tensor<4x3x16xf32>
    %z = pc.logsumexp %all : (tensor<4x3x16xf32>) -> tensor<4x3xf32>
    %zz = pc.einsum "b s, b s ->" %z, %z : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<f32>
    pc.output loss "loss" %zz : tensor<f32>
    return
  }
}

// -----

// The results of experts are also added up without weights.
module {
  pc.program "experts" batch 4 sequence 3 vocabulary 16 config "{}"
  func.func @model() {
    %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<4x3xi32>
    %wte = pc.parameter "wte" dims ["vocab", "embed"] init <normal, 1.0> source <"wte", shape = [16, 8], start = [0, 0], size = [16, 8]> : tensor<16x8xf32>
    %x = pc.embedding %wte, %tokens : (tensor<16x8xf32>, tensor<4x3xi32>) -> tensor<4x3x8xf32> loc("embedding")
    %router = pc.parameter "h.0.router" dims ["choices", "embed"] init <normal, 1.0> source <"h.0.router", shape = [4, 8], start = [0, 0], size = [4, 8]> : tensor<4x8xf32>
    %logits = pc.einsum "b s e, n e -> b s n" %x, %router : (tensor<4x3x8xf32>, tensor<4x8xf32>) -> tensor<4x3x4xf32>
    %scores = pc.softmax %logits : (tensor<4x3x4xf32>) -> tensor<4x3x4xf32>
    %chosen = pc.top_k %scores k 2 : (tensor<4x3x4xf32>) -> tensor<4x3x4xf32>
    %weights = pc.einsum "b s n, b s n -> b s n" %scores, %chosen : (tensor<4x3x4xf32>, tensor<4x3x4xf32>) -> tensor<4x3x4xf32>
    %up = pc.parameter "h.0.up" dims ["choices", "embed", "ffn"] init <normal, 1.0> source <"h.0.up", shape = [4, 8, 6], start = [0, 0, 0], size = [4, 8, 6]> : tensor<4x8x6xf32>
    %u = pc.einsum "b s e, n e f -> b s n f" %x, %up : (tensor<4x3x8xf32>, tensor<4x8x6xf32>) -> tensor<4x3x4x6xf32>
    %h = pc.activation silu %u : (tensor<4x3x4x6xf32>) -> tensor<4x3x4x6xf32>
    %down = pc.parameter "h.0.down" dims ["choices", "ffn", "embed"] init <normal, 1.0> source <"h.0.down", shape = [4, 6, 8], start = [0, 0, 0], size = [4, 6, 8]> : tensor<4x6x8xf32>
    %y = pc.einsum "b s n f, n f e -> b s n e" %h, %down : (tensor<4x3x4x6xf32>, tensor<4x6x8xf32>) -> tensor<4x3x4x8xf32>
    %moe = pc.einsum "b s n e, b s n -> b s e" %y, %weights : (tensor<4x3x4x8xf32>, tensor<4x3x4xf32>) -> tensor<4x3x8xf32>
    %mean = pc.einsum "b s n e -> b s e" %y : (tensor<4x3x4x8xf32>) -> tensor<4x3x8xf32>
    %out = pc.add %mean, %moe : (tensor<4x3x8xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %all = pc.einsum "b s e, v e -> b s v" %out, %wte : (tensor<4x3x8xf32>, tensor<16x8xf32>) -> tensor<4x3x16xf32>
    %z = pc.logsumexp %all : (tensor<4x3x16xf32>) -> tensor<4x3xf32>
    %zz = pc.einsum "b s, b s ->" %z, %z : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<f32>
    pc.output loss "loss" %zz : tensor<f32>
    return
  }
}

// -----

// Each token of a sequence has its own values, as in attention to chosen keys.
module {
  pc.program "experts" batch 4 sequence 3 vocabulary 16 config "{}"
  func.func @model() {
    %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<4x3xi32>
    %wte = pc.parameter "wte" dims ["vocab", "embed"] init <normal, 1.0> source <"wte", shape = [16, 8], start = [0, 0], size = [16, 8]> : tensor<16x8xf32>
    %x = pc.embedding %wte, %tokens : (tensor<16x8xf32>, tensor<4x3xi32>) -> tensor<4x3x8xf32> loc("embedding")
    %router = pc.parameter "h.0.router" dims ["choices", "embed"] init <normal, 1.0> source <"h.0.router", shape = [4, 8], start = [0, 0], size = [4, 8]> : tensor<4x8xf32>
    %logits = pc.einsum "b s e, n e -> b s n" %x, %router : (tensor<4x3x8xf32>, tensor<4x8xf32>) -> tensor<4x3x4xf32>
    %scores = pc.softmax %logits : (tensor<4x3x4xf32>) -> tensor<4x3x4xf32>
    %chosen = pc.top_k %scores k 2 : (tensor<4x3x4xf32>) -> tensor<4x3x4xf32>
    %weights = pc.einsum "b s n, b s n -> b s n" %scores, %chosen : (tensor<4x3x4xf32>, tensor<4x3x4xf32>) -> tensor<4x3x4xf32>
    %k = pc.parameter "h.0.k" dims ["kv_heads", "embed"] init <normal, 1.0> source <"h.0.k", shape = [3, 8], start = [0, 0], size = [3, 8]> : tensor<3x8xf32>
    %v = pc.parameter "h.0.v" dims ["sequence", "embed"] init <normal, 1.0> source <"h.0.v", shape = [3, 8], start = [0, 0], size = [3, 8]> : tensor<3x8xf32>
    %raw = pc.einsum "b s e, t e -> b s t" %x, %k : (tensor<4x3x8xf32>, tensor<3x8xf32>) -> tensor<4x3x3xf32>
    %p = pc.softmax %raw : (tensor<4x3x3xf32>) -> tensor<4x3x3xf32>
    %m = pc.top_k %p k 1 : (tensor<4x3x3xf32>) -> tensor<4x3x3xf32>
    %pm = pc.einsum "b s t, b s t -> b s t" %p, %m : (tensor<4x3x3xf32>, tensor<4x3x3xf32>) -> tensor<4x3x3xf32>
    %vx = pc.einsum "b s e, s e -> b s e" %x, %v : (tensor<4x3x8xf32>, tensor<3x8xf32>) -> tensor<4x3x8xf32>
    %out = pc.einsum "b s t, b t e -> b s e" %pm, %vx : (tensor<4x3x3xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %all = pc.einsum "b s e, v e -> b s v" %out, %wte : (tensor<4x3x8xf32>, tensor<16x8xf32>) -> tensor<4x3x16xf32>
    %z = pc.logsumexp %all : (tensor<4x3x16xf32>) -> tensor<4x3xf32>
    %zz = pc.einsum "b s, b s ->" %z, %z : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<f32>
    pc.output loss "loss" %zz : tensor<f32>
    return
  }
}
