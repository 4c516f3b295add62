// Each case breaks one constraint on which code generation relies.
// RUN: pc-opt %s --pc-verify-kernels -verify-diagnostics -split-input-file

llvm.func @pcrt_launch(!llvm.ptr, i32, !llvm.ptr) -> i32
llvm.func @pc_step(%context: !llvm.ptr, %arena: !llvm.ptr) -> i32 {
  %i = llvm.mlir.constant(1 : i32) : i32
  %zero = llvm.mlir.constant(0 : i32) : i32
  %first = llvm.icmp "eq" %i, %zero : i32
  %either = llvm.select %first, %zero, %i : i1, i32
  %r = llvm.call @pcrt_launch(%context, %either, %arena) : (!llvm.ptr, i32, !llvm.ptr) -> i32
  llvm.return %r : i32
}
llvm.mlir.global internal constant @pc_kernel_table() : !llvm.array<2 x i32> {
  %0 = llvm.mlir.zero : !llvm.array<2 x i32>
  llvm.return %0 : !llvm.array<2 x i32>
}
llvm.mlir.global external constant @pc_program(0 : i32) : i32

// -----

func.func @pc_step() {
  // expected-error @below {{is not allowed in phase 'kernels' (K1)}}
  %c = pc.constant 1.0 : tensor<f32>
  return
}

// -----

// expected-error @below {{the module has no program: it has no global @pc_program (K2)}}
module {
  llvm.func @pc_step(%context: !llvm.ptr, %arena: !llvm.ptr) -> i32
}

// -----

llvm.func @pc_step(%context: !llvm.ptr, %arena: !llvm.ptr) -> i32
// expected-error @below {{has no step @pc_step (K2)}}
llvm.mlir.global external constant @pc_program(0 : i32) : i32

// -----

llvm.func @pcrt_launch(!llvm.ptr, i32, !llvm.ptr) -> i32
llvm.func @pc_step(%context: !llvm.ptr, %arena: !llvm.ptr) -> i32 {
  %i = llvm.mlir.constant(2 : i32) : i32
  // expected-error @below {{calling @pcrt_launch uses an index that its table of 2 entries does not have (K3)}}
  %r = llvm.call @pcrt_launch(%context, %i, %arena) : (!llvm.ptr, i32, !llvm.ptr) -> i32
  llvm.return %r : i32
}
llvm.mlir.global internal constant @pc_kernel_table() : !llvm.array<2 x i32> {
  %0 = llvm.mlir.zero : !llvm.array<2 x i32>
  llvm.return %0 : !llvm.array<2 x i32>
}
llvm.mlir.global external constant @pc_program(0 : i32) : i32

// -----

llvm.func @pcrt_move(!llvm.ptr, i32, !llvm.ptr, !llvm.ptr) -> i32
llvm.func @pc_step_stage1(%context: !llvm.ptr, %arena: !llvm.ptr) -> i32 {
  %i = llvm.mlir.constant(0 : i32) : i32
  // expected-error @below {{calling @pcrt_move uses an index that its table of 0 entries does not have (K3)}}
  %r = llvm.call @pcrt_move(%context, %i, %arena, %arena) : (!llvm.ptr, i32, !llvm.ptr, !llvm.ptr) -> i32
  llvm.return %r : i32
}
llvm.mlir.global external constant @pc_program_stage1(0 : i32) : i32

// -----

llvm.mlir.global private constant @pc_text0("pc_add_0\00")
// expected-error @below {{names 'pc_add_0', which is not a kernel of this module (K4)}}
llvm.mlir.global internal constant @pc_device_kernels() : !llvm.ptr {
  %0 = llvm.mlir.addressof @pc_text0 : !llvm.ptr
  llvm.return %0 : !llvm.ptr
}
gpu.module @pc_kernels {
  gpu.func @pc_add_0() { gpu.return }
}
