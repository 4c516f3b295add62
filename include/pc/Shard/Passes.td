//===- Passes.td - Passes of the Shard room ---------------------------------------===//
// In the order of use: set-mesh, the tactics in the order of the plan, fuse-moves, verify-placed; erase-placements undoes them.
//===-----------------------------------------------------------------------------===//
#ifndef PC_SHARD_PASSES_TD
#define PC_SHARD_PASSES_TD

include "mlir/Pass/PassBase.td"

def SetMesh : Pass<"pc-set-mesh", "mlir::ModuleOp"> {
  let summary = "Put a step program on a mesh: every tensor whole on every rank";
  let description = [{
    Step program -> placed program: `pc.mesh` becomes the first op and every tensor type gets the fully replicated `#pc.place`, which
    is correct for any program. Tactics then split along one axis at a time.

    Example: `--pc-set-mesh="mesh=dp=2,tp=2"`, axes outermost first. Without axes there is one rank.
  }];
  let dependentDialects = ["pc::PCDialect"]; // a module may have no op of it
  let options = [Option<"mesh", "mesh", "std::string", "\"\"", "Axes and sizes, outermost first: dp=2,tp=2">];
}

def Propagate : Pass<"pc-propagate", "mlir::ModuleOp"> {
  let summary = "A tactic by hand: split along one axis as the options say";
  let description = [{
    A tactic whose seeds are its options: names of dims that must or may be split, names that leaves are split by, whether weights may be
    sent, where activations rest. For experiments with placements that have no tactic of their own, and for tests of propagation.

    With `cost=seconds` the search looks for the least time of a step on `machine`: what a rank computes, what it sends along the axis, what
    the axes before send, and `byte-price` for what it keeps. Of the sums of gradients only what exceeds the backward pass counts (and what
    hidden moves take from the work beside them). With `free` nothing else has to be said.

    Example, ZeRO-1: `--pc-propagate="axis=dp must=batch inputs=batch states=embed,vocab optimizer=embed,vocab"`.
  }];
  let options = [
    Option<"axis", "axis", "std::string", "\"\"", "The mesh axis to use">,
    ListOption<"must", "must", "std::string", "Dims that are split wherever an op has one">,
    ListOption<"may", "may", "std::string", "Dims that may be split where that saves bytes">,
    ListOption<"optimizer", "optimizer", "std::string", "In the optimizer: the only dims that may be split">,
    ListOption<"accumulated", "accumulated", "std::string", "On what is accumulated: the only dims that may be split">,
    ListOption<"inputs", "inputs", "std::string", "Inputs are split by these names">,
    ListOption<"parameters", "parameters", "std::string", "Parameters are split by these names">,
    ListOption<"states", "states", "std::string", "Optimizer state is split by these names">,
    Option<"fixed", "fixed", "bool", "false", "Parameters and state are never sent">,
    ListOption<"rest", "rest", "std::string", "Values with exactly these dims rest ...">,
    Option<"restSplit", "rest-split", "std::string", "\"\"", "... split along this one of them (default: whole)">,
    Option<"free", "free", "bool", "false", "Leaves lie and dims are split as it costs least: those of `may` and `must`, or if both are empty all that have names">,
    Option<"cost", "cost", "std::string", "\"bytes\"", "Of what the least is looked for: bytes (on the wire) or seconds (of a step)">,
    Option<"machine", "machine", "std::string", "\"cpu\"", "Whose seconds: cpu, a100, h100, h200, b200, here (pc-calibrate), or a file *.json">,
    Option<"bytePrice", "byte-price", "double", "0", "Seconds that a byte of a parameter, gradient or state on a rank is worth">,
    Option<"tell", "tell", "bool", "false", "A remark says the seconds">,
  ];
}

def VerifyPlaced : Pass<"pc-verify-placed", "mlir::ModuleOp"> {
  let summary = "Check what the placed phase promises beyond single ops";
  let description = [{
    (V1) the module has a mesh; (V2) every tensor is placed, on axes of the mesh; (V3) leaves are never partial; (V4) every update
    lies as the leaf that it replaces, and that leaf exists; (V5) outputs are whole or split.
  }];
}

def FuseMoves : Pass<"pc-fuse-moves", "mlir::ModuleOp"> {
  let summary = "Chains of equal moves over several axes -> one move over their product";
  let description = [{
    A tactic moves along its own axis only, so a value that is partial on two axes is reduced twice: 2(n1-1)/n1 + 2(n2-1)/n2 of its bytes
    instead of 2(n-1)/n. This joins chains of all_reduce, all_gather, reduce_scatter, slice, mask and pad (on one dim, where
    there is one) whose intermediate values nobody else reads. Post-condition: no such chain is left.
  }];
}

def ErasePlacements : Pass<"pc-erase-placements", "mlir::ModuleOp"> {
  let summary = "Placed program -> the step program that it came from";
  let description = [{
    Every move and every copy is replaced by its operand; the mesh and all placements go. The text of the result equals the step
    program's byte for byte, because tactics neither add, drop, reorder nor split computing ops. This is the first proof of every plan.
  }];
}

#endif
