// The three products of a linear in 2D on 3 x 3 ranks, both moves of each as steps of one loop: equal to one device.
// RUN: pc-opt %s --pc-localize -o %t.local.mlir
// RUN: pc-opt %t.local.mlir --pc-window-moves=axes=row,col --pc-verify-local -o %t.windows.mlir
// RUN: pc-equal %s %t.windows.mlir --tolerance=1e-12 | FileCheck %s --check-prefix=EQUAL
// RUN: FileCheck %s < %t.windows.mlir
// EQUAL: gradient: largest relative difference
// EQUAL: equal

// Products use the panel of one exchange while the next exchange is in flight. The products add to the sums themselves.
// RUN: pc-opt %t.windows.mlir --pc-fuse --pc-schedule --pc-verify-scheduled --pc-plan-memory --pc-verify-memory -o %t.planned.mlir
// RUN: pc-equal %s %t.planned.mlir --tolerance=1e-12 | FileCheck %s --check-prefix=EQUAL
// RUN: FileCheck %s --check-prefix=PLANNED < %t.planned.mlir

// The forward product gets a panel of each operand in every step.
// CHECK: %[[X:.*]] = pc.parameter "x"
// CHECK: %[[W:.*]] = pc.parameter "w"
// CHECK: %[[X0:.*]] = pc.permute %[[X]] shift 0 on ["col"] with ["row"] : (tensor<2x3xf32>) -> tensor<2x3xf32>
// CHECK-NEXT: %[[W0:.*]] = pc.permute %[[W]] shift 0 on ["row"] with ["col"] : (tensor<3x4xf32>) -> tensor<3x4xf32>
// CHECK-NEXT: %[[P0:.*]] = pc.einsum "b e, e f -> b f" %[[X0]], %[[W0]]
// CHECK-NEXT: %[[X1:.*]] = pc.permute %[[X]] on ["col"] with ["row"]
// CHECK-NEXT: %[[W1:.*]] = pc.permute %[[W]] on ["row"] with ["col"]
// CHECK-NEXT: %[[P1:.*]] = pc.einsum "b e, e f -> b f" %[[X1]], %[[W1]]
// CHECK-NEXT: %[[S1:.*]] = pc.add %[[P0]], %[[P1]]
// CHECK-NEXT: %[[X2:.*]] = pc.permute %[[X]] shift 2 on ["col"] with ["row"]
// CHECK-NEXT: %[[W2:.*]] = pc.permute %[[W]] shift 2 on ["row"] with ["col"]
// CHECK-NEXT: %[[P2:.*]] = pc.einsum "b e, e f -> b f" %[[X2]], %[[W2]]
// CHECK-NEXT: pc.add %[[S1]], %[[P2]]

// The data gradient uses the same panels of the weight again. Each product is sent to the rank that needs it.
// CHECK-NEXT: %[[A0:.*]] = pc.einsum "b f, e f -> b e" %{{.*}}, %[[W0]]
// CHECK-NEXT: %[[D0:.*]] = pc.permute %[[A0]] shift 0 on ["col"] with ["row"]
// CHECK-NEXT: %[[A1:.*]] = pc.einsum "b f, e f -> b e" %{{.*}}, %[[W1]]
// CHECK-NEXT: %[[D1:.*]] = pc.permute %[[A1]] on ["col"] with ["row"]
// CHECK-NEXT: %[[A2:.*]] = pc.einsum "b f, e f -> b e" %{{.*}}, %[[W2]]
// CHECK-NEXT: %[[D2:.*]] = pc.permute %[[A2]] shift 2 on ["col"] with ["row"]
// CHECK-NEXT: %[[E:.*]] = pc.add %[[D0]], %[[D1]]
// CHECK-NEXT: pc.add %[[E]], %[[D2]]

// The weight gradient is computed in the same way, over the other axis.
// CHECK: pc.einsum "b e, b f -> e f" %[[X0]]
// CHECK-NEXT: pc.permute %{{.*}} shift 0 on ["row"] with ["col"]
// CHECK-NOT: pc.all_gather
// CHECK-NOT: pc.reduce_scatter

// PLANNED: pc.start
// PLANNED-NEXT: pc.permute %{{.*}} on ["col"] with ["row"]
// PLANNED: pc.einsum "b e, e f -> b f"
// PLANNED: pc.fusion
// PLANNED-NEXT: pc.einsum "b e, e f -> b f"
// PLANNED-NEXT: pc.add


pc.mesh <row = 3, col = 3>

func.func @step() {
  %x = pc.parameter "x" dims ["b", "e"] init <normal, 1.0> source <"x", shape = [6, 9], start = [0, 0], size = [6, 9]> : tensor<6x9xf32, #pc.place<[row, col]>>
  %w = pc.parameter "w" dims ["e", "f"] init <normal, 1.0> source <"w", shape = [9, 12], start = [0, 0], size = [9, 12]> : tensor<9x12xf32, #pc.place<[row, col]>>
  %d = pc.parameter "d" dims ["b", "f"] init <normal, 1.0> source <"d", shape = [6, 12], start = [0, 0], size = [6, 12]> : tensor<6x12xf32, #pc.place<[row, col]>>
  %xg = pc.all_gather %x dim 1 on ["col"] : (tensor<6x9xf32, #pc.place<[row, col]>>) -> tensor<6x9xf32, #pc.place<[row, _]>>
  %wg = pc.all_gather %w dim 0 on ["row"] : (tensor<9x12xf32, #pc.place<[row, col]>>) -> tensor<9x12xf32, #pc.place<[_, col]>>
  %y = pc.einsum "b e, e f -> b f" %xg, %wg
    : (tensor<6x9xf32, #pc.place<[row, _]>>, tensor<9x12xf32, #pc.place<[_, col]>>) -> tensor<6x12xf32, #pc.place<[row, col]>>
  %dxp = pc.einsum "b f, e f -> b e" %d, %wg
    : (tensor<6x12xf32, #pc.place<[row, col]>>, tensor<9x12xf32, #pc.place<[_, col]>>) -> tensor<6x9xf32, #pc.place<[row, _] sum(col)>>
  %dx = pc.reduce_scatter sum %dxp dim 1 on ["col"] : (tensor<6x9xf32, #pc.place<[row, _] sum(col)>>) -> tensor<6x9xf32, #pc.place<[row, col]>>
  %dwp = pc.einsum "b e, b f -> e f" %xg, %d
    : (tensor<6x9xf32, #pc.place<[row, _]>>, tensor<6x12xf32, #pc.place<[row, col]>>) -> tensor<9x12xf32, #pc.place<[_, col] sum(row)>>
  %dw = pc.reduce_scatter sum %dwp dim 0 on ["row"] : (tensor<9x12xf32, #pc.place<[_, col] sum(row)>>) -> tensor<9x12xf32, #pc.place<[row, col]>>
  pc.output gradient "y" %y : tensor<6x12xf32, #pc.place<[row, col]>>
  pc.output gradient "dx" %dx : tensor<6x9xf32, #pc.place<[row, col]>>
  pc.output gradient "dw" %dw : tensor<9x12xf32, #pc.place<[row, col]>>
  return
}
