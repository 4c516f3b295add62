// RUN: pc-opt %s --pc-print-report="plan=by-hand" | FileCheck %s

// There are three stages on pp=3, dp=2: ranks 0 and 1 are stage 0, and so on. The parameter of stages 0 and 2 is tied,
// so there are 4 elements in total. Stages 0 and 2 have the same arena, but stage 2 sends nothing. Stage 1 receives a
// flow of two slots of 16 bytes and sends the same bytes on.
// CHECK: "flops_per_step": 0,
// CHECK: "parameters": 4,
// CHECK: "per_rank": [
// CHECK:      "device": 128,
// CHECK-NEXT: "host": 0
// CHECK:      "ranks": [
// CHECK-NEXT:   0,
// CHECK-NEXT:   1
// CHECK:      "traffic": [
// CHECK:      "axis": "pp",
// CHECK-NEXT: "count": 2,
// CHECK-NEXT: "move": "send",
// CHECK-NEXT: "payload_bytes": 32,
// CHECK-NEXT: "phase": "p2p",
// CHECK-NEXT: "wire_bytes": 32
// CHECK:      "device": 64,
// CHECK-NEXT: "host": 32
// CHECK:      "ranks": [
// CHECK-NEXT:   2,
// CHECK-NEXT:   3
// CHECK:      "count": 2,
// CHECK-NEXT: "move": "send",
// CHECK:      "device": 128,
// CHECK-NEXT: "host": 32
// CHECK:      "ranks": [
// CHECK-NEXT:   4,
// CHECK-NEXT:   5
// CHECK:      "traffic": []
module attributes {pc.stage_axis = "pp"} {
  module @stage0 attributes {pc.stage = 0 : i64} {
    pc.mesh <pp = 3, dp = 2>
    pc.program "m" batch 2 sequence 1 vocabulary 4 config "{}"
    pc.arena 128
    func.func @step() {
      %w = pc.parameter "w" dims ["a"] init <fill, 1.0> source <"w", shape = [4], start = [0], size = [4]> key 0 global [4] layout <[_]> : tensor<4xf32, #pc.home<0>>
      pc.task forward chunk 0 microbatch 0
      %a = pc.scale %w by 2.0 : (tensor<4xf32, #pc.home<0>>) -> tensor<4xf32, #pc.home<64>>
      pc.send %a to 1 flow 0 message 0 slots 2 : tensor<4xf32, #pc.home<64>>
      pc.task forward chunk 0 microbatch 1
      pc.send %a to 1 flow 0 message 1 slots 2 : tensor<4xf32, #pc.home<64>>
      return
    }
  }
  module @stage1 attributes {pc.stage = 1 : i64} {
    pc.mesh <pp = 3, dp = 2>
    pc.program "m" batch 2 sequence 1 vocabulary 4 config "{}"
    pc.arena 64
    func.func @step() {
      pc.task forward chunk 1 microbatch 0
      %0 = pc.receive from 0 flow 0 message 0 slots 2 : tensor<4xf32, #pc.home<0>>
      pc.send %0 to 2 flow 1 message 0 slots 2 : tensor<4xf32, #pc.home<0>>
      pc.task forward chunk 1 microbatch 1
      %1 = pc.receive from 0 flow 0 message 1 slots 2 : tensor<4xf32, #pc.home<0>>
      pc.send %1 to 2 flow 1 message 1 slots 2 : tensor<4xf32, #pc.home<0>>
      return
    }
  }
  module @stage2 attributes {pc.stage = 2 : i64} {
    pc.mesh <pp = 3, dp = 2>
    pc.program "m" batch 2 sequence 1 vocabulary 4 config "{}"
    pc.arena 128
    func.func @step() {
      %w = pc.parameter "w" dims ["a"] init <fill, 1.0> source <"w", shape = [4], start = [0], size = [4]> key 0 global [4] layout <[_]> : tensor<4xf32, #pc.home<0>>
      pc.task forward chunk 2 microbatch 0
      %0 = pc.receive from 1 flow 1 message 0 slots 2 : tensor<4xf32, #pc.home<64>>
      pc.task forward chunk 2 microbatch 1
      %1 = pc.receive from 1 flow 1 message 1 slots 2 : tensor<4xf32, #pc.home<64>>
      return
    }
  }
}
