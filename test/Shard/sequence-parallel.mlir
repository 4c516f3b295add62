// RUN: pc-opt %S/Inputs/gpt2.mlir --pc-differentiate=microbatches=2 -o %t.step
// RUN: pc-opt %t.step --pc-set-mesh=mesh=tp=2 --pc-tensor-parallel --pc-sequence-parallel --pc-fuse-moves --pc-verify-placed --pc-interpret=print=none -o %t.placed
// RUN: FileCheck %s < %t.placed
// RUN: %same-step %t.step %t.placed
// RUN: grep -oE "pc.(all_reduce|all_gather|reduce_scatter|all_to_all).*" %t.placed | sed -E "s/%%[^ ]+ //; s/ : .*-> tensor/ tensor/" | sort | uniq -c | FileCheck %s --check-prefix=COUNT --match-full-lines
// RUN: pc-opt %t.step --pc-set-mesh=mesh=tp=2 --pc-tensor-parallel --pc-sequence-parallel=regather=true --pc-fuse-moves --pc-verify-placed --pc-interpret=print=none -o %t.regather
// RUN: pc-opt %t.regather --pc-erase-placements | diff %t.step -
// RUN: grep -oE "pc.(all_gather|reduce_scatter).*" %t.regather | sed -E "s/%%[^ ]+ //; s/ : .*-> tensor/ tensor/" | sort | uniq -c | FileCheck %s --check-prefix=AGAIN --match-full-lines
// RUN: pc-opt %S/Inputs/gpt2.mlir --pc-differentiate --mlir-print-debuginfo | pc-opt --pc-recompute=mode=full -o %t.again
// RUN: pc-opt %t.again --pc-set-mesh=mesh=tp=2 --pc-tensor-parallel --pc-sequence-parallel --pc-fuse-moves --pc-verify-placed --pc-interpret=print=none -o %t.placed-again
// RUN: grep -oE "pc.(all_reduce|all_gather|reduce_scatter|all_to_all).*" %t.placed-again | sed -E "s/%%[^ ]+ //; s/ : .*-> tensor/ tensor/" | sort | uniq -c | FileCheck %s --check-prefix=RECOMPUTED --match-full-lines
// RUN: pc-opt %t.placed-again --pc-localize --pc-verify-local > %t.local-again
// RUN: pc-equal %t.again %t.local-again
// RUN: not pc-opt %t.step --pc-set-mesh=mesh=tp=2 --pc-sequence-parallel 2>&1 | FileCheck %s --check-prefix=FIRST
// RUN: pc-opt %S/Inputs/llama.mlir --pc-differentiate -o %t.llama
// RUN: pc-opt %t.llama --pc-set-mesh=mesh=tp=4 --pc-tensor-parallel --pc-sequence-parallel --pc-fuse-moves --pc-verify-placed --pc-interpret=print=none -o %t.gqa
// RUN: pc-opt %t.gqa --pc-erase-placements | diff %t.llama -
// RUN: grep -oE "pc.(all_reduce|all_gather|reduce_scatter|all_to_all).*" %t.gqa | sed -E "s/%%[^ ]+ //; s/ : .*-> tensor/ tensor/" | sort | uniq -c | FileCheck %s --check-prefix=GQA --match-full-lines

// FIRST: error: pc-sequence-parallel: axis 'tp' splits no weights; run pc-tensor-parallel over it first

// With regather, the input of each of the 2L + 1 = 5 groups of linears is gathered once more, which needs 5/4 of the
// bytes.
// AGAIN: {{ *}}15 pc.all_gather dim 1 on ["tp"] tensor<4x8x16xf32, #pc.place<[_, _, _]>>
// AGAIN-NEXT: {{ *}}10 pc.reduce_scatter sum dim 1 on ["tp"] tensor<4x8x16xf32, #pc.place<[_, tp, _]>>

// The embedding's partial rows are scattered directly to the split residual stream. Norms work on a part of the
// sequence, and linears on all of it.
// CHECK: pc.embedding {{.*}} -> tensor<4x8x16xf32, #pc.place<[_, _, _] sum(tp)>>
// CHECK-NEXT: pc.reduce_scatter sum {{.*}} dim 1 on ["tp"] {{.*}} -> tensor<4x8x16xf32, #pc.place<[_, tp, _]>>
// CHECK: pc.layer_norm {{.*}} -> (tensor<4x8x16xf32, #pc.place<[_, tp, _]>>, tensor<4x8xf32, #pc.place<[_, tp]>>, tensor<4x8xf32, #pc.place<[_, tp]>>)
// CHECK-NEXT: %[[X:.*]] = pc.all_gather {{.*}} dim 1 on ["tp"]
// CHECK-NEXT: pc.einsum {{.*}} %[[X]]

// With L = 2 there are 4L + 2 = 10 gathers and 10 scatters of [batch, sequence, embed], which have the bytes of the 10
// all_reduces of plain tensor parallelism. New are the sums of the 10 gradients of norms (5 gammas, 5 betas) and of the
// 4 biases after row-parallel linears.
// COUNT: {{ *}}10 pc.all_gather dim 1 on ["tp"] tensor<4x8x16xf32, #pc.place<[_, _, _]>>
// COUNT-NEXT: {{ *}}1 pc.all_reduce max on ["tp"] tensor<4x8xf32, #pc.place<[_, _]>>
// COUNT-NEXT: {{ *}}[[N:[0-9]+]] pc.all_reduce sum on ["tp"] tensor<16xf32, #pc.place<[_]>>
// COUNT-NEXT: {{ *}}1 pc.all_reduce sum on ["tp"] tensor<4x8xf32, #pc.place<[_, _]>>
// COUNT: {{ *}}10 pc.reduce_scatter sum dim 1 on ["tp"] tensor<4x8x16xf32, #pc.place<[_, tp, _]>>

// Recomputed layers add 2L gathers and L scatters, and no sum of activations, which norms would read whole.
// RECOMPUTED: {{ *}}14 pc.all_gather dim 1 on ["tp"] tensor<8x8x16xf32, #pc.place<[_, _, _]>>
// RECOMPUTED-NOT: pc.all_reduce sum on ["tp"] tensor<8x8x16xf32
// RECOMPUTED: {{ *}}12 pc.reduce_scatter sum dim 1 on ["tp"] tensor<8x8x16xf32, #pc.place<[_, tp, _]>>

// Two axes, for four ranks and two key/value heads, cost as much as one axis of four.
// GQA: {{ *}}10 pc.all_gather dim 1 on ["tp.0", "tp.1"] tensor<8x8x16xf32, #pc.place<[_, _, _]>>
// GQA-NEXT: {{ *}}1 pc.all_reduce max on ["tp.0", "tp.1"] tensor<8x8xf32, #pc.place<[_, _]>>
// GQA-NEXT: {{ *}}5 pc.all_reduce sum on ["tp.0", "tp.1"] tensor<16xf32, #pc.place<[_]>>
// GQA-NEXT: {{ *}}1 pc.all_reduce sum on ["tp.0", "tp.1"] tensor<8x8xf32, #pc.place<[_, _]>>
// GQA-NEXT: {{ *}}2 pc.all_reduce sum on ["tp.0", "tp.1"] tensor<f32, #pc.place<[]>>
// GQA-NEXT: {{ *}}4 pc.all_reduce sum on ["tp.1"] tensor<2x4x16xf32, #pc.place<[tp.0, _, _]>>
// GQA-NEXT: {{ *}}10 pc.reduce_scatter sum dim 1 on ["tp.0", "tp.1"] tensor<8x8x16xf32, #pc.place<[_, (tp.0, tp.1), _]>>
