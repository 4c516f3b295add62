//===- Passes.td - Passes of the Memory room ---------------------------------------===//
#ifndef PC_MEMORY_PASSES_TD
#define PC_MEMORY_PASSES_TD

include "mlir/Pass/PassBase.td"

def PlanMemory : Pass<"pc-plan-memory", "mlir::ModuleOp"> {
  let summary = "Give every value an offset in the device arena";
  let description = [{
    Scheduled program -> planned program. Every result outside of kernels, and every block argument of `pc.accumulate`, gets a home in its type
    (`#pc.home<offset>`, a multiple of 64); `pc.arena` is the size of the arena. Values inside `pc.fusion` have no home.

    ```mlir
    // pc-opt --pc-plan-memory
    func.func @step() {
      %w = pc.parameter "w" dims ["a"] init <fill, 1.0>
        source <"w", shape = [32], start = [0], size = [32]> global [32] layout <[_]> : tensor<32xf32>
      %a = pc.exp %w : (tensor<32xf32>) -> tensor<32xf32>
      %b = pc.scale %a by 2.0 : (tensor<32xf32>) -> tensor<32xf32>
      pc.update "w" %b : tensor<32xf32>
      return
    }
    // becomes
    pc.arena 256
    func.func @step() {
      %w = pc.parameter "w" ... : tensor<32xf32, #pc.home<0>>
      %a = pc.exp %w : (tensor<32xf32, #pc.home<0>>) -> tensor<32xf32, #pc.home<128>>
      %b = pc.scale %a by 2.000000e+00 : (tensor<32xf32, #pc.home<128>>) -> tensor<32xf32, #pc.home<0>>
      pc.update "w" %b : tensor<32xf32, #pc.home<0>>
    ```

    * Leaves come first in the arena: parameters, then states, then the others. They live through the whole step.
    * An updated parameter or state is written over the old one if its producer allows it (`pc::mayShareHome`) and nothing reads the old one
      later. Otherwise it has its own home and `pc.update` copies. Such an update moves after the last reader of the old value.
    * A block argument of `pc.accumulate` has the home of its operand, a stack whose m-th part belongs to microbatch m.
    * With one microbatch a result of `pc.accumulate` has the home of the value that the body yields, if the body computes that value.
      Otherwise they differ, and the yield copies (one microbatch) or adds (several).
    * A result takes the home of an operand that dies at its op if `pc::mayShareHome` allows it.
    * Buffers of started moves, for inputs and results, are in use from `pc.start` to `pc.wait`. A result has the home
      of its input if the move works in place and nothing else reads the input from the start on.
    * Functions of tasks (`pc.call`) are planned one by one, each in a separate address space: the frame, the arguments,
      the results. A result is written over an argument if no call needs the argument any more. A frame is a buffer of
      the step for the time of a call.

    With `target=cuda` homes are multiples of 256, and the workspace of library calls (`pc::libraryWorkspaceBytes`) is
    at the end of the arena: 32 MiB for matrix products, or more if another call needs more, such as a gradient of
    attention in cuDNN.
    If values are on disk, the arena of the host ends in PCRT_DISK_RING bytes, through which the device
    copies to the disk.

    Offsets come from `pc::planArena` (ArenaPlanner.h), which does not depend on IR. Post-condition: `pc-verify-memory`.
  }];
  let options = [
    Option<"target", "target", "std::string", "\"cpu\"", "cpu or cuda">,
    Option<"attention", "attention", "std::string", "\"library\"", "CUDA: library (cuDNN, for bf16) or generated">,
    ListOption<"archs", "archs", "std::string", "CUDA: architectures on which the program runs (sm_90a, ...); any if empty">,
  ];
  let dependentDialects = ["mlir::func::FuncDialect"];
}

def VerifyMemory : Pass<"pc-verify-memory", "mlir::ModuleOp"> {
  let summary = "Replay the step on its arena and check that no value is overwritten while it is needed";
  let description = [{
    The pass replays the step on its arena and checks that no value is overwritten while it is needed. The pass shares
    no code with the planner: it counts the pending uses of every value while it walks the program. It checks that:

    * (A1) there is one function and one arena, and every value outside of kernels lies at a multiple of 64 inside the arena;
    * (A2) block arguments of accumulations have the homes of their operands;
    * (A3) a result overlaps no value with pending uses, except one that it may be written over, at the same offset;
    * (A4) an update finds its value in the leaf's home, or copies when nothing reads the old value any more;
    * (A5) the inputs of a started move are kept until its wait; the bytes of its results are free at its start, or hold
      the input of a move that works in place and that nothing else reads;
    * (A6) a microbatch lies in its stack, which stays in the arena to the end;
    * (A7) a function changes only arguments that results replace, and bytes of its frame; the frame of a call does not
      overlap values that are still needed, and results have the homes of the operands that they replace.

    ```mlir
    // pc-opt --pc-verify-memory
    pc.arena 256
    func.func @step() {
      %w = pc.parameter "w" dims ["a"] init <fill, 1.0>
        source <"w", shape = [32], start = [0], size = [32]> global [32] layout <[_]> : tensor<32xf32, #pc.home<0>>
      %a = pc.exp %w : (tensor<32xf32, #pc.home<0>>) -> tensor<32xf32, #pc.home<128>>
      %b = pc.log %w : (tensor<32xf32, #pc.home<0>>) -> tensor<32xf32, #pc.home<128>>
      %c = pc.add %a, %b : (tensor<32xf32, #pc.home<128>>, tensor<32xf32, #pc.home<128>>) -> tensor<32xf32, #pc.home<128>>
      return
    }
    // error: 'pc.log' op writes result 0 at 128 over a value that is still needed (A3)
    ```
  }];
}

#endif
