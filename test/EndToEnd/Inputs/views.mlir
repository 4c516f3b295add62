// A model of views and lookups: strided convolutions, concatenations, dims that are divided and merged, rows of values
// that tokens look up, and means over the batch of values that are equal for all sequences.
module {
  pc.program "views" batch 8 sequence 8 vocabulary 256 config "{}"
  func.func @model() {
    %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<8x8xi32>
    %targets = pc.input targets dims ["batch", "sequence"] : tensor<8x8xi32>
    %weights = pc.input loss_weights dims ["batch", "sequence"] : tensor<8x8xf32>
    %1 = pc.parameter "wte" dims ["vocab", "embed"] init <normal, 0.3> source <"wte", shape = [256, 8], start = [0, 0], size = [256, 8]> : tensor<256x8xf32>
    %2 = pc.embedding %1, %tokens : (tensor<256x8xf32>, tensor<8x8xi32>) -> tensor<8x8x8xf32> loc("embedding")
    %3 = pc.parameter "h.0.conv.0" dims ["embed", "ffn"] init <normal, 0.3> source <"h.0.conv.0", shape = [8, 12], start = [0, 0], size = [8, 12]> : tensor<8x12xf32>
    %4 = pc.columns %2 dim 1 from -1 step 2 : (tensor<8x8x8xf32>) -> tensor<8x4x8xf32> loc("h.0.conv")
    %5 = pc.einsum "b s e, e f -> b s f" %4, %3 : (tensor<8x4x8xf32>, tensor<8x12xf32>) -> tensor<8x4x12xf32> loc("h.0.conv")
    %6 = pc.parameter "h.0.conv.1" dims ["embed", "ffn"] init <normal, 0.3> source <"h.0.conv.1", shape = [8, 12], start = [0, 0], size = [8, 12]> : tensor<8x12xf32>
    %7 = pc.columns %2 dim 1 from 0 step 2 : (tensor<8x8x8xf32>) -> tensor<8x4x8xf32> loc("h.0.conv")
    %8 = pc.einsum "b s e, e f -> b s f" %7, %6 : (tensor<8x4x8xf32>, tensor<8x12xf32>) -> tensor<8x4x12xf32> loc("h.0.conv")
    %9 = pc.add %5, %8 : (tensor<8x4x12xf32>, tensor<8x4x12xf32>) -> tensor<8x4x12xf32> loc("h.0.conv")
    %10 = pc.activation silu %9 : (tensor<8x4x12xf32>) -> tensor<8x4x12xf32> loc("h.0.conv")
    %11 = pc.parameter "h.0.conv.out" dims ["ffn", "embed"] init <normal, 0.3> source <"h.0.conv.out", shape = [12, 8], start = [0, 0], size = [12, 8]> : tensor<12x8xf32>
    %12 = pc.einsum "b s f, f e -> b s e" %10, %11 : (tensor<8x4x12xf32>, tensor<12x8xf32>) -> tensor<8x4x8xf32> loc("h.0.conv")
    %13 = pc.columns %12 dim 1 from 0 every 2 : (tensor<8x4x8xf32>) -> tensor<8x8x8xf32> loc("h.0.conv")
    %14 = pc.add %2, %13 : (tensor<8x8x8xf32>, tensor<8x8x8xf32>) -> tensor<8x8x8xf32> loc("h.0.conv")
    %15 = pc.columns %14 dim 2 from 0 : (tensor<8x8x8xf32>) -> tensor<8x8x3xf32> loc("h.0.cat")
    %16 = pc.activation tanh %15 : (tensor<8x8x3xf32>) -> tensor<8x8x3xf32> loc("h.0.cat")
    %17 = pc.columns %14 dim 2 from 3 : (tensor<8x8x8xf32>) -> tensor<8x8x5xf32> loc("h.0.cat")
    %18 = pc.columns %17 dim 2 from 0 : (tensor<8x8x5xf32>) -> tensor<8x8x8xf32> loc("h.0.cat")
    %19 = pc.columns %16 dim 2 from -5 : (tensor<8x8x3xf32>) -> tensor<8x8x8xf32> loc("h.0.cat")
    %20 = pc.add %18, %19 : (tensor<8x8x8xf32>, tensor<8x8x8xf32>) -> tensor<8x8x8xf32> loc("h.0.cat")
    %21 = pc.parameter "h.0.turn" dims ["embed"] init <normal, 0.3> source <"h.0.turn", shape = [8], start = [0], size = [8]> : tensor<8xf32>
    %22 = pc.einsum "b s e, e -> b s e" %20, %21 : (tensor<8x8x8xf32>, tensor<8xf32>) -> tensor<8x8x8xf32> loc("h.0.turn")
    %23 = pc.reshape "b s (h l) -> b s h l" %22 : (tensor<8x8x8xf32>) -> tensor<8x8x2x4xf32> loc("h.0.turn")
    %24 = pc.einsum "b s h l -> b s l h" %23 : (tensor<8x8x2x4xf32>) -> tensor<8x8x4x2xf32> loc("h.0.turn")
    %25 = pc.activation gelu %24 : (tensor<8x8x4x2xf32>) -> tensor<8x8x4x2xf32> loc("h.0.turn")
    %26 = pc.reshape "b s l h -> b s (l h)" %25 : (tensor<8x8x4x2xf32>) -> tensor<8x8x8xf32> loc("h.0.turn")
    %27 = pc.add %20, %26 : (tensor<8x8x8xf32>, tensor<8x8x8xf32>) -> tensor<8x8x8xf32> loc("h.0.turn")
    %28 = pc.parameter "h.0.mix" dims ["sequence", "vocab"] init <normal, 0.3> source <"h.0.mix", shape = [8, 256], start = [0, 0], size = [8, 256]> : tensor<8x256xf32>
    %29 = pc.einsum "b s e, s v -> b v e" %27, %28 : (tensor<8x8x8xf32>, tensor<8x256xf32>) -> tensor<8x256x8xf32> loc("h.0.pick")
    %30 = pc.embedding %29, %tokens batch 1 : (tensor<8x256x8xf32>, tensor<8x8xi32>) -> tensor<8x8x8xf32> loc("h.0.pick")
    %31 = pc.add %27, %30 : (tensor<8x8x8xf32>, tensor<8x8x8xf32>) -> tensor<8x8x8xf32> loc("h.0.pick")
    %32 = pc.parameter "h.0.rows" dims ["vocab", "high", "low"] init <normal, 0.3> source <"h.0.rows", shape = [256, 2, 4], start = [0, 0, 0], size = [256, 2, 4]> : tensor<256x2x4xf32>
    %33 = pc.embedding %32, %tokens : (tensor<256x2x4xf32>, tensor<8x8xi32>) -> tensor<8x8x2x4xf32> loc("h.0.pick")
    %34 = pc.reshape "b s h l -> b s (h l)" %33 : (tensor<8x8x2x4xf32>) -> tensor<8x8x8xf32> loc("h.0.pick")
    %35 = pc.add %31, %34 : (tensor<8x8x8xf32>, tensor<8x8x8xf32>) -> tensor<8x8x8xf32> loc("h.0.pick")
    %36 = pc.parameter "h.0.scale" dims ["embed"] init <normal, 0.3> source <"h.0.scale", shape = [8], start = [0], size = [8]> : tensor<8xf32>
    %37 = pc.einsum "e -> b e" %36 : (tensor<8xf32>) -> tensor<8x8xf32> loc("h.0.mean")
    %38 = pc.constant 0.0 : tensor<f32>
    %39 = pc.einsum "-> b e" %38 : (tensor<f32>) -> tensor<8x8xf32> loc("h.0.mean")
    %40 = pc.scale %37 by 0.5 : (tensor<8x8xf32>) -> tensor<8x8xf32> loc("h.0.mean")
    %41 = pc.select less %37, %39, %37, %40 : (tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32> loc("h.0.mean")
    %42 = pc.einsum "b s e, b e -> b s e" %35, %41 : (tensor<8x8x8xf32>, tensor<8x8xf32>) -> tensor<8x8x8xf32> loc("h.0.mean")
    %43 = pc.einsum "b e -> e" %41 : (tensor<8x8xf32>) -> tensor<8xf32> loc("h.0.mean")
    %44 = pc.scale %43 by 0.125 : (tensor<8xf32>) -> tensor<8xf32> loc("h.0.mean")
    %45 = pc.einsum "e -> b s e" %44 : (tensor<8xf32>) -> tensor<8x8x8xf32> loc("h.0.mean")
    %46 = pc.add %42, %45 : (tensor<8x8x8xf32>, tensor<8x8x8xf32>) -> tensor<8x8x8xf32> loc("h.0.mean")
    %47 = pc.parameter "h.1.conv.0" dims ["embed", "ffn"] init <normal, 0.3> source <"h.1.conv.0", shape = [8, 12], start = [0, 0], size = [8, 12]> : tensor<8x12xf32>
    %48 = pc.columns %46 dim 1 from -1 step 2 : (tensor<8x8x8xf32>) -> tensor<8x4x8xf32> loc("h.1.conv")
    %49 = pc.einsum "b s e, e f -> b s f" %48, %47 : (tensor<8x4x8xf32>, tensor<8x12xf32>) -> tensor<8x4x12xf32> loc("h.1.conv")
    %50 = pc.parameter "h.1.conv.1" dims ["embed", "ffn"] init <normal, 0.3> source <"h.1.conv.1", shape = [8, 12], start = [0, 0], size = [8, 12]> : tensor<8x12xf32>
    %51 = pc.columns %46 dim 1 from 0 step 2 : (tensor<8x8x8xf32>) -> tensor<8x4x8xf32> loc("h.1.conv")
    %52 = pc.einsum "b s e, e f -> b s f" %51, %50 : (tensor<8x4x8xf32>, tensor<8x12xf32>) -> tensor<8x4x12xf32> loc("h.1.conv")
    %53 = pc.add %49, %52 : (tensor<8x4x12xf32>, tensor<8x4x12xf32>) -> tensor<8x4x12xf32> loc("h.1.conv")
    %54 = pc.activation silu %53 : (tensor<8x4x12xf32>) -> tensor<8x4x12xf32> loc("h.1.conv")
    %55 = pc.parameter "h.1.conv.out" dims ["ffn", "embed"] init <normal, 0.3> source <"h.1.conv.out", shape = [12, 8], start = [0, 0], size = [12, 8]> : tensor<12x8xf32>
    %56 = pc.einsum "b s f, f e -> b s e" %54, %55 : (tensor<8x4x12xf32>, tensor<12x8xf32>) -> tensor<8x4x8xf32> loc("h.1.conv")
    %57 = pc.columns %56 dim 1 from 0 every 2 : (tensor<8x4x8xf32>) -> tensor<8x8x8xf32> loc("h.1.conv")
    %58 = pc.add %46, %57 : (tensor<8x8x8xf32>, tensor<8x8x8xf32>) -> tensor<8x8x8xf32> loc("h.1.conv")
    %59 = pc.columns %58 dim 2 from 0 : (tensor<8x8x8xf32>) -> tensor<8x8x3xf32> loc("h.1.cat")
    %60 = pc.activation tanh %59 : (tensor<8x8x3xf32>) -> tensor<8x8x3xf32> loc("h.1.cat")
    %61 = pc.columns %58 dim 2 from 3 : (tensor<8x8x8xf32>) -> tensor<8x8x5xf32> loc("h.1.cat")
    %62 = pc.columns %61 dim 2 from 0 : (tensor<8x8x5xf32>) -> tensor<8x8x8xf32> loc("h.1.cat")
    %63 = pc.columns %60 dim 2 from -5 : (tensor<8x8x3xf32>) -> tensor<8x8x8xf32> loc("h.1.cat")
    %64 = pc.add %62, %63 : (tensor<8x8x8xf32>, tensor<8x8x8xf32>) -> tensor<8x8x8xf32> loc("h.1.cat")
    %65 = pc.parameter "h.1.turn" dims ["embed"] init <normal, 0.3> source <"h.1.turn", shape = [8], start = [0], size = [8]> : tensor<8xf32>
    %66 = pc.einsum "b s e, e -> b s e" %64, %65 : (tensor<8x8x8xf32>, tensor<8xf32>) -> tensor<8x8x8xf32> loc("h.1.turn")
    %67 = pc.reshape "b s (h l) -> b s h l" %66 : (tensor<8x8x8xf32>) -> tensor<8x8x2x4xf32> loc("h.1.turn")
    %68 = pc.einsum "b s h l -> b s l h" %67 : (tensor<8x8x2x4xf32>) -> tensor<8x8x4x2xf32> loc("h.1.turn")
    %69 = pc.activation gelu %68 : (tensor<8x8x4x2xf32>) -> tensor<8x8x4x2xf32> loc("h.1.turn")
    %70 = pc.reshape "b s l h -> b s (l h)" %69 : (tensor<8x8x4x2xf32>) -> tensor<8x8x8xf32> loc("h.1.turn")
    %71 = pc.add %64, %70 : (tensor<8x8x8xf32>, tensor<8x8x8xf32>) -> tensor<8x8x8xf32> loc("h.1.turn")
    %72 = pc.parameter "h.1.mix" dims ["sequence", "vocab"] init <normal, 0.3> source <"h.1.mix", shape = [8, 256], start = [0, 0], size = [8, 256]> : tensor<8x256xf32>
    %73 = pc.einsum "b s e, s v -> b v e" %71, %72 : (tensor<8x8x8xf32>, tensor<8x256xf32>) -> tensor<8x256x8xf32> loc("h.1.pick")
    %74 = pc.embedding %73, %tokens batch 1 : (tensor<8x256x8xf32>, tensor<8x8xi32>) -> tensor<8x8x8xf32> loc("h.1.pick")
    %75 = pc.add %71, %74 : (tensor<8x8x8xf32>, tensor<8x8x8xf32>) -> tensor<8x8x8xf32> loc("h.1.pick")
    %76 = pc.parameter "h.1.rows" dims ["vocab", "high", "low"] init <normal, 0.3> source <"h.1.rows", shape = [256, 2, 4], start = [0, 0, 0], size = [256, 2, 4]> : tensor<256x2x4xf32>
    %77 = pc.embedding %76, %tokens : (tensor<256x2x4xf32>, tensor<8x8xi32>) -> tensor<8x8x2x4xf32> loc("h.1.pick")
    %78 = pc.reshape "b s h l -> b s (h l)" %77 : (tensor<8x8x2x4xf32>) -> tensor<8x8x8xf32> loc("h.1.pick")
    %79 = pc.add %75, %78 : (tensor<8x8x8xf32>, tensor<8x8x8xf32>) -> tensor<8x8x8xf32> loc("h.1.pick")
    %80 = pc.parameter "h.1.scale" dims ["embed"] init <normal, 0.3> source <"h.1.scale", shape = [8], start = [0], size = [8]> : tensor<8xf32>
    %81 = pc.einsum "e -> b e" %80 : (tensor<8xf32>) -> tensor<8x8xf32> loc("h.1.mean")
    %82 = pc.constant 0.0 : tensor<f32>
    %83 = pc.einsum "-> b e" %82 : (tensor<f32>) -> tensor<8x8xf32> loc("h.1.mean")
    %84 = pc.scale %81 by 0.5 : (tensor<8x8xf32>) -> tensor<8x8xf32> loc("h.1.mean")
    %85 = pc.select less %81, %83, %81, %84 : (tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32> loc("h.1.mean")
    %86 = pc.einsum "b s e, b e -> b s e" %79, %85 : (tensor<8x8x8xf32>, tensor<8x8xf32>) -> tensor<8x8x8xf32> loc("h.1.mean")
    %87 = pc.einsum "b e -> e" %85 : (tensor<8x8xf32>) -> tensor<8xf32> loc("h.1.mean")
    %88 = pc.scale %87 by 0.125 : (tensor<8xf32>) -> tensor<8xf32> loc("h.1.mean")
    %89 = pc.einsum "e -> b s e" %88 : (tensor<8xf32>) -> tensor<8x8x8xf32> loc("h.1.mean")
    %90 = pc.add %86, %89 : (tensor<8x8x8xf32>, tensor<8x8x8xf32>) -> tensor<8x8x8xf32> loc("h.1.mean")
    %91 = pc.parameter "head" dims ["vocab", "embed"] init <normal, 0.3> source <"head", shape = [256, 8], start = [0, 0], size = [256, 8]> : tensor<256x8xf32>
    %92 = pc.einsum "b s e, v e -> b s v" %90, %91 : (tensor<8x8x8xf32>, tensor<256x8xf32>) -> tensor<8x8x256xf32> loc("head")
    %93 = pc.cross_entropy %92, %targets : (tensor<8x8x256xf32>, tensor<8x8xi32>) -> tensor<8x8xf32> loc("loss")
    %loss = pc.einsum "b s, b s ->" %93, %weights : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<f32> loc("loss")
    pc.output loss "loss" %loss : tensor<f32> loc("loss")
    return
  }
}
