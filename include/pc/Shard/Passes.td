//===- Passes.td - Passes of the Shard room ---------------------------------------===//
// The passes are used in this order: set-mesh, the tactics of the plan, fuse-moves, verify-placed. erase-placements
// undoes them.
//===-----------------------------------------------------------------------------===//
#ifndef PC_SHARD_PASSES_TD
#define PC_SHARD_PASSES_TD

include "mlir/Pass/PassBase.td"

def SetMesh : Pass<"pc-set-mesh", "mlir::ModuleOp"> {
  let summary = "Put a step program on a mesh: every tensor whole on every rank";
  let description = [{
    Step program -> placed program. `pc.mesh` becomes the first op, and every tensor type gets the fully replicated `#pc.place`, which is
    correct for any program. Tactics then split along one axis at a time. Axes are given outermost first; without axes there is one rank.

    ```mlir
    // pc-opt --pc-set-mesh=mesh=dp=2,tp=2
    func.func @step() {
      %x = pc.input tokens dims ["batch", "sequence"] : tensor<4x8xi32>
      pc.output logits "x" %x : tensor<4x8xi32>
      return
    }
    // becomes
    pc.mesh <dp = 2, tp = 2>
    func.func @step() {
      %x = pc.input tokens dims ["batch", "sequence"] : tensor<4x8xi32, #pc.place<[_, _]>>
      pc.output logits "x" %x : tensor<4x8xi32, #pc.place<[_, _]>>
    ```
  }];
  let dependentDialects = ["pc::PCDialect"]; // a module may have no op of it
  let options = [Option<"mesh", "mesh", "std::string", "\"\"", "Axes and sizes, outermost first: dp=2,tp=2">];
}

def Propagate : Pass<"pc-propagate", "mlir::ModuleOp"> {
  let summary = "Split along one axis, as the options request";
  let description = [{
    The options of this tactic are its seeds: names of dims that must or may be split, names of dims along which leaves are split,
    whether weights may be sent, and the placement of activations. The pass is for experiments with placements for which
    there is no tactic, and for tests of propagation.

    ```mlir
    // pc-opt --pc-set-mesh=mesh=sp=2 --pc-propagate="axis=sp must=sequence inputs=sequence parameters=sequence"
    func.func @step() {
      %x = pc.input tokens dims ["batch", "sequence"] : tensor<4x8xf32>
      %w = pc.parameter "w" dims ["sequence", "ffn"] init <fill, 1.0>
        source <"w", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
      %y = pc.einsum "b s, s f -> b f" %x, %w : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
      pc.output logits "y" %y : tensor<4x6xf32>
      return
    }
    // becomes
    %x = pc.input tokens dims ["batch", "sequence"] : tensor<4x8xf32, #pc.place<[_, sp]>>
    %w = pc.parameter "w" ... : tensor<8x6xf32, #pc.place<[sp, _]>>
    %p = pc.einsum "b s, s f -> b f" %x, %w : ... -> tensor<4x6xf32, #pc.place<[_, _] sum(sp)>>
    %y = pc.all_reduce sum %p on ["sp"] : ... -> tensor<4x6xf32, #pc.place<[_, _]>>
    pc.output logits "y" %y : tensor<4x6xf32, #pc.place<[_, _]>>
    ```

    With `cost=seconds` the search looks for the least time of a step on `machine`. The time has these parts: the ops
    that a rank computes, its moves along the axis and along earlier axes, and `byte-price` for each byte that it keeps.
    Sums of gradients count only the time by which they exceed the backward pass, plus the time by which hidden moves
    slow down other work. With `free` no other option is needed.

    ZeRO-1 is `--pc-propagate="axis=dp must=batch inputs=batch states=embed,vocab optimizer=embed,vocab"`.
  }];
  let options = [
    Option<"axis", "axis", "std::string", "\"\"", "The mesh axis to use">,
    ListOption<"must", "must", "std::string", "Dims that are split at every op that has one">,
    ListOption<"may", "may", "std::string", "Dims that may be split if that saves bytes">,
    ListOption<"optimizer", "optimizer", "std::string", "The only dims that may be split in the optimizer">,
    ListOption<"accumulated", "accumulated", "std::string", "The only dims that may be split in accumulated values">,
    ListOption<"inputs", "inputs", "std::string", "Names of dims along which inputs are split">,
    ListOption<"parameters", "parameters", "std::string", "Names of dims along which parameters are split">,
    ListOption<"states", "states", "std::string", "Names of dims along which optimizer state is split">,
    Option<"fixed", "fixed", "bool", "false", "Whether parameters and state are never sent">,
    ListOption<"rest", "rest", "std::string", "Names of dims; rest-split sets the placement of values with exactly these dims">,
    Option<"restSplit", "rest-split", "std::string", "\"\"", "The dim of rest along which these values are split; if empty, they are whole">,
    Option<"free", "free", "bool", "false", "Choose the cheapest placements of leaves and splits of dims: among those of `may` and `must`, or all named dims if both are empty">,
    Option<"cost", "cost", "std::string", "\"bytes\"", "What the search minimizes: bytes (on the wire) or seconds (of a step)">,
    Option<"machine", "machine", "std::string", "\"cpu\"", "Machine whose predicted seconds count: cpu, a100, h100, h200, b200, here (pc-calibrate), or a file *.json">,
    Option<"bytePrice", "byte-price", "double", "0", "Price, in seconds, of a byte of a parameter, gradient or state on a rank">,
    Option<"tell", "tell", "bool", "false", "Report the seconds in a remark">,
  ];
}

def VerifyPlaced : Pass<"pc-verify-placed", "mlir::ModuleOp"> {
  let summary = "Check the constraints of the placed phase that concern several ops";
  let description = [{
    The pass checks that:

    * (V1) the module has a mesh;
    * (V2) every tensor is placed, on axes of the mesh;
    * (V3) leaves are never partial;
    * (V4) every update has the placement of the leaf that it replaces, and that leaf exists; no cache is moved between ranks;
    * (V5) outputs are whole or split;
    * (V6) no axis splits the dim "code" of a parameter, whose codes share a scale and bytes;
    * (V7) with `lossless`, no move has `wire`.

    ```mlir
    // pc-opt --pc-verify-placed
    pc.mesh <dp = 2>
    func.func @step() {
      %x = pc.input tokens dims ["batch"] : tensor<4xi32>
      return
    }
    // error: 'input' is not placed: 'tensor<4xi32>' (V2)
    ```
  }];
  let options = [
    Option<"lossless", "lossless", "bool", "false", "Refuse moves that round the addends of a sum">,
  ];
}

def FuseMoves : Pass<"pc-fuse-moves", "mlir::ModuleOp"> {
  let summary = "Join chains of equal moves over several axes into one move over their product";
  let description = [{
    A tactic moves values along its own axis only. A value that is partial on two axes is therefore reduced twice, which sends 2(n1-1)/n1 +
    2(n2-1)/n2 of its bytes instead of 2(n-1)/n. This pass joins chains of all_reduce, all_gather, reduce_scatter, slice, mask and pad into one
    move over the product of their axes. It does so if nothing else reads the intermediate values and, for moves that have a dim, if the dim
    is the same. Post-condition: no such chain is left.

    ```mlir
    // pc-opt --pc-fuse-moves
    pc.mesh <dp = 2, tp = 2>
    func.func @step(%x: tensor<8xf32, #pc.place<[_] sum(dp, tp)>>) -> tensor<8xf32, #pc.place<[_]>> {
      %a = pc.all_reduce sum %x on ["tp"] : (tensor<8xf32, #pc.place<[_] sum(dp, tp)>>) -> tensor<8xf32, #pc.place<[_] sum(dp)>>
      %b = pc.all_reduce sum %a on ["dp"] : (tensor<8xf32, #pc.place<[_] sum(dp)>>) -> tensor<8xf32, #pc.place<[_]>>
      return %b : tensor<8xf32, #pc.place<[_]>>
    }
    // becomes
    %b = pc.all_reduce sum %x on ["dp", "tp"] : (tensor<8xf32, #pc.place<[_] sum(dp, tp)>>) -> tensor<8xf32, #pc.place<[_]>>
    return %b : tensor<8xf32, #pc.place<[_]>>
    ```
  }];
}

def ErasePlacements : Pass<"pc-erase-placements", "mlir::ModuleOp"> {
  let summary = "Placed program -> the step program that it came from";
  let description = [{
    Placed program -> step program. Every move and every copy is replaced by its operand, and the mesh and all placements are removed. The text
    of the result equals that of the step program byte for byte, because tactics neither add, drop, reorder nor split computing ops. This is the
    first proof of every plan.

    ```mlir
    // pc-opt --pc-erase-placements
    pc.mesh <tp = 2>
    func.func @step() {
      %x = pc.input tokens dims ["sequence"] : tensor<8xi32, #pc.place<[tp]>>
      %y = pc.all_gather %x dim 0 on ["tp"] : (tensor<8xi32, #pc.place<[tp]>>) -> tensor<8xi32, #pc.place<[_]>>
      pc.output logits "y" %y : tensor<8xi32, #pc.place<[_]>>
      return
    }
    // becomes
    func.func @step() {
      %x = pc.input tokens dims ["sequence"] : tensor<8xi32>
      pc.output logits "y" %x : tensor<8xi32>
      return
    ```
  }];
}

#endif
