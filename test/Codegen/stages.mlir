// RUN: pc-opt %s --split-input-file --verify-diagnostics --pc-generate-kernels | FileCheck %s

// The program has two stages. Each has its own step and tables; they share kernels and groups, and the first program
// has a pointer to the second. A microbatch is an element of a stack; the second one begins 16 bytes after the first.
// Both ends of a flow name it by the task whose result it carries.

// CHECK: llvm.func @pc_step(%[[CTX:.*]]: !llvm.ptr, %[[ARENA:.*]]: !llvm.ptr) -> i32
// CHECK: llvm.call @pcrt_task(%[[CTX]],
// CHECK: llvm.call @pcrt_launch(%[[CTX]],
// CHECK: llvm.call @pcrt_send(%[[CTX]],
// CHECK: llvm.call @pcrt_task(%[[CTX]],
// CHECK: %[[SECOND:.*]] = llvm.mlir.constant(16 : i64)
// CHECK: llvm.getelementptr %[[ARENA]][%[[SECOND]]]
// CHECK: llvm.call @pcrt_move(%[[CTX]],
// CHECK: llvm.func internal @pc_scale_0(
// CHECK: llvm.func internal @pc_constant_1(
// CHECK-NOT: llvm.func internal
// CHECK: llvm.func @pc_step_stage1(
// CHECK-COUNT-2: llvm.call @pcrt_receive
// CHECK: llvm.call @pcrt_observe
// CHECK: llvm.mlir.global private constant @{{.*}}("forward of chunk 0 from stage 0 to stage 1\00")
// CHECK: llvm.mlir.global external constant @pc_program()
// CHECK: llvm.mlir.addressof @pc_program_stage1
// CHECK: llvm.mlir.global external constant @pc_program_stage1()
// CHECK: llvm.mlir.addressof @pc_groups :
module attributes {pc.stage_axis = "pp"} {
  module @stage0 attributes {pc.stage = 0 : i64} {
    pc.mesh <pp = 2>
    pc.program "m" batch 8 sequence 1 vocabulary 5 config "{}"
    pc.arena 192
    func.func @step() {
      %t = pc.input hyper dims ["microbatch", "batch"] global [2, 4] layout <[_, _]> : tensor<2x4xf32, #pc.home<0>>
      pc.task forward chunk 0 microbatch 0
      %0 = pc.microbatch %t[0] : tensor<2x4xf32, #pc.home<0>> -> tensor<4xf32, #pc.home<0>>
      %a = pc.scale %0 by 2.0 : (tensor<4xf32, #pc.home<0>>) -> tensor<4xf32, #pc.home<64>>
      pc.send %a to 1 flow 0 message 0 slots 2 : tensor<4xf32, #pc.home<64>>
      pc.task forward chunk 0 microbatch 1
      %1 = pc.microbatch %t[1] : tensor<2x4xf32, #pc.home<0>> -> tensor<4xf32, #pc.home<16>>
      %b = pc.scale %1 by 2.0 : (tensor<4xf32, #pc.home<16>>) -> tensor<4xf32, #pc.home<64>>
      pc.send %b to 1 flow 0 message 1 slots 2 : tensor<4xf32, #pc.home<64>>
      pc.task optimizer
      %c = pc.constant 0.0 : tensor<f32, #pc.home<128>>
      %s = pc.all_reduce sum %c on ["pp"] : (tensor<f32, #pc.home<128>>) -> tensor<f32, #pc.home<128>>
      return
    }
  }
  module @stage1 attributes {pc.stage = 1 : i64} {
    pc.mesh <pp = 2>
    pc.program "m" batch 8 sequence 1 vocabulary 5 config "{}"
    pc.arena 192
    func.func @step() {
      pc.task forward chunk 1 microbatch 0
      %a = pc.receive from 0 flow 0 message 0 slots 2 : tensor<4xf32, #pc.home<0>>
      pc.task forward chunk 1 microbatch 1
      %b = pc.receive from 0 flow 0 message 1 slots 2 : tensor<4xf32, #pc.home<64>>
      pc.task optimizer
      %c = pc.constant 0.0 : tensor<f32, #pc.home<128>>
      %s = pc.all_reduce sum %c on ["pp"] : (tensor<f32, #pc.home<128>>) -> tensor<f32, #pc.home<128>>
      pc.output loss "loss" %s global [] layout <[]> : tensor<f32, #pc.home<128>>
      return
    }
  }
}

// -----

module attributes {pc.stage_axis = "pp"} {
  module @stage0 attributes {pc.stage = 0 : i64} {
    pc.mesh <pp = 2>
    pc.program "m" batch 8 sequence 1 vocabulary 5 config "{}"
    pc.arena 64
    func.func @step() {
      return
    }
  }
  module @stage1 attributes {pc.stage = 1 : i64} {
    pc.mesh <pp = 2>
    pc.program "m" batch 8 sequence 1 vocabulary 5 config "{}"
    pc.arena 64
    func.func @step() {
      pc.task forward chunk 1 microbatch 0
      // expected-error @below {{waits for a message that stage 0 does not send}}
      %a = pc.receive from 0 flow 0 message 0 slots 2 : tensor<4xf32, #pc.home<0>>
      return
    }
  }
}

// -----

// The product of the second microbatch adds to the gradient of the first (pc-fuse joined them). There are two products,
// and no kernel for the sum.
// CHECK: llvm.func @pc_step(
// CHECK-COUNT-2: llvm.call @pcrt_gemm
// CHECK-NOT: llvm.call @pcrt_launch
// CHECK: llvm.call @pcrt_observe
module attributes {pc.stage_axis = "pp"} {
  module @stage0 attributes {pc.stage = 0 : i64} {
    pc.mesh <pp = 1>
    pc.program "m" batch 8 sequence 1 vocabulary 5 config "{}"
    pc.arena 512
    func.func @step() {
      %t = pc.input hyper dims ["i", "e"] global [4, 4] layout <[_, _]> : tensor<4x4xf32, #pc.home<0>>
      %w = pc.parameter "w" dims ["a", "b"] init <fill, 1.0> source <"w", shape = [4, 4], start = [0, 0], size = [4, 4]> global [4, 4] layout <[_, _]> : tensor<4x4xf32, #pc.home<64>>
      pc.task weight chunk 0 microbatch 0
      %a = pc.einsum "i e, i f -> e f" %t, %t : (tensor<4x4xf32, #pc.home<0>>, tensor<4x4xf32, #pc.home<0>>) -> tensor<4x4xf32, #pc.home<128>>
      pc.task weight chunk 0 microbatch 1
      %s = pc.fusion (%x = %t : tensor<4x4xf32, #pc.home<0>> -> tensor<4x4xf32>, %sum = %a : tensor<4x4xf32, #pc.home<128>> -> tensor<4x4xf32>) {
        %b = pc.einsum "i e, i f -> e f" %x, %x : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
        %c = pc.add %sum, %b : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
        pc.yield %c : tensor<4x4xf32>
      } : tensor<4x4xf32, #pc.home<128>>
      pc.task optimizer
      pc.output gradient "w" %s global [4, 4] layout <[_, _]> : tensor<4x4xf32, #pc.home<128>>
      return
    }
  }
}
