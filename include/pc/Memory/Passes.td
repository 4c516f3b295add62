//===- Passes.td - Passes of the Memory room ---------------------------------------===//
#ifndef PC_MEMORY_PASSES_TD
#define PC_MEMORY_PASSES_TD

include "mlir/Pass/PassBase.td"

def PlanMemory : Pass<"pc-plan-memory", "mlir::ModuleOp"> {
  let summary = "Give every value an offset in the device arena";
  let description = [{
    Scheduled program -> planned program. Every result outside of kernels, and every block argument of `pc.accumulate`, gets a home in
    its type (`#pc.home<offset>`, a multiple of 64); `pc.arena` says how large the arena is. Values inside `pc.fusion` have none.

    * Parameters, states, then the other leaves come first and live through the whole step.
    * An updated parameter or state is written over the old one where its producer may (`pc::mayShareHome`) and nothing reads the old one
      later; otherwise it has its own home and `pc.update` copies. Such an update moves after the last reader of the old value.
    * A block argument of `pc.accumulate` has the home of the operand: the stack, of which microbatch m is the m-th part.
    * With one microbatch a result of `pc.accumulate` has the home of the value that the body yields, where the body computes that;
      otherwise they differ, and the yield copies (one microbatch) or adds (several).
    * A result takes the home of an operand that dies at its op where `pc::mayShareHome` allows it.
    * Buffers of started moves are taken from `pc.start` to `pc.wait`, inputs and results; a result lies on its input where the move
      works in place and nothing else reads the input from the start on.
    * Functions of tasks (`pc.call`) are planned one by one on addresses of their own: the frame, the arguments, the results. A result is
      written over an argument where no call needs the argument any more. Their frames are buffers of the step for the time of a call.

    With `target=cuda` homes are multiples of 256, and the arena ends in the workspace of library calls (`pc::libraryWorkspaceBytes`):
    32 MiB for matrix products, or what the largest gradient of attention takes in cuDNN.

    Offsets come from `pc::planArena` (ArenaPlanner.h), which knows nothing of IR. Post-condition: `pc-verify-memory`.
  }];
  let options = [
    Option<"target", "target", "std::string", "\"cpu\"", "cpu or cuda">,
    Option<"attention", "attention", "std::string", "\"library\"", "CUDA: library (cuDNN, for bf16) or generated">,
    ListOption<"archs", "archs", "std::string", "CUDA: sm_90a, ...: what the program runs on; any if empty">,
  ];
  let dependentDialects = ["mlir::func::FuncDialect"];
}

def VerifyMemory : Pass<"pc-verify-memory", "mlir::ModuleOp"> {
  let summary = "Replay the step on its arena and check that no value is overwritten while it is needed";
  let description = [{
    Independent of the planner: counts the pending uses of every value while it walks the program. (A1) one function, one arena, every
    value outside of kernels at a multiple of 64 inside of it; (A2) block arguments of accumulations lie where their operands lie;
    (A3) a result overlaps no value with pending uses, except one that it may be written over, at the same offset; (A4) an update
    finds its value in the leaf's home, or copies when nothing reads the old one any more; (A5) what a started move reads is held until
    its wait, and what it writes is free at its start, or the input of a move that works in place and is read by nothing else; (A6) a microbatch
    lies in its stack, which is a leaf; (A7) a function leaves its arguments alone but for those that results replace, and keeps to its frame;
    the frame of a call lies over nothing that is still needed, and results lie on the operands that they replace.
  }];
}

#endif
