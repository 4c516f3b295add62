// Each kernel has one fault; kernels-on-host.cpp names it.
module {
  gpu.module @broken {
    // There is no barrier before the shared row is used again.
    gpu.func @reuse(%x: memref<1024xf32>, %y: memref<1024xf32>) workgroup(%s: memref<256xf32, #gpu.address_space<workgroup>>) kernel {
      %c0 = arith.constant 0 : index
      %c255 = arith.constant 255 : index
      %c256 = arith.constant 256 : index
      %c1024 = arith.constant 1024 : index
      %t = gpu.thread_id x
      %r = arith.subi %c255, %t : index
      scf.for %k = %c0 to %c1024 step %c256 {
        %i = arith.addi %k, %t : index
        %v = memref.load %x[%i] : memref<1024xf32>
        memref.store %v, %s[%t] : memref<256xf32, #gpu.address_space<workgroup>>
        gpu.barrier
        %w = memref.load %s[%r] : memref<256xf32, #gpu.address_space<workgroup>>
        memref.store %w, %y[%i] : memref<1024xf32>
      }
      gpu.return
    }
    // There is no barrier between write and read.
    gpu.func @exchange(%x: memref<1024xf32>, %y: memref<1024xf32>) workgroup(%s: memref<256xf32, #gpu.address_space<workgroup>>) kernel {
      %c255 = arith.constant 255 : index
      %t = gpu.thread_id x
      %r = arith.subi %c255, %t : index
      %v = memref.load %x[%t] : memref<1024xf32>
      memref.store %v, %s[%t] : memref<256xf32, #gpu.address_space<workgroup>>
      %w = memref.load %s[%r] : memref<256xf32, #gpu.address_space<workgroup>>
      memref.store %w, %y[%t] : memref<1024xf32>
      gpu.return
    }
    // Two blocks store different values to one word.
    gpu.func @two_blocks(%x: memref<1024xf32>, %y: memref<1024xf32>) kernel {
      %t = gpu.thread_id x
      %b = gpu.block_id x
      %bi = arith.index_cast %b : index to i32
      %f = arith.sitofp %bi : i32 to f32
      memref.store %f, %y[%t] : memref<1024xf32>
      gpu.return
    }
    // A block reads a word that another one writes.
    gpu.func @in_place(%x: memref<1024xf32>, %y: memref<1024xf32>) kernel {
      %c1 = arith.constant 1 : index
      %c256 = arith.constant 256 : index
      %b = gpu.block_id x
      %t = gpu.thread_id x
      %base = arith.muli %b, %c256 : index
      %i = arith.addi %base, %t : index
      %j = arith.addi %i, %c1 : index
      %v = memref.load %x[%j] : memref<1024xf32>
      gpu.barrier
      memref.store %v, %x[%i] : memref<1024xf32>
      gpu.return
    }
    // Some threads return, and the others wait at a barrier.
    gpu.func @early(%x: memref<1024xf32>, %y: memref<1024xf32>) kernel {
      %c200 = arith.constant 200 : index
      %t = gpu.thread_id x
      %p = arith.cmpi slt, %t, %c200 : index
      cf.cond_br %p, ^a, ^b
    ^a:
      gpu.barrier
      %v = memref.load %x[%t] : memref<1024xf32>
      memref.store %v, %y[%t] : memref<1024xf32>
      cf.br ^b
    ^b:
      gpu.return
    }
    // Both arms of a branch have a barrier.
    gpu.func @arms(%x: memref<1024xf32>, %y: memref<1024xf32>) kernel {
      %c100 = arith.constant 100 : index
      %one = arith.constant 1.0 : f32
      %two = arith.constant 2.0 : f32
      %t = gpu.thread_id x
      %p = arith.cmpi slt, %t, %c100 : index
      scf.if %p {
        memref.store %one, %y[%t] : memref<1024xf32>
        gpu.barrier
        memref.store %two, %y[%t] : memref<1024xf32>
      }
      gpu.barrier
      gpu.return
    }
    // Only 20 of 32 lanes reach the shuffle.
    gpu.func @some_lanes(%x: memref<1024xf32>, %y: memref<1024xf32>) kernel {
      %c20 = arith.constant 20 : index
      %one = arith.constant 1 : i32
      %w = arith.constant 32 : i32
      %t = gpu.thread_id x
      %p = arith.cmpi slt, %t, %c20 : index
      scf.if %p {
        %v = memref.load %x[%t] : memref<1024xf32>
        %s, %q = gpu.shuffle xor %v, %one, %w : f32
        memref.store %s, %y[%t] : memref<1024xf32>
      }
      gpu.return
    }
    // Only 20 of 32 lanes of the first warp reach the mma.
    gpu.func @some_lanes_mma(%x: memref<1024xf32>, %y: memref<1024xf32>) kernel {
      %c20 = arith.constant 20 : index
      %a = arith.constant 0 : i32
      %zero = arith.constant 0.0 : f32
      %t = gpu.thread_id x
      %p = arith.cmpi slt, %t, %c20 : index
      scf.if %p {
        %d = nvvm.mma.sync A[%a, %a, %a, %a] B[%a, %a] C[%zero, %zero, %zero, %zero] {layoutA = #nvvm.mma_layout<row>, layoutB = #nvvm.mma_layout<col>, multiplicandAPtxType = #nvvm.mma_type<bf16>, multiplicandBPtxType = #nvvm.mma_type<bf16>, shape = #nvvm.shape<m = 16, n = 8, k = 16>} : (i32, i32, f32) -> !llvm.struct<(f32, f32, f32, f32)>
        %e = llvm.extractvalue %d[0] : !llvm.struct<(f32, f32, f32, f32)>
        memref.store %e, %y[%t] : memref<1024xf32>
      }
      gpu.return
    }
    // All threads add to one word without an atomic.
    gpu.func @lost_update(%x: memref<1024xf32>, %y: memref<1024xf32>) workgroup(%s: memref<1xf32, #gpu.address_space<workgroup>>) kernel {
      %c0 = arith.constant 0 : index
      %zero = arith.constant 0.0 : f32
      %t = gpu.thread_id x
      %p = arith.cmpi eq, %t, %c0 : index
      scf.if %p {
        memref.store %zero, %s[%c0] : memref<1xf32, #gpu.address_space<workgroup>>
      }
      gpu.barrier
      %v = memref.load %x[%t] : memref<1024xf32>
      %o = memref.load %s[%c0] : memref<1xf32, #gpu.address_space<workgroup>>
      %w = arith.addf %o, %v : f32
      memref.store %w, %s[%c0] : memref<1xf32, #gpu.address_space<workgroup>>
      gpu.barrier
      %q = memref.load %s[%c0] : memref<1xf32, #gpu.address_space<workgroup>>
      memref.store %q, %y[%t] : memref<1024xf32>
      gpu.return
    }
    // A load of four words claims an alignment that its address does not have.
    gpu.func @misaligned(%x: memref<1024xf32>, %y: memref<1024xf32>) kernel {
      %t = gpu.thread_id x
      %v = vector.load %x[%t] {alignment = 16 : i64} : memref<1024xf32>, vector<4xf32>
      %s = vector.reduction <add>, %v : vector<4xf32> into f32
      memref.store %s, %y[%t] : memref<1024xf32>
      gpu.return
    }
    // The last thread reads the word after the end of the buffer.
    gpu.func @past_the_end(%x: memref<1024xf32>, %y: memref<1024xf32>) kernel {
      %c769 = arith.constant 769 : index
      %t = gpu.thread_id x
      %i = arith.addi %t, %c769 : index
      %v = memref.load %x[%i] : memref<1024xf32>
      memref.store %v, %y[%t] : memref<1024xf32>
      gpu.return
    }
    // The last thread writes the word after the end of a shared variable, which may belong to another variable.
    gpu.func @past_shared(%x: memref<1024xf32>, %y: memref<1024xf32>)
        workgroup(%s: memref<256xf32, #gpu.address_space<workgroup>>, %u: memref<256xf32, #gpu.address_space<workgroup>>) kernel {
      %c1 = arith.constant 1 : index
      %t = gpu.thread_id x
      %i = arith.addi %t, %c1 : index
      %v = memref.load %x[%t] : memref<1024xf32>
      memref.store %v, %u[%t] : memref<256xf32, #gpu.address_space<workgroup>>
      memref.store %v, %s[%i] : memref<256xf32, #gpu.address_space<workgroup>>
      gpu.barrier
      %a = memref.load %s[%i] : memref<256xf32, #gpu.address_space<workgroup>>
      %b = memref.load %u[%t] : memref<256xf32, #gpu.address_space<workgroup>>
      %w = arith.addf %a, %b : f32
      memref.store %w, %y[%t] : memref<1024xf32>
      gpu.return
    }
    // The kernel reads the results instead of writing them.
    gpu.func @never_written(%x: memref<1024xf32>, %y: memref<1024xf32>) kernel {
      %t = gpu.thread_id x
      %v = memref.load %y[%t] : memref<1024xf32>
      memref.store %v, %x[%t] : memref<1024xf32>
      gpu.return
    }
    // No thread waits for the asynchronous copy.
    gpu.func @no_wait(%x: memref<1024xf32>, %y: memref<1024xf32>) workgroup(%s: memref<1024xf32, #gpu.address_space<workgroup>>) kernel {
      %c4 = arith.constant 4 : index
      %t = gpu.thread_id x
      %i = arith.muli %t, %c4 : index
      %k = nvgpu.device_async_copy %x[%i], %s[%i], 4 {bypassL1} : memref<1024xf32> to memref<1024xf32, #gpu.address_space<workgroup>>
      %g = nvgpu.device_async_create_group %k
      gpu.barrier
      %v = memref.load %s[%t] : memref<1024xf32, #gpu.address_space<workgroup>>
      memref.store %v, %y[%t] : memref<1024xf32>
      gpu.return
    }
    // Threads wait for the copy, but it belongs to no group.
    gpu.func @no_group(%x: memref<1024xf32>, %y: memref<1024xf32>) workgroup(%s: memref<1024xf32, #gpu.address_space<workgroup>>) kernel {
      %c4 = arith.constant 4 : index
      %t = gpu.thread_id x
      %i = arith.muli %t, %c4 : index
      %k = nvgpu.device_async_copy %x[%i], %s[%i], 4 {bypassL1} : memref<1024xf32> to memref<1024xf32, #gpu.address_space<workgroup>>
      nvvm.cp.async.wait.group 0
      gpu.barrier
      %v = memref.load %s[%t] : memref<1024xf32, #gpu.address_space<workgroup>>
      memref.store %v, %y[%t] : memref<1024xf32>
      gpu.return
    }
    // A warp's barrier does not order warps.
    gpu.func @warp_only(%x: memref<1024xf32>, %y: memref<1024xf32>) workgroup(%s: memref<256xf32, #gpu.address_space<workgroup>>) kernel {
      %c255 = arith.constant 255 : index
      %all = arith.constant -1 : i32
      %t = gpu.thread_id x
      %v = memref.load %x[%t] : memref<1024xf32>
      memref.store %v, %s[%t] : memref<256xf32, #gpu.address_space<workgroup>>
      nvvm.bar.warp.sync %all : i32
      %r = arith.xori %t, %c255 : index
      %w = memref.load %s[%r] : memref<256xf32, #gpu.address_space<workgroup>>
      memref.store %w, %y[%t] : memref<1024xf32>
      gpu.return
    }
  }
}
