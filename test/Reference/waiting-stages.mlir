// Stages wait for each other: for messages in a circle, for a free slot in a flow, or for a collective that not all
// stages call. The error names each stage and the op at which it waits. The last cases do not deadlock.
// RUN: not pc-opt %s -split-input-file --pc-interpret -o /dev/null 2>&1 | FileCheck %s

// CHECK: error: the stages wait for each other forever
// CHECK: note: stage 0 at 'pc.receive'
// CHECK: note: stage 1 at 'pc.receive'
module attributes {pc.stage_axis = "pp"} {
  module @stage0 attributes {pc.stage = 0 : i64} {
    pc.mesh <pp = 2>
    func.func @step() {
      %a = pc.receive from 1 flow 0 message 0 slots 1 : tensor<4xf32>
      pc.send %a to 1 flow 0 message 0 slots 1 : tensor<4xf32>
      return
    }
  }
  module @stage1 attributes {pc.stage = 1 : i64} {
    pc.mesh <pp = 2>
    func.func @step() {
      %a = pc.receive from 0 flow 0 message 0 slots 1 : tensor<4xf32>
      pc.send %a to 0 flow 0 message 0 slots 1 : tensor<4xf32>
      return
    }
  }
}

// -----

// The flow is full, and the receiver waits for the sender to reach the sum. With two slots both reach it (below).
// CHECK: error: the stages wait for each other forever
// CHECK: note: stage 0 at 'pc.send'
// CHECK: note: stage 1 at 'pc.all_reduce'
module attributes {pc.stage_axis = "pp"} {
  module @stage0 attributes {pc.stage = 0 : i64} {
    pc.mesh <pp = 2>
    func.func @step() {
      %c = pc.constant 1.0 : tensor<4xf32>
      pc.send %c to 1 flow 0 message 0 slots 1 : tensor<4xf32>
      pc.send %c to 1 flow 0 message 1 slots 1 : tensor<4xf32>
      %s = pc.all_reduce sum %c on ["pp"] : (tensor<4xf32>) -> tensor<4xf32>
      return
    }
  }
  module @stage1 attributes {pc.stage = 1 : i64} {
    pc.mesh <pp = 2>
    func.func @step() {
      %c = pc.constant 1.0 : tensor<4xf32>
      %s = pc.all_reduce sum %c on ["pp"] : (tensor<4xf32>) -> tensor<4xf32>
      %a = pc.receive from 0 flow 0 message 0 slots 1 : tensor<4xf32>
      %b = pc.receive from 0 flow 0 message 1 slots 1 : tensor<4xf32>
      return
    }
  }
}

// -----

// Stage 1 has ended, so it never calls the second sum.
// CHECK: error: the stages wait for each other forever
// CHECK: note: stage 0 at 'pc.wait'
// CHECK-NOT: note: stage 1
module attributes {pc.stage_axis = "pp"} {
  module @stage0 attributes {pc.stage = 0 : i64} {
    pc.mesh <pp = 2>
    func.func @step() {
      %c = pc.constant 1.0 : tensor<4xf32>
      %s = pc.all_reduce sum %c on ["pp"] : (tensor<4xf32>) -> tensor<4xf32>
      %t = pc.start (%a = %s : tensor<4xf32> -> tensor<4xf32>) {
        %0 = pc.all_reduce sum %a on ["pp"] : (tensor<4xf32>) -> tensor<4xf32>
        pc.yield %0 : tensor<4xf32>
      } : !pc.ticket
      %r = pc.wait %t : tensor<4xf32>
      return
    }
  }
  module @stage1 attributes {pc.stage = 1 : i64} {
    pc.mesh <pp = 2>
    func.func @step() {
      %c = pc.constant 1.0 : tensor<4xf32>
      %s = pc.all_reduce sum %c on ["pp"] : (tensor<4xf32>) -> tensor<4xf32>
      return
    }
  }
}

// -----

// CHECK: error: 'pc.send' op sends a message that no stage receives
module attributes {pc.stage_axis = "pp"} {
  module @stage0 attributes {pc.stage = 0 : i64} {
    pc.mesh <pp = 2>
    func.func @step() {
      %c = pc.constant 1.0 : tensor<4xf32>
      pc.send %c to 1 flow 0 message 0 slots 2 : tensor<4xf32>
      return
    }
  }
  module @stage1 attributes {pc.stage = 1 : i64} {
    pc.mesh <pp = 2>
    func.func @step() {
      return
    }
  }
}

// -----

// A started move belongs to a move without a start: the n-th calls of all stages over the same axes are one collective.
// CHECK-NOT: error
// CHECK: loss loss: scalar max 4.0
module attributes {pc.stage_axis = "pp"} {
  module @stage0 attributes {pc.stage = 0 : i64} {
    pc.mesh <pp = 2>
    func.func @step() {
      %c = pc.constant 1.0 : tensor<f32>
      pc.send %c to 1 flow 0 message 0 slots 2 : tensor<f32>
      pc.send %c to 1 flow 0 message 1 slots 2 : tensor<f32>
      %t = pc.start (%a = %c : tensor<f32> -> tensor<f32>) {
        %0 = pc.all_reduce sum %a on ["pp"] : (tensor<f32>) -> tensor<f32>
        pc.yield %0 : tensor<f32>
      } : !pc.ticket
      %s = pc.wait %t : tensor<f32>
      %r = pc.all_reduce sum %s on ["pp"] : (tensor<f32>) -> tensor<f32>
      pc.output loss "loss" %r : tensor<f32>
      return
    }
  }
  module @stage1 attributes {pc.stage = 1 : i64} {
    pc.mesh <pp = 2>
    func.func @step() {
      %c = pc.constant 1.0 : tensor<f32>
      %s = pc.all_reduce sum %c on ["pp"] : (tensor<f32>) -> tensor<f32>
      %a = pc.receive from 0 flow 0 message 0 slots 2 : tensor<f32>
      %b = pc.receive from 0 flow 0 message 1 slots 2 : tensor<f32>
      %r = pc.all_reduce sum %s on ["pp"] : (tensor<f32>) -> tensor<f32>
      pc.output loss "loss" %r : tensor<f32>
      return
    }
  }
}
