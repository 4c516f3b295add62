//===- Passes.td - Passes of the Codegen room ----------------------------------------===//
#ifndef PC_CODEGEN_PASSES_TD
#define PC_CODEGEN_PASSES_TD

include "mlir/Pass/PassBase.td"

def StoreRows : Pass<"pc-store-rows", "mlir::ModuleOp"> {
  let summary = "Store of routed values only the entries that exist";
  let description = [{
    Local program -> local program. Types of f32 and bf16 values get a `#pc.rows`, where nothing reads them but einsums routed by one mask, as products of the runtime
    or kernels of a device can (`pcrt_grouped`), and ops entry by entry whose results are stored so, too. What computes nothing else is not changed.

    With a `limit`, what would have more rows is computed in rounds of so many (`pc.round_of_rows`), whose results are added up. Rows that the backward pass reads are
    computed again there, so that those of one round are there at a time. Rows that are sent, or handed from function to function, are refused.
  }];
  let options = [Option<"target", "target", "std::string", "\"cpu\"", "cpu or cuda">,
                 Option<"limit", "limit", "int64_t", "0", "Rows of experts that are there at once; 0: all">];
}

def ExpandRouted : Pass<"pc-expand-routed", "mlir::ModuleOp"> {
  let summary = "Routed einsums -> all terms, and a product by the mask";
  let description = [{
    Local program -> local program, for what cannot be stored by rows. Of an einsum that is `routed` all terms are computed; its result is multiplied by
    the mask, or, where that lacks dims of the mask, an operand that has them. Products by the mask alone stay as they are.
  }];
}

def Fuse : Pass<"pc-fuse", "mlir::ModuleOp"> {
  let summary = "Group ops that become one kernel into pc.fusion";
  let description = [{
    Local program -> local program. A matrix product and the addition of its bias become one fusion; so do connected ops
    that work row by row on the same rows and columns (elementwise ops, broadcasts, norms, reductions along the row, the loss). Values that
    are read only inside of a fusion need no buffer. Sums over a whole tensor are first split into a sum per row and a sum of those, which
    run on all threads with a fixed order of additions. A sum of f32 products, as of the steps of a collective matmul, becomes a chain of
    fusions, each of which accumulates its product into the buffer of the sum so far.

    With `target=cuda` the bias of a bf16 product is rounded to bf16 first, because cuBLASLt adds only a bias of the result's type. Its other
    epilogues become fusions, too: gelu_tanh of a product with bias, where that sum is stored as well; a product times the derivative of
    gelu_tanh; and the gradient of a weight with that of its bias, which read the same rows. The exact gelu stays a kernel.
    Sums over rows (gradients of biases and of norms) join the group of row ops that makes their summands.
  }];
  let options = [Option<"target", "target", "std::string", "\"cpu\"", "cpu or cuda">];
}

def GenerateKernels : Pass<"pc-generate-kernels", "mlir::ModuleOp"> {
  let summary = "Planned program -> host program, tables and kernels in upstream dialects";
  let description = [{
    Every op or fusion becomes a kernel (func, scf, vector, arith, math), a matrix product or move of the runtime, or nothing. Equal kernels of
    different layers are one function. With `target=cuda` kernels are `gpu.func`s of `gpu.module @pc_kernels` whose parameters are the buffers'
    addresses; the module is compiled to images when the object file is written. Neighbouring `pc.adamw`s that work in place share one kernel, and so do
    neighbouring sums of squares. `pc_step` calls them in program order; `pc_program` and its tables are constants with the layout of
    runtime/include/pcrt/pcrt.h.
  }];
  let options = [
    Option<"target", "target", "std::string", "\"cpu\"", "cpu, or cuda: kernels are gpu.funcs of a gpu.module">,
    Option<"attention", "attention", "std::string", "\"library\"", "CUDA: library (cuDNN, for bf16) or generated">,
    ListOption<"archs", "archs", "std::string", "CUDA: sm_90a, ...: what the program runs on; any if empty">,
    Option<"checkKernels", "check-kernels", "bool", "false", "CUDA: the CPU's kernels of the same ops, too, and what to compare">,
    Option<"lanes", "lanes", "int64_t", "16", "f32 elements of a vector: 16 for AVX-512, 8 for AVX2">,
    Option<"roundsToBf16", "rounds-to-bf16", "bool", "false", "Whether the target rounds f32 to bf16 and multiplies pairs of bf16 by instructions (AVX512-BF16)">,
  ];
  let dependentDialects = ["mlir::arith::ArithDialect", "mlir::func::FuncDialect", "mlir::gpu::GPUDialect", "mlir::LLVM::LLVMDialect",
                           "mlir::math::MathDialect", "mlir::NVVM::NVVMDialect", "mlir::scf::SCFDialect",
                           "mlir::vector::VectorDialect"];
}

def VerifyKernels : Pass<"pc-verify-kernels", "mlir::ModuleOp"> {
  let summary = "Check what code generation relies on";
  let description = [{
    (K1) no op of the pc dialect is left, and no tensor; (K2) there is a program: `pc_program` and its step `pc_step`, and one of each for
    every further stage; (K3) what a step, or its evaluation `pc_evaluate`, launches, multiplies, moves and sends by index is in the table of its program;
    (K4) what the table of device kernels names is a kernel of `gpu.module @pc_kernels`.
  }];
  let dependentDialects = ["mlir::gpu::GPUDialect", "mlir::LLVM::LLVMDialect"];
}

def VerifyTables : Pass<"pc-verify-tables", "mlir::ModuleOp"> {
  let summary = "Compare the step, the tables and the description of a kernels program with the planned program that it was made of";
  let description = [{
    Reads them back: each call of the runtime, with the bytes that it reads and writes and the row of the table that it is an index of, belongs to one op of
    `planned`, in order, and says what that op says; those of the evaluation are enough of the step's for the loss, and write no parameter or state; leaves and outputs are described as they are. Kernels are known by the ops that they were written for;
    what they compute is not checked.
  }];
  let options = [Option<"planned", "planned", "std::string", "", "The planned program, a file">];
  let dependentDialects = ["mlir::gpu::GPUDialect", "mlir::LLVM::LLVMDialect", "pc::PCDialect", "mlir::func::FuncDialect"];
}

#endif
