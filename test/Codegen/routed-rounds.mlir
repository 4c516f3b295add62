// Experts compute the program of expand-routed.mlir in rounds, which have at most as many rows as the limit.
// RUN: pc-opt %S/expand-routed.mlir --pc-differentiate -o %t.step && pc-opt %t.step --pc-set-mesh=mesh=ep=2 --pc-expert-parallel --pc-fuse-moves --pc-localize -o %t.local
// RUN: pc-opt %t.local --pc-store-rows=limit=30 -o %t.rows && FileCheck %s --input-file %t.rows && pc-equal %t.step %t.rows
// At most 64 rows are computed in rounds of 30, 30 and 4. The forward pass keeps only the sum of the rounds.
// CHECK: %[[FIRST:.*]] = pc.round_of_rows %[[MASK:.*]] round 0 of 3 limit 30 : (tensor<4x8x2xf32>) -> tensor<4x8x2xf32>
// CHECK: %[[H:.*]] = pc.einsum "b s e, n f e, b s n -> b s n f" {{.*}}, %[[FIRST]] routed 2 : {{.*}} -> tensor<4x8x2x6xf32, #pc.rows<30 of 3>>
// CHECK: pc.activation silu %[[H]] : (tensor<4x8x2x6xf32, #pc.rows<30 of 3>>) -> tensor<4x8x2x6xf32, #pc.rows<30 of 3>>
// CHECK: %[[Y0:.*]] = pc.einsum "b s n f, e n f, b s n -> b s e" {{.*}}, %[[FIRST]] routed 2 : {{.*}} -> tensor<4x8x8xf32>
// CHECK: %[[SECOND:.*]] = pc.round_of_rows %[[MASK]] round 1 of 3 limit 30
// CHECK: %[[Y1:.*]] = pc.einsum "b s n f, e n f, b s n -> b s e" {{.*}}, %[[SECOND]] routed 2
// CHECK-NEXT: %[[TWO:.*]] = pc.add %[[Y0]], %[[Y1]]
// CHECK: %[[LAST:.*]] = pc.round_of_rows %[[MASK]] round 2 of 3 limit 30
// CHECK: pc.einsum "b s e, n f e, b s n -> b s n f" {{.*}}, %[[LAST]] routed 2 : {{.*}} -> tensor<4x8x2x6xf32, #pc.rows<4 of 3>>
// CHECK: %[[Y2:.*]] = pc.einsum "b s n f, e n f, b s n -> b s e" {{.*}}, %[[LAST]] routed 2
// CHECK-NEXT: pc.add %[[TWO]], %[[Y2]]
// The backward pass computes the rounds again.
// CHECK: pc.seed
// CHECK: %[[AGAIN:.*]] = pc.round_of_rows %[[MASK]] round 0 of 3 limit 30
// CHECK: pc.einsum "b s e, n f e, b s n -> b s n f" {{.*}}, %[[AGAIN]] routed 2
// CHECK: pc.einsum "{{.*}} -> e n f" {{.*}}, %[[AGAIN]] routed 2 : {{.*}} -> tensor<8x2x6xf32>
// CHECK: pc.einsum {{.*}}, %[[AGAIN]] routed 2 : (tensor<4x8x2xf32, #pc.rows<30 of 3>>, tensor<4x8x2xf32>) -> tensor<4x8x2xf32>
// CHECK: pc.round_of_rows %[[MASK]] round 1 of 3 limit 30
// CHECK-NOT: rows<64 of 3>
// Rounds are fused into kernels. A limit of one row gives rounds of one row. With a limit that leaves one round, the
// program equals the one without a limit.
// RUN: pc-opt %t.rows --pc-fuse --pc-plan-memory -o %t.planned && pc-equal %t.step %t.planned
// RUN: pc-opt %t.local --pc-store-rows=limit=1 -o %t.ones && pc-equal %t.step %t.ones
// RUN: pc-opt %t.local --pc-store-rows -o %t.whole
// RUN: %each 64 65 1000 : 'pc-opt %t.local --pc-store-rows=limit={} | diff %t.whole -'
// In bf16, the sum over rounds is f32 and is then rounded.
// RUN: pc-opt %t.step --pc-mixed-precision -o %t.half && pc-opt %t.half --pc-set-mesh=mesh=ep=2 --pc-expert-parallel --pc-fuse-moves --pc-localize -o %t.half.local
// RUN: %each cpu cuda : 'pc-opt %t.half.local --pc-store-rows="target={} limit=30" -o %t.half.rows && FileCheck %s --check-prefix=HALF --input-file %t.half.rows && pc-equal %t.half %t.half.rows'
// HALF: pc.einsum "b s n f, e n f, b s n -> b s e" {{.*}} -> tensor<4x8x8xf32>
// HALF: pc.round_of_rows {{.*}} round 2 of 3
// HALF: %[[SUM:.*]] = pc.add {{.*}} : (tensor<4x8x8xf32>, tensor<4x8x8xf32>) -> tensor<4x8x8xf32>
// HALF-NEXT: pc.cast %[[SUM]] : (tensor<4x8x8xf32>) -> tensor<4x8x8xbf16>
// RUN: not pc-opt %t.local --pc-store-rows=limit=-1 2>&1 | FileCheck %s --check-prefix=NEGATIVE
// NEGATIVE: error: pc-store-rows: limit must not be negative, got -1; 0 means no limit
// Rows that ranks exchange are not divided into rounds.
// RUN: pc-opt %t.step --pc-dispatch-experts=exchange=rows --pc-set-mesh=mesh=ep=2 --pc-expert-parallel --pc-fuse-moves --pc-localize -o %t.sent
// RUN: not pc-opt %t.sent --pc-store-rows=limit=30 2>&1 | FileCheck %s --check-prefix=SENT
// SENT: error: ranks exchange up to 32 routed tokens at once, but --experts-limit=30 needs ranks that gather all tokens; use --expert-exchange=gather
