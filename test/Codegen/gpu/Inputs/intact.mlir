// These kernels are correct. kernels-on-host.cpp runs them in every order of threads, with and without checks.
module {
  gpu.module @intact {
    // y = 2 x + 1, with four elements per thread.
    gpu.func @axpy(%x: !llvm.ptr, %y: !llvm.ptr) kernel attributes {nvvm.reqntid = array<i32: 64, 1, 1>} {
      %c64 = arith.constant 64 : index
      %two = arith.constant dense<2.0> : vector<4xf32>
      %one = arith.constant dense<1.0> : vector<4xf32>
      %b = gpu.block_id x
      %t = gpu.thread_id x
      %base = arith.muli %b, %c64 : index
      %i = arith.addi %base, %t : index
      %at = arith.index_cast %i : index to i64
      %p = llvm.getelementptr inbounds %x[%at] : (!llvm.ptr, i64) -> !llvm.ptr, vector<4xf32>
      %q = llvm.getelementptr inbounds %y[%at] : (!llvm.ptr, i64) -> !llvm.ptr, vector<4xf32>
      %v = llvm.load %p {alignment = 16 : i64} : !llvm.ptr -> vector<4xf32>
      %w = math.fma %v, %two, %one : vector<4xf32>
      llvm.store %w, %q {alignment = 16 : i64} : vector<4xf32>, !llvm.ptr
      gpu.return
    }

    // Each row of 1000 has a block. Maximum and sum use shuffles within a warp, and shared memory between the 4 warps.
    gpu.func @softmax(%x: memref<3x1000xf32>, %y: memref<3x1000xf32>)
        workgroup(%maxima: memref<4xf32, #gpu.address_space<workgroup>>, %sums: memref<4xf32, #gpu.address_space<workgroup>>)
        kernel attributes {nvvm.reqntid = array<i32: 128, 1, 1>} {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c4 = arith.constant 4 : index
      %c32 = arith.constant 32 : index
      %c128 = arith.constant 128 : index
      %c1000 = arith.constant 1000 : index
      %ninf = arith.constant 0xFF800000 : f32
      %zero = arith.constant 0.0 : f32
      %row = gpu.block_id x
      %t = gpu.thread_id x
      %warp = arith.divui %t, %c32 : index
      %lane = arith.remui %t, %c32 : index
      %first = arith.cmpi eq, %lane, %c0 : index
      %m0 = scf.for %j = %t to %c1000 step %c128 iter_args(%a = %ninf) -> f32 {
        %v = memref.load %x[%row, %j] : memref<3x1000xf32>
        %w = arith.maximumf %a, %v : f32
        scf.yield %w : f32
      }
      %m1 = gpu.subgroup_reduce maximumf %m0 : (f32) -> f32
      scf.if %first {
        memref.store %m1, %maxima[%warp] : memref<4xf32, #gpu.address_space<workgroup>>
      }
      gpu.barrier
      %m = scf.for %j = %c0 to %c4 step %c1 iter_args(%a = %ninf) -> f32 {
        %v = memref.load %maxima[%j] : memref<4xf32, #gpu.address_space<workgroup>>
        %w = arith.maximumf %a, %v : f32
        scf.yield %w : f32
      }
      %s0 = scf.for %j = %t to %c1000 step %c128 iter_args(%a = %zero) -> f32 {
        %v = memref.load %x[%row, %j] : memref<3x1000xf32>
        %d = arith.subf %v, %m : f32
        %e = math.exp %d : f32
        memref.store %e, %y[%row, %j] : memref<3x1000xf32>
        %w = arith.addf %a, %e : f32
        scf.yield %w : f32
      }
      %s1 = gpu.subgroup_reduce add %s0 : (f32) -> f32
      scf.if %first {
        memref.store %s1, %sums[%warp] : memref<4xf32, #gpu.address_space<workgroup>>
      }
      gpu.barrier
      %s = scf.for %j = %c0 to %c4 step %c1 iter_args(%a = %zero) -> f32 {
        %v = memref.load %sums[%j] : memref<4xf32, #gpu.address_space<workgroup>>
        %w = arith.addf %a, %v : f32
        scf.yield %w : f32
      }
      scf.for %j = %t to %c1000 step %c128 {
        %e = memref.load %y[%row, %j] : memref<3x1000xf32>
        %d = arith.divf %e, %s : f32
        memref.store %d, %y[%row, %j] : memref<3x1000xf32>
      }
      gpu.return
    }

    // Upstream's reduction of a block.
    gpu.func @sum_rows(%x: memref<3x1000xf32>, %y: memref<3xf32>) kernel attributes {nvvm.reqntid = array<i32: 256, 1, 1>} {
      %c0 = arith.constant 0 : index
      %c256 = arith.constant 256 : index
      %c1000 = arith.constant 1000 : index
      %zero = arith.constant 0.0 : f32
      %row = gpu.block_id x
      %t = gpu.thread_id x
      %s0 = scf.for %j = %t to %c1000 step %c256 iter_args(%a = %zero) -> f32 {
        %v = memref.load %x[%row, %j] : memref<3x1000xf32>
        %w = arith.addf %a, %v : f32
        scf.yield %w : f32
      }
      %s = gpu.all_reduce add %s0 uniform {} : (f32) -> f32
      %first = arith.cmpi eq, %t, %c0 : index
      scf.if %first {
        memref.store %s, %y[%row] : memref<3xf32>
      }
      gpu.return
    }

    // Transposes 64x96 in tiles of 32x32 through shared memory. A block uses its tile again, for two columns of tiles.
    gpu.func @transpose(%x: memref<64x96xf32>, %y: memref<96x64xf32>)
        workgroup(%tile: memref<32x33xf32, #gpu.address_space<workgroup>>)
        kernel attributes {nvvm.reqntid = array<i32: 32, 8, 1>} {
      %c0 = arith.constant 0 : index
      %c8 = arith.constant 8 : index
      %c32 = arith.constant 32 : index
      %c64 = arith.constant 64 : index
      %bx = gpu.block_id x
      %tx = gpu.thread_id x
      %ty = gpu.thread_id y
      %c = arith.muli %bx, %c32 : index
      scf.for %r = %c0 to %c64 step %c32 {
        scf.for %k = %ty to %c32 step %c8 {
          %rr = arith.addi %r, %k : index
          %cc = arith.addi %c, %tx : index
          %v = memref.load %x[%rr, %cc] : memref<64x96xf32>
          memref.store %v, %tile[%k, %tx] : memref<32x33xf32, #gpu.address_space<workgroup>>
        }
        gpu.barrier
        scf.for %k = %ty to %c32 step %c8 {
          %rr = arith.addi %c, %k : index
          %cc = arith.addi %r, %tx : index
          %v = memref.load %tile[%tx, %k] : memref<32x33xf32, #gpu.address_space<workgroup>>
          memref.store %v, %y[%rr, %cc] : memref<96x64xf32>
        }
        gpu.barrier
      }
      gpu.return
    }

    // C = A B^T for bf16 16x16 and 8x16 in words of two: operands through ldmatrix, then one mma.
    gpu.func @matmul(%a: memref<128xi32>, %b: memref<64xi32>, %c: memref<16x8xf32>)
        workgroup(%sa: memref<128xi32, #gpu.address_space<workgroup>>, %sb: memref<64xi32, #gpu.address_space<workgroup>>)
        kernel attributes {nvvm.reqntid = array<i32: 32, 1, 1>} {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c2 = arith.constant 2 : index
      %c4 = arith.constant 4 : index
      %c7 = arith.constant 7 : index
      %c8 = arith.constant 8 : index
      %c15 = arith.constant 15 : index
      %c16 = arith.constant 16 : index
      %c32 = arith.constant 32 : index
      %c64 = arith.constant 64 : index
      %c128 = arith.constant 128 : index
      %zero = arith.constant 0.0 : f32
      %l = gpu.thread_id x
      scf.for %i = %l to %c128 step %c32 {
        %v = memref.load %a[%i] : memref<128xi32>
        memref.store %v, %sa[%i] : memref<128xi32, #gpu.address_space<workgroup>>
      }
      scf.for %i = %l to %c64 step %c32 {
        %v = memref.load %b[%i] : memref<64xi32>
        memref.store %v, %sb[%i] : memref<64xi32, #gpu.address_space<workgroup>>
      }
      gpu.barrier
      // Lane l has the address of row l % 16, half l / 16 of A, and of row l % 8, half (l / 8) % 2 of B.
      %arow = arith.remui %l, %c16 : index
      %ahalf = arith.divui %l, %c16 : index
      %arow8 = arith.muli %arow, %c8 : index
      %ahalf4 = arith.muli %ahalf, %c4 : index
      %ai = arith.addi %arow8, %ahalf4 : index
      %brow = arith.andi %l, %c7 : index
      %bh = arith.divui %l, %c8 : index
      %bhalf = arith.andi %bh, %c1 : index
      %brow8 = arith.muli %brow, %c8 : index
      %bhalf4 = arith.muli %bhalf, %c4 : index
      %bi = arith.addi %brow8, %bhalf4 : index
      %pa = memref.extract_aligned_pointer_as_index %sa : memref<128xi32, #gpu.address_space<workgroup>> -> index
      %pb = memref.extract_aligned_pointer_as_index %sb : memref<64xi32, #gpu.address_space<workgroup>> -> index
      %ao = arith.muli %ai, %c4 : index
      %bo = arith.muli %bi, %c4 : index
      %aa = arith.addi %pa, %ao : index
      %ba = arith.addi %pb, %bo : index
      %aw = arith.index_cast %aa : index to i64
      %bw = arith.index_cast %ba : index to i64
      %ap = llvm.inttoptr %aw : i64 to !llvm.ptr<3>
      %bp = llvm.inttoptr %bw : i64 to !llvm.ptr<3>
      %am = nvvm.ldmatrix %ap {num = 4 : i32, layout = #nvvm.mma_layout<row>, shape = #nvvm.ld_st_matrix_shape<m = 8, n = 8>, eltType = #nvvm.ld_st_matrix_elt_type<b16>} : (!llvm.ptr<3>) -> !llvm.struct<(i32, i32, i32, i32)>
      %bm = nvvm.ldmatrix %bp {num = 2 : i32, layout = #nvvm.mma_layout<row>, shape = #nvvm.ld_st_matrix_shape<m = 8, n = 8>, eltType = #nvvm.ld_st_matrix_elt_type<b16>} : (!llvm.ptr<3>) -> !llvm.struct<(i32, i32)>
      %a0 = llvm.extractvalue %am[0] : !llvm.struct<(i32, i32, i32, i32)>
      %a1 = llvm.extractvalue %am[1] : !llvm.struct<(i32, i32, i32, i32)>
      %a2 = llvm.extractvalue %am[2] : !llvm.struct<(i32, i32, i32, i32)>
      %a3 = llvm.extractvalue %am[3] : !llvm.struct<(i32, i32, i32, i32)>
      %b0 = llvm.extractvalue %bm[0] : !llvm.struct<(i32, i32)>
      %b1 = llvm.extractvalue %bm[1] : !llvm.struct<(i32, i32)>
      %d = nvvm.mma.sync A[%a0, %a1, %a2, %a3] B[%b0, %b1] C[%zero, %zero, %zero, %zero] {layoutA = #nvvm.mma_layout<row>, layoutB = #nvvm.mma_layout<col>, multiplicandAPtxType = #nvvm.mma_type<bf16>, multiplicandBPtxType = #nvvm.mma_type<bf16>, shape = #nvvm.shape<m = 16, n = 8, k = 16>} : (i32, i32, f32) -> !llvm.struct<(f32, f32, f32, f32)>
      %d0 = llvm.extractvalue %d[0] : !llvm.struct<(f32, f32, f32, f32)>
      %d1 = llvm.extractvalue %d[1] : !llvm.struct<(f32, f32, f32, f32)>
      %d2 = llvm.extractvalue %d[2] : !llvm.struct<(f32, f32, f32, f32)>
      %d3 = llvm.extractvalue %d[3] : !llvm.struct<(f32, f32, f32, f32)>
      %g = arith.divui %l, %c4 : index
      %g8 = arith.addi %g, %c8 : index
      %member = arith.remui %l, %c4 : index
      %n0 = arith.muli %member, %c2 : index
      %n1 = arith.addi %n0, %c1 : index
      memref.store %d0, %c[%g, %n0] : memref<16x8xf32>
      memref.store %d1, %c[%g, %n1] : memref<16x8xf32>
      memref.store %d2, %c[%g8, %n0] : memref<16x8xf32>
      memref.store %d3, %c[%g8, %n1] : memref<16x8xf32>
      gpu.return
    }

    // Adds 8 tiles of 256 words, each in reverse order. Asynchronous copies load the tiles, two at a time.
    gpu.func @pipeline(%x: memref<2048xi32>, %y: memref<256xi32>)
        workgroup(%s: memref<512xi32, #gpu.address_space<workgroup>>) kernel attributes {nvvm.reqntid = array<i32: 64, 1, 1>} {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c2 = arith.constant 2 : index
      %c4 = arith.constant 4 : index
      %c7 = arith.constant 7 : index
      %c8 = arith.constant 8 : index
      %c64 = arith.constant 64 : index
      %c256 = arith.constant 256 : index
      %c255 = arith.constant 255 : index
      %zero = arith.constant dense<0> : vector<4xi32>
      %t = gpu.thread_id x
      %i = arith.muli %t, %c4 : index
      %k0 = nvgpu.device_async_copy %x[%i], %s[%i], 4 {bypassL1} : memref<2048xi32> to memref<512xi32, #gpu.address_space<workgroup>>
      %g0 = nvgpu.device_async_create_group %k0
      %sum = scf.for %k = %c0 to %c8 step %c1 iter_args(%a = %zero) -> vector<4xi32> {
        // Copies the next tile to the other half. At the end this is the last tile again.
        %next0 = arith.addi %k, %c1 : index
        %next = arith.minui %next0, %c7 : index
        %from0 = arith.muli %next, %c256 : index
        %from = arith.addi %from0, %i : index
        %half0 = arith.remui %next0, %c2 : index
        %half = arith.muli %half0, %c256 : index
        %to = arith.addi %half, %i : index
        %kn = nvgpu.device_async_copy %x[%from], %s[%to], 4 {bypassL1} : memref<2048xi32> to memref<512xi32, #gpu.address_space<workgroup>>
        %gn = nvgpu.device_async_create_group %kn
        nvgpu.device_async_wait %gn {numGroups = 1 : i32}
        gpu.barrier
        %mine0 = arith.remui %k, %c2 : index
        %mine = arith.muli %mine0, %c256 : index
        %r0 = arith.subi %c255, %i : index
        %e0 = arith.addi %mine, %r0 : index
        %e1 = arith.subi %e0, %c1 : index
        %e2 = arith.subi %e1, %c1 : index
        %e3 = arith.subi %e2, %c1 : index
        %v0 = memref.load %s[%e0] : memref<512xi32, #gpu.address_space<workgroup>>
        %v1 = memref.load %s[%e1] : memref<512xi32, #gpu.address_space<workgroup>>
        %v2 = memref.load %s[%e2] : memref<512xi32, #gpu.address_space<workgroup>>
        %v3 = memref.load %s[%e3] : memref<512xi32, #gpu.address_space<workgroup>>
        %v = vector.from_elements %v0, %v1, %v2, %v3 : vector<4xi32>
        %w = arith.addi %a, %v : vector<4xi32>
        gpu.barrier
        scf.yield %w : vector<4xi32>
      }
      vector.store %sum, %y[%i] {alignment = 16 : i64} : memref<256xi32>, vector<4xi32>
      gpu.return
    }

    // Uses each kind of shuffle, atomics, and the shared memory of the launch. There are 96 threads, so that the
    // numbers of lane and thread differ.
    gpu.func @mixed(%o: memref<96x6xi32>, %f: memref<2xf32>, %n: memref<2xi32>, %g: memref<96xf32>) kernel attributes {nvvm.maxntid = array<i32: 128, 1, 1>} {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c2 = arith.constant 2 : index
      %c3 = arith.constant 3 : index
      %c4 = arith.constant 4 : index
      %c5 = arith.constant 5 : index
      %c95 = arith.constant 95 : index
      %k1 = arith.constant 1 : i32
      %k3 = arith.constant 3 : i32
      %w = arith.constant 32 : i32
      %tx = gpu.thread_id x
      %t = arith.index_cast %tx : index to i32
      %a, %pa = gpu.shuffle xor %t, %k3, %w : i32
      %b, %pb = gpu.shuffle up %t, %k1, %w : i32
      %c, %pc = gpu.shuffle down %t, %k1, %w : i32
      %d, %pd = gpu.shuffle idx %t, %k3, %w : i32
      %p = arith.extui %pb : i1 to i32
      memref.store %a, %o[%tx, %c0] : memref<96x6xi32>
      memref.store %b, %o[%tx, %c1] : memref<96x6xi32>
      memref.store %c, %o[%tx, %c2] : memref<96x6xi32>
      memref.store %d, %o[%tx, %c3] : memref<96x6xi32>
      memref.store %p, %o[%tx, %c4] : memref<96x6xi32>
      %lane = gpu.lane_id
      %li = arith.index_cast %lane : index to i32
      memref.store %li, %o[%tx, %c5] : memref<96x6xi32>
      %tf = arith.sitofp %t : i32 to f32
      %q0 = memref.atomic_rmw addf %tf, %f[%c0] : (f32, memref<2xf32>) -> f32
      %q1 = memref.atomic_rmw addi %t, %n[%c0] : (i32, memref<2xi32>) -> i32
      %q2 = memref.atomic_rmw maxs %t, %n[%c1] : (i32, memref<2xi32>) -> i32
      %bytes = gpu.dynamic_shared_memory : memref<?xi8, #gpu.address_space<workgroup>>
      %s = memref.view %bytes[%c0][] : memref<?xi8, #gpu.address_space<workgroup>> to memref<96xf32, #gpu.address_space<workgroup>>
      memref.store %tf, %s[%tx] : memref<96xf32, #gpu.address_space<workgroup>>
      gpu.barrier
      %r = arith.subi %c95, %tx : index
      %v = memref.load %s[%r] : memref<96xf32, #gpu.address_space<workgroup>>
      memref.store %v, %g[%tx] : memref<96xf32>
      gpu.return
    }

    // Neighbouring threads store adjacent bf16 elements.
    gpu.func @round(%x: memref<128xf32>, %y: memref<128xbf16>) kernel {
      %t = gpu.thread_id x
      %v = memref.load %x[%t] : memref<128xf32>
      %q = arith.truncf %v : f32 to bf16
      memref.store %q, %y[%t] : memref<128xbf16>
      gpu.return
    }

    // Threads of one warp need only the warp's barrier.
    gpu.func @warp_reverse(%x: memref<64xf32>, %y: memref<64xf32>)
        workgroup(%s: memref<64xf32, #gpu.address_space<workgroup>>) kernel attributes {nvvm.reqntid = array<i32: 64, 1, 1>} {
      %c31 = arith.constant 31 : index
      %all = arith.constant -1 : i32
      %t = gpu.thread_id x
      %v = memref.load %x[%t] : memref<64xf32>
      memref.store %v, %s[%t] : memref<64xf32, #gpu.address_space<workgroup>>
      nvvm.bar.warp.sync %all : i32
      %r = arith.xori %t, %c31 : index
      %w = memref.load %s[%r] : memref<64xf32, #gpu.address_space<workgroup>>
      memref.store %w, %y[%t] : memref<64xf32>
      gpu.return
    }

    // The rows of y are exp, log, tanh and erf of x.
    gpu.func @functions(%x: memref<4096xf32>, %y: memref<6x4096xf32>) kernel attributes {nvvm.reqntid = array<i32: 256, 1, 1>} {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c2 = arith.constant 2 : index
      %c3 = arith.constant 3 : index
      %c4 = arith.constant 4 : index
      %c5 = arith.constant 5 : index
      %c256 = arith.constant 256 : index
      %b = gpu.block_id x
      %t = gpu.thread_id x
      %base = arith.muli %b, %c256 : index
      %i = arith.addi %base, %t : index
      %v = memref.load %x[%i] : memref<4096xf32>
      %e = math.exp %v : f32
      memref.store %e, %y[%c0, %i] : memref<6x4096xf32>
      %l = math.log %v : f32
      memref.store %l, %y[%c1, %i] : memref<6x4096xf32>
      %h = math.tanh %v : f32
      memref.store %h, %y[%c2, %i] : memref<6x4096xf32>
      %f = math.erf %v : f32
      memref.store %f, %y[%c3, %i] : memref<6x4096xf32>
      %sine = math.sin %v : f32
      memref.store %sine, %y[%c4, %i] : memref<6x4096xf32>
      %cosine = math.cos %v : f32
      memref.store %cosine, %y[%c5, %i] : memref<6x4096xf32>
      gpu.return
    }

    // Each thread has four of 250 elements; a mask covers the last ones. Then they become integers, and numbers that
    // are too large are clamped as a device does it.
    gpu.func @tail(%x: memref<250xf32>, %y: memref<250xf32>, %z: memref<64xi32>) kernel attributes {nvvm.reqntid = array<i32: 64, 1, 1>} {
      %c4 = arith.constant 4 : index
      %c250 = arith.constant 250 : index
      %zero = arith.constant dense<0.0> : vector<4xf32>
      %large = arith.constant 1.0e10 : f32
      %t = gpu.thread_id x
      %i = arith.muli %t, %c4 : index
      %left = arith.subi %c250, %i : index
      %mask = vector.create_mask %left : vector<4xi1>
      %v = vector.maskedload %x[%i], %mask, %zero : memref<250xf32>, vector<4xi1>, vector<4xf32> into vector<4xf32>
      %w = arith.negf %v : vector<4xf32>
      vector.maskedstore %y[%i], %mask, %w : memref<250xf32>, vector<4xi1>, vector<4xf32>
      %e = vector.extract %v[0] : f32 from vector<4xf32>
      %l = arith.mulf %e, %large : f32
      %n = arith.fptosi %l : f32 to i32
      memref.store %n, %z[%t] : memref<64xi32>
      gpu.return
    }
  }
}
