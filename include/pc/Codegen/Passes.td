//===- Passes.td - Passes of the Codegen room ----------------------------------------===//
#ifndef PC_CODEGEN_PASSES_TD
#define PC_CODEGEN_PASSES_TD

include "mlir/Pass/PassBase.td"

def StoreRows : Pass<"pc-store-rows", "mlir::ModuleOp"> {
  let summary = "Store only those entries of routed values that exist";
  let description = [{
    Local program -> local program. Only the existing entries of a routed value are stored: types of f32 and bf16 values
    get a `#pc.rows`. All readers of such a value must be einsums that are routed by one mask and that the runtime or a
    kernel supports (`pcrt_grouped`), or elementwise ops whose results are stored in the same way. Other values do not
    change.

    ```mlir
    // pc-opt --pc-store-rows
    func.func @step(%x: tensor<4x8x8xf32>, %up: tensor<4x6x8xf32>, %down: tensor<8x4x6xf32>, %mask: tensor<4x8x4xf32>) -> tensor<4x8x8xf32> {
      %h = pc.einsum "b s e, n f e, b s n -> b s n f" %x, %up, %mask routed 1
        : (tensor<4x8x8xf32>, tensor<4x6x8xf32>, tensor<4x8x4xf32>) -> tensor<4x8x4x6xf32>
      %a = pc.activation silu %h : (tensor<4x8x4x6xf32>) -> tensor<4x8x4x6xf32>
      %y = pc.einsum "b s n f, e n f, b s n -> b s e" %a, %down, %mask routed 1
        : (tensor<4x8x4x6xf32>, tensor<8x4x6xf32>, tensor<4x8x4xf32>) -> tensor<4x8x8xf32>
      return %y : tensor<4x8x8xf32>
    }
    // becomes
    %h = pc.einsum "b s e, n f e, b s n -> b s n f" %x, %up, %mask routed 1 : ... -> tensor<4x8x4x6xf32, #pc.rows<32 of 3>>
    %a = pc.activation silu %h : ... -> tensor<4x8x4x6xf32, #pc.rows<32 of 3>>
    %y = pc.einsum "b s n f, e n f, b s n -> b s e" %a, %down, %mask routed 1 : ... -> tensor<4x8x8xf32>
    ```

    With a `limit`, values that would have more rows are computed in rounds of at most `limit` rows (`pc.round_of_rows`), and the
    results of the rounds are added. Rows that the backward pass reads are computed again there, so that only the rows of one round exist at a time.
    The pass refuses rows that are sent or passed to another function.
  }];
  let options = [Option<"target", "target", "std::string", "\"cpu\"", "cpu or cuda">,
                 Option<"limit", "limit", "int64_t", "0", "Limit of the rows of experts that exist at once; 0: no limit">];
}

def ExpandRouted : Pass<"pc-expand-routed", "mlir::ModuleOp"> {
  let summary = "Routed einsums -> all terms, and a product by the mask";
  let description = [{
    Local program -> local program, for values that cannot be stored by rows. All terms of a `routed` einsum are computed, and its result is
    multiplied by the mask. If the result lacks dims of the mask, an operand that has them is multiplied instead. An
    einsum that only multiplies a value by the mask does not change.

    ```mlir
    // pc-opt --pc-expand-routed
    func.func @step(%x: tensor<4x8x8xf32>, %up: tensor<4x6x8xf32>, %mask: tensor<4x8x4xf32>) -> tensor<4x8x4x6xf32> {
      %h = pc.einsum "b s e, n f e, b s n -> b s n f" %x, %up, %mask routed 1
        : (tensor<4x8x8xf32>, tensor<4x6x8xf32>, tensor<4x8x4xf32>) -> tensor<4x8x4x6xf32>
      return %h : tensor<4x8x4x6xf32>
    }
    // becomes
    %all = pc.einsum "b s e, n f e -> b s n f" %x, %up : (tensor<4x8x8xf32>, tensor<4x6x8xf32>) -> tensor<4x8x4x6xf32>
    %h = pc.einsum "b s n f, b s n -> b s n f" %all, %mask routed 1 : ... -> tensor<4x8x4x6xf32>
    ```
  }];
}

def MultiplyCodes : Pass<"pc-multiply-codes", "mlir::ModuleOp"> {
  let summary = "Products of decoded floats of 8 bits -> products of the codes";
  let description = [{
    Local program -> local program, for GPUs whose cuBLASLt multiplies floats of 8 bits with one scale per operand, or a scale for 128 or 128 x 128
    elements. A product whose operands are both decoded from such codes becomes a fusion, which is one call of the library. The library
    needs the contracted dims last in both operands, and scales in an order of its own. So codes are also stored transposed where a product contracts
    the first dims, and the kernel that encodes a value writes all of its orders (another fusion).

    ```mlir
    // pc-opt --pc-multiply-codes
    func.func @step(%x: tensor<256x384xbf16>, %w: tensor<384x128xf32>) -> tensor<256x128xbf16> {
      %c, %s = pc.encode float8 %x : (tensor<256x384xbf16>) -> (tensor<256x384xf8E4M3FN>, tensor<256x3xf32>)
      %d, %t = pc.encode float8 %w : (tensor<384x128xf32>) -> (tensor<384x128xf8E4M3FN>, tensor<3x1xf32>)
      %a = pc.decode float8 %c, %s : (tensor<256x384xf8E4M3FN>, tensor<256x3xf32>) -> tensor<256x384xbf16>
      %b = pc.decode float8 %d, %t : (tensor<384x128xf8E4M3FN>, tensor<3x1xf32>) -> tensor<384x128xbf16>
      %y = pc.einsum "m k, k n -> m n" %a, %b : (tensor<256x384xbf16>, tensor<384x128xbf16>) -> tensor<256x128xbf16>
      return %y : tensor<256x128xbf16>
    }
    // becomes
    %0:2 = pc.fusion (%arg2 = %arg0 : ...) {
      %codes, %scales = pc.encode float8 %arg2 : (tensor<256x384xbf16>) -> (tensor<256x384xf8E4M3FN>, tensor<256x3xf32>)
      %3 = pc.einsum "x0 x1 -> x1 x0" %scales : (tensor<256x3xf32>) -> tensor<3x256xf32>
      pc.yield %codes, %3 : ...
    } : tensor<256x384xf8E4M3FN>, tensor<3x256xf32>
    %1:2 = pc.fusion (%arg2 = %arg1 : ...) {
      ...
    } : tensor<128x384xf8E4M3FN>, tensor<1x3xf32>
    %2 = pc.fusion (...) {
      %3 = pc.einsum "x0 x1 -> x1 x0" %arg2 : (tensor<3x256xf32>) -> tensor<256x3xf32>
      %4 = pc.decode float8 %arg3, %3 : (tensor<256x384xf8E4M3FN>, tensor<256x3xf32>) -> tensor<256x384xbf16>
      %5 = pc.decode float8 %arg4, %arg5 : (tensor<128x384xf8E4M3FN>, tensor<1x3xf32>) -> tensor<128x384xbf16>
      %6 = pc.einsum "m k, n k -> m n" %4, %5 : ...
      pc.yield %6 : tensor<256x128xbf16>
    } : tensor<256x128xbf16>
    ```

    With scales of blocks, if ops by element compute an encoded value, and only the backward pass reads their other results, the kernel that encodes also computes them.
    A product stays as it is if its dims on the rank are not multiples of 128 (of 16, with one scale per operand), or its blocks are others; a remark gives their number.
  }];
}

def Fuse : Pass<"pc-fuse", "mlir::ModuleOp"> {
  let summary = "Group ops that become one kernel into pc.fusion";
  let description = [{
    Local program -> local program. Ops that become one kernel are grouped into `pc.fusion`. These are:

    * a matrix product and the addition of its bias;
    * connected ops that work row by row on the same rows and columns (elementwise ops, broadcasts, norms, reductions along the row, the loss);
    * a sum of f32 products, such as those of the steps of a collective matmul. It becomes a chain of fusions, each of
      which accumulates its product into the buffer of the sum so far.

    Values that are read only inside a fusion need no buffer. A sum over a whole tensor is first split into one sum per
    row and the sum of these, which run on all threads with a fixed order of additions.

    ```mlir
    // pc-opt --pc-fuse
    func.func @step(%x: tensor<6x4xf32>, %w: tensor<4x8xf32>, %bias: tensor<8xf32>) -> tensor<6x8xf32> {
      %p = pc.einsum "b e, e f -> b f" %x, %w : (tensor<6x4xf32>, tensor<4x8xf32>) -> tensor<6x8xf32>
      %b = pc.einsum "f -> b f" %bias : (tensor<8xf32>) -> tensor<6x8xf32>
      %y = pc.add %p, %b : (tensor<6x8xf32>, tensor<6x8xf32>) -> tensor<6x8xf32>
      return %y : tensor<6x8xf32>
    }
    // becomes
    %y = pc.fusion (%x1 = %x : tensor<6x4xf32> -> tensor<6x4xf32>, %w1 = %w : ..., %bias1 = %bias : ...) {
      %p = pc.einsum "b e, e f -> b f" %x1, %w1 : (tensor<6x4xf32>, tensor<4x8xf32>) -> tensor<6x8xf32>
      %b = pc.einsum "f -> b f" %bias1 : (tensor<8xf32>) -> tensor<6x8xf32>
      %s = pc.add %p, %b : (tensor<6x8xf32>, tensor<6x8xf32>) -> tensor<6x8xf32>
      pc.yield %s : tensor<6x8xf32>
    } : tensor<6x8xf32>
    ```

    With `target=cuda` the bias of a bf16 product is rounded to bf16 first, because cuBLASLt adds only a bias of the
    result's type. Its other epilogues also become fusions: gelu_tanh of a product with bias, if that sum is also
    stored; a product times the derivative of gelu_tanh; and the gradient of a weight with the gradient of its bias,
    which read the same rows. The exact gelu stays a kernel. Sums over rows (gradients of biases and of norms) join the
    group of row ops that computes their summands.
  }];
  let options = [Option<"target", "target", "std::string", "\"cpu\"", "cpu or cuda">];
}

def GenerateKernels : Pass<"pc-generate-kernels", "mlir::ModuleOp"> {
  let summary = "Planned program -> host program, tables and kernels in upstream dialects";
  let description = [{
    Planned program -> host program, tables and kernels in upstream dialects. Every op or fusion becomes a kernel (func, scf, vector, arith,
    math), a matrix product or move of the runtime, or nothing. Equal kernels of different layers are one function. `pc_step` calls the kernels
    in program order. `pc_program` and its tables are constants with the layout of runtime/include/pcrt/pcrt.h.

    ```mlir
    // pc-opt --pc-generate-kernels
    pc.mesh <dp = 1>
    pc.program "scale" batch 4 sequence 1 vocabulary 5 config "{}"
    pc.arena 128
    func.func @step() {
      %w = pc.parameter "w" dims ["a"] init <fill, 1.0>
        source <"w", shape = [32], start = [0], size = [32]> global [32] layout <[_]> : tensor<32xf32, #pc.home<0>>
      %b = pc.scale %w by 2.0 : (tensor<32xf32, #pc.home<0>>) -> tensor<32xf32, #pc.home<0>>
      pc.update "w" %b : tensor<32xf32, #pc.home<0>>
      return
    }
    // becomes
    llvm.func @pc_step(%context: !llvm.ptr, %arena: !llvm.ptr) -> i32 {
    ...
    %status = llvm.call @pcrt_launch(%context, %kernel, %buffers) : (!llvm.ptr, i32, !llvm.ptr) -> i32
    ...
    llvm.func internal @pc_scale_0(%buffers1: !llvm.ptr, %begin: i64, %end: i64, %scratch: !llvm.ptr) -> i64 {
    ...
    scf.for %i = %begin to %end step %one : i64 {
    ...
    %x = llvm.load %address ... -> vector<1xf32>
    %cst = arith.constant 2.000000e+00 : f32
    %two = vector.broadcast %cst : f32 to vector<1xf32>
    %y = arith.mulf %x, %two fastmath<reassoc,contract> : vector<1xf32>
    ...
    llvm.mlir.global external constant @pc_program() ...
    ```

    With `target=cuda` kernels are `gpu.func`s of `gpu.module @pc_kernels`, whose parameters are the addresses of the buffers. The module is
    compiled to images when the object file is written. Neighbouring `pc.adamw`s that work in place share one kernel, and so do neighbouring
    sums of squares.
  }];
  let options = [
    Option<"target", "target", "std::string", "\"cpu\"", "cpu, or cuda: kernels are gpu.funcs of a gpu.module">,
    Option<"attention", "attention", "std::string", "\"library\"", "CUDA: library (cuDNN, for bf16) or generated">,
    ListOption<"archs", "archs", "std::string", "CUDA: architectures on which the program runs (sm_90a, ...); any if empty">,
    Option<"checkKernels", "check-kernels", "bool", "false", "CUDA: also generate the CPU's kernels of the same ops, and a table of the values to compare">,
    Option<"lanes", "lanes", "int64_t", "16", "f32 elements of a vector: 16 for AVX-512, 8 for AVX2">,
    Option<"roundsToBf16", "rounds-to-bf16", "bool", "false", "Whether the target rounds f32 to bf16 and multiplies pairs of bf16 by instructions (AVX512-BF16)">,
  ];
  let dependentDialects = ["mlir::arith::ArithDialect", "mlir::func::FuncDialect", "mlir::gpu::GPUDialect", "mlir::LLVM::LLVMDialect",
                           "mlir::math::MathDialect", "mlir::NVVM::NVVMDialect", "mlir::scf::SCFDialect",
                           "mlir::vector::VectorDialect"];
}

def VerifyKernels : Pass<"pc-verify-kernels", "mlir::ModuleOp"> {
  let summary = "Check the properties on which the code generator relies";
  let description = [{
    The pass checks that:

    * (K1) no op of the pc dialect is left, and no tensor;
    * (K2) there is a program: `pc_program` and its step `pc_step`, and one of each for every further stage;
    * (K3) every index in a launch, product, move or message of a step, or of its evaluation `pc_evaluate`, is in the
      table of its program;
    * (K4) each name in the table of device kernels is the name of a kernel of `gpu.module @pc_kernels`.

    ```mlir
    // pc-opt --pc-verify-kernels
    pc.mesh <dp = 1>
    // error: 'pc.mesh' op is not allowed in phase 'kernels' (K1)
    ```
  }];
  let dependentDialects = ["mlir::gpu::GPUDialect", "mlir::LLVM::LLVMDialect"];
}

def VerifyTables : Pass<"pc-verify-tables", "mlir::ModuleOp"> {
  let summary = "Compare the step, the tables and the description of a kernels program with the planned program that it was made from";
  let description = [{
    The pass compares the step, the tables and the description of a kernels program with the planned program that it was made from, `planned`.
    Each call to the runtime, with the bytes that it reads and writes and the row of the table to which its index
    points, must belong to one op of `planned`, in order, and agree with this op. The calls of the evaluation must
    include all calls that the loss needs, and must not write a parameter or state. The description must agree with the
    leaves and outputs. Kernels are identified by the ops for which they were written; the pass does not check what they
    compute.

    In `planned.mlir` the result of the scale is at byte 128:

    ```mlir
    // pc-opt --pc-generate-kernels --pc-verify-tables=planned=planned.mlir
    pc.mesh <dp = 1>
    pc.program "scale" batch 4 sequence 1 vocabulary 5 config "{}"
    pc.arena 256
    func.func @step() {
      %w = pc.parameter "w" dims ["a"] init <fill, 1.0>
        source <"w", shape = [32], start = [0], size = [32]> global [32] layout <[_]> : tensor<32xf32, #pc.home<0>>
      %b = pc.scale %w by 2.0 : (tensor<32xf32, #pc.home<0>>) -> tensor<32xf32, #pc.home<64>>
      pc.update "w" %b : tensor<32xf32, #pc.home<64>>
      return
    }
    // error: buffer 1 lies at byte 128 (0 per microbatch), but the step's call takes 64 (0)
    ```
  }];
  let options = [Option<"planned", "planned", "std::string", "", "The planned program, a file">];
  let dependentDialects = ["mlir::gpu::GPUDialect", "mlir::LLVM::LLVMDialect", "pc::PCDialect", "mlir::func::FuncDialect"];
}

#endif
