// Every move runs on 8 ranks, over one axis and over two axes that are not adjacent in the rank numbers. pc-interpret
// assembles every value and compares it with one device. The local program, in which moves have only groups and shapes,
// must give equal results.
// RUN: pc-opt %s --pc-interpret=print=none -o /dev/null
// RUN: pc-opt %s --pc-localize -o %t.local.mlir
// RUN: pc-equal %s %t.local.mlir --tolerance=1e-12 | FileCheck %s
// CHECK: gradient: largest relative difference
// CHECK: update: largest relative difference
// CHECK: equal

pc.mesh <a = 2, b = 2, c = 2>

func.func @step() {
  %w = pc.parameter "w" dims ["x", "y"] init <normal, 2.0e-02>
    source <"w", shape = [16, 8], start = [0, 0], size = [16, 8]> : tensor<16x8xf32, #pc.place<[(c, a), b]>>
  // all_gather of the minor axis, of both, and over two axes in the order minor to major of the mesh.
  %g1 = pc.all_gather %w dim 0 on ["a"] : (tensor<16x8xf32, #pc.place<[(c, a), b]>>) -> tensor<16x8xf32, #pc.place<[c, b]>>
  %g2 = pc.all_gather %w dim 0 on ["c", "a"] : (tensor<16x8xf32, #pc.place<[(c, a), b]>>) -> tensor<16x8xf32, #pc.place<[_, b]>>
  // slice restores the placement, or makes another order of axes.
  %s1 = pc.slice %g2 dim 0 on ["c", "a"] : (tensor<16x8xf32, #pc.place<[_, b]>>) -> tensor<16x8xf32, #pc.place<[(c, a), b]>>
  %s2 = pc.slice %g2 dim 1 on ["a"] : (tensor<16x8xf32, #pc.place<[_, b]>>) -> tensor<16x8xf32, #pc.place<[_, (b, a)]>>
  %s3 = pc.slice %s2 dim 1 on ["c"] : (tensor<16x8xf32, #pc.place<[_, (b, a)]>>) -> tensor<16x8xf32, #pc.place<[_, (b, a, c)]>>
  // all_to_all over one axis and over two.
  %t1 = pc.all_to_all %w from 0 to 1 on ["a"] : (tensor<16x8xf32, #pc.place<[(c, a), b]>>) -> tensor<16x8xf32, #pc.place<[c, (b, a)]>>
  %t2 = pc.all_to_all %w from 0 to 1 on ["c", "a"] : (tensor<16x8xf32, #pc.place<[(c, a), b]>>) -> tensor<16x8xf32, #pc.place<[_, (b, c, a)]>>
  // Partial values: a sum over the split dim, masks, pads, and the moves that complete them.
  %p1 = pc.einsum "x y -> y" %w : (tensor<16x8xf32, #pc.place<[(c, a), b]>>) -> tensor<8xf32, #pc.place<[b] sum(a, c)>>
  %r1 = pc.all_reduce sum %p1 on ["a", "c"] : (tensor<8xf32, #pc.place<[b] sum(a, c)>>) -> tensor<8xf32, #pc.place<[b]>>
  %r2 = pc.reduce_scatter sum %p1 dim 0 on ["c"] : (tensor<8xf32, #pc.place<[b] sum(a, c)>>) -> tensor<8xf32, #pc.place<[(b, c)] sum(a)>>
  %r3 = pc.reduce_scatter sum %r2 dim 0 on ["a"] : (tensor<8xf32, #pc.place<[(b, c)] sum(a)>>) -> tensor<8xf32, #pc.place<[(b, c, a)]>>
  %r4 = pc.reduce_scatter sum %p1 dim 0 on ["c", "a"] : (tensor<8xf32, #pc.place<[b] sum(a, c)>>) -> tensor<8xf32, #pc.place<[(b, c, a)]>>
  %m1 = pc.mask %g2 on ["a", "c"] : (tensor<16x8xf32, #pc.place<[_, b]>>) -> tensor<16x8xf32, #pc.place<[_, b] sum(a, c)>>
  %m2 = pc.reduce_scatter sum %m1 dim 0 on ["c", "a"] : (tensor<16x8xf32, #pc.place<[_, b] sum(a, c)>>) -> tensor<16x8xf32, #pc.place<[(c, a), b]>>
  %d1 = pc.pad %w dim 0 on ["a"] : (tensor<16x8xf32, #pc.place<[(c, a), b]>>) -> tensor<16x8xf32, #pc.place<[c, b] sum(a)>>
  %d2 = pc.pad %w dim 0 on ["c", "a"] : (tensor<16x8xf32, #pc.place<[(c, a), b]>>) -> tensor<16x8xf32, #pc.place<[_, b] sum(a, c)>>
  %d3 = pc.all_reduce sum %d1 on ["a"] : (tensor<16x8xf32, #pc.place<[c, b] sum(a)>>) -> tensor<16x8xf32, #pc.place<[c, b]>>
  %d4 = pc.reduce_scatter sum %d2 dim 0 on ["c", "a"] : (tensor<16x8xf32, #pc.place<[_, b] sum(a, c)>>) -> tensor<16x8xf32, #pc.place<[(c, a), b]>>
  // A maximum.
  %x1 = pc.reduce_max "x y -> y" %w : (tensor<16x8xf32, #pc.place<[(c, a), b]>>) -> tensor<8xf32, #pc.place<[b] max(a, c)>>
  %x2 = pc.all_reduce max %x1 on ["a"] : (tensor<8xf32, #pc.place<[b] max(a, c)>>) -> tensor<8xf32, #pc.place<[b] max(c)>>
  %x3 = pc.reduce_scatter max %x2 dim 0 on ["c"] : (tensor<8xf32, #pc.place<[b] max(c)>>) -> tensor<8xf32, #pc.place<[(b, c)]>>
  // Moves to coordinate 0 and back.
  %o1 = pc.reduce sum %p1 on ["a"] : (tensor<8xf32, #pc.place<[b] sum(a, c)>>) -> tensor<8xf32, #pc.place<[b] sum(c) root(a)>>
  %o2 = pc.all_reduce sum %o1 on ["c"] : (tensor<8xf32, #pc.place<[b] sum(c) root(a)>>) -> tensor<8xf32, #pc.place<[b] root(a)>>
  %o3 = pc.broadcast %o2 on ["a"] : (tensor<8xf32, #pc.place<[b] root(a)>>) -> tensor<8xf32, #pc.place<[b]>>
  %o4 = pc.gather %w dim 0 on ["a"] : (tensor<16x8xf32, #pc.place<[(c, a), b]>>) -> tensor<16x8xf32, #pc.place<[c, b] root(a)>>
  %o5 = pc.scatter %o4 dim 0 on ["a"] : (tensor<16x8xf32, #pc.place<[c, b] root(a)>>) -> tensor<16x8xf32, #pc.place<[(c, a), b]>>
  pc.output gradient "o3" %o3 : tensor<8xf32, #pc.place<[b]>>
  pc.output gradient "o5" %o5 : tensor<16x8xf32, #pc.place<[(c, a), b]>>
  pc.output gradient "g1" %g1 : tensor<16x8xf32, #pc.place<[c, b]>>
  pc.output gradient "s1" %s1 : tensor<16x8xf32, #pc.place<[(c, a), b]>>
  pc.output gradient "s3" %s3 : tensor<16x8xf32, #pc.place<[_, (b, a, c)]>>
  pc.output gradient "t1" %t1 : tensor<16x8xf32, #pc.place<[c, (b, a)]>>
  pc.output gradient "t2" %t2 : tensor<16x8xf32, #pc.place<[_, (b, c, a)]>>
  pc.output gradient "r1" %r1 : tensor<8xf32, #pc.place<[b]>>
  pc.output gradient "r3" %r3 : tensor<8xf32, #pc.place<[(b, c, a)]>>
  pc.output gradient "r4" %r4 : tensor<8xf32, #pc.place<[(b, c, a)]>>
  pc.output gradient "m2" %m2 : tensor<16x8xf32, #pc.place<[(c, a), b]>>
  pc.output gradient "d3" %d3 : tensor<16x8xf32, #pc.place<[c, b]>>
  pc.output gradient "d4" %d4 : tensor<16x8xf32, #pc.place<[(c, a), b]>>
  pc.output gradient "x3" %x3 : tensor<8xf32, #pc.place<[(b, c)]>>
  pc.update "w" %m2 : tensor<16x8xf32, #pc.place<[(c, a), b]>>
  return
}
