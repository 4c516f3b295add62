// RUN: pc-opt %S/Inputs/mlp.mlir --pc-differentiate=microbatches=2 -o %t.step
// RUN: pc-opt %t.step --pc-set-mesh=mesh=dp=4 --pc-data-parallel --pc-verify-placed -o %t.placed
// RUN: FileCheck %s < %t.placed
// RUN: FileCheck %s < %t.placed --check-prefix=COUNT
// RUN: pc-opt %t.placed --pc-erase-placements | diff %t.step -
// RUN: not pc-opt %t.step --pc-set-mesh=mesh=dp=3 --pc-data-parallel 2>&1 | FileCheck %s --check-prefix=DIVIDE
// RUN: pc-opt %t.step --pc-set-mesh=mesh=dp=2 --pc-data-parallel="mode=naive" --pc-verify-placed --pc-interpret=print=none -o %t.naive
// RUN: FileCheck %s --check-prefix=NAIVE < %t.naive
// RUN: %same-step %t.step %t.naive
// The scatter from coordinate 0 appends its axis as the minor end of the batch, at any position of the axis in the mesh
// and in any order of tactics.
// RUN: for mesh in a=2,dp=2 dp=2,a=2; do for first in naive ddp; do \
// RUN:   pc-opt %t.step --pc-set-mesh=mesh=$mesh --pc-data-parallel="axis=a mode=$first" \
// RUN:     --pc-data-parallel="axis=dp mode=$(test $first = ddp && echo naive || echo ddp)" --pc-verify-placed -o %t.both && \
// RUN:   %same-step %t.step %t.both || exit 1; done; done
// RUN: not pc-opt %t.step --pc-set-mesh=mesh=dp=2 --pc-data-parallel="mode=x" 2>&1 | FileCheck %s --check-prefix=MODE
// RUN: not pc-opt %t.step --pc-set-mesh=mesh=dp=2 --pc-data-parallel="axis=x" 2>&1 | FileCheck %s --check-prefix=AXIS
// RUN: not pc-opt %t.step --pc-set-mesh=mesh=dp=2 --pc-data-parallel --pc-data-parallel 2>&1 | FileCheck %s --check-prefix=USED
// RUN: not pc-opt %t.step --pc-data-parallel 2>&1 | FileCheck %s --check-prefix=MESH
// A pass that gets a program of a later phase reports this.
// RUN: %each --pc-data-parallel --pc-zero : 'not pc-opt %t.both.local {} 2>&1 | FileCheck %s --check-prefix=LOCAL'
// RUN: pc-opt %t.both.local --pc-fuse --pc-schedule --pc-fuse -o %t.scheduled
// RUN: not pc-opt %t.scheduled --pc-erase-placements 2>&1 | FileCheck %s --check-prefix=SCHEDULED
// RUN: not pc-opt %t.scheduled --pc-mixed-precision 2>&1 | FileCheck %s --check-prefix=FUSED

// DIVIDE: error: pc-data-parallel: 'tokens': dim "batch" of size 4 in 'tensor<2x4x8xi32>' does not divide by dp=3; nearest legal sizes of the dim: 3 and 6
// MODE: error: pc-data-parallel: mode 'x' is unknown; expected ddp or naive
// AXIS: error: pc-data-parallel: axis 'x' is not in the mesh, whose axes are 'dp'
// USED: error: pc-data-parallel: axis 'dp' is used by an earlier tactic
// LOCAL: error: {{.*}}: tactics need a placed program, so run pc-set-mesh first; '{{.*}}' has type
// SCHEDULED: error: pc-erase-placements: the program is scheduled already; run this pass on a placed program
// FUSED: error: pc-mixed-precision: the program is fused already; run this pass before pc-fuse
// MESH: error: pc-data-parallel: the module has no mesh; run pc-set-mesh first

// Parameters and state stay whole, the data is split along the batch, never along the microbatches.
// CHECK-DAG: pc.parameter "wte" {{.*}} : tensor<512x6xf32, #pc.place<[_, _]>>
// CHECK-DAG: pc.input tokens {{.*}} : tensor<2x4x8xi32, #pc.place<[_, dp, _]>>
// The body has no moves. Activations are split along the batch; gradients and the loss are partial sums.
// CHECK: pc.accumulate
// CHECK-NOT: pc.all_reduce
// CHECK: pc.embedding {{.*}} -> tensor<4x8x6xf32, #pc.place<[dp, _, _]>>
// CHECK-NOT: pc.all_reduce
// CHECK: pc.output logits "logits" %{{.*}} : tensor<4x8x512xf32, #pc.place<[dp, _, _]>>
// CHECK-NOT: pc.all_reduce
// CHECK: pc.scale {{.*}} -> tensor<f32, #pc.place<[] sum(dp)>>
// CHECK-NOT: pc.all_reduce
// CHECK: pc.einsum "b s v, b s e -> v e" {{.*}} -> tensor<512x6xf32, #pc.place<[_, _] sum(dp)>>
// CHECK-NOT: pc.all_reduce
// CHECK: pc.yield
// The sums over both microbatches are reduced once, after them.
// CHECK: %[[LOSS:.*]] = pc.all_reduce sum %{{.*}}#0 on ["dp"]
// CHECK: pc.output loss "loss" %[[LOSS]]
// CHECK: %[[G:.*]] = pc.all_reduce sum %{{.*}}#1 on ["dp"] : (tensor<512x6xf32, #pc.place<[_, _] sum(dp)>>) -> tensor<512x6xf32, #pc.place<[_, _]>>
// CHECK: pc.output gradient "wte" %[[G]]
// CHECK: pc.adamw %{{.*}}, %[[G]]

// One all_reduce for the loss and one per parameter, 2(n-1)/n of its bytes; nothing else.
// COUNT-COUNT-4: pc.all_reduce
// COUNT-NOT: {{pc\.(all_reduce|all_gather|reduce_scatter|all_to_all|slice|mask|pad)}}

// In the baseline, coordinate 0 scatters the batch, broadcasts the parameters once for all microbatches, gathers the
// loss of every token, scatters its gradient, and receives the sums of gradients. In the interpreter, the values of the
// other ranks are NaN.
// NAIVE-DAG: pc.parameter "wte" {{.*}} : tensor<512x6xf32, #pc.place<[_, _] root(dp)>>
// NAIVE-DAG: pc.scatter {{.*}} dim 1 on ["dp"] : {{.*}} -> tensor<2x4x8xi32, #pc.place<[_, dp, _]>>
// NAIVE-DAG: pc.broadcast {{.*}} -> tensor<512x6xf32, #pc.place<[_, _]>>
// NAIVE: pc.accumulate
// NAIVE-NOT: pc.broadcast
// NAIVE: pc.gather {{.*}} dim 0 on ["dp"] : {{.*}} -> tensor<4x8xf32, #pc.place<[_, _] root(dp)>>
// NAIVE: pc.scatter {{.*}} dim 0 on ["dp"] : {{.*}} -> tensor<4x8xf32, #pc.place<[dp, _]>>
// NAIVE: pc.yield
// NAIVE-NOT: pc.all_reduce
// NAIVE: pc.reduce sum {{.*}} on ["dp"] : {{.*}} -> tensor<512x6xf32, #pc.place<[_, _] root(dp)>>
// NAIVE: pc.adamw {{.*}} root(dp)
