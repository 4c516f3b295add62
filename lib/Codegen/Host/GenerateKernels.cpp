//===- GenerateKernels.cpp - Planned program -> host program, tables, kernels -------------===//
// The pass pc-generate-kernels. It inlines the tasks, writes one step function per stage, and shares kernels between
// all stages. Tables and the description become constants of the module. The program of the first stage contains the
// report about all stages.
//===-----------------------------------------------------------------------------===//
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#define GEN_PASS_DEF_GENERATEKERNELS
#include "pc/Codegen/Passes.h"

#include "../Emit/Kernel.h"
#include "../Fuse/Grouped.h"
#include "../Fuse/WithoutDropping.h"
#include "Generator.h"
#include "pc/Cost/Report.h"
#include "pc/IR/Calls.h"
#include "pc/IR/Codes.h"
#include "pc/IR/Liveness.h"
#include "pc/IR/MoveRows.h"
#include "pc/IR/Rounds.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace pc;

int32_t pc::dtypeOf(Value value) {
  Type element = cast<RankedTensorType>(value.getType()).getElementType();
  return element.isF32()        ? PCRT_F32
         : element.isBF16()     ? PCRT_BF16
         : element.isInteger(4) ? PCRT_I4
         : isCode(element)      ? PCRT_I8
                                : PCRT_I32;
}

/// A stack has one element per microbatch. The address of an element is the start of the stack plus the number of the
/// microbatch times the size of an element.
HostProgram::Address Generator::addressOf(Value value) {
  if (auto argument = dyn_cast<BlockArgument>(value);
      argument && current && argument.getOwner() == &current.getBody().front())
    return {homeOf(current.getInputs()[argument.getArgNumber()]), bytesOf(argument.getType())};
  return {homeOf(value), 0};
}

/// The number of a group of axes in the table, to which it is added at its first use.
int32_t Generator::groupOf(ArrayRef<StringAttr> axes) {
  std::vector<int64_t> key;
  for (StringAttr axis : axes)
    key.push_back(meshOf(planned).index(axis));
  auto [it, inserted] = all.groups.try_emplace(key, all.groupTable.size());
  if (inserted) {
    pcrt_group group{.num_axes = static_cast<int32_t>(key.size()), .axes = {}};
    llvm::copy(ArrayRef(key).take_front(std::size(group.axes)), group.axes);
    all.groupTable.push_back(group);
  }
  return it->second;
}

/// The table entry of a flow. Also counts the message.
int64_t Generator::flowOf(int64_t peer, int64_t id, bool sends, int64_t slots, Value message) {
  int64_t stage = stageOf(planned);
  auto [it, inserted] = flows.try_emplace({peer, id}, flowTable.size());
  if (inserted)
    flowTable.push_back(
        {.name = tables.text(all.flowNames.at(sends ? FlowKey{stage, peer, id} : FlowKey{peer, stage, id})),
         .stage = static_cast<int32_t>(peer),
         .id = static_cast<int32_t>(id),
         .sends = sends,
         .slots = static_cast<int32_t>(slots),
         .messages = 0,
         .bytes = bytesOf(message.getType())});
  ++flowTable[it->second].messages;
  return it->second;
}

/// The number of an output, the same for all microbatches.
int64_t Generator::outputOf(Operation *op) {
  for (auto [i, other] : llvm::enumerate(outputs))
    if (isSameOutput(other, op))
      return i;
  outputs.push_back(op);
  return outputs.size() - 1;
}

/// Adds a use of a kernel to the tables; returns its index.
int64_t Generator::addKernel(StringRef name, const KernelSet::Info &info, bool ofHost) {
  bool device = cuda && !ofHost;
  kernelTable.push_back({.name = tables.text(name),
                         .kind = tables.text(info.kind),
                         .fn = tables.symbol<pcrt_kernel_fn>(device ? "" : info.function),
                         .fn_f32 = tables.symbol<pcrt_kernel_fn>(device ? "" : info.functionInF32),
                         .items = info.items,
                         .scratch_bytes = info.scratchBytes});
  kernelInfos.push_back(info);
  if (cuda)
    deviceKernelTable.push_back({.entry = tables.text(device ? info.function : ""),
                                 .grid = {static_cast<int32_t>(info.grid), 1, 1},
                                 .block = {static_cast<int32_t>(info.block), 1, 1},
                                 .num_args = static_cast<int32_t>(info.numBuffers),
                                 .shared_bytes = device ? info.sharedBytes : 0});
  return kernelTable.size() - 1;
}

/// Several buffers can be parts of one value; a kernel gets the address of each.
SmallVector<HostProgram::Address> Generator::piecesOf(Operation *op, ArrayRef<Address> values) {
  SmallVector<Address> pieces;
  for (auto [i, at] : llvm::enumerate(values))
    for (int64_t bytes : pieceBytes(op, i))
      pieces.push_back({at.offset + bytes, at.stride});
  return pieces;
}

/// Writes a launch for each of the op's kernels, and a test case for --check-kernels.
LogicalResult Generator::emitKernels(Operation *op, ValueRange operands, ArrayRef<Address> results) {
  SmallVector<Address> values = llvm::map_to_vector(operands, [&](Value v) { return addressOf(v); });
  values.append(results.begin(), results.end());
  SmallVector<Address> arguments = piecesOf(op, values);
  if (cuda && kernelWorkspaceBytes(op))
    arguments.push_back({arena - workspace, 0});
  if (arguments.size() > maxKernelArguments)
    return op->emitOpError() << "needs a kernel of " << arguments.size() << " buffers, but a kernel takes at most "
                             << maxKernelArguments;
  SmallVector<CheckCases::Launch> launches;
  const KernelSet::Info *first = nullptr;
  std::string name = op->getName().stripDialect().str() + " " + sourceName(op);
  for (unsigned part = 0; part < kernels.numParts(op); ++part) {
    FailureOr<const KernelSet::Info *> info = kernels.get(op, part);
    if (failed(info))
      return failure();
    first = part ? first : *info;
    launches.push_back({addKernel(name, **info), llvm::map_to_vector(arguments, [](Address at) { return at.offset; })});
    write([&](HostProgram &to) { to.launch(launches.back().kernel, arguments); });
  }
  return first ? addCase(name, *first, op, launches, results) : success();
}

/// Adds `op` to the table of moves; returns its index.
FailureOr<int64_t> Generator::addMove(MoveOpInterface op) {
  MoveKind kind = op.getMoveKind();
  pcrt_move_shape shape = moveShape(op);
  auto ofRows = dyn_cast<AllToAllRowsOp>(*op);
  Address mask = ofRows ? addressOf(ofRows.getMask()) : Address();
  if (mask.stride)
    return ofRows.emitOpError() << "needs a mask at a fixed offset";
  int32_t reduction = shape.back ? 1 : op.getReduction() == PartialKind::Max ? PCRT_MAX : PCRT_SUM;
  if (auto carry = dyn_cast<CarryOp>(*op))
    reduction = (carry.isOut() ? PCRT_CARRY_OUT : 0) | (carry.getOutside() == Space::Host ? PCRT_CARRY_HOST : 0);
  std::string name = moveName(kind).str() + " " + sourceName(op);
  const bool isPair = dtypeOf(op->getOperand(0)) == PCRT_I4; // two codes in a byte
  SmallVector<StringAttr> with = op.getMoveWith();
  moveTable.push_back({.name = tables.text(name),
                       .kind = static_cast<int32_t>(kind),
                       .group = groupOf(op.getMoveAxes()),
                       .dtype = isPair ? int32_t(PCRT_I8) : dtypeOf(op->getOperand(0)),
                       .reduction = reduction,
                       .outer = shape.outer,
                       .extent = shape.extent,
                       .inner = shape.inner,
                       .middle = shape.middle,
                       .extent2 = shape.extent2,
                       .phase = tables.text(main == &host ? stepPhaseName(stepPhase(op)) : "round"),
                       .shift = static_cast<int32_t>(ofRows ? ofRows.getRouted() : op.getMoveShift()),
                       .with = with.empty() ? 0 : 1 + groupOf(with),
                       .codes = ofRows          ? mask.offset
                                : main == &host ? 0
                                                : codesHome(planned)});
  return moveTable.size() - 1;
}

/// An insert works in place, so its result must have the home of its base.
LogicalResult Generator::emitMove(MoveOpInterface op) {
  if (auto insert = dyn_cast<InsertOp>(*op);
      insert && insert.getBase() && homeOf(insert.getBase()) != homeOf(insert.getResult()))
    return insert.emitOpError() << "must reuse the buffer of its base, but that buffer is still read by another op";
  FailureOr<int64_t> index = addMove(op);
  if (failed(index))
    return failure();
  write([&](HostProgram &to) { to.move(*index, addressOf(op->getOperand(0)), addressOf(op->getResult(0))); });
  return success();
}

/// An evaluation needs only some of the moves. If it needs only a part of a start, it makes these moves as blocking
/// moves.
LogicalResult Generator::emitStart(StartOp op) {
  int64_t first = moveTable.size(), ticket = tickets.size();
  tickets[op.getTicket()] = ticket;
  for (MoveOpInterface move : op.getMoves())
    if (failed(addMove(move)))
      return failure();
  auto addresses = [&](ValueRange values) {
    return llvm::map_to_vector(values, [&](Value v) { return addressOf(v); });
  };
  auto ins = addresses(op.getInputs()), outs = addresses(op.getWait().getResults());
  if (toStep)
    main->start(first, ins, outs, ticket);
  if (toEvaluation && all.evaluation->needsAll(op))
    evaluation->start(first, ins, outs, ticket);
  else if (toEvaluation)
    for (auto [i, in, out] : llvm::enumerate(ins, outs))
      if (all.evaluation->needsMove(op, i))
        evaluation->move(first + static_cast<int64_t>(i), in, out);
  return success();
}

/// Adds a yielded value to the sum over microbatches: copies it in the first microbatch, adds it in later ones.
void Generator::addToSum(OpOperand &use) {
  OpBuilder b(planned.getContext());
  Value yielded = use.get(), result = current.getResult(use.getOperandNumber());
  Address from = addressOf(yielded), to{homeOf(result), 0};
  OwningOpRef<UpdateOp> copy = UpdateOp::create(b, yielded.getLoc(), "accumulate", nullptr, yielded);
  // The operands are two separate values, because a kernel identifies its buffers by value.
  OwningOpRef<AddOp> add = AddOp::create(b, yielded.getLoc(), withEncoding(yielded.getType(), {}), result, yielded);
  auto kernelOf = [&](Operation *op) { return addKernel("accumulate", **kernels.get(op, 0)); };
  int64_t copies = kernelOf(*copy), adds = current.getMicrobatches() > 1 ? kernelOf(*add) : -1;
  bool evaluates = std::exchange(toEvaluation, evaluation && all.evaluation->needs(use));
  write([&](HostProgram &host) {
    host.byMicrobatch([&] { host.launch(copies, {from, to}); }, [&] { host.launch(adds, {to, from, to}); });
  });
  toEvaluation = evaluates;
}

/// Writes a loop over microbatches around the body and the additions to its sums.
LogicalResult Generator::emitAccumulate(AccumulateOp op) {
  current = op;
  bool evaluates = toEvaluation;
  write([&](HostProgram &to) { to.beginLoop(op.getMicrobatches()); });
  if (failed(emitBlock(op.getBody().front())))
    return failure();
  Operation *yield = op.getBody().front().getTerminator();
  TableEnds begin = ends();
  for (OpOperand &use : yield->getOpOperands()) {
    Address from = addressOf(use.get());
    bool done =
        op.getMicrobatches() == 1 && !from.stride && from.offset == homeOf(op.getResult(use.getOperandNumber()));
    if (!done && !addedAfter(use))
      addToSum(use);
  }
  written.push_back({yield, begin, ends()});
  toEvaluation = evaluates;
  write([](HostProgram &to) { to.endLoop(); });
  current = {};
  return success();
}

LogicalResult Generator::emitCalled(CallOp op) {
  Block *body = functions.of(op).body;
  return calls[body]++ ? success() : emitBlock(*body);
}

/// Returns true if `op` needs no call.
bool Generator::isIdle(Operation *op) {
  if (auto update = dyn_cast<UpdateOp>(op))
    return leaves.isInPlace(update);
  return isa<ParameterOp, StateOp, InputOp, RopeTableOp, MicrobatchOp>(op);
}

/// Writes the code of the host for one op: calls of the runtime, of kernels or of a library. Some ops need no code.
LogicalResult Generator::emitOp(Operation *op) {
  auto resultAddresses = [&] { return llvm::map_to_vector(op->getResults(), [&](Value v) { return addressOf(v); }); };
  // Ops on routed tokens have grouped calls or kernels for rows. All others are written as the same op on rows.
  if (hasRows(op) && !isa<AllToAllRowsOp>(op)) {
    if (auto einsum = dyn_cast<EinsumOp>(op); einsum && einsum.getMask())
      return emitGrouped(einsum);
    if (auto fusion = dyn_cast<FusionOp>(op))
      if (std::optional<CodedExperts> experts = asCodedExperts(fusion))
        return cuda ? emitKernels(op, op->getOperands(), resultAddresses()) : emitGrouped(*experts);
    return emitOp(rowForm(op).op);
  }
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case<ParameterOp, StateOp, InputOp, RopeTableOp, MicrobatchOp, YieldOp, func::ReturnOp>(
          [](Operation *) { return success(); })
      .Case([&](BlockOffsetOp offset) {
        int32_t group = groupOf(axisList(offset.getAxes()));
        write([&](HostProgram &to) { to.blockOffset(group, offset.getBlock(), addressOf(offset.getValue())); });
        return success();
      })
      .Case([&](OutputOp out) {
        int64_t output = outputOf(out);
        write([&](HostProgram &to) { to.observe(output, addressOf(out.getValue()), microbatch); });
        return success();
      })
      .Case([&](UpdateOp update) -> LogicalResult {
        Value leaf = leaves.of(update);
        if (!leaf)
          return update.emitOpError() << "'" << update.getName() << "' is not a parameter or state of this program";
        // The kernel that computed the new value has written it into the leaf's memory.
        if (homeOf(leaf) == homeOf(update.getValue()))
          return success();
        return emitKernels(op, op->getOperands(), {addressOf(leaf)});
      })
      .Case([&](TopKOp choice) -> LogicalResult {
        if (failed(emitKernels(op, op->getOperands(), resultAddresses())))
          return failure();
        if (choice.getLayer()) {
          int64_t output = outputOf(op);
          write([&](HostProgram &to) { to.observe(output, addressOf(choice.getResult()), microbatch); });
        }
        return success();
      })
      .Case([&](AccumulateOp accumulate) { return emitAccumulate(accumulate); })
      .Case([&](CallOp call) { return emitCalled(call); })
      .Case([&](TaskOp task) {
        microbatch = task.getMicrobatch().value_or(0);
        write([&](HostProgram &to) {
          to.task(static_cast<int64_t>(task.getKind()), task.getChunk().value_or(0), microbatch);
        });
        return success();
      })
      .Case([&](SendOp send) {
        int64_t flow = flowOf(send.getStage(), send.getFlow(), true, send.getSlots(), send.getX());
        write([&](HostProgram &to) { to.send(flow, addressOf(send.getX())); });
        return success();
      })
      .Case([&](ReceiveOp receive) {
        int64_t flow = flowOf(receive.getStage(), receive.getFlow(), false, receive.getSlots(), receive.getValue());
        write([&](HostProgram &to) { to.receive(flow, addressOf(receive.getValue())); });
        return success();
      })
      .Case([&](MoveOpInterface move) { return emitMove(move); })
      .Case([&](StartOp start) { return emitStart(start); })
      .Case([&](WaitOp wait) {
        toEvaluation &= evaluation && all.evaluation->needsAll(wait.getStart());
        write([&](HostProgram &to) { to.wait(tickets.lookup(wait.getTicket())); });
        return success();
      })
      .Case([&](FusionOp fusion) {
        // On a GPU our own kernels multiply by codes.
        if (std::optional<FusedProduct> product = asFusedProduct(fusion, cuda); product && !(cuda && product->group))
          return emitGemm(*product);
        return emitKernels(op, op->getOperands(), resultAddresses());
      })
      .Case<AttentionOp, AttentionGradOp, PackedAttentionOp, PackedAttentionGradOp>([&](auto) -> LogicalResult {
        // The library's memory is planned for attentions of the step only.
        if (!cuda || !toStep || !all.libraries.takes(op))
          return emitKernels(op, op->getOperands(), resultAddresses());
        return emitAttention(op);
      })
      .Case([&](EinsumOp einsum) -> LogicalResult {
        if (asGemm(einsum))
          return emitGemm(einsum);
        return emitKernels(op, op->getOperands(), resultAddresses());
      })
      .Default([&](Operation *) { return emitKernels(op, op->getOperands(), resultAddresses()); });
}

/// Writes the calls of `op`, which drops something, to the evaluation.
LogicalResult Generator::emitWithoutDropping(Operation *op) {
  OwningOpRef<Operation *> keeps = withoutDropping(op);
  toStep = false, toEvaluation = true;
  LogicalResult done = emitOp(*keeps);
  toStep = true;
  return done;
}

/// Writes all ops in order. `written` records the table entries of each op.
LogicalResult Generator::emitBlock(Block &block) {
  for (auto op = block.begin(); op != block.end();) {
    TableEnds begin = ends();
    if (Block::iterator next = cuda ? emitTogether(op) : op; next != op) {
      written.push_back({&*op, begin, ends()});
      while (++op != next)
        written.push_back({&*op, ends(), ends()});
      continue;
    }
    bool evaluates = isInEvaluation(&*op), keeps = evaluates && drops(&*op);
    toEvaluation = evaluates && !keeps;
    if (failed(emitOp(&*op)) || (keeps && failed(emitWithoutDropping(&*op))))
      return failure();
    for (OpOperand &use : op->getUses())
      if (addedAfter(use) && !summedByProduct(use.get()))
        addToSum(use);
    if (!isa<MoveOpInterface, StartOp, AccumulateOp, CallOp, SendOp, ReceiveOp>(*op))
      written.push_back({&*op, begin, ends()});
    ++op;
  }
  return success();
}

/// Writes the tables and the description at the end, when all rows are known.
void Generator::emitTables(llvm::json::Value report) {
  // The description is part of the executable, so a run needs no other file.
  std::string description;
  llvm::json::Object object = describeProgram(planned, outputs, arena, all.microbatches, std::move(report));
  if (all.cases)
    object["cases"] = all.cases->take();
  llvm::raw_string_ostream(description) << llvm::json::Value(std::move(object));
  MeshAttr mesh = meshOf(planned);
  SmallVector<const char *> names;
  for (StringAttr name : mesh.getNames())
    names.push_back(tables.text(name.getValue()));
  // Tables that all programs share are written with the first program.
  auto shared = [&]<typename T>(StringRef name, ArrayRef<T> rows) {
    return all.module.lookupSymbol(name) ? tables.symbol<const T *>(name) : tables.array(name, rows);
  };
  int64_t stage = stageOf(planned);
  bool isLast = !all.numStages || stage + 1 == all.numStages;
  auto count = [](const auto &rows) { return static_cast<int32_t>(rows.size()); };
  pcrt_program program{
      .abi_version = PCRT_ABI_VERSION,
      .num_mesh_axes = count(names),
      .mesh_sizes = shared("pc_mesh_sizes", mesh.getSizes()),
      .mesh_names = shared("pc_mesh_names", ArrayRef<const char *>(names)),
      .num_groups = count(all.groupTable),
      .num_kernels = count(kernelTable),
      .num_gemms = count(gemmTable),
      .num_moves = count(moveTable),
      .groups = shared("pc_groups", ArrayRef<pcrt_group>(all.groupTable)),
      .kernels = table<pcrt_kernel>("pc_kernel_table", kernelTable),
      .gemms = table<pcrt_gemm_desc>("pc_gemms", gemmTable),
      .moves = table<pcrt_move_desc>("pc_moves", moveTable),
      .arena_bytes = arena,
      .host_bytes = inHost,
      .disk_bytes = onDisk,
      .json = tables.text(description),
      .json_bytes = static_cast<int64_t>(description.size()),
      .step = tables.symbol<decltype(pcrt_program::step)>("pc_step" + suffix),
      .evaluate = tables.symbol<decltype(pcrt_program::evaluate)>(evaluation ? "pc_evaluate" + suffix : ""),
      .round = tables.symbol<decltype(pcrt_program::round)>(Rounds::of(planned) ? "pc_round" + suffix : ""),
      .target = cuda ? PCRT_CUDA : PCRT_CPU,
      .num_images = 0, // embedImages sets it
      .num_attentions = count(attentionTable),
      .num_tickets = count(tickets),
      .images = nullptr,
      .device_kernels = table<pcrt_device_kernel>("pc_device_kernels", deviceKernelTable),
      .attentions = table<pcrt_attention_desc>("pc_attentions", attentionTable),
      .workspace_offset = workspace ? arena - workspace : 0,
      .workspace_bytes = workspace,
      .num_stages = static_cast<int32_t>(all.numStages),
      .stage_axis = static_cast<int32_t>(all.stageAxis),
      .stage = static_cast<int32_t>(stage),
      .num_flows = count(flowTable),
      .flows = table<pcrt_flow>("pc_flows", flowTable),
      .next_stage = tables.symbol<const pcrt_program *>(isLast ? "" : "pc_program_stage" + std::to_string(stage + 1)),
  };
  tables.publish("pc_program" + suffix, program);
}

/// Checks that every value has a home before it writes the first call.
LogicalResult Generator::run() {
  auto step = planned.lookupSymbol<func::FuncOp>("step");
  if (!step)
    return planned.emitError() << "pc-generate-kernels: this module has no function @step";
  if (!meshOf(planned))
    return planned.emitError() << "pc-generate-kernels: this module has no pc.mesh";
  // The values inside of a fusion stay in registers, so they need no offset.
  WalkResult homes = step.walk([&](Operation *op) -> WalkResult {
    if (op->getParentOfType<FusionOp>() || op->getParentOfType<StartOp>() || isa<StartOp>(op))
      return WalkResult::advance();
    for (Value v : op->getResults())
      if (!isa_and_nonnull<HomeAttr>(cast<RankedTensorType>(v.getType()).getEncoding()))
        return op->emitOpError() << "has a result without an arena offset; run pc-plan-memory first";
    return WalkResult::advance();
  });
  if (homes.wasInterrupted())
    return failure();
  step.walk([&](Operation *op) { leaves.add(op); });
  planned.walk([&](ArenaOp op) {
    arena = op.sizeOf(Space::Device), inHost = op.sizeOf(Space::Host), onDisk = op.sizeOf(Space::Disk);
  });
  // The workspace of the libraries is at the end of the arena.
  workspace = cuda ? libraryWorkspaceBytes(planned, all.libraries) : 0;
  if (all.evaluation)
    evaluation.emplace(all.module, "pc_evaluate" + suffix);
  if (failed(emitBlock(step.getBody().front())))
    return failure();
  host.finish();
  if (evaluation)
    evaluation->finish();
  return emitRound();
}

/// Writes the function for the end of a round, if the program has rounds.
LogicalResult Generator::emitRound() {
  OwningOpRef<func::FuncOp> round = buildRound(planned);
  if (!round)
    return success();
  HostProgram ofRound(all.module, "pc_round" + suffix);
  main = &ofRound;
  size_t before = written.size();
  LogicalResult done = emitBlock(round->getBody().front());
  written.resize(before);
  main = &host;
  ofRound.finish();
  return done;
}

/// Names every flow after the task whose result it sends.
static void nameFlows(ArrayRef<ModuleOp> stages, std::map<FlowKey, std::string> &names) {
  for (ModuleOp stage : stages) {
    TaskOp task;
    stage.walk([&](Operation *op) {
      if (auto next = dyn_cast<TaskOp>(op))
        task = next;
      auto send = dyn_cast<SendOp>(op);
      if (!send)
        return;
      int64_t from = stageOf(stage), to = send.getStage();
      std::string name = "shared gradient";
      if (task && task.getKind() != TaskKind::Optimizer)
        name = stringifyTaskKind(task.getKind()).str() + " of chunk " + std::to_string(*task.getChunk());
      name += " from stage " + std::to_string(from) + " to stage " + std::to_string(to);
      names.try_emplace({from, to, send.getFlow()}, name);
    });
  }
}

/// Checks that every receive has a send in the stage that it names.
static LogicalResult checkFlows(ArrayRef<ModuleOp> stages, const std::map<FlowKey, std::string> &names) {
  for (ModuleOp stage : stages) {
    WalkResult walked = stage.walk([&](ReceiveOp receive) -> WalkResult {
      if (names.count({receive.getStage(), stageOf(stage), receive.getFlow()}))
        return WalkResult::advance();
      return receive.emitOpError() << "waits for a message that stage " << receive.getStage() << " does not send";
    });
    if (walked.wasInterrupted())
      return failure();
  }
  return success();
}

/// One generator per stage, which share kernels, names of flows and tables.
FailureOr<SmallVector<std::unique_ptr<Generator>>> pc::generateSteps(ModuleOp planned, Executable &all) {
  planned.walk([&](PlanOp op) { all.microbatches = op.getMicrobatches(); });
  SmallVector<ModuleOp> programs = programsOf(planned);
  nameFlows(programs, all.flowNames);
  if (failed(checkFlows(programs, all.flowNames)))
    return failure();
  if (StringAttr axis = stageAxisOf(planned)) {
    all.numStages = programs.size();
    all.stageAxis = meshOf(programs[0]).index(axis);
  }
  bool trains = llvm::any_of(programs, [](ModuleOp program) {
    return program.walk([](UpdateOp) { return WalkResult::interrupt(); }).wasInterrupted();
  });
  if (trains)
    all.evaluation.emplace(programs);
  SmallVector<std::unique_ptr<Generator>> generators;
  for (ModuleOp program : programs) {
    generators.push_back(std::make_unique<Generator>(program, all));
    if (failed(generators.back()->run()))
      return failure();
  }
  return std::move(generators);
}

namespace {
/// The pass pc-generate-kernels. It replaces the planned program by the host program and its kernels.
struct GenerateKernels : pc::impl::GenerateKernelsBase<GenerateKernels> {
  using GenerateKernelsBase::GenerateKernelsBase;

  void runOnOperation() override {
    ModuleOp planned = getOperation();
    std::string plan;
    planned.walk([&](PlanOp op) { plan = op.line(); });
    FailureOr<llvm::json::Value> report = buildReport(planned, plan);
    OwningOpRef<ModuleOp> output = ModuleOp::create(planned.getLoc());
    Executable executable(*output, {target == "cuda", lanes, roundsToBf16, haveWarpgroups(archs)},
                          CudaLibraries(attention, archs));
    if (checkKernels && executable.target.cuda)
      executable.cases.emplace(*output);
    if (failed(report))
      return signalPassFailure();
    // A step function is a straight line of runtime calls. Equal kernels are still written once.
    for (ModuleOp program : programsOf(planned))
      inlineCalls(program);
    auto generators = generateSteps(planned, executable);
    if (failed(generators))
      return signalPassFailure();
    // The first program has the report about all programs.
    for (auto [i, generator] : llvm::enumerate(*generators))
      generator->emitTables(i ? llvm::json::Value(llvm::json::Object()) : std::move(*report));
    planned.getBody()->clear();
    planned.getBody()->getOperations().splice(planned.getBody()->begin(), output->getBody()->getOperations());
  }
};
} // namespace
