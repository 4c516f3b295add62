// RUN: pc-opt %s --pc-verify-scheduled -verify-diagnostics -split-input-file

pc.mesh <tp = 2>
func.func @move_in_kernel(%x: tensor<4xf32>) {
  %f = pc.fusion (%a = %x : tensor<4xf32> -> tensor<4xf32>) {
    // expected-error @below {{is a move inside a kernel, which is not allowed (S1)}}
    %y = pc.all_reduce sum %a on ["tp"] : (tensor<4xf32>) -> tensor<4xf32>
    pc.yield %y : tensor<4xf32>
  } : tensor<4xf32>
  return
}

// -----

// The wait for the second start comes first.
pc.mesh <tp = 2>
func.func @out_of_order(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  %t = pc.start (%a = %x : tensor<4xf32> -> tensor<4xf32>) {
    %0 = pc.all_reduce sum %a on ["tp"] : (tensor<4xf32>) -> tensor<4xf32>
    pc.yield %0 : tensor<4xf32>
  } : !pc.ticket
  %u = pc.start (%a = %y : tensor<4xf32> -> tensor<4xf32>) {
    %0 = pc.all_reduce sum %a on ["tp"] : (tensor<4xf32>) -> tensor<4xf32>
    pc.yield %0 : tensor<4xf32>
  } : !pc.ticket
  // expected-error @below {{comes before the wait for an earlier start of the same communicator (S3)}}
  %s = pc.wait %u : tensor<4xf32>
  %r = pc.wait %t : tensor<4xf32>
  return
}

// -----

pc.mesh <tp = 2>
func.func @blocks_behind(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  %t = pc.start (%a = %x : tensor<4xf32> -> tensor<4xf32>) {
    %0 = pc.all_reduce sum %a on ["tp"] : (tensor<4xf32>) -> tensor<4xf32>
    pc.yield %0 : tensor<4xf32>
  } : !pc.ticket
  // expected-error @below {{is a blocking move while an earlier move of the same communicator is in flight (S3)}}
  %s = pc.all_reduce sum %y on ["tp"] : (tensor<4xf32>) -> tensor<4xf32>
  %r = pc.wait %t : tensor<4xf32>
  return
}

// -----

// The sum overwrites its input, which is read while the move is in flight.
pc.mesh <tp = 2>
pc.arena 192
func.func @read_in_flight() {
  %x = pc.constant 1.0 : tensor<f32, #pc.home<0>>
  %a = pc.exp %x : (tensor<f32, #pc.home<0>>) -> tensor<f32, #pc.home<64>>
  // expected-note @below {{the earlier access is here}}
  %t = pc.start (%i = %a : tensor<f32, #pc.home<64>> -> tensor<f32>) {
    %0 = pc.all_reduce sum %i on ["tp"] : (tensor<f32>) -> tensor<f32>
    pc.yield %0 : tensor<f32>
  } : !pc.ticket
  // expected-error @below {{reads what 'pc.start' of 'start' may still be using: there is no wait between the two (S4)}}
  %b = pc.log %a : (tensor<f32, #pc.home<64>>) -> tensor<f32, #pc.home<128>>
  %s = pc.wait %t : tensor<f32, #pc.home<64>>
  return
}

// -----

// A kernel overwrites the input before the wait.
pc.mesh <tp = 2>
pc.arena 256
func.func @write_in_flight() {
  %x = pc.constant 1.0 : tensor<f32, #pc.home<0>>
  %a = pc.exp %x : (tensor<f32, #pc.home<0>>) -> tensor<f32, #pc.home<64>>
  // expected-note @below {{the earlier access is here}}
  %t = pc.start (%i = %a : tensor<f32, #pc.home<64>> -> tensor<f32>) {
    %0 = pc.all_reduce sum %i on ["tp"] : (tensor<f32>) -> tensor<f32>
    pc.yield %0 : tensor<f32>
  } : !pc.ticket
  // expected-error @below {{writes what 'pc.start' of 'start' may still be using: there is no wait between the two (S4)}}
  %b = pc.log %x : (tensor<f32, #pc.home<0>>) -> tensor<f32, #pc.home<64>>
  %s = pc.wait %t : tensor<f32, #pc.home<128>>
  return
}

// -----

// Moves on two communicators have no order. The second move overwrites bytes that the first one reads.
pc.mesh <dp = 2, tp = 2>
pc.arena 256
func.func @two_communicators() {
  %x = pc.constant 1.0 : tensor<f32, #pc.home<0>>
  %a = pc.exp %x : (tensor<f32, #pc.home<0>>) -> tensor<f32, #pc.home<64>>
  // expected-note @below {{the earlier access is here}}
  %t = pc.start (%i = %a : tensor<f32, #pc.home<64>> -> tensor<f32>) {
    %0 = pc.all_reduce sum %i on ["tp"] : (tensor<f32>) -> tensor<f32>
    pc.yield %0 : tensor<f32>
  } : !pc.ticket
  // expected-error @below {{writes what 'pc.start' of 'start' may still be using: there is no wait between the two (S4)}}
  %u = pc.start (%i = %x : tensor<f32, #pc.home<0>> -> tensor<f32>) {
    %0 = pc.all_reduce sum %i on ["dp"] : (tensor<f32>) -> tensor<f32>
    pc.yield %0 : tensor<f32>
  } : !pc.ticket
  %s = pc.wait %t : tensor<f32, #pc.home<128>>
  %r = pc.wait %u : tensor<f32, #pc.home<64>>
  return
}

// -----

// Nothing waits.
pc.mesh <tp = 2>
func.func @needs_wait(%x: tensor<4xf32>) {
  %f = pc.exp %x : (tensor<4xf32>) -> tensor<4xf32>
  // expected-error @below {{needs exactly one pc.wait, in the same block (C3)}}
  %t = pc.start (%a = %f : tensor<4xf32> -> tensor<4xf32>) {
    %0 = pc.all_reduce sum %a on ["tp"] : (tensor<4xf32>) -> tensor<4xf32>
    pc.yield %0 : tensor<4xf32>
  } : !pc.ticket
  return
}
