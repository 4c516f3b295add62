// RUN: pc-opt %s --pc-group-parameters="groups={fc:sparsity=2:4,every=3,until=9 head:sparsity=0.5,every=2,until=4,decay=0}" -o %t.model
// RUN: FileCheck %s --check-prefix=MODEL < %t.model
// RUN: pc-opt %t.model --pc-differentiate=optimizer=sgd --pc-verify-step -o %t.step
// RUN: FileCheck %s < %t.step
// RUN: pc-opt %t.step --pc-set-mesh=mesh=dp=2,tp=2 --pc-tensor-parallel --pc-zero=stage=3 --pc-fuse-moves --pc-verify-placed -o %t.placed
// RUN: pc-equal %t.step %t.placed --steps=8
// RUN: not pc-opt %s --pc-group-parameters="groups=fc:sparsity=0.5,sparsity=2:4" 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: not pc-opt %s --pc-group-parameters="groups=fc:sparsity=2:64" 2>&1 | FileCheck %s --check-prefix=LONG
// RUN: pc-opt %s --pc-group-parameters="groups=fc:sparsity=2:3" | not pc-opt --pc-differentiate 2>&1 | FileCheck %s --check-prefix=THREE
// RUN: pc-opt %s --pc-group-parameters="groups=norm:sparsity=0.5" | not pc-opt --pc-differentiate 2>&1 | FileCheck %s --check-prefix=VECTOR

// TWICE: error: --group=fc:sparsity=0.5,sparsity=2:4: 'sparsity' occurs twice
// LONG: error: --group=fc:sparsity=2:64: 'sparsity=2:64' needs a pattern such as 2:4, of at most 32 elements
// THREE: error: --group: 'sparsity' does not work for 'fc', because 3 does not divide its last dim of 8
// VECTOR: error: --group: 'sparsity' does not work for 'norm', which is not a matrix

// MODEL: pc.parameter "fc" group {among = 4.000000e+00 : f64, every = 3.000000e+00 : f64, kept = 2.000000e+00 : f64, name = "fc", until = 9.000000e+00 : f64}
// MODEL: pc.parameter "head" group {decay = 0.000000e+00 : f64, every = 2.000000e+00 : f64, name = "head", sparsity = 5.000000e-01 : f64, until = 4.000000e+00 : f64}

// A pattern chooses among adjacent elements. The weight is updated with zeros where the mask is zero.
// CHECK: pc.update "norm"
// CHECK: %[[NEW:.*]] = pc.sgd
// CHECK: %[[MASK:.*]] = pc.state "mask" of "fc" dims ["ffn", "embed"] : tensor<6x8xf32>
// CHECK: %[[AGE:.*]] = pc.state "mask_age" of "fc" dims [] : tensor<f32>
// CHECK: %[[WAIT:.*]] = pc.state "mask_wait" of "fc" dims [] : tensor<f32>
// CHECK: %[[GROUPS:.*]] = pc.reshape "x0 (g e) -> x0 g e" %{{.*}} : (tensor<6x8xf32>) -> tensor<6x2x4xf32>
// CHECK: %[[TOP:.*]] = pc.top_k %[[GROUPS]] k 2
// CHECK: %[[CHOSEN:.*]] = pc.reshape "x0 g e -> x0 (g e)" %[[TOP]]
// CHECK: %[[FRESH:.*]] = pc.select less %{{.*}}, %{{.*}}, %[[CHOSEN]], %[[MASK]]
// CHECK: %[[MASKED:.*]] = pc.select less %[[FRESH]], %{{.*}}, %{{.*}}, %[[NEW]]
// CHECK: %[[KEPT:.*]] = pc.select equal %{{.*}}, %{{.*}}, %[[FRESH]], %[[MASK]]
// CHECK: pc.update "mask" of "fc" %[[KEPT]]
// CHECK: pc.update "mask_age" of "fc"
// CHECK: pc.update "mask_wait" of "fc"
// CHECK: %[[END:.*]] = pc.select equal %{{.*}}, %{{.*}}, %[[MASKED]], %[[NEW]]
// CHECK-NEXT: pc.update "fc" %[[END]]

// A share: all of a row's 6 elements in the first choice, 6 * (1 - 0.5 * (1 - 1/8)) in the second, and 3 in the last one.
// CHECK: pc.state "mask" of "head"
// CHECK-DAG: %[[LAST:.*]] = pc.constant 3.000000e+00
// CHECK-DAG: %[[SECOND:.*]] = pc.constant 3.000000e+00
// CHECK-DAG: %[[FIRST:.*]] = pc.constant 6.000000e+00
// CHECK: pc.sampling_threshold %{{.*}}, %{{.*}} : (tensor<1x4x6xf32>, tensor<1x4x4xf32>) -> tensor<1x4xf32>
// CHECK: pc.update "head"
func.func @model() {
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<4x4xi32>
  %table = pc.parameter "table" dims ["vocab", "embed"] init <normal, 1.0> source <"table", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
  %e = pc.embedding %table, %tokens : (tensor<6x8xf32>, tensor<4x4xi32>) -> tensor<4x4x8xf32>
  %norm = pc.parameter "norm" dims ["embed"] init <fill, 1.0> source <"norm", shape = [8], start = [0], size = [8]> : tensor<8xf32>
  %x, %rstd = pc.rms_norm %e, %norm eps 1.0e-05 : (tensor<4x4x8xf32>, tensor<8xf32>) -> (tensor<4x4x8xf32>, tensor<4x4xf32>)
  %fc = pc.parameter "fc" dims ["ffn", "embed"] init <normal, 1.0> source <"fc", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
  %h = pc.einsum "b s e, f e -> b s f" %x, %fc : (tensor<4x4x8xf32>, tensor<6x8xf32>) -> tensor<4x4x6xf32>
  %head = pc.parameter "head" dims ["out", "heads", "head"] init <normal, 1.0> source <"head", shape = [4, 6], start = [0, 0], size = [4, 6]> : tensor<4x2x3xf32>
  %split = pc.reshape "b s (k d) -> b s k d" %h : (tensor<4x4x6xf32>) -> tensor<4x4x2x3xf32>
  %y = pc.einsum "b s k d, o k d -> b s o" %split, %head : (tensor<4x4x2x3xf32>, tensor<4x2x3xf32>) -> tensor<4x4x4xf32>
  %loss = pc.einsum "b s o, b s o ->" %y, %y : (tensor<4x4x4xf32>, tensor<4x4x4xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}
