// RUN: pc-opt %S/Inputs/mlp.mlir --pc-differentiate=microbatches=2 -o %t.step
// RUN: pc-opt %t.step --pc-set-mesh=mesh=dp=2 --pc-zero=stage=1 --pc-verify-placed --pc-interpret=print=none | tee %t.1 | FileCheck %s --check-prefix=ONE
// RUN: pc-opt %t.step --pc-set-mesh=mesh=dp=2 --pc-zero=stage=2 --pc-verify-placed --pc-interpret=print=none | tee %t.2 | FileCheck %s --check-prefix=TWO
// RUN: pc-opt %t.step --pc-set-mesh=mesh=dp=2 --pc-zero=stage=3 --pc-verify-placed --pc-interpret=print=none | tee %t.3 | FileCheck %s --check-prefix=THREE
// RUN: pc-opt %t.step --pc-set-mesh=mesh=dp=2 --pc-zero="stage=3 reshard-after-forward=false" --pc-verify-placed --pc-interpret=print=none | tee %t.4 | FileCheck %s --check-prefix=KEEP
// RUN: pc-opt %t.step --pc-set-mesh=mesh=rep=2,dp=2 --pc-data-parallel=axis=rep --pc-zero=stage=3 --pc-fuse-moves --pc-verify-placed --pc-interpret=print=none | tee %t.5 | FileCheck %s --check-prefix=HYBRID
// RUN: %same-step %t.step %t.1 %t.2 %t.3 %t.4 %t.5
// RUN: not pc-opt %t.step --pc-set-mesh=mesh=dp=2 --pc-zero=stage=4 2>&1 | FileCheck %s --check-prefix=STAGE
// RUN: not pc-opt %t.step --pc-set-mesh=mesh=dp=3 --pc-zero=stage=1 2>&1 | FileCheck %s --check-prefix=DIVIDE
// RUN: not pc-opt %t.step --pc-set-mesh=mesh=dp=5 --pc-zero=stage=3 2>&1 | FileCheck %s --check-prefix=NONE

// STAGE: error: pc-zero: stage 4 is unknown; expected 1, 2 or 3
// DIVIDE: error: pc-zero: 'tokens': dim "batch" of size 4 in 'tensor<2x4x8xi32>' does not divide by dp=3; nearest legal sizes of the dim: 3 and 6
// NONE: error: pc-zero: no parameter has a dim whose part on a rank is divisible by dp=5

// ZeRO-1 splits the longest dim of each state. Whole gradients are added over the microbatches and scattered once, and
// the new parameters are gathered.
// ONE-DAG: pc.parameter "wte" {{.*}} : tensor<512x6xf32, #pc.place<[_, _]>>
// ONE: pc.accumulate
// ONE-NOT: {{pc\.(all_reduce|all_gather|reduce_scatter|all_to_all)}}
// ONE: pc.yield
// ONE-COUNT-3: pc.reduce_scatter
// The norm of all gradients is computed from the shards, with a move of one scalar.
// ONE: pc.all_reduce sum {{.*}} -> tensor<f32, #pc.place<[]>>
// ONE: pc.state "exp_avg" of "wte" {{.*}} : tensor<512x6xf32, #pc.place<[dp, _]>>
// ONE: pc.adamw {{.*}} -> (tensor<512x6xf32, #pc.place<[dp, _]>>, tensor<512x6xf32, #pc.place<[dp, _]>>, tensor<512x6xf32, #pc.place<[dp, _]>>)
// ONE-COUNT-3: pc.all_gather
// ONE-NOT: pc.all_gather

// ZeRO-2 scatters each gradient right after it is computed.
// TWO: pc.accumulate
// TWO: %[[G:.*]] = pc.einsum "b s v, b s e -> v e" {{.*}} -> tensor<512x6xf32, #pc.place<[_, _] sum(dp)>>
// TWO: %[[D:.*]] = pc.einsum "b s f, b s e -> {{.*}} sum(dp)>>
// TWO-NEXT: pc.reduce_scatter sum %[[D]]
// TWO: pc.yield
// TWO-NOT: pc.reduce_scatter
// TWO-COUNT-3: pc.all_gather
// TWO-NOT: pc.all_gather

// With ZeRO-3, a parameter is whole only between a gather and its last reader. The forward and the backward pass gather
// separately.
// THREE: pc.parameter "wte" {{.*}} : tensor<512x6xf32, #pc.place<[dp, _]>>
// THREE: pc.accumulate
// THREE: %[[F:.*]] = pc.copy %{{.*}} : (tensor<512x6xf32, #pc.place<[dp, _]>>)
// THREE-NEXT: %[[W:.*]] = pc.all_gather %[[F]] dim 0 on ["dp"]
// THREE-NEXT: pc.embedding %[[W]]
// THREE: pc.seed
// THREE: %[[B:.*]] = pc.copy %{{.*}} : (tensor<512x6xf32, #pc.place<[dp, _]>>)
// THREE-NEXT: pc.all_gather %[[B]] dim 0 on ["dp"]
// THREE: pc.yield
// THREE-NOT: {{pc\.(all_gather|reduce_scatter)}}
// THREE: pc.adamw

// KEEP: pc.accumulate
// KEEP-COUNT-3: pc.all_gather
// KEEP-NOT: pc.all_gather

// Hybrid sharding has shards within the inner axis, and sums their gradients over the outer one.
// HYBRID: pc.parameter "wte" {{.*}} : tensor<512x6xf32, #pc.place<[dp, _]>>
// HYBRID: pc.all_reduce sum {{.*}} on ["rep"] : (tensor<512x6xf32, #pc.place<[dp, _] sum(rep)>>)

// With bf16 weights, ZeRO-1 also splits the f32 master weights, and gathers the rounded weights once per step. ZeRO-3
// gathers them for each use.
// RUN: pc-opt %S/Inputs/mlp.mlir --pc-differentiate=microbatches=2 --pc-mixed-precision -o %t.bf16
// RUN: pc-opt %t.bf16 --pc-set-mesh=mesh=dp=2 --pc-zero=stage=1 --pc-verify-placed --pc-interpret=print=none | tee %t.6 | FileCheck %s --check-prefix=MASTER
// RUN: pc-opt %t.bf16 --pc-set-mesh=mesh=dp=2 --pc-zero=stage=3 --pc-verify-placed --pc-interpret=print=none | tee %t.7 | FileCheck %s --check-prefix=BF16
// RUN: %each 6 7 : 'pc-opt %t.{} --pc-erase-placements | diff %t.bf16 -'
// MASTER: %[[UP:.*]] = pc.parameter "up" {{.*}} : tensor<6x24xf32, #pc.place<[_, dp]>>
// MASTER-NEXT: %[[LOW:.*]] = pc.cast %[[UP]]
// MASTER-NEXT: pc.all_gather %[[LOW]] {{.*}} -> tensor<6x24xbf16, #pc.place<[_, _]>>
// MASTER: pc.accumulate
// MASTER-NOT: pc.all_gather
// MASTER: pc.yield
// BF16: pc.accumulate
// BF16: pc.all_gather {{.*}} -> tensor<6x24xbf16, #pc.place<[_, _]>>
// BF16: pc.seed
// BF16: pc.all_gather {{.*}} -> tensor<6x24xbf16, #pc.place<[_, _]>>
// BF16: pc.yield

// A parameter that is kept is gathered once per step, before all microbatches. With one microbatch, it is gathered
// before its first reader.
// RUN: pc-opt %t.step --pc-set-mesh=mesh=dp=2 --pc-zero="stage=3 keep=wte|d?wn" --pc-verify-placed --pc-interpret=print=none | tee %t.8 | FileCheck %s --check-prefix=ONCE
// RUN: pc-opt %S/Inputs/mlp.mlir --pc-differentiate -o %t.single
// RUN: pc-opt %t.single --pc-set-mesh=mesh=dp=2 --pc-zero="stage=3 keep=wte" --pc-verify-placed --pc-interpret=print=none | tee %t.9 | FileCheck %s --check-prefix=SINGLE
// RUN: pc-opt %t.bf16 --pc-set-mesh=mesh=dp=2 --pc-zero="stage=3 keep=wte" --pc-verify-placed --pc-interpret=print=none | tee %t.10 | FileCheck %s --check-prefix=BF16ONCE
// RUN: %same-step %t.step %t.8 && %same-step %t.single %t.9
// RUN: pc-opt %t.10 --pc-erase-placements > %t.erased && pc-opt %t.10 --pc-localize --pc-verify-local > %t.local && pc-equal %t.erased %t.local
// ONCE: %[[WTE:.*]] = pc.parameter "wte"
// ONCE: %[[UP:.*]] = pc.parameter "up"
// ONCE: %[[DOWN:.*]] = pc.parameter "down"
// ONCE-DAG: pc.all_gather %[[WTE]] dim 0 on ["dp"]
// ONCE-DAG: pc.all_gather %[[DOWN]] dim 0 on ["dp"]
// ONCE: pc.accumulate
// ONCE-COUNT-2: pc.all_gather
// ONCE-NOT: pc.all_gather
// SINGLE: pc.accumulate
// SINGLE: %[[WHOLE:.*]] = pc.all_gather {{.*}} -> tensor<512x6xf32, #pc.place<[_, _]>>
// SINGLE-NEXT: pc.embedding %[[WHOLE]]
// SINGLE-NOT: -> tensor<512x6xf32, #pc.place<[_, _]>>
// SINGLE: pc.einsum {{.*}} %[[WHOLE]]
// SINGLE: pc.seed
// SINGLE: pc.einsum {{.*}} %[[WHOLE]]
// A table in f32 for the lookup and in bf16 for the head is gathered in f32.
// BF16ONCE: %[[WTE:.*]] = pc.parameter "wte"
// BF16ONCE: %[[WHOLE:.*]] = pc.all_gather %[[WTE]]
// BF16ONCE: pc.cast %[[WHOLE]]
// BF16ONCE: pc.accumulate
// BF16ONCE-NOT: -> tensor<512x6x{{b?}}f{{16|32}}, #pc.place<[_, _]>>

// RUN: not pc-opt %t.step --pc-set-mesh=mesh=dp=2 --pc-zero="stage=3 keep=wte|wpe" 2>&1 | FileCheck %s --check-prefix=NOMATCH
// NOMATCH: error: pc-zero: keep: 'wpe' fits no parameter, whose names are such as
// RUN: not pc-opt %t.step --pc-set-mesh=mesh=dp=2 --pc-zero="stage=3 keep=[" 2>&1 | FileCheck %s --check-prefix=BADGLOB
// BADGLOB: error: pc-zero: keep: '[' is not a glob:
// RUN: not pc-opt %t.step --pc-set-mesh=mesh=dp=2 --pc-zero="stage=2 keep=wte" 2>&1 | FileCheck %s --check-prefix=KEEPSTAGE
// KEEPSTAGE: error: pc-zero: keep needs stage 3; in stage 2 every rank always has all parameters
