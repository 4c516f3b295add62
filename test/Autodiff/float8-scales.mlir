// With one scale per operand, both products of an operand share its codes. No dims must be multiples of anything.
// RUN: pc-opt %s --pc-differentiate=microbatches=2 -o %t.plain
// RUN: pc-opt %t.plain --pc-mixed-precision="compute=fp8 float8-scaling=current float8-gradients=e5m2" --pc-verify-step --verify-roundtrip -o %t.current
// RUN: FileCheck %s --check-prefix=CURRENT < %t.current
// RUN: pc-opt %t.plain --pc-mixed-precision="compute=fp8 float8-scaling=delayed" --pc-verify-step --verify-roundtrip -o %t.delayed
// RUN: FileCheck %s --check-prefix=DELAYED < %t.delayed
// RUN: not pc-equal %t.current %t.delayed

// Every plan computes what one device computes: a maximum over ranks is a move.
// RUN: pc-opt %t.current --pc-set-mesh=mesh=dp=2 --pc-zero="axis=dp stage=3" --pc-verify-placed -o %t.current.zero
// RUN: pc-equal %t.current %t.current.zero | FileCheck %s --check-prefix=SAME
// RUN: FileCheck %s --check-prefix=ZERO < %t.current.zero
// RUN: pc-opt %t.current --pc-set-mesh=mesh=tp=2 --pc-tensor-parallel --pc-verify-placed -o %t.current.tp
// RUN: pc-equal %t.current %t.current.tp | FileCheck %s --check-prefix=SAME
// RUN: pc-opt %t.delayed --pc-set-mesh=mesh=dp=2 --pc-zero="axis=dp stage=3" --pc-verify-placed -o %t.delayed.zero
// RUN: pc-equal %t.delayed %t.delayed.zero | FileCheck %s --check-prefix=SAME
// RUN: pc-opt %t.delayed --pc-set-mesh=mesh=tp=2 --pc-tensor-parallel --pc-verify-placed -o %t.delayed.tp
// RUN: pc-equal %t.delayed %t.delayed.tp | FileCheck %s --check-prefix=SAME
// Erasing the placements gives the step.
// RUN: pc-opt %t.delayed -o %t.text
// RUN: pc-opt %t.delayed.zero --pc-erase-placements | diff %t.text -

// A program without updates has no history.
// RUN: pc-opt %s --pc-differentiate=optimizer=none -o %t.forward
// RUN: not pc-opt %t.forward --pc-mixed-precision="compute=fp8 float8-scaling=delayed" 2>&1 | FileCheck %s --check-prefix=FORWARD
// RUN: pc-opt %t.forward --pc-mixed-precision="compute=fp8 float8-scaling=current" --pc-verify-step -o -
// RUN: not pc-opt %t.plain --pc-mixed-precision="compute=fp8 float8-scaling=tensor" 2>&1 | FileCheck %s --check-prefix=UNKNOWN

// SAME: equal
// FORWARD: error: pc-mixed-precision: 'up' has no history of magnitudes, because no step changes it; use --fp8-scaling=current
// UNKNOWN: error: pc-mixed-precision: unknown float8-scaling 'tensor' (blocks, current, delayed)

// The scale of a matrix.
// CURRENT: %[[UP:.*]] = pc.parameter "up"
// CURRENT-NEXT: %[[ROWS:.*]] = pc.max_magnitude "x0 x1 -> x0" %[[UP]] : (tensor<6x10xf32>) -> tensor<6xf32>
// CURRENT-NEXT: %[[MOST:.*]] = pc.reduce_max "x0 ->" %[[ROWS]]
// CURRENT-NEXT: %[[SCALE:.*]] = pc.float8_scale f8E4M3FN %[[MOST]]
// CURRENT-NEXT: %[[W:.*]] = pc.encode_scaled %[[UP]], %[[SCALE]] : (tensor<6x10xf32>, tensor<f32>) -> tensor<6x10xf8E4M3FN>
// CURRENT: pc.accumulate
// CURRENT: %[[X:.*]] = pc.encode_scaled %[[XB:.*]], %[[XS:.*]] : (tensor<2x3x6xbf16>, tensor<f32>) -> tensor<2x3x6xf8E4M3FN>
// CURRENT-DAG: %[[XD:.*]] = pc.decode float8 %[[X]], %[[XS]] : (tensor<2x3x6xf8E4M3FN>, tensor<f32>) -> tensor<2x3x6xbf16>
// CURRENT-DAG: %[[WD:.*]] = pc.decode float8 %[[W]], %[[SCALE]]
// CURRENT: pc.einsum "b s e, e f -> b s f" %[[XD]], %[[WD]]
// CURRENT: pc.seed
// The gradient is encoded once, for both of its products.
// CURRENT: %[[DY:.*]] = pc.encode_scaled %{{.*}} -> tensor<2x3x4xf8E5M2>
// CURRENT-NEXT: %[[DYD:.*]] = pc.decode float8 %[[DY]]
// CURRENT: %[[XAGAIN:.*]] = pc.decode float8 %[[X]], %[[XS]]

// The history of "up", and the scale that follows from it. Before the first step it is 1.
// DELAYED: %[[UP:.*]] = pc.parameter "up"
// DELAYED: %[[OLD:.*]] = pc.state "fp8_matrix_history" of "up" dims ["history"] : tensor<16xf32>
// DELAYED-NEXT: %[[MOST:.*]] = pc.reduce_max "h ->" %[[OLD]]
// DELAYED: %[[FORMULA:.*]] = pc.float8_scale f8E4M3FN %[[MOST]]
// DELAYED: %[[SCALE:.*]] = pc.select less_equal %[[MOST]], %{{.*}}, %{{.*}}, %[[FORMULA]]
// DELAYED: pc.encode_scaled %[[UP]], %[[SCALE]]
// Each microbatch has its own entry in a vector, so the sum of the vectors has all of their magnitudes.
// DELAYED: %[[ROWS:.*]] = pc.select equal %{{.*}} -> tensor<2x2xf32>
// The matrix is read before its update, so that the update can be in place.
// DELAYED: pc.max_magnitude "x0 x1 -> x0" %[[UP]]
// DELAYED: %[[SUMS:.*]]:{{.*}} = pc.accumulate ({{.*}}%[[OWN:.*]] = %[[ROWS]] : tensor<2x2xf32> -> tensor<2xf32>) {
// DELAYED: pc.einsum ", m -> m" %{{.*}}, %[[OWN]]
// DELAYED: pc.clip_coefficient
// DELAYED: %[[ALL:.*]] = pc.reduce_max "m ->" %[[SUMS]]#{{.*}} : (tensor<2xf32>) -> tensor<f32>
// DELAYED: pc.update "fp8_input_history" of "up"
// DELAYED: pc.update "fp8_gradient_history" of "up"
// DELAYED: %[[SHIFTED:.*]] = pc.columns %[[OLD]] from -1 : (tensor<16xf32>) -> tensor<16xf32>
// DELAYED: %[[FIRST:.*]] = pc.columns %{{.*}} from 0 : (tensor<1xf32>) -> tensor<16xf32>
// DELAYED: %[[NEW:.*]] = pc.add %[[SHIFTED]], %[[FIRST]]
// A step that is skipped keeps the history.
// DELAYED: %[[KEPT:.*]] = pc.select equal %{{.*}}, %{{.*}}, %[[NEW]], %[[OLD]]
// DELAYED: pc.update "fp8_matrix_history" of "up" %[[KEPT]]

// A rank computes the maximum of its part of the matrix, and ranks gather codes.
// ZERO: %[[UP:.*]] = pc.parameter "up" {{.*}} : tensor<6x10xf32, #pc.place<[_, dp]>>
// ZERO: %[[PART:.*]] = pc.max_magnitude "x0 x1 -> x0" %[[UP]]
// ZERO: %[[MOST:.*]] = pc.all_reduce max
// ZERO: pc.float8_scale f8E4M3FN
// ZERO: pc.encode_scaled %[[UP]]
// ZERO: pc.accumulate
// ZERO: pc.all_reduce max
// ZERO-NOT: pc.all_gather {{.*}} : (tensor<6x10xbf16
// ZERO: pc.all_gather %{{.*}} : (tensor<6x10xf8E4M3FN

func.func @model() {
  %ids = pc.input tokens dims ["batch", "sequence"] : tensor<4x3xi32>
  %table = pc.parameter "table" dims ["vocab", "embed"] init <normal, 1.0>
    source <"table", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
  %up = pc.parameter "up" dims ["embed", "ffn"] init <normal, 1.0>
    source <"up", shape = [6, 10], start = [0, 0], size = [6, 10]> : tensor<6x10xf32>
  %down = pc.parameter "down" dims ["ffn", "few"] init <normal, 1.0>
    source <"down", shape = [10, 4], start = [0, 0], size = [10, 4]> : tensor<10x4xf32>
  %x = pc.embedding %table, %ids : (tensor<8x6xf32>, tensor<4x3xi32>) -> tensor<4x3x6xf32>
  %h = pc.einsum "b s e, e f -> b s f" %x, %up : (tensor<4x3x6xf32>, tensor<6x10xf32>) -> tensor<4x3x10xf32>
  %y = pc.einsum "b s f, f g -> b s g" %h, %down : (tensor<4x3x10xf32>, tensor<10x4xf32>) -> tensor<4x3x4xf32>
  %loss = pc.einsum "b s g, b s g ->" %y, %y : (tensor<4x3x4xf32>, tensor<4x3x4xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}
