// RUN: pc-opt %s --pc-schedule=bucket-bytes=64 --pc-verify-scheduled -split-input-file | FileCheck %s

// The next op needs the result, so the move stays as it is.
pc.mesh <tp = 2>
// CHECK-LABEL: func.func @needed_at_once
func.func @needed_at_once(%x: tensor<4xf32>) {
  // CHECK-NEXT: pc.all_reduce
  // CHECK-NEXT: pc.all_gather
  // CHECK-NEXT: pc.exp
  // CHECK-NEXT: return
  %y = pc.all_reduce sum %x on ["tp"] : (tensor<4xf32>) -> tensor<4xf32>
  %z = pc.all_gather %y dim 0 on ["tp"] : (tensor<4xf32>) -> tensor<8xf32>
  %e = pc.exp %z : (tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

// The second product runs while the sum of the first is in flight. The move starts right after its operand is computed.
pc.mesh <tp = 2>
// CHECK-LABEL: func.func @independent
func.func @independent(%x: tensor<4xf32>) {
  // CHECK: %[[A:.*]] = pc.exp
  // CHECK-NEXT: %[[T:.*]] = pc.start (%[[I:.*]] = %[[A]]
  // CHECK-NEXT: pc.all_reduce sum %[[I]] on ["tp"]
  // CHECK: %[[B:.*]] = pc.log
  // CHECK-NEXT: %[[S:.*]] = pc.wait %[[T]] : tensor<4xf32>
  // CHECK-NEXT: pc.add %[[S]], %[[B]]
  %a = pc.exp %x : (tensor<4xf32>) -> tensor<4xf32>
  %b = pc.log %x : (tensor<4xf32>) -> tensor<4xf32>
  %s = pc.all_reduce sum %a on ["tp"] : (tensor<4xf32>) -> tensor<4xf32>
  %c = pc.add %s, %b : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

// A single rank does not wait for other ranks.
pc.mesh <tp = 1>
// CHECK-LABEL: func.func @alone
func.func @alone(%x: tensor<4xf32>) {
  // CHECK-NOT: pc.start
  %a = pc.exp %x : (tensor<4xf32>) -> tensor<4xf32>
  %s = pc.all_reduce sum %a on ["tp"] : (tensor<4xf32>) -> tensor<4xf32>
  %b = pc.log %x : (tensor<4xf32>) -> tensor<4xf32>
  %c = pc.add %s, %b : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

// Moves over one mesh axis end in the order in which they start, so a wait for the second also waits for the first.
pc.mesh <tp = 2>
// CHECK-LABEL: func.func @in_order
func.func @in_order(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  // CHECK: %[[T:.*]] = pc.start
  // CHECK: %[[U:.*]] = pc.start
  // CHECK: pc.log
  // CHECK-NEXT: pc.wait %[[T]]
  // CHECK-NEXT: pc.wait %[[U]]
  %a = pc.exp %x : (tensor<4xf32>) -> tensor<4xf32>
  %s = pc.all_reduce sum %a on ["tp"] : (tensor<4xf32>) -> tensor<4xf32>
  %b = pc.exp %y : (tensor<4xf32>) -> tensor<4xf32>
  %t = pc.all_reduce sum %b on ["tp"] : (tensor<4xf32>) -> tensor<4xf32>
  %c = pc.log %y : (tensor<4xf32>) -> tensor<4xf32>
  %d = pc.add %t, %c : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %e = pc.add %s, %d : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

// With one microbatch, gradients are summed in the backward pass. Two of 32 bytes fill a bucket of 64; the third, which
// is smaller, has its own. The waits are at the end, in backward order. Meanwhile the loss is summed over both axes.
pc.mesh <dp = 2, tp = 2>
// CHECK-LABEL: func.func @one_microbatch
func.func @one_microbatch() {
  // CHECK: pc.accumulate
  // CHECK: pc.reduce_max
  // CHECK-NEXT: %[[L:.*]] = pc.start
  // CHECK-NEXT: pc.all_reduce max %{{.*}} on ["dp", "tp"]
  // CHECK: %[[A:.*]] = pc.exp
  // CHECK-NEXT: %[[B:.*]] = pc.log
  // CHECK-NEXT: %[[T:.*]] = pc.start (%[[X:.*]] = %[[A]] : tensor<8xf32> -> tensor<8xf32>, %[[Y:.*]] = %[[B]] : tensor<8xf32> -> tensor<8xf32>) {
  // CHECK-NEXT: pc.all_reduce sum %[[X]] on ["dp"]
  // CHECK-NEXT: pc.all_reduce sum %[[Y]] on ["dp"]
  // CHECK: %[[C:.*]] = pc.recip
  // CHECK-NEXT: %[[U:.*]] = pc.start (%{{.*}} = %[[C]] : tensor<8xf32> -> tensor<8xf32>)
  // CHECK: %[[D:.*]] = pc.wait %[[L]]
  // CHECK-NEXT: %[[E:.*]]:2 = pc.wait %[[T]]
  // CHECK-NEXT: %[[F:.*]] = pc.wait %[[U]]
  // CHECK-NEXT: pc.yield %[[D]], %[[F]], %[[E]]#1, %[[E]]#0
  // CHECK-NOT: pc.all_reduce
  %tokens = pc.input tokens dims ["microbatch", "x"] global [1, 8] layout <[_, _]> : tensor<1x8xf32>
  %r:4 = pc.accumulate (%t = %tokens : tensor<1x8xf32> -> tensor<8xf32>) {
    %m = pc.reduce_max "x ->" %t : (tensor<8xf32>) -> tensor<f32>
    %a = pc.exp %t : (tensor<8xf32>) -> tensor<8xf32>
    %b = pc.log %t : (tensor<8xf32>) -> tensor<8xf32>
    %c = pc.recip %t : (tensor<8xf32>) -> tensor<8xf32>
    pc.yield %m, %c, %b, %a : tensor<f32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
  } : tensor<f32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
  %m = pc.all_reduce max %r#0 on ["dp", "tp"] : (tensor<f32>) -> tensor<f32>
  %c = pc.all_reduce sum %r#1 on ["dp"] : (tensor<8xf32>) -> tensor<8xf32>
  %b = pc.all_reduce sum %r#2 on ["dp"] : (tensor<8xf32>) -> tensor<8xf32>
  %a = pc.all_reduce sum %r#3 on ["dp"] : (tensor<8xf32>) -> tensor<8xf32>
  %s = pc.add %a, %b : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %u = pc.add %s, %c : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

// With one microbatch, gathers that only its body reads move into it, so that each wait is before the reader, also
// while gradients are summed. A gather that the update also reads stays where it is.
pc.mesh <dp = 2>
// CHECK-LABEL: func.func @gathered_for_one_microbatch
func.func @gathered_for_one_microbatch() {
  // CHECK: pc.all_gather
  // CHECK: pc.accumulate
  // CHECK-COUNT-2: pc.all_gather
  // CHECK: %[[A:.*]] = pc.wait
  // CHECK-NEXT: %[[E:.*]] = pc.add %{{.*}}, %[[A]]
  // CHECK: %[[B:.*]] = pc.wait
  // CHECK-NEXT: pc.add %[[E]], %[[B]]
  // CHECK: pc.reduce_scatter
  // CHECK: pc.yield
  // CHECK-NOT: pc.all_gather
  %tokens = pc.input tokens dims ["microbatch", "x"] global [1, 8] layout <[_, _]> : tensor<1x8xf32>
  %p = pc.parameter "a.0.w" dims ["x"] init <fill, 0.0> source <"a.0.w", shape = [8], start = [0], size = [8]> global [8] layout <[dp]> : tensor<4xf32>
  %q = pc.parameter "a.1.w" dims ["x"] init <fill, 0.0> source <"a.1.w", shape = [8], start = [0], size = [8]> global [8] layout <[dp]> : tensor<4xf32>
  %r = pc.parameter "a.2.w" dims ["x"] init <fill, 0.0> source <"a.2.w", shape = [8], start = [0], size = [8]> global [8] layout <[dp]> : tensor<4xf32>
  %a = pc.all_gather %p dim 0 on ["dp"] : (tensor<4xf32>) -> tensor<8xf32>
  %b = pc.all_gather %q dim 0 on ["dp"] : (tensor<4xf32>) -> tensor<8xf32>
  %c = pc.all_gather %r dim 0 on ["dp"] : (tensor<4xf32>) -> tensor<8xf32>
  %g = pc.accumulate (%t = %tokens : tensor<1x8xf32> -> tensor<8xf32>) {
    %d = pc.exp %t : (tensor<8xf32>) -> tensor<8xf32>
    %e = pc.add %d, %a : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
    %f = pc.add %e, %b : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
    %h = pc.add %f, %c : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
    pc.yield %h : tensor<8xf32>
  } : tensor<8xf32>
  %s = pc.reduce_scatter sum %g dim 0 on ["dp"] : (tensor<8xf32>) -> tensor<4xf32>
  %n = pc.add %c, %c : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

// The sums of these gradients also split them. Unfinished sums would need much memory, so the wait for the first bucket
// is where the third one starts.
pc.mesh <dp = 2>
// CHECK-LABEL: func.func @split_gradients
func.func @split_gradients() {
  // CHECK: pc.exp
  // CHECK-NEXT: %[[T:.*]] = pc.start
  // CHECK: pc.log
  // CHECK-NEXT: %[[U:.*]] = pc.start
  // CHECK: pc.wait %[[T]]
  // CHECK-NEXT: pc.recip
  // CHECK-NEXT: %[[V:.*]] = pc.start
  // CHECK: pc.wait %[[U]]
  // CHECK-NEXT: pc.wait %[[V]]
  // CHECK-NEXT: pc.yield
  %tokens = pc.input tokens dims ["microbatch", "x"] global [1, 16] layout <[_, _]> : tensor<1x16xf32>
  %r:3 = pc.accumulate (%t = %tokens : tensor<1x16xf32> -> tensor<16xf32>) {
    %a = pc.exp %t : (tensor<16xf32>) -> tensor<16xf32>
    %b = pc.log %t : (tensor<16xf32>) -> tensor<16xf32>
    %c = pc.recip %t : (tensor<16xf32>) -> tensor<16xf32>
    pc.yield %a, %b, %c : tensor<16xf32>, tensor<16xf32>, tensor<16xf32>
  } : tensor<16xf32>, tensor<16xf32>, tensor<16xf32>
  %a = pc.reduce_scatter sum %r#0 dim 0 on ["dp"] : (tensor<16xf32>) -> tensor<8xf32>
  %b = pc.reduce_scatter sum %r#1 dim 0 on ["dp"] : (tensor<16xf32>) -> tensor<8xf32>
  %c = pc.reduce_scatter sum %r#2 dim 0 on ["dp"] : (tensor<16xf32>) -> tensor<8xf32>
  %s = pc.add %a, %b : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %e = pc.add %s, %c : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

// With hybrid sharding, a sum over one axis is followed by a sum over the other. The second sums start after the waits
// for the first, in their own buckets. The first sums do not all wait until the end.
pc.mesh <dp = 2, rep = 2>
// CHECK-LABEL: func.func @two_axes
func.func @two_axes() {
  // CHECK: pc.exp
  // CHECK-NEXT: %[[T:.*]] = pc.start
  // CHECK: pc.log
  // CHECK-NEXT: %[[U:.*]] = pc.start
  // CHECK: %[[A:.*]] = pc.wait %[[T]]
  // CHECK-NEXT: pc.recip
  // CHECK-NEXT: %[[V:.*]] = pc.start
  // CHECK: pc.scale
  // CHECK: %[[B:.*]] = pc.wait %[[U]]
  // CHECK-NEXT: %[[X:.*]] = pc.start (%{{.*}} = %[[A]] : tensor<8xf32> -> tensor<8xf32>, %{{.*}} = %[[B]] : tensor<8xf32> -> tensor<8xf32>)
  // CHECK-NEXT: pc.all_reduce sum %{{.*}} on ["rep"]
  // CHECK: %[[C:.*]] = pc.wait %[[V]]
  // CHECK-NEXT: %[[Y:.*]] = pc.start (%{{.*}} = %[[C]]
  // CHECK: pc.wait %[[X]]
  // CHECK-NEXT: pc.wait %[[Y]]
  // CHECK-NEXT: pc.yield
  %tokens = pc.input tokens dims ["microbatch", "x"] global [1, 16] layout <[_, _]> : tensor<1x16xf32>
  %r:4 = pc.accumulate (%t = %tokens : tensor<1x16xf32> -> tensor<16xf32>) {
    %a = pc.exp %t : (tensor<16xf32>) -> tensor<16xf32>
    %b = pc.log %t : (tensor<16xf32>) -> tensor<16xf32>
    %c = pc.recip %t : (tensor<16xf32>) -> tensor<16xf32>
    %d = pc.scale %c by 2.0 : (tensor<16xf32>) -> tensor<16xf32>
    pc.yield %a, %b, %c, %d : tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>
  } : tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>
  %a = pc.reduce_scatter sum %r#0 dim 0 on ["dp"] : (tensor<16xf32>) -> tensor<8xf32>
  %aa = pc.all_reduce sum %a on ["rep"] : (tensor<8xf32>) -> tensor<8xf32>
  %b = pc.reduce_scatter sum %r#1 dim 0 on ["dp"] : (tensor<16xf32>) -> tensor<8xf32>
  %bb = pc.all_reduce sum %b on ["rep"] : (tensor<8xf32>) -> tensor<8xf32>
  %c = pc.reduce_scatter sum %r#2 dim 0 on ["dp"] : (tensor<16xf32>) -> tensor<8xf32>
  %cc = pc.all_reduce sum %c on ["rep"] : (tensor<8xf32>) -> tensor<8xf32>
  %s = pc.add %aa, %bb : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %e = pc.add %s, %cc : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

// With several microbatches, the accumulated sum is moved once, after the last one. While the second bucket is in
// flight, the first is used.
pc.mesh <dp = 2>
// CHECK-LABEL: func.func @microbatches
func.func @microbatches() {
  // CHECK: pc.accumulate
  // CHECK-NOT: pc.start
  // CHECK: pc.yield
  // CHECK: %[[T:.*]] = pc.start ({{.*}}, {{.*}}) {
  // CHECK: %[[U:.*]] = pc.start
  // CHECK: %[[A:.*]]:2 = pc.wait %[[T]]
  // CHECK-NEXT: pc.add %[[A]]#0, %[[A]]#1
  // CHECK-NEXT: %[[B:.*]] = pc.wait %[[U]]
  // CHECK-NEXT: pc.exp %[[B]]
  %tokens = pc.input tokens dims ["microbatch", "x"] global [2, 8] layout <[_, _]> : tensor<2x8xf32>
  %r:3 = pc.accumulate (%t = %tokens : tensor<2x8xf32> -> tensor<8xf32>) {
    %a = pc.exp %t : (tensor<8xf32>) -> tensor<8xf32>
    %b = pc.log %t : (tensor<8xf32>) -> tensor<8xf32>
    %c = pc.recip %t : (tensor<8xf32>) -> tensor<8xf32>
    pc.yield %a, %b, %c : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
  } : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
  %a = pc.all_reduce sum %r#0 on ["dp"] : (tensor<8xf32>) -> tensor<8xf32>
  %b = pc.all_reduce sum %r#1 on ["dp"] : (tensor<8xf32>) -> tensor<8xf32>
  %c = pc.all_reduce sum %r#2 on ["dp"] : (tensor<8xf32>) -> tensor<8xf32>
  %s = pc.add %a, %b : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %e = pc.exp %c : (tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

// Parameters that are split over dp are gathered by unit (the name up to its first number), one unit ahead: the gather
// of "h.2" starts after the last use of "h.0".
pc.mesh <dp = 2>
// CHECK-LABEL: func.func @gathers
func.func @gathers(%x: tensor<4xf32>) {
  // CHECK: %[[T0:.*]] = pc.start ({{.*}}, {{.*}}) {
  // CHECK: %[[T1:.*]] = pc.start
  // CHECK: %[[W0:.*]]:2 = pc.wait %[[T0]]
  // CHECK-NEXT: pc.add %{{.*}}, %[[W0]]#0
  // CHECK-NEXT: pc.add %{{.*}}, %[[W0]]#1
  // CHECK-NEXT: %[[T2:.*]] = pc.start
  // CHECK: %[[W1:.*]] = pc.wait %[[T1]]
  // CHECK-NEXT: pc.add %{{.*}}, %[[W1]]
  // CHECK-NEXT: %[[W2:.*]] = pc.wait %[[T2]]
  // CHECK-NEXT: pc.add %{{.*}}, %[[W2]]
  %w0 = pc.parameter "h.0.w" dims ["x"] init <fill, 1.0> source <"h.0.w", shape = [4], start = [0], size = [4]> global [4] layout <[dp]> : tensor<2xf32>
  %b0 = pc.parameter "h.0.b" dims ["x"] init <fill, 1.0> source <"h.0.b", shape = [4], start = [0], size = [4]> global [4] layout <[dp]> : tensor<2xf32>
  %w1 = pc.parameter "h.1.w" dims ["x"] init <fill, 1.0> source <"h.1.w", shape = [4], start = [0], size = [4]> global [4] layout <[dp]> : tensor<2xf32>
  %w2 = pc.parameter "h.2.w" dims ["x"] init <fill, 1.0> source <"h.2.w", shape = [4], start = [0], size = [4]> global [4] layout <[dp]> : tensor<2xf32>
  %g0 = pc.all_gather %w0 dim 0 on ["dp"] : (tensor<2xf32>) -> tensor<4xf32>
  %1 = pc.add %x, %g0 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %h0 = pc.all_gather %b0 dim 0 on ["dp"] : (tensor<2xf32>) -> tensor<4xf32>
  %2 = pc.add %1, %h0 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %g1 = pc.all_gather %w1 dim 0 on ["dp"] : (tensor<2xf32>) -> tensor<4xf32>
  %3 = pc.add %2, %g1 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %g2 = pc.all_gather %w2 dim 0 on ["dp"] : (tensor<2xf32>) -> tensor<4xf32>
  %4 = pc.add %3, %g2 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

// %r is taken to be done in front of %d, as %g was once to start after it: so it starts there, though nothing could run meanwhile, and
// what takes its result is right to start with %t.
pc.mesh <row = 2, dp = 2>
// CHECK-LABEL: func.func @done_before_its_place
func.func @done_before_its_place(%x: tensor<8xf32>, %u: tensor<4xf32>) -> (tensor<2xf32>, tensor<2xf32>, tensor<8xf32>) {
  // CHECK: pc.reduce_scatter sum %{{.*}} dim 0 on ["row"]
  // CHECK: %[[R:.*]] = pc.wait %{{.*}} : tensor<4xf32>
  // CHECK-NEXT: pc.exp
  // CHECK-NEXT: pc.start (%{{.*}} = %arg1 {{.*}}, %{{.*}} = %[[R]]
  %w = pc.parameter "w" dims ["e"] init <fill, 1.0> source <"w", shape = [8], start = [0], size = [8]> global [8] layout <[(row, dp)]> : tensor<2xf32>
  %e0 = pc.exp %x : (tensor<8xf32>) -> tensor<8xf32>
  %z = pc.all_reduce sum %e0 on ["dp"] : (tensor<8xf32>) -> tensor<8xf32>
  %e1 = pc.exp %z : (tensor<8xf32>) -> tensor<8xf32>
  %e2 = pc.exp %e1 : (tensor<8xf32>) -> tensor<8xf32>
  %q = pc.all_reduce sum %e2 on ["row"] : (tensor<8xf32>) -> tensor<8xf32>
  %a = pc.exp %q : (tensor<8xf32>) -> tensor<8xf32>
  %y = pc.all_gather %w dim 0 on ["dp"] : (tensor<2xf32>) -> tensor<4xf32>
  %g = pc.all_gather %y dim 0 on ["row"] : (tensor<4xf32>) -> tensor<8xf32>
  %d = pc.exp %g : (tensor<8xf32>) -> tensor<8xf32>
  %r = pc.reduce_scatter sum %a dim 0 on ["row"] : (tensor<8xf32>) -> tensor<4xf32>
  %s = pc.reduce_scatter sum %r dim 0 on ["dp"] : (tensor<4xf32>) -> tensor<2xf32>
  %t = pc.reduce_scatter sum %u dim 0 on ["dp"] : (tensor<4xf32>) -> tensor<2xf32>
  return %s, %t, %d : tensor<2xf32>, tensor<2xf32>, tensor<8xf32>
}

// -----

// A unit that is used again at the end does not keep the others from being gathered ahead.
pc.mesh <dp = 2>
// CHECK-LABEL: func.func @long_lived
func.func @long_lived(%x: tensor<4xf32>) {
  // CHECK: pc.start
  // CHECK: pc.start
  // CHECK: %[[T:.*]] = pc.start
  // CHECK: pc.wait
  // CHECK-NEXT: pc.add
  // CHECK-NEXT: pc.exp
  // CHECK-NEXT: pc.wait
  // CHECK-NEXT: pc.add
  // CHECK-NEXT: pc.wait %[[T]]
  %e = pc.parameter "wte" dims ["x"] init <fill, 1.0> source <"wte", shape = [4], start = [0], size = [4]> global [4] layout <[dp]> : tensor<2xf32>
  %w1 = pc.parameter "h.1.w" dims ["x"] init <fill, 1.0> source <"h.1.w", shape = [4], start = [0], size = [4]> global [4] layout <[dp]> : tensor<2xf32>
  %w2 = pc.parameter "h.2.w" dims ["x"] init <fill, 1.0> source <"h.2.w", shape = [4], start = [0], size = [4]> global [4] layout <[dp]> : tensor<2xf32>
  %g = pc.all_gather %e dim 0 on ["dp"] : (tensor<2xf32>) -> tensor<4xf32>
  %1 = pc.add %x, %g : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %g1 = pc.all_gather %w1 dim 0 on ["dp"] : (tensor<2xf32>) -> tensor<4xf32>
  %e1 = pc.exp %1 : (tensor<4xf32>) -> tensor<4xf32>
  %2 = pc.add %e1, %g1 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %g2 = pc.all_gather %w2 dim 0 on ["dp"] : (tensor<2xf32>) -> tensor<4xf32>
  %3 = pc.add %2, %g2 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %4 = pc.add %3, %g : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

// Updated parameters that are gathered again: the updates come last, so the gathers go on while the next parameter is updated.
pc.mesh <dp = 2>
// CHECK-LABEL: func.func @updates
func.func @updates(%x: tensor<2xf32>) {
  // CHECK: %[[A:.*]] = pc.exp
  // CHECK: %[[B:.*]] = pc.log
  // CHECK-NEXT: %[[T:.*]] = pc.start (%{{.*}} = %[[A]] : tensor<2xf32> -> tensor<2xf32>, %{{.*}} = %[[B]] : tensor<2xf32> -> tensor<2xf32>)
  // CHECK: pc.recip
  // CHECK-NEXT: %[[W:.*]]:2 = pc.wait %[[T]]
  // CHECK-NEXT: pc.update "a" %[[W]]#0
  // CHECK-NEXT: pc.update "b" %[[W]]#1
  // CHECK-NEXT: return
  %a = pc.exp %x : (tensor<2xf32>) -> tensor<2xf32>
  %ga = pc.all_gather %a dim 0 on ["dp"] : (tensor<2xf32>) -> tensor<4xf32>
  pc.update "a" %ga : tensor<4xf32>
  %b = pc.log %x : (tensor<2xf32>) -> tensor<2xf32>
  %gb = pc.all_gather %b dim 0 on ["dp"] : (tensor<2xf32>) -> tensor<4xf32>
  pc.update "b" %gb : tensor<4xf32>
  %c = pc.recip %x : (tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

// Moves between the stages of a pipeline stay where they are: every stage is scheduled by itself, and all run them in one order.
// CHECK-LABEL: func.func @stage
module attributes {pc.stage_axis = "pp"} {
  pc.mesh <pp = 2, dp = 2>
  func.func @stage(%x: tensor<4xf32>, %y: tensor<4xf32>) {
    // CHECK-NEXT: pc.start {{.*}} {
    // CHECK-NEXT: pc.all_reduce sum {{.*}} on ["dp"]
    // CHECK: pc.all_reduce sum %{{.*}} on ["pp"]
    // CHECK-NEXT: pc.log
    // CHECK: pc.wait
    %a = pc.all_reduce sum %x on ["dp"] : (tensor<4xf32>) -> tensor<4xf32>
    %b = pc.all_reduce sum %y on ["pp"] : (tensor<4xf32>) -> tensor<4xf32>
    %c = pc.log %x : (tensor<4xf32>) -> tensor<4xf32>
    pc.update "a" %a : tensor<4xf32>
    pc.update "b" %b : tensor<4xf32>
    return
  }
}

// -----

// Units that are read until the end of the step, such as those that the tasks of all microbatches of a stage read, are
// in memory together anyway. So their gathers start as soon as they can.
pc.mesh <dp = 2>
// CHECK-LABEL: func.func @kept
func.func @kept(%x: tensor<4xf32>) {
  // CHECK-COUNT-4: pc.start
  // CHECK: pc.exp %arg0
  // CHECK-NOT: pc.start
  // CHECK: return
  %w0 = pc.parameter "h.0.w" dims ["x"] init <fill, 1.0> source <"h.0.w", shape = [4], start = [0], size = [4]> global [4] layout <[dp]> : tensor<2xf32>
  %w1 = pc.parameter "h.1.w" dims ["x"] init <fill, 1.0> source <"h.1.w", shape = [4], start = [0], size = [4]> global [4] layout <[dp]> : tensor<2xf32>
  %w2 = pc.parameter "h.2.w" dims ["x"] init <fill, 1.0> source <"h.2.w", shape = [4], start = [0], size = [4]> global [4] layout <[dp]> : tensor<2xf32>
  %w3 = pc.parameter "h.3.w" dims ["x"] init <fill, 1.0> source <"h.3.w", shape = [4], start = [0], size = [4]> global [4] layout <[dp]> : tensor<2xf32>
  %e0 = pc.exp %x : (tensor<4xf32>) -> tensor<4xf32>
  %g0 = pc.all_gather %w0 dim 0 on ["dp"] : (tensor<2xf32>) -> tensor<4xf32>
  %g1 = pc.all_gather %w1 dim 0 on ["dp"] : (tensor<2xf32>) -> tensor<4xf32>
  %g2 = pc.all_gather %w2 dim 0 on ["dp"] : (tensor<2xf32>) -> tensor<4xf32>
  %g3 = pc.all_gather %w3 dim 0 on ["dp"] : (tensor<2xf32>) -> tensor<4xf32>
  %a0 = pc.add %e0, %g0 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %a1 = pc.add %a0, %g1 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %a2 = pc.add %a1, %g2 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %a3 = pc.add %a2, %g3 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %b0 = pc.add %a3, %g0 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %b1 = pc.add %b0, %g1 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %b2 = pc.add %b1, %g2 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %b3 = pc.add %b2, %g3 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

// Sums whose results a task returns for each microbatch come last in the task, so that the waits for its moves are
// there. A sum that the task itself reads stays.
pc.mesh <dp = 2>
// CHECK-LABEL: func.func private @backward
func.func private @backward(%a: tensor<16xf32>, %b: tensor<16xf32>, %sum: tensor<8xf32>, %other: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<16xf32>) {
  // CHECK: %[[A:.*]] = pc.exp
  // CHECK-NEXT: pc.start (%{{.*}} = %[[A]]
  // CHECK: %[[B:.*]] = pc.log
  // CHECK-NEXT: pc.start (%{{.*}} = %[[B]]
  // CHECK: pc.recip
  // CHECK-NEXT: %[[S:.*]] = pc.wait
  // CHECK-NEXT: pc.add %arg2, %[[S]]
  // CHECK-NEXT: %[[S:.*]] = pc.wait
  // CHECK-NEXT: pc.add %arg3, %[[S]]
  // CHECK-NEXT: return
  %x = pc.exp %a : (tensor<16xf32>) -> tensor<16xf32>
  %xs = pc.reduce_scatter sum %x dim 0 on ["dp"] : (tensor<16xf32>) -> tensor<8xf32>
  %r = pc.add %sum, %xs : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %y = pc.log %b : (tensor<16xf32>) -> tensor<16xf32>
  %ys = pc.reduce_scatter sum %y dim 0 on ["dp"] : (tensor<16xf32>) -> tensor<8xf32>
  %q = pc.add %other, %ys : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %z = pc.recip %b : (tensor<16xf32>) -> tensor<16xf32>
  return %r, %q, %z : tensor<8xf32>, tensor<8xf32>, tensor<16xf32>
}
// CHECK-LABEL: func.func private @forward
func.func private @forward(%a: tensor<16xf32>, %sum: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  // CHECK: pc.reduce_scatter
  // CHECK: pc.add
  // CHECK-NEXT: pc.exp
  // CHECK-NEXT: return
  %xs = pc.reduce_scatter sum %a dim 0 on ["dp"] : (tensor<16xf32>) -> tensor<8xf32>
  %r = pc.add %sum, %xs : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %e = pc.exp %r : (tensor<8xf32>) -> tensor<8xf32>
  return %r, %e : tensor<8xf32>, tensor<8xf32>
}
