// If experts have a capacity, memory is needed only for rows within it. The program is that of expand-routed.mlir with
// a capacity of 3.
// RUN: sed -e 's/^  %chosen = pc.top_k .*/&\n  %few = pc.admit %chosen capacity 3 : (tensor<4x8x4xf32>) -> tensor<4x8x4xf32>/' -e '/routed 2/s/%chosen/%few/' %S/expand-routed.mlir > %t.model
// RUN: pc-opt %t.model --pc-differentiate -o %t.step
// A rank has 4 sequences and 2 experts. It stores 24 rows, although tokens may choose 64.
// RUN: pc-opt %t.step --pc-set-mesh=mesh=ep=2 --pc-expert-parallel --pc-fuse-moves --pc-localize --pc-store-rows -o %t.rows
// RUN: FileCheck %s --check-prefix=EXPERTS --input-file %t.rows && pc-equal %t.step %t.rows
// EXPERTS: pc.admit {{.*}} capacity 3 : (tensor<4x8x2xf32>) -> tensor<4x8x2xf32>
// EXPERTS: pc.einsum "b s e, n f e, b s n -> b s n f" {{.*}} -> tensor<4x8x2x6xf32, #pc.rows<24 of 3>>
// EXPERTS: pc.activation silu {{.*}} -> tensor<4x8x2x6xf32, #pc.rows<24 of 3>>
// EXPERTS: pc.einsum "{{.*}} -> e n f" {{.*}} routed 2 : {{.*}} -> tensor<8x2x6xf32>
// RUN: pc-opt %t.rows --pc-fuse --pc-plan-memory -o %t.planned && pc-equal %t.step %t.planned
// A rank has 2 sequences and all experts. It stores 24 rows, although tokens may choose 32. If a rank has half of a
// sequence, its 4 tokens may choose fewer rows than the experts' capacity.
// RUN: pc-opt %t.step --pc-set-mesh=mesh=dp=2 --pc-data-parallel --pc-fuse-moves --pc-localize --pc-store-rows -o %t.data
// RUN: FileCheck %s --check-prefix=DATA --input-file %t.data && pc-equal %t.step %t.data
// DATA: pc.einsum "b s e, n f e, b s n -> b s n f" {{.*}} -> tensor<2x8x4x6xf32, #pc.rows<24 of 3>>
// RUN: pc-opt %t.step --pc-set-mesh=mesh=cp=2 --pc-context-parallel --pc-fuse-moves --pc-localize --pc-store-rows -o %t.sequence
// RUN: FileCheck %s --check-prefix=SEQUENCE --input-file %t.sequence && pc-equal %t.step %t.sequence
// SEQUENCE: pc.admit {{.*}} : (tensor<4x8x4xf32>) -> tensor<4x8x4xf32>
// SEQUENCE: pc.einsum "b s e, n f e, b s n -> b s n f" {{.*}} -> tensor<4x4x4x6xf32, #pc.rows<32 of 3>>
// A mask that does not come from pc.admit needs memory for all chosen rows.
// RUN: sed '/routed 2/s/%few/%chosen/' %t.model | pc-opt --pc-differentiate --pc-localize --pc-store-rows | FileCheck %s --check-prefix=ALL
// ALL: pc.einsum "b s e, n f e, b s n -> b s n f" {{.*}} -> tensor<4x8x4x6xf32, #pc.rows<64 of 3>>
