// RUN: pc-opt %s --pc-fuse --split-input-file | FileCheck %s

// A residual, the norm after it and its bias become one kernel. Values that later ops read are its results; the others
// need no memory.
// CHECK-LABEL: func.func @norm
// CHECK: %[[P:.*]] = pc.einsum "b s f, f e -> b s e"
// CHECK: %[[F:.*]]:4 = pc.fusion
// CHECK:   pc.add
// CHECK:   %[[Y:.*]], %[[M:.*]], %[[R:.*]] = pc.layer_norm
// CHECK:   pc.yield
// CHECK-NOT: pc.add
// CHECK: return
func.func @norm(%x: tensor<2x3x8xf32>, %h: tensor<2x3x4xf32>, %w: tensor<4x8xf32>, %gamma: tensor<8xf32>, %beta: tensor<8xf32>)
    -> (tensor<2x3x8xf32>, tensor<2x3x8xf32>, tensor<2x3xf32>, tensor<2x3xf32>) {
  %p = pc.einsum "b s f, f e -> b s e" %h, %w : (tensor<2x3x4xf32>, tensor<4x8xf32>) -> tensor<2x3x8xf32>
  %s = pc.add %x, %p : (tensor<2x3x8xf32>, tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %y, %m, %r = pc.layer_norm %s, %gamma, %beta eps 1.0e-5 : (tensor<2x3x8xf32>, tensor<8xf32>, tensor<8xf32>) -> (tensor<2x3x8xf32>, tensor<2x3xf32>, tensor<2x3xf32>)
  return %s, %y, %m, %r : tensor<2x3x8xf32>, tensor<2x3x8xf32>, tensor<2x3xf32>, tensor<2x3xf32>
}

// -----

// The ops of the loss that read the rows of the logits become one kernel, together with the ops after them that work
// per row.
// CHECK-LABEL: func.func @loss
// CHECK: pc.fusion
// CHECK: pc.reduce_max
// CHECK: pc.sum_exp
// CHECK: pc.yield
func.func @loss(%l: tensor<6x9xf32>, %t: tensor<6xi32>) -> tensor<6xf32> {
  %max = pc.reduce_max "r v -> r" %l : (tensor<6x9xf32>) -> tensor<6xf32>
  %sum = pc.sum_exp %l, %max : (tensor<6x9xf32>, tensor<6xf32>) -> tensor<6xf32>
  %pick = pc.pick %l, %t : (tensor<6x9xf32>, tensor<6xi32>) -> tensor<6xf32>
  %log = pc.log %sum : (tensor<6xf32>) -> tensor<6xf32>
  %add = pc.add %log, %max : (tensor<6xf32>, tensor<6xf32>) -> tensor<6xf32>
  %nll = pc.sub %add, %pick : (tensor<6xf32>, tensor<6xf32>) -> tensor<6xf32>
  return %nll : tensor<6xf32>
}

// -----

// The addition of a bias joins the matrix product.
// CHECK-LABEL: func.func @bias
// CHECK: pc.fusion
// CHECK-NEXT: pc.einsum "b e, e f -> b f"
// CHECK-NEXT: pc.einsum "f -> b f"
// CHECK-NEXT: pc.add
// CHECK-NEXT: pc.yield
func.func @bias(%x: tensor<6x4xf32>, %w: tensor<4x8xf32>, %c: tensor<8xf32>) -> tensor<6x8xf32> {
  %p = pc.einsum "b e, e f -> b f" %x, %w : (tensor<6x4xf32>, tensor<4x8xf32>) -> tensor<6x8xf32>
  %b = pc.einsum "f -> b f" %c : (tensor<8xf32>) -> tensor<6x8xf32>
  %s = pc.add %p, %b : (tensor<6x8xf32>, tensor<6x8xf32>) -> tensor<6x8xf32>
  return %s : tensor<6x8xf32>
}

// -----

// The gradient of an embedding is added row by row to the rest of its table's gradient (from a tied head), also if row
// ops are in the kernel.
// CHECK-LABEL: func.func @tied
// CHECK: %[[T:.*]] = pc.fusion
// CHECK-NEXT: pc.embedding_grad
// CHECK-NEXT: pc.add
// CHECK-NEXT: pc.yield
// CHECK: return %[[T]]
func.func @tied(%l: tensor<6x16xf32>, %y: tensor<6x8xf32>, %dx: tensor<6x8xf32>, %dy: tensor<6x8xf32>, %ids: tensor<6xi32>) -> tensor<16x8xf32> {
  %h = pc.einsum "b v, b e -> v e" %l, %y : (tensor<6x16xf32>, tensor<6x8xf32>) -> tensor<16x8xf32>
  %d = pc.add %dx, %dy : (tensor<6x8xf32>, tensor<6x8xf32>) -> tensor<6x8xf32>
  %g = pc.embedding_grad %d, %ids : (tensor<6x8xf32>, tensor<6xi32>) -> tensor<16x8xf32>
  %s = pc.add %h, %g : (tensor<16x8xf32>, tensor<16x8xf32>) -> tensor<16x8xf32>
  return %s : tensor<16x8xf32>
}

// -----

// Two row ops are not fused if a matrix product reads the first and is read by the second, because a kernel runs at one
// point of the program.
// CHECK-LABEL: func.func @cycle
// CHECK-NOT: pc.fusion
// CHECK: return
func.func @cycle(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %a = pc.activation silu %x : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %p = pc.einsum "b e, e f -> b f" %a, %x : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = pc.add %a, %p : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %s : tensor<4x4xf32>
}

// -----

// A kernel belongs to one task of a pipeline's schedule, so ops of the forward pass do not move to the backward pass.
// CHECK-LABEL: func.func @tasks
// CHECK: pc.task forward
// CHECK-NEXT: pc.scale
// CHECK-NEXT: pc.task backward
// CHECK-NEXT: pc.fusion
// CHECK-NOT: pc.fusion
func.func @tasks(%x: tensor<2x8xf32>) -> tensor<2x8xf32> {
  pc.task forward chunk 0 microbatch 0
  %a = pc.scale %x by 2.0 : (tensor<2x8xf32>) -> tensor<2x8xf32>
  pc.task backward chunk 0 microbatch 0
  %b = pc.scale %a by 3.0 : (tensor<2x8xf32>) -> tensor<2x8xf32>
  %c = pc.add %b, %x : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  return %c : tensor<2x8xf32>
}

// -----

// A sum of products becomes a chain. Each product adds to the result of the one before it, which nothing else reads.
// CHECK-LABEL: func.func @sum
// CHECK: %[[A:.*]] = pc.einsum "b e, e f -> b f" %arg0, %arg1
// CHECK-NEXT: %[[B:.*]] = pc.fusion
// CHECK-SAME: %[[A]]
// CHECK-NEXT: pc.einsum
// CHECK-NEXT: pc.add
// CHECK-NEXT: pc.yield
// CHECK: %[[C:.*]] = pc.fusion
// CHECK-SAME: %[[B]]
// CHECK-NEXT: pc.einsum
// CHECK-NEXT: pc.add
// CHECK-NEXT: pc.yield
// CHECK: return %[[C]]
func.func @sum(%x: tensor<6x4xf32>, %w: tensor<4x8xf32>, %v: tensor<6x4xf32>, %u: tensor<4x8xf32>) -> tensor<6x8xf32> {
  %a = pc.einsum "b e, e f -> b f" %x, %w : (tensor<6x4xf32>, tensor<4x8xf32>) -> tensor<6x8xf32>
  %b = pc.einsum "b e, e f -> b f" %v, %u : (tensor<6x4xf32>, tensor<4x8xf32>) -> tensor<6x8xf32>
  %s = pc.add %b, %a : (tensor<6x8xf32>, tensor<6x8xf32>) -> tensor<6x8xf32>
  %c = pc.einsum "b e, e f -> b f" %x, %u : (tensor<6x4xf32>, tensor<4x8xf32>) -> tensor<6x8xf32>
  %t = pc.add %s, %c : (tensor<6x8xf32>, tensor<6x8xf32>) -> tensor<6x8xf32>
  return %t : tensor<6x8xf32>
}

// -----

// A task's function gets the sum over earlier microbatches and returns it with its own product added. Its other
// arguments, such as the residual stream, are not changed in place.
// CHECK-LABEL: func.func @handed_on
// CHECK: %[[S:.*]] = pc.fusion
// CHECK-SAME: %arg0
// CHECK-NEXT: pc.einsum
// CHECK-NEXT: pc.add
// CHECK-NEXT: pc.yield
// CHECK: pc.einsum
// CHECK-NEXT: %[[R:.*]] = pc.fusion
// CHECK-NEXT: pc.add
// CHECK-NEXT: pc.activation
// CHECK: return %[[S]], %[[R]]
func.func @handed_on(%sum: tensor<6x8xf32>, %stream: tensor<6x8xf32>, %x: tensor<6x4xf32>, %w: tensor<4x8xf32>) -> (tensor<6x8xf32>, tensor<6x8xf32>) {
  %a = pc.einsum "b e, e f -> b f" %x, %w : (tensor<6x4xf32>, tensor<4x8xf32>) -> tensor<6x8xf32>
  %s = pc.add %sum, %a : (tensor<6x8xf32>, tensor<6x8xf32>) -> tensor<6x8xf32>
  %b = pc.einsum "b e, e f -> b f" %x, %w : (tensor<6x4xf32>, tensor<4x8xf32>) -> tensor<6x8xf32>
  %t = pc.add %stream, %b : (tensor<6x8xf32>, tensor<6x8xf32>) -> tensor<6x8xf32>
  %r = pc.activation relu %t : (tensor<6x8xf32>) -> tensor<6x8xf32>
  return %s, %r : tensor<6x8xf32>, tensor<6x8xf32>
}

// -----

// Products do not form a chain if something else reads the earlier one, if they are bf16, or if the addend comes from a
// move, for which the product would have to wait.
// CHECK-LABEL: func.func @no_sum
// CHECK-NOT: pc.fusion
// CHECK: return
pc.mesh <tp = 2>
func.func @no_sum(%x: tensor<6x4xf32>, %w: tensor<4x8xf32>, %h: tensor<6x4xbf16>, %v: tensor<4x8xbf16>)
    -> (tensor<6x8xf32>, tensor<6x8xf32>, tensor<6x8xbf16>, tensor<6x8xf32>) {
  %a = pc.einsum "b e, e f -> b f" %x, %w : (tensor<6x4xf32>, tensor<4x8xf32>) -> tensor<6x8xf32>
  %b = pc.einsum "b e, e f -> b f" %x, %w : (tensor<6x4xf32>, tensor<4x8xf32>) -> tensor<6x8xf32>
  %s = pc.add %a, %b : (tensor<6x8xf32>, tensor<6x8xf32>) -> tensor<6x8xf32>
  %c = pc.einsum "b e, e f -> b f" %h, %v : (tensor<6x4xbf16>, tensor<4x8xbf16>) -> tensor<6x8xbf16>
  %d = pc.einsum "b e, e f -> b f" %h, %v : (tensor<6x4xbf16>, tensor<4x8xbf16>) -> tensor<6x8xbf16>
  %t = pc.add %c, %d : (tensor<6x8xbf16>, tensor<6x8xbf16>) -> tensor<6x8xbf16>
  %e = pc.einsum "b e, e f -> b f" %x, %w : (tensor<6x4xf32>, tensor<4x8xf32>) -> tensor<6x8xf32>
  %p = pc.permute %e on ["tp"] : (tensor<6x8xf32>) -> tensor<6x8xf32>
  %g = pc.einsum "b e, e f -> b f" %x, %w : (tensor<6x4xf32>, tensor<4x8xf32>) -> tensor<6x8xf32>
  %u = pc.add %p, %g : (tensor<6x8xf32>, tensor<6x8xf32>) -> tensor<6x8xf32>
  return %a, %s, %t, %u : tensor<6x8xf32>, tensor<6x8xf32>, tensor<6x8xbf16>, tensor<6x8xf32>
}

// -----

// Padded logits are written without their mask. Each kernel that reads them masked applies the mask itself. The move between the loss and the
// gradient keeps them apart.
// CHECK-LABEL: func.func @padded
// CHECK: %[[L:.*]] = pc.einsum "r e, v e -> r v"
// CHECK: pc.fusion (%[[A:.*]] = %[[L]] :
// CHECK-NEXT: %[[M:.*]] = pc.mask_padding %[[A]] valid 7
// CHECK-NEXT: %[[MAX:.*]] = pc.reduce_max "r v -> r" %[[M]]
// CHECK-NEXT: %[[SUM:.*]] = pc.sum_exp %[[M]], %[[MAX]]
// CHECK-NEXT: pc.yield %[[MAX]], %[[SUM]]
// CHECK: pc.all_reduce
// CHECK: pc.seed
// CHECK: pc.fusion (%[[B:.*]] = %[[L]] :
// CHECK-NEXT: %[[N:.*]] = pc.mask_padding %[[B]] valid 7
// CHECK-NEXT: %[[G:.*]] = pc.cross_entropy_grad %[[N]]
// CHECK-NEXT: %[[Z:.*]] = pc.mask_padding %[[G]] valid 7 value 0
// CHECK-NEXT: pc.yield %[[Z]]
pc.mesh <tp = 2>
func.func @padded(%x: tensor<6x4xf32>, %w: tensor<9x4xf32>, %t: tensor<6xi32>) -> (tensor<f32>, tensor<6x9xf32>) {
  %l = pc.einsum "r e, v e -> r v" %x, %w : (tensor<6x4xf32>, tensor<9x4xf32>) -> tensor<6x9xf32>
  %masked = pc.mask_padding %l valid 7 value -1.0e30 : (tensor<6x9xf32>) -> tensor<6x9xf32>
  %max = pc.reduce_max "r v -> r" %masked : (tensor<6x9xf32>) -> tensor<6xf32>
  %part = pc.sum_exp %masked, %max : (tensor<6x9xf32>, tensor<6xf32>) -> tensor<6xf32>
  %sum = pc.all_reduce sum %part on ["tp"] : (tensor<6xf32>) -> tensor<6xf32>
  %loss = pc.einsum "r ->" %sum : (tensor<6xf32>) -> tensor<f32>
  %d = pc.seed : tensor<6xf32>
  %g = pc.cross_entropy_grad %masked, %max, %sum, %t, %d : (tensor<6x9xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xi32>, tensor<6xf32>) -> tensor<6x9xf32>
  %z = pc.mask_padding %g valid 7 value 0.0 : (tensor<6x9xf32>) -> tensor<6x9xf32>
  return %loss, %z : tensor<f32>, tensor<6x9xf32>
}

// -----

// The seed moves before the loss, so the gradient of the logits joins the kernel of the loss.
// CHECK-LABEL: func.func @loss
// CHECK: %[[SEED:.*]] = pc.seed
// CHECK-NEXT: %[[D:.*]] = pc.einsum ", r -> r" %[[SEED]], %arg3
// CHECK-NEXT: pc.fusion (%[[L:.*]] = %0 : {{.*}}, %[[T:.*]] = %arg2 : {{.*}}, %[[W:.*]] = %[[D]] : {{.*}}) {
// CHECK-NEXT: %[[MAX:.*]] = pc.reduce_max "r v -> r" %[[L]]
// CHECK-NEXT: %[[SUM:.*]] = pc.sum_exp %[[L]], %[[MAX]]
// CHECK: pc.cross_entropy_grad %[[L]], %[[MAX]], %[[SUM]], %[[T]], %[[W]] :
// CHECK: pc.einsum "r, r ->"
// CHECK-NEXT: return
func.func @loss(%x: tensor<6x4xf32>, %v: tensor<9x4xf32>, %t: tensor<6xi32>, %w: tensor<6xf32>) -> (tensor<f32>, tensor<6x9xf32>) {
  %l = pc.einsum "r e, v e -> r v" %x, %v : (tensor<6x4xf32>, tensor<9x4xf32>) -> tensor<6x9xf32>
  %max = pc.reduce_max "r v -> r" %l : (tensor<6x9xf32>) -> tensor<6xf32>
  %sum = pc.sum_exp %l, %max : (tensor<6x9xf32>, tensor<6xf32>) -> tensor<6xf32>
  %log = pc.log %sum : (tensor<6xf32>) -> tensor<6xf32>
  %loss = pc.einsum "r, r ->" %log, %w : (tensor<6xf32>, tensor<6xf32>) -> tensor<f32>
  %one = pc.seed : tensor<f32>
  %d = pc.einsum ", r -> r" %one, %w : (tensor<f32>, tensor<6xf32>) -> tensor<6xf32>
  %g = pc.cross_entropy_grad %l, %max, %sum, %t, %d : (tensor<6x9xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xi32>, tensor<6xf32>) -> tensor<6x9xf32>
  return %loss, %g : tensor<f32>, tensor<6x9xf32>
}

// -----

// In the optimizer, the ops that read a value and those that it is added to become one kernel, with their constants. In the forward pass a
// group of ops takes only one operand's group.
// CHECK-LABEL: func.func @update
// CHECK: pc.task optimizer
// CHECK-NOT: pc.constant
// CHECK: %[[F:.*]]:2 = pc.fusion
// CHECK: pc.constant
// CHECK: pc.yield
// CHECK-NOT: pc.fusion
// CHECK: return %[[F]]#1, %[[F]]#0
func.func @update(%w: tensor<4x4xf32>, %g: tensor<4x4xf32>, %m: tensor<4x4xf32>, %lr: tensor<f32>) -> (tensor<4x4xf32>, tensor<4x4xf32>) {
  pc.task optimizer
  %one = pc.constant 1.0 : tensor<f32>
  %a = pc.scale %m by 0.9 : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %b = pc.scale %g by 0.1 : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %c = pc.add %a, %b : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %ones = pc.einsum " -> a b" %one : (tensor<f32>) -> tensor<4x4xf32>
  %s = pc.select less %c, %ones, %c, %ones : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %u = pc.einsum ", a b -> a b" %lr, %s : (tensor<f32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %d = pc.einsum ", a b -> a b" %lr, %w : (tensor<f32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %v = pc.sub %d, %u : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %v, %c : tensor<4x4xf32>, tensor<4x4xf32>
}

// -----

// A number per row is no number per column, even if there are as many columns as rows: a kernel that works row by row
// has not computed those of the other rows.
// CHECK-LABEL: func.func @square
// CHECK-DAG: %[[SUM:.*]] = pc.einsum "b c -> b"
// CHECK: %[[F:.*]] = pc.fusion (%{{.*}} = %[[SUM]]
// CHECK: pc.einsum "c -> b c"
// CHECK: return %[[F]]
func.func @square(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %sum = pc.einsum "b c -> b" %x : (tensor<8x8xf32>) -> tensor<8xf32>
  %columns = pc.einsum "c -> b c" %sum : (tensor<8xf32>) -> tensor<8x8xf32>
  %y = pc.sub %x, %columns : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %y : tensor<8x8xf32>
}

// -----

// Values that leave the device change no fusion: neither the carry of a weight that comes back between two norms, nor
// that of an activation that is taken away between them. The activation comes back after the seed.
// CHECK-LABEL: func.func @carried
// CHECK: %[[G1:.*]] = pc.carry %arg2
// CHECK: %[[G2:.*]] = pc.carry %arg3
// CHECK: %[[F:.*]]:2 = pc.fusion
// CHECK-NEXT: pc.add
// CHECK-NEXT: pc.rms_norm
// CHECK-NEXT: pc.rms_norm
// CHECK: %[[AWAY:.*]] = pc.carry %[[F]]#0
// CHECK: pc.seed
// CHECK: %[[BACK:.*]] = pc.carry %[[AWAY]]
// CHECK: pc.fusion {{.*}} = %[[BACK]]
func.func @carried(%x: tensor<2x3x8xf32>, %p: tensor<2x3x8xf32>, %w1: tensor<8xf32, #pc.space<disk>>, %w2: tensor<8xf32, #pc.space<disk>>,
                   %m: tensor<8x8xf32>) -> (tensor<2x3x8xf32>, tensor<2x3x8xf32>) {
  %a = pc.add %x, %p : (tensor<2x3x8xf32>, tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %g1 = pc.carry %w1 : (tensor<8xf32, #pc.space<disk>>) -> tensor<8xf32>
  %y, %r1 = pc.rms_norm %a, %g1 eps 1.0e-5 : (tensor<2x3x8xf32>, tensor<8xf32>) -> (tensor<2x3x8xf32>, tensor<2x3xf32>)
  %away = pc.carry %a : (tensor<2x3x8xf32>) -> tensor<2x3x8xf32, #pc.space<disk>>
  %g2 = pc.carry %w2 : (tensor<8xf32, #pc.space<disk>>) -> tensor<8xf32>
  %z, %r2 = pc.rms_norm %y, %g2 eps 1.0e-5 : (tensor<2x3x8xf32>, tensor<8xf32>) -> (tensor<2x3x8xf32>, tensor<2x3xf32>)
  %product = pc.einsum "b s f, f e -> b s e" %z, %m : (tensor<2x3x8xf32>, tensor<8x8xf32>) -> tensor<2x3x8xf32>
  %seed = pc.seed : tensor<f32>
  %back = pc.carry %away : (tensor<2x3x8xf32, #pc.space<disk>>) -> tensor<2x3x8xf32>
  %scaled = pc.einsum ", b s f -> b s f" %seed, %back : (tensor<f32>, tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %sum = pc.add %scaled, %back : (tensor<2x3x8xf32>, tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  return %product, %sum : tensor<2x3x8xf32>, tensor<2x3x8xf32>
}
