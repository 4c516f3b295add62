// RUN: pc-opt %s --pc-fuse-moves | FileCheck %s

pc.mesh <a = 2, b = 2>

func.func private @use(tensor<8x8xf32, #pc.place<[_, _]>>)

// Two sums over one axis each become one over both. Its axes are in the order of the mesh, for any order of the chain.
// CHECK-LABEL: @all_reduce
// CHECK-NEXT: pc.all_reduce sum %{{.*}} on ["a", "b"]
// CHECK-NEXT: return
func.func @all_reduce(%x: tensor<8x8xf32, #pc.place<[_, _] sum(a, b)>>) -> tensor<8x8xf32, #pc.place<[_, _]>> {
  %0 = pc.all_reduce sum %x on ["b"] : (tensor<8x8xf32, #pc.place<[_, _] sum(a, b)>>) -> tensor<8x8xf32, #pc.place<[_, _] sum(a)>>
  %1 = pc.all_reduce sum %0 on ["a"] : (tensor<8x8xf32, #pc.place<[_, _] sum(a)>>) -> tensor<8x8xf32, #pc.place<[_, _]>>
  return %1 : tensor<8x8xf32, #pc.place<[_, _]>>
}

// A gather takes the minor axis first; the joint list is major to minor again.
// CHECK-LABEL: @all_gather
// CHECK-NEXT: pc.all_gather %{{.*}} dim 0 on ["a", "b"]
// CHECK-NEXT: return
func.func @all_gather(%x: tensor<8x8xf32, #pc.place<[(a, b), _]>>) -> tensor<8x8xf32, #pc.place<[_, _]>> {
  %0 = pc.all_gather %x dim 0 on ["b"] : (tensor<8x8xf32, #pc.place<[(a, b), _]>>) -> tensor<8x8xf32, #pc.place<[a, _]>>
  %1 = pc.all_gather %0 dim 0 on ["a"] : (tensor<8x8xf32, #pc.place<[a, _]>>) -> tensor<8x8xf32, #pc.place<[_, _]>>
  return %1 : tensor<8x8xf32, #pc.place<[_, _]>>
}

// A reduce_scatter adds at the minor end, so the list keeps the order of the chain.
// CHECK-LABEL: @reduce_scatter
// CHECK-NEXT: pc.reduce_scatter sum %{{.*}} dim 1 on ["b", "a"]
// CHECK-NEXT: return
func.func @reduce_scatter(%x: tensor<8x8xf32, #pc.place<[_, _] sum(a, b)>>) -> tensor<8x8xf32, #pc.place<[_, (b, a)]>> {
  %0 = pc.reduce_scatter sum %x dim 1 on ["b"] : (tensor<8x8xf32, #pc.place<[_, _] sum(a, b)>>) -> tensor<8x8xf32, #pc.place<[_, b] sum(a)>>
  %1 = pc.reduce_scatter sum %0 dim 1 on ["a"] : (tensor<8x8xf32, #pc.place<[_, b] sum(a)>>) -> tensor<8x8xf32, #pc.place<[_, (b, a)]>>
  return %1 : tensor<8x8xf32, #pc.place<[_, (b, a)]>>
}

// If another op reads the value between them, both moves stay. Gathers of two different dims also stay.
// CHECK-LABEL: @kept
// CHECK-NEXT: pc.all_gather %{{.*}} dim 0 on ["a"]
// CHECK-NEXT: pc.all_gather %{{.*}} dim 1 on ["b"]
// CHECK-NEXT: pc.slice %{{.*}} dim 0 on ["a"]
// CHECK-NEXT: pc.slice %{{.*}} dim 0 on ["b"]
func.func @kept(%x: tensor<8x8xf32, #pc.place<[a, b]>>) -> (tensor<8x8xf32, #pc.place<[a, _]>>, tensor<8x8xf32, #pc.place<[(a, b), _]>>) {
  %0 = pc.all_gather %x dim 0 on ["a"] : (tensor<8x8xf32, #pc.place<[a, b]>>) -> tensor<8x8xf32, #pc.place<[_, b]>>
  %1 = pc.all_gather %0 dim 1 on ["b"] : (tensor<8x8xf32, #pc.place<[_, b]>>) -> tensor<8x8xf32, #pc.place<[_, _]>>
  %2 = pc.slice %1 dim 0 on ["a"] : (tensor<8x8xf32, #pc.place<[_, _]>>) -> tensor<8x8xf32, #pc.place<[a, _]>>
  %3 = pc.slice %2 dim 0 on ["b"] : (tensor<8x8xf32, #pc.place<[a, _]>>) -> tensor<8x8xf32, #pc.place<[(a, b), _]>>
  return %2, %3 : tensor<8x8xf32, #pc.place<[a, _]>>, tensor<8x8xf32, #pc.place<[(a, b), _]>>
}
