// One of every pointwise op and of every move, for facts.cpp. Operands are 2 x 3, drawn from 0.5 to 2. The rest is for test/Proof/rules.cpp.
pc.mesh <tp = 2>

func.func @pointwise(%x: tensor<2x3xf32>, %y: tensor<2x3xf32>, %a: tensor<2x3xf32>, %b: tensor<2x3xf32>) {
  %0 = pc.add %x, %y : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  %1 = pc.sub %x, %y : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  %2 = pc.scale %x by 2.5 : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %3 = pc.copy %x : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %4 = pc.cast %x : (tensor<2x3xf32>) -> tensor<2x3xf64>
  %5 = pc.log %x : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %6 = pc.exp %x : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %7 = pc.recip %x : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %8 = pc.sqrt %x : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %sine = pc.sin %x : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %cosine = pc.cos %x : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %chosen = pc.select less %x, %y, %a, %b : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  %9 = pc.activation gelu %x : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %10 = pc.activation_grad gelu %x, %y : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  %clamped = pc.clamp %x from 0.75 to 1.5 : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %kept = pc.clamp_grad %x, %y from 0.75 to 1.5 : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

func.func @moves(%x: tensor<4x4xf32>, %whole: tensor<8x4xf32>, %entries: tensor<2x4x3xf32, #pc.rows<4 of 2>>, %chosen: tensor<4x4xf32>) {
  %0 = pc.all_reduce sum %x on ["tp"] : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = pc.all_gather %x dim 0 on ["tp"] : (tensor<4x4xf32>) -> tensor<8x4xf32>
  %2 = pc.reduce_scatter sum %x dim 0 on ["tp"] : (tensor<4x4xf32>) -> tensor<2x4xf32>
  %3 = pc.all_to_all %x from 0 to 1 on ["tp"] : (tensor<4x4xf32>) -> tensor<8x2xf32>
  %4 = pc.slice %x dim 0 on ["tp"] : (tensor<4x4xf32>) -> tensor<2x4xf32>
  %5 = pc.mask %x on ["tp"] : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %6 = pc.pad %x dim 0 on ["tp"] : (tensor<4x4xf32>) -> tensor<8x4xf32>
  %7 = pc.broadcast %x on ["tp"] : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %8 = pc.scatter %x dim 0 on ["tp"] : (tensor<4x4xf32>) -> tensor<2x4xf32>
  %9 = pc.gather %x dim 0 on ["tp"] : (tensor<4x4xf32>) -> tensor<8x4xf32>
  %10 = pc.reduce sum %x on ["tp"] : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %11 = pc.permute %x on ["tp"] : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %stored = pc.carry %x : (tensor<4x4xf32>) -> tensor<4x4xf32, #pc.space<disk>>
  %rows = pc.all_to_all_rows %entries routed 2 of %chosen from 0 to 1 on ["tp"] : (tensor<2x4x3xf32, #pc.rows<4 of 2>>, tensor<4x4xf32>) -> tensor<4x2x3xf32, #pc.rows<8 of 2>>
  %12 = pc.insert %x into %whole dim 0 on ["tp"] : (tensor<4x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
  return
}

func.func @recurrences(%a: tensor<2x8x3xf32>, %b: tensor<2x8x3x4xf32>, %decay: tensor<3xf32>) {
  %h = pc.recurrence "b s c, b s c n -> b s c n" along "s" %a, %b : (tensor<2x8x3xf32>, tensor<2x8x3x4xf32>) -> tensor<2x8x3x4xf32>
  %da, %db = pc.recurrence_grad "b s c, b s c n -> b s c n" along "s" %a, %h, %b : (tensor<2x8x3xf32>, tensor<2x8x3x4xf32>, tensor<2x8x3x4xf32>) -> (tensor<2x8x3xf32>, tensor<2x8x3x4xf32>)
  %r = pc.recurrence "c, b s c n -> b s c n" along "n" reverse %decay, %h : (tensor<3xf32>, tensor<2x8x3x4xf32>) -> tensor<2x8x3x4xf32>
  %dc, %dh = pc.recurrence_grad "c, b s c n -> b s c n" along "n" reverse %decay, %r, %b : (tensor<3xf32>, tensor<2x8x3x4xf32>, tensor<2x8x3x4xf32>) -> (tensor<3xf32>, tensor<2x8x3x4xf32>)
  return
}

func.func @views(%x: tensor<4x6x2xf32>, %ids: tensor<4x3xi32>) {
  %0 = pc.columns %x dim 1 from -1 step 2 : (tensor<4x6x2xf32>) -> tensor<4x3x2xf32>
  %1 = pc.reshape "b (h w) c -> b h w c" %x : (tensor<4x6x2xf32>) -> tensor<4x2x3x2xf32>
  %2 = pc.reshape "b h w c -> (b h) (w c)" %1 : (tensor<4x2x3x2xf32>) -> tensor<8x6xf32>
  %3 = pc.reshape "b (h w) -> b (h w)" %2 : (tensor<8x6xf32>) -> tensor<8x6xf32>
  %stack = pc.stack %x, %x : (tensor<4x6x2xf32>, tensor<4x6x2xf32>) -> tensor<3x4x6x2xf32>
  %entry = pc.unstack %stack at 1 : (tensor<3x4x6x2xf32>) -> tensor<4x6x2xf32>
  %4 = pc.embedding %x, %ids : (tensor<4x6x2xf32>, tensor<4x3xi32>) -> tensor<4x3x6x2xf32>
  %5 = pc.embedding %x, %ids batch 1 : (tensor<4x6x2xf32>, tensor<4x3xi32>) -> tensor<4x3x2xf32>
  %6 = pc.embedding_grad %5, %ids batch 1 : (tensor<4x3x2xf32>, tensor<4x3xi32>) -> tensor<4x6x2xf32>
  %7 = pc.embedding_grad %4, %ids : (tensor<4x3x6x2xf32>, tensor<4x3xi32>) -> tensor<4x6x2xf32>
  return
}

func.func @blocks(%x: tensor<4x6xf32>) {
  %codes, %scales = pc.encode dynamic unsigned %x : (tensor<4x6xf32>) -> (tensor<4x6xi8>, tensor<2x3xf32>)
  %y = pc.decode dynamic unsigned %codes, %scales : (tensor<4x6xi8>, tensor<2x3xf32>) -> tensor<4x6xf32>
  %floats, %powers = pc.encode float8 %x : (tensor<4x6xf32>) -> (tensor<4x6xf8E4M3FN>, tensor<4x2xf32>)
  %z = pc.decode float8 %floats, %powers : (tensor<4x6xf8E4M3FN>, tensor<4x2xf32>) -> tensor<4x6xbf16>
  %largest = pc.max_magnitude "a b ->" %x : (tensor<4x6xf32>) -> tensor<f32>
  %power = pc.float8_scale f8E4M3FN %largest : (tensor<f32>) -> tensor<f32>
  %scaled = pc.encode_scaled %x, %power : (tensor<4x6xf32>, tensor<f32>) -> tensor<4x6xf8E4M3FN>
  %again = pc.decode float8 %scaled, %power : (tensor<4x6xf8E4M3FN>, tensor<f32>) -> tensor<4x6xbf16>
  return
}

func.func @generation(%c: tensor<1x3x2x16x8xf32>, %x: tensor<1x4x2x8xf32>, %q: tensor<1x4x2x1x8xf32>, %i: tensor<1x4xi32>, %bias: tensor<2x1x31xf32>,
                      %sinks: tensor<2x1xf32>, %logits: tensor<1x3x64xf32>, %sampling: tensor<1x3x4xf32>, %seeds: tensor<1x3x3xi32>, %tables: tensor<1x4x4xf32>,
                      %cp: tensor<2x1x3x2x8x8xf32>) {
  %keys = pc.cache_write %x into %c at %i, %i : (tensor<1x3x2x16x8xf32>, tensor<1x4x2x8xf32>, tensor<1x4xi32>, tensor<1x4xi32>) -> tensor<1x3x2x16x8xf32>
  %o = pc.cached_attention %q, %keys, %c at %i, %i scale 0.5 : (tensor<1x4x2x1x8xf32>, tensor<1x3x2x16x8xf32>, tensor<1x3x2x16x8xf32>, tensor<1x4xi32>, tensor<1x4xi32>) -> tensor<1x4x2x1x8xf32>
  %parts = pc.cache_write %x into %cp at %i, %i : (tensor<2x1x3x2x8x8xf32>, tensor<1x4x2x8xf32>, tensor<1x4xi32>, tensor<1x4xi32>) -> tensor<2x1x3x2x8x8xf32>
  %op, %lsep = pc.cached_attention %q, %parts, %cp at %i, %i scale 0.5 : (tensor<1x4x2x1x8xf32>, tensor<2x1x3x2x8x8xf32>, tensor<2x1x3x2x8x8xf32>, tensor<1x4xi32>, tensor<1x4xi32>) -> (tensor<2x1x4x2x1x8xf32>, tensor<1x4x2x1x2xf32>)
  %p = pc.cached_attention %q, %keys, %c at %i, %i bias %bias sinks %sinks scale 0.5 window 3 : (tensor<1x4x2x1x8xf32>, tensor<1x3x2x16x8xf32>, tensor<1x3x2x16x8xf32>, tensor<1x4xi32>, tensor<1x4xi32>, tensor<2x1x31xf32>, tensor<2x1xf32>) -> tensor<1x4x2x1x8xf32>
  %r = pc.rope %q, %tables, %tables : (tensor<1x4x2x1x8xf32>, tensor<1x4x4xf32>, tensor<1x4x4xf32>) -> tensor<1x4x2x1x8xf32>
  %least = pc.sampling_threshold %logits, %sampling : (tensor<1x3x64xf32>, tensor<1x3x4xf32>) -> tensor<1x3xf32>
  %y = pc.gumbel %logits, %sampling, %seeds above %least : (tensor<1x3x64xf32>, tensor<1x3x4xf32>, tensor<1x3x3xi32>, tensor<1x3xf32>) -> tensor<1x3x64xf32>
  %z = pc.gumbel %logits, %sampling, %seeds : (tensor<1x3x64xf32>, tensor<1x3x4xf32>, tensor<1x3x3xi32>) -> tensor<1x3x64xf32>
  return
}
