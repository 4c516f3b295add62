//===- VerifyTables.cpp - Compares an executable with the planned program ---===//
// Reads back the step's calls to the runtime, the table rows that their arguments index, and the description. It
// compares them with the planned program, op by op, in order: every call belongs to an op, every op has its calls, and
// both have the same attributes. It does not check what kernels compute; a kernel is identified by the ops for which it
// was written.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_VERIFYTABLES
#include "pc/Codegen/Passes.h"

#include "DescriptionReader.h"
#include "TableCheck.h"
#include "pc/Codegen/Codegen.h"
#include "pc/IR/Codes.h"
#include "pc/IR/Liveness.h"
#include "pc/IR/MoveRows.h"
#include "pc/IR/Rounds.h"
#include "pc/Support/Source.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace pc;
using At = StepReader::At;
using Call = StepReader::Call;

/// The next call must be of `callee` and run once per microbatch if the op is in the loop.
const Call *TableCheck::expect(Operation *op, StringRef callee) {
  if (next < calls.size() && calls[next].callee == callee)
    return same(op, "number of runs", calls[next].times, current ? static_cast<int64_t>(current.getMicrobatches()) : 1)
               ? &calls[next++]
               : nullptr;
  refuse(op, "needs a call of @" + callee + ", but the step has " +
                 (next < calls.size() ? "a call of @" + calls[next].callee : Twine("no more calls")));
  return nullptr;
}

/// An argument of the loop's body has a home that advances with the microbatch.
At TableCheck::homeOf(Value value) {
  int64_t home = homeOrNone(value), stride = 0;
  auto argument = dyn_cast<BlockArgument>(value);
  if (argument && current && argument.getOwner() == &current.getBody().front()) {
    home = homeOrNone(current.getInputs()[argument.getArgNumber()]);
    stride = current.getMicrobatches() > 1 ? byteSize(argument.getType()) : 0;
  }
  if (home >= 0 && places) {
    auto place = std::prev(places->upper_bound(home));
    home = place->second + home - place->first;
  }
  return {home, stride};
}

//===---------------------------------------------------------------------------===//
// Tables
//===---------------------------------------------------------------------------===//

/// Reads all tables of the program and compares its scalar fields.
bool TableCheck::readTables() {
  Operation *at = planned;
  auto whole = reader.structOf<pcrt_program>("pc_program" + suffix);
  auto fail = [&](const Twine &why) {
    at->emitError() << why << "; the executable does not match the planned program";
    return false;
  };
  if (!whole)
    return fail("the kernels have no @pc_program" + suffix);
  program = *whole;
  cuda = program.target == PCRT_CUDA;
  auto take = [&](auto &rows, auto *field, int64_t count) {
    auto found = reader.rowsOf(field, count);
    if (found)
      rows = std::move(*found);
    return found.has_value();
  };
  std::vector<int64_t> sizes;
  std::vector<const char *> axes;
  if (!take(kernelRows, program.kernels, program.num_kernels) || !take(gemmRows, program.gemms, program.num_gemms) ||
      !take(moveRows, program.moves, program.num_moves) || !take(groupRows, program.groups, program.num_groups) ||
      !take(attentionRows, program.attentions, program.num_attentions) ||
      !take(flowRows, program.flows, program.num_flows) ||
      !take(deviceRows, program.device_kernels, cuda ? program.num_kernels : 0) ||
      !take(sizes, program.mesh_sizes, program.num_mesh_axes) || !take(axes, program.mesh_names, program.num_mesh_axes))
    return fail("a table of @pc_program" + suffix + " has a different number of rows than it states");
  MeshAttr mesh = meshOf(planned);
  bool isMesh = mesh && ArrayRef(sizes) == mesh.getSizes() &&
                llvm::equal(axes, mesh.getNames(), [](const char *a, StringAttr b) { return a && b == a; });
  if (!isMesh)
    return fail("the mesh of @pc_program" + suffix + " is not the mesh of the planned program");
  int64_t arena = 0, inHost = 0, onDisk = 0;
  for (auto op : planned.getOps<ArenaOp>())
    arena = op.sizeOf(Space::Device), inHost = op.sizeOf(Space::Host), onDisk = op.sizeOf(Space::Disk);
  StringAttr stages = stageAxisOf(planned);
  int64_t count = stages ? mesh.size(stages) : 0;
  std::string after =
      stages && stageOf(planned) + 1 < count ? "pc_program_stage" + std::to_string(stageOf(planned) + 1) : "";
  struct {
    StringRef what;
    int64_t found, wanted;
  } facts[] = {{"the ABI", program.abi_version, PCRT_ABI_VERSION},
               {"the size of the arena", program.arena_bytes, arena},
               {"the size of the arena of the host", program.host_bytes, inHost},
               {"the size of the arena on disk", program.disk_bytes, onDisk},
               {"the number of stages", program.num_stages, count},
               {"the stage", program.stage, stages ? stageOf(planned) : 0},
               {"the axis of stages", program.stage_axis, stages ? mesh.index(stages) : 0},
               {"the length of the description", program.json_bytes,
                program.json ? static_cast<int64_t>(StringRef(program.json).size()) : -1},
               {"the end of the workspace", program.workspace_offset + program.workspace_bytes,
                program.workspace_bytes ? arena : program.workspace_offset}};
  for (auto &[what, found, wanted] : facts)
    if (found != wanted)
      return fail(what + " in @pc_program" + suffix + " is " + Twine(found) + ", not " + Twine(wanted));
  if (TableReader::nameOf(program.step) != "pc_step" + suffix || TableReader::nameOf(program.next_stage) != after)
    return fail("@pc_program" + suffix + " has the step of another program");
  return true;
}

/// A group is identified by its axes, in order.
bool TableCheck::isGroup(int64_t index, ArrayRef<StringAttr> axes) {
  if (index < 0 || index >= static_cast<int64_t>(groupRows.size()))
    return false;
  const pcrt_group &group = groupRows[index];
  MeshAttr mesh = meshOf(planned);
  return group.num_axes == static_cast<int64_t>(axes.size()) && llvm::all_of(llvm::enumerate(axes), [&](auto axis) {
           return group.axes[axis.index()] == mesh.index(axis.value());
         });
}

int32_t pc::elementTypeOf(Value value) {
  Type element = getElementTypeOrSelf(value.getType());
  if (auto integer = dyn_cast<IntegerType>(element))
    return integer.getWidth() == 4 ? PCRT_I4 : integer.getWidth() == 8 ? PCRT_I8 : PCRT_I32;
  if (isFloat8(element)) // moves send the bytes
    return PCRT_I8;
  return element.isF32() ? PCRT_F32 : PCRT_BF16;
}

/// Compares every field of the move's row.
bool TableCheck::move(Operation *op, MoveOpInterface move, int64_t index) {
  if (index < 0 || index >= static_cast<int64_t>(moveRows.size()))
    return refuse(op, "has move " + Twine(index) + ", which is not in the table");
  if (!isNext(op, index, lastMove))
    return false;
  const pcrt_move_desc &row = moveRows[index];
  auto from = cast<RankedTensorType>(move->getOperand(0).getType());
  auto to = cast<RankedTensorType>(move->getResult(0).getType());
  int64_t dim = move.getMoveDim(), other = move.getOtherDim();
  // The dims are divided into five groups, which are products of sizes: dims before the moved one, it, dims up to the
  // second moved one, that one, and the rest.
  int64_t low = other < 0 ? dim : std::min(dim, other), high = std::max(dim, other);
  Value operand = move->getOperand(0);
  const bool inBytes = elementTypeOf(operand) == PCRT_I4; // pairs of codes are moved as bytes
  int64_t sizes[5] = {1, 1, 1, 1, 1};                     // outer, extent, middle, extent2, inner
  for (int64_t d = 0; d < from.getRank(); ++d) {
    int64_t part = dim < 0 || d < low ? 0 : d == low ? 1 : d < high ? 2 : d == high ? 3 : 4;
    sizes[part] *= std::max(from.getDimSize(d), to.getDimSize(d)) / (inBytes && d == dimOfCodes(operand) ? 2 : 1);
  }
  auto touches = [&](Space space) { return spaceOf(from) == space || spaceOf(to) == space; };
  int64_t reduction = other >= 0            ? dim > other
                      : isa<CarryOp>(*move) ? (spaceOf(from) == Space::Device ? PCRT_CARRY_OUT : 0) +
                                                  (touches(Space::Host) ? PCRT_CARRY_HOST : 0)
                                            : move.getReduction() == PartialKind::Max;
  SmallVector<StringAttr> with = move.getMoveWith();
  auto ofRows = dyn_cast<AllToAllRowsOp>(*move);
  return same(op, "kind", row.kind, static_cast<int64_t>(move.getMoveKind())) &&
         same(op, "type of elements", row.dtype, inBytes ? PCRT_I8 : elementTypeOf(operand)) &&
         same(op, "reduction", row.reduction, reduction) && same(op, "outer size", row.outer, sizes[0]) &&
         same(op, "extent", row.extent, sizes[1]) && same(op, "inner size", row.inner, sizes[4]) &&
         same(op, "middle size", row.middle, sizes[2]) && same(op, "second extent", row.extent2, sizes[3]) &&
         same(op, "shift", row.shift, ofRows ? static_cast<int64_t>(ofRows.getRouted()) : move.getMoveShift()) &&
         (ofRows ? same(op, "the mask", At{row.codes}, homeOf(ofRows.getMask()))
                 : same(op, "place of codes", row.codes, inRound ? codesHome(planned) : 0)) &&
         (isGroup(row.group, move.getMoveAxes()) || refuse(op, "is over different axes in the tables")) &&
         ((with.empty() ? row.with == 0 : isGroup(row.with - 1, with)) ||
          refuse(op, "has a different partner in the tables"));
}

/// Returns true if a message uses the table entry of its flow.
bool TableCheck::flow(Operation *op, const Call &call, int64_t stage, int64_t id, int64_t slots, bool sends,
                      Value message) {
  int64_t index = call.number(1);
  if (index < 0 || index >= static_cast<int64_t>(flowRows.size()))
    return refuse(op, "has flow " + Twine(index) + ", which is not in the table");
  const pcrt_flow &row = flowRows[index];
  ++messages[index];
  return same(op, "stage", row.stage, stage) && same(op, "flow", row.id, id) && same(op, "slots", row.slots, slots) &&
         same(op, "direction", row.sends, sends) && same(op, "bytes", row.bytes, byteSize(message.getType())) &&
         same(op, "its message", call.address(2), homeOf(message));
}

//===---------------------------------------------------------------------------===//
// The step
//===---------------------------------------------------------------------------===//

/// Returns true if the next call, or an earlier one, observes the output under its number.
bool TableCheck::isShown(Operation *op, Value value) {
  auto *number = llvm::find_if(outputs, [&](Operation *other) {
    if (auto a = dyn_cast<OutputOp>(op), b = dyn_cast<OutputOp>(other); a || b)
      return a && b && a.getKind() == b.getKind() && a.getName() == b.getName();
    return *cast<TopKOp>(op).getLayer() == *cast<TopKOp>(other).getLayer();
  });
  if (number == outputs.end())
    number = outputs.insert(number, op);
  int64_t index = number - outputs.begin();
  auto early = shownEarly.find(index);
  Call call;
  if (early != shownEarly.end()) {
    call = calls[early->second];
    madeBy[op] = {early->second, early->second + 1};
    shownEarly.erase(early);
  } else if (const Call *found = expect(op, "pcrt_observe")) {
    call = *found;
  } else {
    return false;
  }
  bool inLoop = current && current.getMicrobatches() > 1;
  return same(op, "number", call.number(1), index) &&
         (inLoop ? call.isMicrobatch(2) || refuse(op, "is an output of a different microbatch in the step's calls")
                 : same(op, "microbatch", call.number(2), microbatch)) &&
         same(op, "what it shows", call.address(3), homeOf(value));
}

/// Each kind of op has the calls that the generator writes for it; leaves have none.
bool TableCheck::runOp(Operation *op) {
  return llvm::TypeSwitch<Operation *, bool>(op)
      .Case<ParameterOp, StateOp, InputOp, RopeTableOp, MicrobatchOp, YieldOp, func::ReturnOp>(
          [](auto) { return true; })
      .Case([&](BlockOffsetOp offset) {
        const Call *call = expect(op, "pcrt_block_offset");
        return call &&
               (isGroup(call->number(1), axisList(offset.getAxes())) ||
                refuse(op, "has a different group in the step's calls")) &&
               same(op, "block", call->number(2), static_cast<int64_t>(offset.getBlock())) &&
               same(op, "its result", call->address(3), homeOf(offset.getValue()));
      })
      .Case([&](OutputOp output) { return isShown(op, output.getValue()); })
      .Case([&](TopKOp choice) { return compute(op) && (!choice.getLayer() || isShown(op, choice.getResult())); })
      .Case([&](UpdateOp update) {
        Value leaf = leaves.lookup((update.getParameter() ? update.getName() + " of " + *update.getParameter()
                                                          : "parameter " + update.getName())
                                       .str());
        if (!leaf)
          return refuse(op, "has no input, parameter or state in the program");
        At from = homeOf(update.getValue()), to = homeOf(leaf);
        return from == to || launches(op, {from, to});
      })
      .Case([&](AccumulateOp accumulate) { return runAccumulate(accumulate); })
      .Case([&](CallOp call) { return runCall(call); })
      .Case([&](TaskOp task) {
        microbatch = static_cast<int64_t>(task.getMicrobatch().value_or(0));
        const Call *call = expect(op, "pcrt_task");
        return call && same(op, "kind", call->number(1), static_cast<int64_t>(task.getKind())) &&
               same(op, "chunk", call->number(2), static_cast<int64_t>(task.getChunk().value_or(0))) &&
               same(op, "microbatch", call->number(3), microbatch);
      })
      .Case([&](SendOp send) {
        const Call *call = expect(op, "pcrt_send");
        return call && flow(op, *call, send.getStage(), send.getFlow(), send.getSlots(), true, send.getX());
      })
      .Case([&](ReceiveOp receive) {
        const Call *call = expect(op, "pcrt_receive");
        return call &&
               flow(op, *call, receive.getStage(), receive.getFlow(), receive.getSlots(), false, receive.getValue());
      })
      .Case([&](MoveOpInterface moved) {
        const Call *call = expect(op, "pcrt_move");
        return call && move(op, moved, call->number(1)) &&
               same(op, "its operand", call->address(2), homeOf(op->getOperand(0))) &&
               same(op, "its result", call->address(3), homeOf(op->getResult(0)));
      })
      .Case([&](StartOp start) {
        const Call *call = expect(op, "pcrt_start");
        // The list has the buffers of all inputs, then those of all results.
        SmallVector<At> wanted;
        llvm::for_each(start.getInputs(), [&](Value value) { wanted.push_back(homeOf(value)); });
        llvm::for_each(start.getWait().getResults(), [&](Value value) { wanted.push_back(homeOf(value)); });
        if (!call || !same(op, "number of moves", call->number(2), start.getNumOperands()) ||
            !same(op, "ticket", call->number(5), numTickets))
          return false;
        tickets[start.getTicket()] = numTickets++;
        for (auto [i, moved] : llvm::enumerate(start.getMoves()))
          if (!move(moved, moved, call->number(1) + static_cast<int64_t>(i)))
            return false;
        return call->list == wanted || refuse(op, "moves different buffers in the step's calls");
      })
      .Case([&](WaitOp wait) {
        const Call *call = expect(op, "pcrt_wait");
        return call && same(op, "ticket", call->number(1), tickets.lookup(wait.getTicket()));
      })
      .Default([&](Operation *) { return compute(op); });
}

/// Records the calls of each op, and then checks the sums to which its results are added.
bool TableCheck::runBlock(Block &block) {
  for (Operation &op : block) {
    size_t begin = next;
    if (!runOp(&op))
      return false;
    madeBy.try_emplace(&op, begin, next); // an output may have been shown before
    for (OpOperand &use : op.getUses())
      if (addedAfter(use) && !addToSum(&op, use))
        return false;
  }
  return true;
}

/// Checks the calls of a task's body, at homes relative to the caller.
bool TableCheck::runCall(CallOp call) {
  const TaskFunction &called = functions.of(call);
  std::map<int64_t, int64_t> ranges;
  ranges[0] = static_cast<int64_t>(call.getFrame().value_or(0));
  for (auto [inside, outside] : llvm::zip_equal(called.body->getArguments(), call.getInputs()))
    ranges[homeOrNone(inside)] = homeOrNone(outside);
  for (auto [inside, outside] : llvm::zip_equal(called.results(), call.getResults()))
    ranges[homeOrNone(inside)] = homeOrNone(outside);
  places = &ranges;
  bool ok = runBlock(*called.body);
  places = nullptr;
  return ok;
}

/// Checks that the sum over microbatches starts as a copy of the first microbatch's value, and that the others are
/// added to it.
bool TableCheck::addToSum(Operation *op, OpOperand &yielded) {
  size_t begin = next;
  bool ok = isAddedToSum(op, yielded);
  summedBy[&yielded] = {begin, next};
  return ok;
}

/// The value of the first microbatch is copied into the sum, and later ones are added. If there is only one microbatch,
/// its value may already be at the home of the sum.
bool TableCheck::isAddedToSum(Operation *op, OpOperand &yielded) {
  Value value = yielded.get(), result = current.getResult(yielded.getOperandNumber());
  At from = homeOf(value), to{homeOf(result)};
  int64_t count = current.getMicrobatches();
  if (count == 1 && from == to)
    return true;
  if (next > 0 && calls[next - 1].callee == "pcrt_gemm" && calls[next - 1].later() != calls[next - 1].number(1) &&
      calls[next - 1].address(4) == to)
    return true; // the product itself adds
  OpBuilder b(planned.getContext());
  OwningOpRef<UpdateOp> copy = UpdateOp::create(b, value.getLoc(), "accumulate", nullptr, value);
  OwningOpRef<AddOp> add = AddOp::create(b, value.getLoc(), withEncoding(value.getType(), {}), result, value);
  auto launched = [&](Operation *kernel, ArrayRef<At> buffers, StepReader::When when) {
    const Call *call = expect(op, "pcrt_launch");
    return call && isKernelOf(kernel, call->number(1), 0) && isNext(op, call->number(1), lastKernel) &&
           (call->list == buffers || refuse(op, "is added to a different sum in the step's calls")) &&
           (count == 1 || call->when == when || refuse(op, "is added to its sum in different microbatches"));
  };
  return launched(*copy, {from, to}, StepReader::First) &&
         (count == 1 || launched(*add, {to, from, to}, StepReader::Later));
}

/// Values that the ops that compute them do not add themselves are added at the end of the body.
bool TableCheck::runAccumulate(AccumulateOp accumulate) {
  current = accumulate;
  Block &body = accumulate.getBody().front();
  bool ok = runBlock(body);
  for (OpOperand &use : body.getTerminator()->getOpOperands())
    ok = ok && (addedAfter(use) || addToSum(accumulate, use));
  current = {};
  return ok;
}

/// At the end no call may be left over.
bool TableCheck::run() {
  auto step = planned.lookupSymbol<func::FuncOp>("step");
  if (!step)
    return refuse(planned, "has no @step");
  if (!readTables())
    return false;
  planned.walk([&](AdmitOp op) { capacities.insert(static_cast<int64_t>(op.getCapacity())); });
  auto function = kernels.lookupSymbol<LLVM::LLVMFuncOp>(("pc_step" + suffix));
  Operation *wrong = nullptr;
  if (!function || !StepReader(function).read(calls, wrong)) {
    (wrong ? wrong : planned.getOperation())->emitError() << "must be a plain sequence of calls to the runtime";
    return false;
  }
  step.walk([&](Operation *op) {
    if (auto parameter = dyn_cast<ParameterOp>(op))
      leaves[("parameter " + parameter.getName()).str()] = parameter.getValue();
    if (auto state = dyn_cast<StateOp>(op))
      leaves[(state.getName() + " of " + state.getParameter()).str()] = state.getValue();
  });
  if (!runBlock(step.getBody().front()))
    return false;
  if (next < calls.size())
    return refuse(step, "ends in the program, but continues in the executable with a call of @" + calls[next].callee);
  if (!shownEarly.empty())
    return refuse(step, "has outputs that the executable's step does not show");
  for (auto [index, row] : llvm::enumerate(flowRows))
    if (!same(step, "messages of a flow", row.messages, messages[static_cast<int64_t>(index)]))
      return false;
  return same(step, "tickets", program.num_tickets, numTickets) && describes(planned, program.json, outputs);
}

/// The round of local SGD is built again from the planned program and compared like a step.
bool TableCheck::checkRound() {
  OwningOpRef<func::FuncOp> round = buildRound(planned);
  auto function = kernels.lookupSymbol<LLVM::LLVMFuncOp>("pc_round" + suffix);
  if (TableReader::nameOf(program.round) != (round ? "pc_round" + suffix : "") || !round != !function)
    return refuse(planned, "has local-SGD rounds that differ from those in the executable's tables");
  if (!round)
    return true;
  Operation *wrong = nullptr;
  calls.clear();
  next = 0;
  inRound = true;
  if (!StepReader(function).read(calls, wrong)) {
    (wrong ? wrong : planned.getOperation())->emitError() << "must be a plain sequence of calls to the runtime";
    return false;
  }
  if (!runBlock(round->getBody().front()))
    return false;
  if (next < calls.size())
    return refuse(*round, "ends in the program, but continues in the executable with a call of @" + calls[next].callee);
  if (names.written)
    names.written->programs.emplace_back(round.release().getOperation());
  return true;
}

/// A planned program with calls is checked twice: as it is, and with its calls inlined, for the evaluation.
LogicalResult pc::verifyTables(ModuleOp planned, ModuleOp kernels, WrittenKernels *written) {
  KernelNames names;
  names.written = written;
  OwningOpRef<ModuleOp> inlined;
  if (planned.walk([](CallOp) { return WalkResult::interrupt(); }).wasInterrupted()) {
    for (ModuleOp program : programsOf(planned))
      if (!TableCheck(program, kernels, names).run())
        return failure();
    // The evaluation may need different parts of different calls of a function, so calls are inlined.
    inlined = planned.clone();
    llvm::for_each(programsOf(*inlined), inlineCalls);
  }
  std::set<std::array<uint64_t, 4>> sent, received;
  for (ModuleOp program : programsOf(inlined ? *inlined : planned)) {
    TableCheck check(program, kernels, names);
    if (!check.run() || !check.checkEvaluation() || !check.checkRound())
      return failure();
    sent.merge(check.sent);
    received.merge(check.received);
  }
  if (sent != received)
    return planned.emitError() << "in the evaluation, the stages receive messages that no stage sends; the executable "
                                  "does not match the planned program";
  if (written && inlined)
    written->programs.emplace_back(inlined.release().getOperation());
  return success();
}

namespace {
/// The pass pc-verify-tables. It reads the planned program from the file that the option names.
struct VerifyTables : pc::impl::VerifyTablesBase<VerifyTables> {
  using VerifyTablesBase::VerifyTablesBase;

  void runOnOperation() override {
    llvm::SourceMgr sources;
    OwningOpRef<ModuleOp> program = parseProgram(planned, sources, &getContext());
    if (!program || failed(verifyTables(*program, getOperation())))
      signalPassFailure();
  }
};
} // namespace
