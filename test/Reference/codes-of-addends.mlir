// Sums of codes on 4 ranks: the interpreter rounds each addend and compares with the sum on one device by the bound of the codes. In exact arithmetic nothing is rounded,
// so the local program, which has codes, equals the placed one, and both equal the program without codes.
// RUN: pc-opt %s --pc-interpret=print=none -o /dev/null
// RUN: pc-opt %s --pc-interpret="print=none exact" -o /dev/null
// RUN: pc-opt %s --pc-localize --pc-verify-local -o %t.local
// RUN: pc-equal %s %t.local --tolerance=1e-12 | FileCheck %s --check-prefix=EQUAL
// RUN: pc-opt %t.local --pc-schedule --pc-plan-memory -o %t.planned
// RUN: pc-equal %s %t.planned --tolerance=1e-12 | FileCheck %s --check-prefix=EQUAL
// RUN: pc-equal %t.local %t.planned --rounded --tolerance=1e-12 | FileCheck %s --check-prefix=EQUAL
// RUN: pc-equal %s %t.local --rounded --tolerance=1e-12 | FileCheck %s --check-prefix=EQUAL
// RUN: sed 's/ wire <int[84], [[0-9, ]*]>//' %s | pc-opt -o %t.plain
// RUN: pc-equal %s %t.plain --tolerance=1e-12 | FileCheck %s --check-prefix=EQUAL
// EQUAL: {{^}}equal
// 8 bits are nearer than 4, but neither is equal.
// RUN: not pc-equal %s %t.plain --rounded --tolerance=1e-4 2>&1 | FileCheck %s --check-prefix=ROUNDED
// ROUNDED: pc-equal: gradient all8 differs: relative difference {{[1-9]}}.{{[0-9]}}e-03
// ROUNDED: pc-equal: gradient all4 differs: relative difference 1.{{[0-9]}}e-01

// RUN: FileCheck %s --check-prefix=LOCAL < %t.local
// LOCAL: %[[G:.*]] = pc.einsum
// LOCAL: %[[C:.*]] = pc.encode_addend %[[G]] <int8, [16, 16]> on ["a", "b"] : tensor<64x64xf32> -> tensor<1x4x4x260xi8>
// LOCAL: %[[ALL:.*]] = pc.all_gather %[[C]] dim 0 on ["a", "b"] : (tensor<1x4x4x260xi8>) -> tensor<4x4x4x260xi8>
// LOCAL: pc.encode_addend %[[G]] <int4, [16, 16]> on ["a", "b"] : tensor<64x64xf32> -> tensor<1x4x4x132xi8>
// LOCAL: %[[E:.*]] = pc.encode_addend %[[G]] <int8, [16, 16]> on ["a", "b"]
// LOCAL: pc.all_to_all %[[E]] from 0 to 1 on ["a", "b"] : (tensor<1x4x4x260xi8>) -> tensor<4x1x4x260xi8>
// A sum over one of the axes is still an addend over the other one.
// LOCAL: pc.all_to_all {{.*}} from 0 to 2 on ["b"] : (tensor<1x4x4x132xi8>) -> tensor<2x4x2x132xi8>
// LOCAL: pc.decode_sum {{.*}} <int4, [16, 16]> : tensor<2x4x2x132xi8> -> tensor<64x32xf32>
// LOCAL: pc.encode_addend {{.*}} on ["a"] : tensor<64x32xf32> -> tensor<1x4x2x260xi8>
// LOCAL: pc.decode_sum %[[ALL]] <int8, [16, 16]> : tensor<4x4x4x260xi8> -> tensor<64x64xf32>
// LOCAL-NEXT: pc.output gradient "all8"

pc.mesh <a = 2, b = 2>

func.func @step() {
  %x = pc.parameter "x" dims ["batch", "out"] init <normal, 1.0>
    source <"x", shape = [8, 64], start = [0, 0], size = [8, 64]> : tensor<8x64xf32, #pc.place<[(a, b), _]>>
  %y = pc.parameter "y" dims ["batch", "in"] init <normal, 1.0>
    source <"y", shape = [8, 64], start = [0, 0], size = [8, 64]> : tensor<8x64xf32, #pc.place<[(a, b), _]>>
  %g = pc.einsum "n o, n i -> o i" %x, %y : (tensor<8x64xf32, #pc.place<[(a, b), _]>>, tensor<8x64xf32, #pc.place<[(a, b), _]>>) -> tensor<64x64xf32, #pc.place<[_, _] sum(a, b)>>
  %all8 = pc.all_reduce sum %g on ["a", "b"] wire <int8, [16, 16]> : (tensor<64x64xf32, #pc.place<[_, _] sum(a, b)>>) -> tensor<64x64xf32, #pc.place<[_, _]>>
  %all4 = pc.all_reduce sum %g on ["a", "b"] wire <int4, [16, 16]> : (tensor<64x64xf32, #pc.place<[_, _] sum(a, b)>>) -> tensor<64x64xf32, #pc.place<[_, _]>>
  %block8 = pc.reduce_scatter sum %g dim 0 on ["a", "b"] wire <int8, [16, 16]> : (tensor<64x64xf32, #pc.place<[_, _] sum(a, b)>>) -> tensor<64x64xf32, #pc.place<[(a, b), _]>>
  %half = pc.reduce_scatter sum %g dim 1 on ["b"] wire <int4, [16, 16]> : (tensor<64x64xf32, #pc.place<[_, _] sum(a, b)>>) -> tensor<64x64xf32, #pc.place<[_, b] sum(a)>>
  %two = pc.all_reduce sum %half on ["a"] wire <int8, [16, 16]> : (tensor<64x64xf32, #pc.place<[_, b] sum(a)>>) -> tensor<64x64xf32, #pc.place<[_, b]>>
  pc.output gradient "two" %two : tensor<64x64xf32, #pc.place<[_, b]>>
  pc.output gradient "block8" %block8 : tensor<64x64xf32, #pc.place<[(a, b), _]>>
  pc.output gradient "all8" %all8 : tensor<64x64xf32, #pc.place<[_, _]>>
  pc.output gradient "all4" %all4 : tensor<64x64xf32, #pc.place<[_, _]>>
  return
}
