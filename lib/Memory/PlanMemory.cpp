//===- PlanMemory.cpp - Give every value an offset in the arena of its space ------------===//
// Input: a scheduled local program. Result: every value has a home, every call a frame, and the module has `pc.arena`.
// Task functions are planned first, each in a separate address space; a call then needs one block for the frame. In the
// arena, parameters come first, then states, other leaves, values with shorter lifetimes, and the workspace of CUDA
// libraries.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_PLANMEMORY
#include "pc/Memory/Passes.h"

#include "Buffers.h"
#include "pc/Cost/CudaWorkspace.h"
#include "pc/IR/LeavesByName.h"
#include "pc/IR/Rounds.h"
#include "pc/Memory/ArenaPlanner.h"
#include "pcrt/disk.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/Support/MathExtras.h"
#include <map>

using namespace mlir;
using namespace pc;

/// Disks copy directly to memory that is aligned to their sectors, so programs with carries align all buffers to them.
constexpr int64_t sectorBytes = 512;

namespace {

/// Fails with errors at values and functions that the planner cannot place.
LogicalResult checkPlannable(func::FuncOp function) {
  if (!function.getBody().hasOneBlock())
    return function.emitOpError() << "must have exactly one block for memory planning";
  if (function.getNumArguments() && !function.isPrivate())
    return function.emitOpError() << "has arguments, which memory planning does not support; use pc.input instead";
  bool failed = false;
  // Every result must be a tensor with a local type, and accumulations must not be nested.
  function.walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (isa<StartOp>(op))
      return WalkResult::skip(); // its only result is a ticket; the wait has the results of the moves
    for (Type type : op->getResultTypes())
      if (auto tensor = dyn_cast<RankedTensorType>(type); !tensor || !tensor.hasStaticShape() || placement(type)) {
        op->emitOpError() << "has a result of type " << type
                          << ", but memory planning needs a local program; run pc-localize first";
        failed = true;
      }
    if (isa<AccumulateOp>(op) && op->getParentOp() != function) {
      op->emitOpError() << "is nested in another accumulation, but memory planning supports one level only";
      failed = true;
    }
    return WalkResult::advance();
  });
  return failure(failed);
}

/// Moves updates after all readers of the old value. An update whose value does not share the leaf's home is a copy,
/// and a copy must not come before a reader of the old value.
void sinkUpdates(Block &body) {
  LeavesByName leaves(body);
  llvm::DenseMap<Operation *, int64_t> position;
  for (auto [i, op] : llvm::enumerate(body))
    position[&op] = i;
  SmallVector<Operation *> late;
  for (auto update : body.getOps<UpdateOp>()) {
    Value leaf = leaves.of(update);
    if (leaf && llvm::any_of(leaf.getUsers(), [&](Operation *user) {
          return position.lookup(body.findAncestorOpInBlock(*user)) > position.lookup(update);
        }))
      late.push_back(update);
  }
  for (Operation *update : late)
    update->moveBefore(body.getTerminator());
}

/// The pass pc-plan-memory. It checks the program, plans the functions that the step calls, and then the step.
struct PlanMemory : pc::impl::PlanMemoryBase<PlanMemory> {
  using PlanMemoryBase::PlanMemoryBase;

  /// Replaces an earlier arena. On a GPU, the workspace of the libraries follows the planned memory.
  void runOnOperation() override {
    ModuleOp module = getOperation();
    SmallVector<func::FuncOp> steps = stepsOf(module);
    if (steps.size() != 1) {
      module.emitError() << "pc-plan-memory: expected exactly one function, the step, got " << steps.size();
      return signalPassFailure();
    }
    for (ArenaOp arena : llvm::make_early_inc_range(module.getOps<ArenaOp>()))
      arena.erase();
    for (auto function : module.getOps<func::FuncOp>())
      if (failed(checkPlannable(function)))
        return signalPassFailure();
    if (target != "cpu" && target != "cuda") {
      module.emitError() << "pc-plan-memory: '" << target << "' is not a target; expected cpu or cuda";
      return signalPassFailure();
    }
    bool carries = module.walk([](CarryOp) { return WalkResult::interrupt(); }).wasInterrupted();
    alignment = target == "cuda" ? cudaAlignment : carries ? sectorBytes : arenaAlignment;
    planFunctions(steps[0]);
    Sizes sizes = plan(steps[0].getBody().front());
    if (target == "cuda") {
      sizes.device += libraryWorkspaceBytes(module, CudaLibraries(attention, archs));
      if (sizes.disk) // which a device reaches through memory of the host
        sizes.host = llvm::alignTo(sizes.host, PCRT_DISK_BLOCK) + PCRT_DISK_RING;
    }
    OpBuilder builder(steps[0]);
    ArenaOp::create(builder, steps[0].getLoc(), sizes.device, sizes.host, sizes.disk);
  }

  /// Plans every function that the step calls, in a separate address space: the frame, the arguments, the results.
  void planFunctions(func::FuncOp step) {
    llvm::MapVector<Operation *, SmallVector<BlockArgument>> dying; // arguments that no caller reads after a call
    TaskFunctions functions;
    for (auto call : step.getOps<CallOp>()) {
      const TaskFunction &function = functions.of(call);
      auto [it, first] = dying.insert({function.function, {}});
      if (first)
        it->second.assign(function.body->args_begin(), function.body->args_end());
      llvm::erase_if(it->second, [&](BlockArgument argument) {
        // An argument dies only if it dies at every call: its value has no later reader and is not a leaf.
        Value input = call.getInputs()[argument.getArgNumber()];
        return !input.hasOneUse() || isLeaf(input.getDefiningOp()) || isa<MicrobatchOp>(input.getDefiningOp());
      });
    }
    for (auto &[op, arguments] : dying)
      planFunction(cast<func::FuncOp>(op), arguments, functions);
  }

  /// Plans homes in a task function, relative to its frame. Every call has a place for the frame in the caller's arena.
  void planFunction(func::FuncOp function, ArrayRef<BlockArgument> dying, TaskFunctions &functions) {
    Block &body = function.getBody().front();
    Liveness liveness(body);
    SmallVector<Buffers::Buffer> buffers = Buffers(body, liveness, functions, dying).take();
    // Results and arguments come after the frame, since callers choose their homes.
    auto returned = [&](const Buffers::Buffer &buffer) {
      return llvm::any_of(buffer.values,
                          [&](Value value) { return llvm::is_contained(value.getUsers(), body.getTerminator()); });
    };
    SmallVector<const Buffers::Buffer *> inFrame, arguments, results;
    SmallVector<ArenaBuffer> problem;
    for (const Buffers::Buffer &buffer : buffers)
      if (buffer.leaf == function) {
        arguments.push_back(&buffer);
      } else if (returned(buffer)) {
        results.push_back(&buffer);
      } else {
        inFrame.push_back(&buffer);
        problem.push_back({int64_t(llvm::alignTo(buffer.bytes, alignment)), buffer.life.first, buffer.life.last});
      }
    ArenaPlan frame = planArena(problem);
    for (auto [buffer, offset] : llvm::zip_equal(inFrame, frame.offsets))
      setHome(*buffer, offset);
    std::map<Space, int64_t> end{
        {Space::Device, frame.bytes}, {Space::Host, PCRT_HOST}, {Space::Disk, PCRT_DISK}}; // the homes so far
    for (const Buffers::Buffer *buffer : llvm::concat<const Buffers::Buffer *>(arguments, results)) {
      Space space = spaceOf(buffer->values.front());
      setHome(*buffer, end[space]);
      end[space] += llvm::alignTo(buffer->bytes, alignmentIn(space));
    }
    // The homes are part of the types of arguments and results.
    function.setType(FunctionType::get(&getContext(), body.getArgumentTypes(),
                                       ValueRange(body.getTerminator()->getOperands()).getTypes()));
  }

  /// The bytes of the arenas.
  struct Sizes {
    int64_t device, host, disk;
  };

  /// Sets the homes; returns the sizes of the arenas.
  Sizes plan(Block &body) {
    sinkUpdates(body);
    Liveness liveness(body);
    TaskFunctions functions;
    SmallVector<Buffers::Buffer> all = Buffers(body, liveness, functions).take(), buffers, inHost, onDisk;
    for (Buffers::Buffer &buffer : all) {
      Space space = spaceOf(buffer.values.front());
      (space == Space::Device ? buffers : space == Space::Host ? inHost : onDisk).push_back(std::move(buffer));
    }
    int64_t host = planAway(Space::Host, inHost), disk = planAway(Space::Disk, onDisk);

    int64_t base = 0; // leaves are always live, so they follow each other
    auto settle = [&](auto isNext) {
      for (const Buffers::Buffer &buffer : buffers)
        if (buffer.leaf && isNext(buffer.leaf)) {
          setHome(buffer, base);
          base += llvm::alignTo(buffer.bytes, alignment);
        }
    };
    // Parameters come first, then states, then other leaves: their addresses do not depend on the schedule of a step.
    settle([](Operation *leaf) { return isa<ParameterOp>(leaf); });
    settle([](Operation *leaf) { return isa<StateOp>(leaf); });
    settle([](Operation *leaf) { return !isa<ParameterOp, StateOp>(leaf); });

    SmallVector<const Buffers::Buffer *> moving;
    SmallVector<ArenaBuffer> problem;
    for (const Buffers::Buffer &buffer : buffers)
      if (!buffer.leaf) {
        moving.push_back(&buffer);
        problem.push_back({int64_t(llvm::alignTo(buffer.bytes, alignment)), buffer.life.first, buffer.life.last});
      }
    // A frame is a buffer that lives during its call.
    SmallVector<CallOp> calls(body.getOps<CallOp>());
    for (CallOp call : calls) {
      int64_t at = liveness.position(call);
      problem.push_back({functions.of(call).frameBytes, at, at});
    }
    ArenaPlan solution = planArena(problem);
    for (auto [buffer, offset] : llvm::zip(moving, solution.offsets))
      setHome(*buffer, base + offset);
    for (auto [call, offset] : llvm::zip_equal(calls, ArrayRef(solution.offsets).take_back(calls.size())))
      call.setFrame(base + offset);

    for (auto accumulate : body.getOps<AccumulateOp>())
      for (auto [argument, operand] : llvm::zip(accumulate.getBody().getArguments(), accumulate.getInputs()))
        argument.setType(withEncoding(argument.getType(), cast<RankedTensorType>(operand.getType()).getEncoding()));
    // Views of a stack get the home of their part of it.
    for (auto view : body.getOps<MicrobatchOp>()) {
      int64_t stack = cast<HomeAttr>(cast<RankedTensorType>(view.getStack().getType()).getEncoding()).getOffset();
      Value element = view.getElement();
      int64_t offset = stack + static_cast<int64_t>(view.getIndex()) * byteSize(element.getType());
      element.setType(withEncoding(element.getType(), HomeAttr::get(&getContext(), offset)));
    }
    return {base + std::max(solution.bytes, roundBytes(getOperation())), host, disk};
  }

  /// Buffers on disk take whole blocks of it.
  int64_t alignmentIn(Space space) const { return space == Space::Disk ? PCRT_DISK_BLOCK : alignment; }

  /// Gives buffers homes in `space`, which is host or disk; returns the size of its arena. Leaves are always live.
  int64_t planAway(Space space, ArrayRef<Buffers::Buffer> buffers) {
    SmallVector<ArenaBuffer> problem;
    for (const Buffers::Buffer &buffer : buffers)
      problem.push_back(
          {static_cast<int64_t>(llvm::alignTo(buffer.bytes, alignmentIn(space))), buffer.life.first, buffer.life.last});
    ArenaPlan solution = planArena(problem);
    for (auto [buffer, offset] : llvm::zip_equal(buffers, solution.offsets))
      setHome(buffer, firstOffset(space) + offset);
    return solution.bytes;
  }

  int64_t alignment = arenaAlignment;

  void setHome(const Buffers::Buffer &buffer, int64_t offset) {
    for (Value value : buffer.values)
      value.setType(withEncoding(value.getType(), HomeAttr::get(&getContext(), offset, rowsOf(value))));
  }
};

} // namespace
