// RUN: pc-opt %s --verify-roundtrip
// RUN: pc-opt %s --emit-bytecode | pc-opt --verify-roundtrip -o /dev/null

// Each op occurs once, without placements, in a local program of four ranks.
pc.mesh <dp = 2, tp = 2>
pc.program "toy" batch 4 sequence 8 vocabulary 16 config "{\22model_type\22: \22toy\22}" means "[]" weights "toy"
pc.plan <dp = 2, tp = 2> ["pc-tensor-parallel{axis=tp form=1d}"] microbatches 2

func.func @leaves() {
  %w = pc.parameter "w" dims ["vocab", "embed"] init <normal, 2.0e-02> source <"w", shape = [15, 6], start = [0, 0], size = [15, 6]>
    valid [15, 6] global [16, 6] layout <[tp, _]> : tensor<8x6xf32>
  %p = pc.parameter "p" dims ["vocab", "embed"] init <normal, 2.0e-02, zero_row = 14> source <"p", shape = [15, 6], start = [0, 0], size = [15, 6]>
    valid [15, 6] global [16, 6] layout <[tp, _]> : tensor<8x6xf32>
  %frozen = pc.parameter "frozen" frozen dims ["embed"] init <fill, 1.0> source <"frozen", shape = [6], start = [0], size = [6]> : tensor<6xf32>
  %m = pc.state "exp_avg" of "w" dims ["vocab", "embed"] global [16, 6] layout <[tp, _]> : tensor<8x6xf32>
  %t = pc.input tokens dims ["microbatch", "batch", "sequence"] global [2, 2, 8] layout <[_, dp, _]> : tensor<2x1x8xi32>
  %words = pc.input random key 3 dims ["microbatch", "random"] global [2, 5] layout <[_, _]> : tensor<2x5xi32>
  %image = pc.input data "image" dims ["batch", "channels", "pixels"] : tensor<4x3x8xf32>
  %label = pc.input data "label" below 10 dims ["microbatch", "batch"] global [2, 2] layout <[_, dp]> : tensor<2x1xi32>
  %c = pc.rope_table cos inv_freq [1.0, 0.5] scale 1.0 : tensor<8x2xf32>
  %s = pc.rope_table sin inv_freq [1.0, 0.5] scale 1.0 : tensor<8x2xf32>
  %k = pc.constant 5.0e-01 : tensor<f32>
  %o = pc.block_offset on ["dp", "tp"] block 8 : tensor<i32>
  %i = pc.iota offset %o : tensor<i32> -> tensor<8xi32>
  %j = pc.iota -> tensor<8xi32>
  %n = pc.accumulate (%arg = %t : tensor<2x1x8xi32> -> tensor<1x8xi32>) {
    %e = pc.embedding %w, %arg offset %o : (tensor<8x6xf32>, tensor<1x8xi32>, tensor<i32>) -> tensor<1x8x6xf32>
    %one = pc.seed : tensor<f32>
    %g = pc.embedding_grad %e, %arg offset %o : (tensor<1x8x6xf32>, tensor<1x8xi32>, tensor<i32>) -> tensor<8x6xf32>
    %f = pc.embedding %w, %arg offset %o padding 14 : (tensor<8x6xf32>, tensor<1x8xi32>, tensor<i32>) -> tensor<1x8x6xf32>
    %h = pc.embedding_grad %f, %arg padding 0 : (tensor<1x8x6xf32>, tensor<1x8xi32>) -> tensor<8x6xf32>
    pc.yield %g : tensor<8x6xf32>
  } : tensor<8x6xf32>
  pc.output gradient "w" %n valid [15, 6] global [16, 6] layout <[tp, _]> : tensor<8x6xf32>
  pc.update "w" %n : tensor<8x6xf32>
  pc.update "exp_avg" of "w" %n : tensor<8x6xf32>
  return
}

func.func @pointwise(%x: tensor<4x6xf32>, %o: tensor<i32>) {
  %0 = pc.add %x, %x : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
  %1 = pc.sub %0, %x : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
  %2 = pc.scale %1 by -2.0 : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %3 = pc.copy %2 : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %4 = pc.cast %3 : (tensor<4x6xf32>) -> tensor<4x6xbf16>
  %5 = pc.log %3 : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %6 = pc.exp %5 : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %7 = pc.recip %6 : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %8 = pc.sqrt %7 : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %9 = pc.activation gelu_tanh %8 : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %10 = pc.activation_grad relu %9, %8 : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
  %clamped = pc.clamp %10 from -1.0 to 1.5 : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %below = pc.clamp %10 to 1.5 : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %kept = pc.clamp_grad %below, %10 from -1.0 to 1.5 : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
  %sigmoid = pc.activation sigmoid %kept : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %11 = pc.reduce_max "r c -> r" %10 : (tensor<4x6xf32>) -> tensor<4xf32>
  %scores = pc.softmax %10 : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %chosen = pc.top_k %10 k 2 : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %scored = pc.einsum "r c -> r s c" %10 : (tensor<4x6xf32>) -> tensor<4x2x6xf32>
  %layer = pc.top_k %scored k 2 layer 3 global [8, 2, 6] layout <[dp, _, _]> : (tensor<4x2x6xf32>) -> tensor<4x2x6xf32>
  %taken = pc.admit %layer capacity 1 : (tensor<4x2x6xf32>) -> tensor<4x2x6xf32>
  %round = pc.round_of_rows %taken round 1 of 3 limit 7 : (tensor<4x2x6xf32>) -> tensor<4x2x6xf32>
  %groups = pc.top_groups %10 groups 3 keep 2 : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %aside = pc.columns %10 from -3 : (tensor<4x6xf32>) -> tensor<4x9xf32>
  %strided = pc.columns %aside dim 0 from 1 step 2 : (tensor<4x9xf32>) -> tensor<2x9xf32>
  %spread = pc.columns %strided dim 0 from -1 every 2 : (tensor<2x9xf32>) -> tensor<4x9xf32>
  %divided = pc.reshape "r (h w) -> r h w" %spread : (tensor<4x9xf32>) -> tensor<4x3x3xf32>
  %merged = pc.reshape "r h w -> (r h) w" %divided : (tensor<4x3x3xf32>) -> tensor<12x3xf32>
  %stack = pc.stack %merged, %merged : (tensor<12x3xf32>, tensor<12x3xf32>) -> tensor<4x12x3xf32>
  %entry = pc.unstack %stack at 1 : (tensor<4x12x3xf32>) -> tensor<12x3xf32>
  %share = pc.einsum "r c, r c -> r c" %scores, %chosen routed 2 : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32, #pc.rows<8 of 2>>
  %12 = pc.mask_padding %10 valid 5 value 0.0 offset %o : (tensor<4x6xf32>, tensor<i32>) -> tensor<4x6xf32>
  %resized = pc.resize %12 dim 1 : (tensor<4x6xf32>) -> tensor<4x8xf32>
  %13 = pc.fusion (%a = %10 : tensor<4x6xf32> -> tensor<4x6xf32>) {
    %b = pc.exp %a : (tensor<4x6xf32>) -> tensor<4x6xf32>
    pc.yield %b : tensor<4x6xf32>
  } : tensor<4x6xf32>
  return
}

func.func @recurrences(%a: tensor<2x8x6xf32>, %b: tensor<2x8x6x4xbf16>) {
  %h = pc.recurrence "b s c, b s c n -> b s c n" along "s" %a, %b : (tensor<2x8x6xf32>, tensor<2x8x6x4xbf16>) -> tensor<2x8x6x4xbf16>
  %r = pc.recurrence "b s c, b s c n -> b s c n" along "n" reverse %a, %h : (tensor<2x8x6xf32>, tensor<2x8x6x4xbf16>) -> tensor<2x8x6x4xbf16>
  %da, %db = pc.recurrence_grad "b s c, b s c n -> b s c n" along "n" reverse %a, %r, %b : (tensor<2x8x6xf32>, tensor<2x8x6x4xbf16>, tensor<2x8x6x4xbf16>) -> (tensor<2x8x6xf32>, tensor<2x8x6x4xbf16>)
  return
}

func.func @composites(%x: tensor<2x8x6xf32>, %g: tensor<6xf32>, %q: tensor<2x8x2x3x4xf32>, %k: tensor<2x8x2x4xf32>,
                      %c: tensor<8x2xf32>, %c1: tensor<8x1xf32>, %sinks: tensor<2x3xf32>, %ids: tensor<2x8xi32>, %words: tensor<5xi32>, %at: tensor<i32>, %sees: tensor<8xi32>) {
  %y, %mean, %rstd = pc.layer_norm %x, %g, %g eps 1.0e-05 : (tensor<2x8x6xf32>, tensor<6xf32>, tensor<6xf32>) -> (tensor<2x8x6xf32>, tensor<2x8xf32>, tensor<2x8xf32>)
  %0:3 = pc.layer_norm_grad %y, %x, %mean, %rstd, %g : (tensor<2x8x6xf32>, tensor<2x8x6xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<6xf32>) -> (tensor<2x8x6xf32>, tensor<6xf32>, tensor<6xf32>)
  %z, %r = pc.rms_norm %x, %g eps 1.0e-06 : (tensor<2x8x6xf32>, tensor<6xf32>) -> (tensor<2x8x6xf32>, tensor<2x8xf32>)
  %1:2 = pc.rms_norm_grad %z, %x, %r, %g : (tensor<2x8x6xf32>, tensor<2x8x6xf32>, tensor<2x8xf32>, tensor<6xf32>) -> (tensor<2x8x6xf32>, tensor<6xf32>)
  %2 = pc.rope %q, %c, %c : (tensor<2x8x2x3x4xf32>, tensor<8x2xf32>, tensor<8x2xf32>) -> tensor<2x8x2x3x4xf32>
  %3 = pc.rope inverse %k, %c, %c : (tensor<2x8x2x4xf32>, tensor<8x2xf32>, tensor<8x2xf32>) -> tensor<2x8x2x4xf32>
  %o, %lse = pc.attention causal %2, %3, %k scale 0.5 : (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>)
  %4:3 = pc.attention_grad causal %2, %3, %k, %o, %lse, %o scale 0.5 : (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>, tensor<2x8x2x3x4xf32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>)
  %dropped = pc.dropout %x random %words drop <6554> : (tensor<2x8x6xf32>, tensor<5xi32>) -> tensor<2x8x6xf32>
  %block = pc.dropout %x random %words at %at, %at drop <6554, global = [4, 8, 12], split = [0, 2]> : (tensor<2x8x6xf32>, tensor<5xi32>, tensor<i32>, tensor<i32>) -> tensor<2x8x6xf32>
  %od, %lsed = pc.attention causal %2, %3, %k random %words sees %sees at %at, %at scale 0.5 drop <1, global = [2, 2, 3, 16, 16], split = [3, 4], shift = 1> : (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>, tensor<5xi32>, tensor<8xi32>, tensor<i32>, tensor<i32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>)
  %gd:3 = pc.attention_grad causal %2, %3, %k, %o, %lse, %o random %words scale 0.5 drop <65535> : (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>, tensor<2x8x2x3x4xf32>, tensor<5xi32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>)
  %pairs = pc.rope inverse interleaved %k, %c1, %c1 first 2 : (tensor<2x8x2x4xf32>, tensor<8x1xf32>, tensor<8x1xf32>) -> tensor<2x8x2x4xf32>
  %os, %lses = pc.attention causal %2, %3, %k sinks %sinks scale 0.5 : (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>, tensor<2x3xf32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>)
  %from = pc.iota from -7 -> tensor<15xi32>
  %pieces = pc.iota pieces [0, 3, 5] values [7, 1, 2] -> tensor<15xi32>
  %far = pc.cast %from : (tensor<15xi32>) -> tensor<15xf32>
  %addends = pc.einsum "r -> k g r" %far : (tensor<15xf32>) -> tensor<2x3x15xf32>
  %ow, %lsew = pc.attention causal %2, %3, %k bias %addends random %words scale 0.5 window 3 softcap 5.000000e+01 drop <1> : (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>, tensor<2x3x15xf32>, tensor<5xi32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>)
  %gw:3 = pc.attention_grad causal %2, %3, %k, %ow, %lsew, %ow bias %addends random %words scale 0.5 window 3 softcap 5.000000e+01 drop <1> : (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>, tensor<2x8x2x3x4xf32>, tensor<2x3x15xf32>, tensor<5xi32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>)
  %qkv = pc.join_qkv %2, %3, %k rope %c, %c : (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>, tensor<8x2xf32>, tensor<8x2xf32>) -> tensor<2x8x2x5x4xf32>
  %8:3 = pc.split_qkv %qkv rope %c, %c : (tensor<2x8x2x5x4xf32>, tensor<8x2xf32>, tensor<8x2xf32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>)
  %9 = pc.join_qkv %8#0, %8#1, %8#2 : (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>) -> tensor<2x8x2x5x4xf32>
  %10:3 = pc.split_qkv %9 : (tensor<2x8x2x5x4xf32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>)
  %po, %plse = pc.packed_attention causal %qkv scale 0.5 : (tensor<2x8x2x5x4xf32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>)
  %11 = pc.packed_attention_grad causal %qkv, %po, %plse, %o scale 0.5 : (tensor<2x8x2x5x4xf32>, tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>, tensor<2x8x2x3x4xf32>) -> tensor<2x8x2x5x4xf32>
  %nll = pc.cross_entropy %x, %ids : (tensor<2x8x6xf32>, tensor<2x8xi32>) -> tensor<2x8xf32>
  %5 = pc.sum_exp %x, %nll : (tensor<2x8x6xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  %6 = pc.pick %x, %ids : (tensor<2x8x6xf32>, tensor<2x8xi32>) -> tensor<2x8xf32>
  %7 = pc.cross_entropy_grad %x, %nll, %5, %ids, %6 : (tensor<2x8x6xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xi32>, tensor<2x8xf32>) -> tensor<2x8x6xf32>
  return
}

func.func @optimizer(%p: tensor<4xf32>, %norm: tensor<f32>, %h: tensor<9xf32>) {
  %c = pc.clip_coefficient %norm, %h : (tensor<f32>, tensor<9xf32>) -> tensor<f32>
  %0:3 = pc.adamw %p, %p, %p, %p, %c, %h : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<f32>, tensor<9xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>)
  %1 = pc.sgd %p, %p, %c, %h : (tensor<4xf32>, tensor<4xf32>, tensor<f32>, tensor<9xf32>) -> tensor<4xf32>
  return
}

func.func @blocks(%x: tensor<4x6xf32>, %p: tensor<4x6xf32, #pc.place<[dp, _]>>) {
  %codes, %scales = pc.encode dynamic %x : (tensor<4x6xf32>) -> (tensor<4x6xi8>, tensor<2x1xf32>)
  %y = pc.decode dynamic %codes, %scales : (tensor<4x6xi8>, tensor<2x1xf32>) -> tensor<4x6xf32>
  %integers, %steps = pc.encode linear %x : (tensor<4x6xf32>) -> (tensor<4x6xi8>, tensor<2x1xf32>)
  %z = pc.decode linear %integers, %steps : (tensor<4x6xi8>, tensor<2x1xf32>) -> tensor<4x6xf32>
  %floats, %powers = pc.encode float8 %z : (tensor<4x6xf32>) -> (tensor<4x6xf8E5M2>, tensor<2x1xf32>)
  %narrow = pc.decode float8 %floats, %powers : (tensor<4x6xf8E5M2>, tensor<2x1xf32>) -> tensor<4x6xbf16>
  %again:2 = pc.encode float8 %narrow : (tensor<4x6xbf16>) -> (tensor<4x6xf8E4M3FN>, tensor<2x1xf32>)
  %largest = pc.max_magnitude "a b ->" %narrow : (tensor<4x6xbf16>) -> tensor<f32>
  %power = pc.float8_scale f8E5M2 %largest : (tensor<f32>) -> tensor<f32>
  %scaled = pc.encode_scaled %narrow, %power : (tensor<4x6xbf16>, tensor<f32>) -> tensor<4x6xf8E5M2>
  %wide = pc.decode float8 %scaled, %power : (tensor<4x6xf8E5M2>, tensor<f32>) -> tensor<4x6xbf16>
  %placed:2 = pc.encode dynamic unsigned %p : (tensor<4x6xf32, #pc.place<[dp, _]>>) -> (tensor<4x6xi8, #pc.place<[dp, _]>>, tensor<2x1xf32, #pc.place<[dp, _]>>)
  return
}

func.func @addends(%g: tensor<32x256xf32>, %p: tensor<32x256xf32, #pc.place<[_, _] sum(dp)>>) {
  %c = pc.encode_addend %g <int8, [16, 16]> on ["dp"] : tensor<32x256xf32> -> tensor<1x2x16x260xi8>
  %s = pc.decode_sum %c <int8, [16, 16]> : tensor<1x2x16x260xi8> -> tensor<32x256xf32>
  %c4 = pc.encode_addend %g <int4, [1, 256]> on ["dp"] : tensor<32x256xf32> -> tensor<1x32x1x132xi8>
  %s4 = pc.decode_sum %c4 <int4, [1, 256]> : tensor<1x32x1x132xi8> -> tensor<32x256xf32>
  %whole = pc.all_reduce sum %p on ["dp"] wire <int4, [16, 16]> : (tensor<32x256xf32, #pc.place<[_, _] sum(dp)>>) -> tensor<32x256xf32, #pc.place<[_, _]>>
  %block = pc.reduce_scatter sum %p dim 0 on ["dp"] wire <int8, [1, 256]> : (tensor<32x256xf32, #pc.place<[_, _] sum(dp)>>) -> tensor<32x256xf32, #pc.place<[dp, _]>>
  return
}

func.func @localMoves(%x: tensor<4x6xf32>) {
  %0 = pc.all_reduce sum %x on ["dp", "tp"] : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %1 = pc.reduce_scatter max %0 dim 1 on ["tp"] : (tensor<4x6xf32>) -> tensor<4x3xf32>
  %2 = pc.all_gather %1 dim 0 on ["dp"] : (tensor<4x3xf32>) -> tensor<8x3xf32>
  %3 = pc.all_to_all %2 from 1 to 0 on ["tp"] : (tensor<8x3xf32>) -> tensor<4x6xf32>
  %4 = pc.slice %3 dim 0 on ["dp", "tp"] : (tensor<4x6xf32>) -> tensor<1x6xf32>
  %own = pc.slice %3 dim 0 shift 1 on ["dp"] with ["tp"] : (tensor<4x6xf32>) -> tensor<2x6xf32>
  %sent = pc.permute %own shift 0 on ["tp"] with ["dp"] : (tensor<2x6xf32>) -> tensor<2x6xf32>
  %put = pc.insert %sent into %3 dim 0 shift 1 on ["dp"] with ["tp"] : (tensor<2x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
  %5 = pc.mask %4 on ["tp"] : (tensor<1x6xf32>) -> tensor<1x6xf32>
  %6 = pc.pad %5 dim 0 on ["tp"] : (tensor<1x6xf32>) -> tensor<2x6xf32>
  %stored = pc.carry %6 : (tensor<2x6xf32>) -> tensor<2x6xf32, #pc.space<disk>>
  return
}

func.func @placedMoves(%x: tensor<8x8xf32, #pc.place<[dp, _] sum(tp)>>, %w: tensor<8x8xf32, #pc.place<[_, _]>>) {
  %0 = pc.reduce_scatter sum %x dim 0 on ["tp"] : (tensor<8x8xf32, #pc.place<[dp, _] sum(tp)>>) -> tensor<8x8xf32, #pc.place<[(dp, tp), _]>>
  %1 = pc.all_to_all %0 from 0 to 1 on ["tp"] : (tensor<8x8xf32, #pc.place<[(dp, tp), _]>>) -> tensor<8x8xf32, #pc.place<[dp, tp]>>
  %2 = pc.slice %w dim 1 on ["dp", "tp"] : (tensor<8x8xf32, #pc.place<[_, _]>>) -> tensor<8x8xf32, #pc.place<[_, (dp, tp)]>>
  %3 = pc.pad %2 dim 1 on ["tp"] : (tensor<8x8xf32, #pc.place<[_, (dp, tp)]>>) -> tensor<8x8xf32, #pc.place<[_, dp] sum(tp)>>
  %4 = pc.mask %w on ["dp"] : (tensor<8x8xf32, #pc.place<[_, _]>>) -> tensor<8x8xf32, #pc.place<[_, _] sum(dp)>>
  %5 = pc.carry %x : (tensor<8x8xf32, #pc.place<[dp, _] sum(tp)>>) -> tensor<8x8xf32, #pc.place<[dp, _] sum(tp) in disk>>
  return
}

func.func private @homes(tensor<4xf32, #pc.home<64>>, tensor<4xf32, #pc.home<disk, 4096>>)
