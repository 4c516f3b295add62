// The loads and stores of a kernel are counted from its code, for all threads at once.
// RUN: pc-kernels %s --emit=accesses | FileCheck %s

gpu.module @kernels {
  // There are 16384 rows of 768 bf16: a warp per row, four rows per block, three vectors of 8 elements per thread. Each
  // element is read once.
  // CHECK: {"buffers":[{"loaded":{"16":25165824},"stored":{}},{"loaded":{},"stored":{"4":65536}}],"kernel":"rows"}
  gpu.func @rows(%x: !llvm.ptr, %y: !llvm.ptr) kernel attributes {known_grid_size = array<i32: 4096, 1, 1>, known_block_size = array<i32: 128, 1, 1>} {
    %zero = arith.constant 0 : i64
    %c1 = arith.constant 1 : i64
    %three = arith.constant 3 : i64
    %four = arith.constant 4 : i64
    %c32 = arith.constant 32 : i64
    %c256 = arith.constant 256 : i64
    %c768 = arith.constant 768 : i64
    %t = gpu.thread_id x
    %thread = arith.index_castui %t : index to i64
    %b = gpu.block_id x
    %block = arith.index_castui %b : index to i64
    %lane = arith.remui %thread, %c32 : i64
    %warp = arith.divui %thread, %c32 : i64
    %first = arith.muli %block, %four : i64
    %row = arith.addi %first, %warp : i64
    %start = arith.muli %row, %c768 : i64
    %eight = arith.constant 8 : i64
    %mine = arith.muli %lane, %eight : i64
    scf.for %piece = %zero to %three step %c1 : i64 {
      %skip = arith.muli %piece, %c256 : i64
      %at = arith.addi %start, %skip : i64
      %index = arith.addi %at, %mine : i64
      %from = llvm.getelementptr %x[%index] : (!llvm.ptr, i64) -> !llvm.ptr, bf16
      %v = llvm.load %from : !llvm.ptr -> vector<8xbf16>
      %again = llvm.load %from : !llvm.ptr -> vector<8xbf16>
    }
    %is_first = arith.cmpi slt, %lane, %c1 : i64
    scf.if %is_first {
      %to = llvm.getelementptr %y[%row] : (!llvm.ptr, i64) -> !llvm.ptr, f32
      %f = arith.constant 0.0 : f32
      llvm.store %f, %to : f32, !llvm.ptr
    }
    gpu.return
  }

  // 1000 elements have 4 blocks of 256 threads, and the last block has 232 elements. The scale is read once per block,
  // not once per thread.
  // CHECK: {"buffers":[{"loaded":{"4":4000},"stored":{"4":4000}},{"loaded":{"4":16},"stored":{}}],"kernel":"tail"}
  gpu.func @tail(%x: !llvm.ptr, %scale: !llvm.ptr) kernel attributes {known_grid_size = array<i32: 4, 1, 1>, known_block_size = array<i32: 256, 1, 1>} {
    %c256 = arith.constant 256 : i64
    %c1000 = arith.constant 1000 : i64
    %t = gpu.thread_id x
    %thread = arith.index_castui %t : index to i64
    %b = gpu.block_id x
    %block = arith.index_castui %b : index to i64
    %start = arith.muli %block, %c256 : i64
    %i = arith.addi %start, %thread : i64
    %inside = arith.cmpi slt, %i, %c1000 : i64
    %s = llvm.load %scale : !llvm.ptr -> f32
    scf.if %inside {
      %at = llvm.getelementptr %x[%i] : (!llvm.ptr, i64) -> !llvm.ptr, f32
      %v = llvm.load %at : !llvm.ptr -> f32
      %w = arith.mulf %v, %s : f32
      llvm.store %w, %at : f32, !llvm.ptr
    }
    gpu.return
  }

  // Thread t reads the first t of 8 elements, so the block reads 28 in total. Shared memory is not counted.
  // CHECK: {"buffers":[{"loaded":{"4":112},"stored":{}}],"kernel":"triangle"}
  llvm.mlir.global internal @shared() {addr_space = 3 : i32} : !llvm.array<8 x f32>
  gpu.func @triangle(%x: !llvm.ptr) kernel attributes {known_grid_size = array<i32: 1, 1, 1>, known_block_size = array<i32: 8, 1, 1>} {
    %zero = arith.constant 0 : i64
    %c1 = arith.constant 1 : i64
    %eight = arith.constant 8 : i64
    %t = gpu.thread_id x
    %thread = arith.index_castui %t : index to i64
    %line = arith.muli %thread, %eight : i64
    %shared = llvm.mlir.addressof @shared : !llvm.ptr<3>
    scf.for %i = %zero to %thread step %c1 : i64 {
      %index = arith.addi %line, %i : i64
      %at = llvm.getelementptr %x[%index] : (!llvm.ptr, i64) -> !llvm.ptr, f32
      %v = llvm.load %at : !llvm.ptr -> f32
      llvm.store %v, %shared : f32, !llvm.ptr<3>
    }
    gpu.return
  }

  // A table of constants gives each block its elements: 100 from 0 and 30 from 100, with 64 per block.
  // CHECK: {"buffers":[{"loaded":{"4":520},"stored":{}}],"kernel":"list"}
  llvm.mlir.global internal constant @table(dense<[0, 100, 2, 30]> : tensor<4xi64>) {addr_space = 1 : i32} : !llvm.array<4 x i64>
  gpu.func @list(%x: !llvm.ptr) kernel attributes {known_grid_size = array<i32: 3, 1, 1>, known_block_size = array<i32: 64, 1, 1>} {
    %zero = arith.constant 0 : i64
    %c1 = arith.constant 1 : i64
    %c2 = arith.constant 2 : i64
    %c64 = arith.constant 64 : i64
    %c100 = arith.constant 100 : i64
    %t = gpu.thread_id x
    %thread = arith.index_castui %t : index to i64
    %b = gpu.block_id x
    %block = arith.index_castui %b : index to i64
    %table = llvm.mlir.addressof @table : !llvm.ptr<1>
    %second_at = llvm.getelementptr %table[%c2] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i64
    %second = llvm.load %second_at : !llvm.ptr<1> -> i64
    %is_second = arith.cmpi sge, %block, %second : i64
    %tensor = arith.select %is_second, %c2, %zero : i64
    %first_at = llvm.getelementptr %table[%tensor] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i64
    %first = llvm.load %first_at : !llvm.ptr<1> -> i64
    %next = arith.addi %tensor, %c1 : i64
    %count_at = llvm.getelementptr %table[%next] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i64
    %count = llvm.load %count_at : !llvm.ptr<1> -> i64
    %base = arith.select %is_second, %c100, %zero : i64
    %mine = arith.subi %block, %first : i64
    %start = arith.muli %mine, %c64 : i64
    %i = arith.addi %start, %thread : i64
    %inside = arith.cmpi slt, %i, %count : i64
    scf.if %inside {
      %index = arith.addi %base, %i : i64
      %at = llvm.getelementptr %x[%index] : (!llvm.ptr, i64) -> !llvm.ptr, f32
      %v = llvm.load %at : !llvm.ptr -> f32
    }
    gpu.return
  }
}
