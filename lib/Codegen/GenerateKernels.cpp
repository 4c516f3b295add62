//===- GenerateKernels.cpp - Planned program -> host program, tables, kernels -------------===//
#include "Generator.h"
#include "Kernel.h"
#include "pc/Codegen/Passes.h"
#include "pc/Cost/Report.h"
#include "pc/IR/Calls.h"
#include "pc/IR/Liveness.h"

#include "llvm/ADT/TypeSwitch.h"

namespace pc {
#define GEN_PASS_DEF_GENERATEKERNELS
#include "pc/Codegen/Passes.h.inc"
} // namespace pc

using namespace mlir;
using namespace pc;

int32_t pc::dtypeOf(Value value) {
  Type element = cast<RankedTensorType>(value.getType()).getElementType();
  return element.isF32() ? PCRT_F32 : element.isBF16() ? PCRT_BF16 : PCRT_I32;
}

HostProgram::Address Generator::addressOf(Value value) {
  if (auto argument = dyn_cast<BlockArgument>(value);
      argument && current && argument.getOwner() == &current.getBody().front())
    return {homeOf(current.getInputs()[argument.getArgNumber()]), bytesOf(argument.getType())};
  return {homeOf(value), 0};
}

int64_t Generator::groupOf(ArrayRef<StringAttr> axes) {
  std::vector<int64_t> key;
  for (StringAttr axis : axes)
    key.push_back(meshOf(planned).index(axis));
  auto [it, inserted] = all.groups.try_emplace(key, all.groupTable.size());
  if (inserted) {
    Entry entry{Field::i32(key.size())};
    for (size_t i = 0; i < 8; ++i)
      entry.push_back(Field::i32(i < key.size() ? key[i] : 0));
    all.groupTable.push_back(entry);
  }
  return it->second;
}

/// The entry of a flow; counts a message.
int64_t Generator::flowOf(int64_t peer, int64_t id, bool sends, int64_t slots, Value message) {
  int64_t stage = stageOf(planned);
  auto [it, inserted] = flows.try_emplace({peer, id}, flowTable.size());
  if (inserted)
    flowTable.push_back({Field::string(all.flowNames.at(sends ? FlowKey{stage, peer, id} : FlowKey{peer, stage, id})),
                         Field::i32(peer), Field::i32(id), Field::i32(sends), Field::i32(slots), Field::i32(0),
                         Field::i64(bytesOf(message.getType()))});
  ++flowTable[it->second][5].number;
  return it->second;
}

/// The number of an output; one of several microbatches is shown several times.
int64_t Generator::outputOf(OutputOp op) {
  for (auto [i, other] : llvm::enumerate(outputs))
    if (other.getKind() == op.getKind() && other.getName() == op.getName())
      return i;
  outputs.push_back(op);
  return outputs.size() - 1;
}

/// Adds a use of a kernel to the tables; returns its index.
int64_t Generator::addKernel(StringRef name, const KernelSet::Info &info, bool ofHost) {
  bool device = cuda && !ofHost;
  kernelTable.push_back({Field::string(name), Field::string(info.kind), Field::symbol(device ? "" : info.function),
                         Field::i64(info.items), Field::i64(info.scratchBytes)});
  if (cuda)
    deviceKernelTable.push_back({Field::string(device ? info.function : ""), Field::i32(info.grid), Field::i32(1),
                                 Field::i32(1), Field::i32(info.block), Field::i32(1), Field::i32(1),
                                 Field::i32(info.numBuffers), Field::i64(0)});
  return kernelTable.size() - 1;
}

LogicalResult Generator::emitKernels(Operation *op, ValueRange operands, ArrayRef<Address> results) {
  SmallVector<Address> arguments;
  for (Value operand : operands)
    arguments.push_back(addressOf(operand));
  arguments.append(results.begin(), results.end());
  if (cuda && kernelWorkspaceBytes(op))
    arguments.push_back({arena - workspace, 0});
  if (arguments.size() > maxKernelArguments)
    return op->emitOpError() << "needs a kernel of " << arguments.size() << " buffers; at most " << maxKernelArguments;
  SmallVector<CheckCases::Launch> launches;
  const KernelSet::Info *first = nullptr;
  std::string name = op->getName().stripDialect().str() + " " + sourceName(op);
  for (unsigned part = 0; part < kernels.numParts(op); ++part) {
    FailureOr<const KernelSet::Info *> info = kernels.get(op, part);
    if (failed(info))
      return failure();
    first = part ? first : *info;
    launches.push_back({addKernel(name, **info), llvm::map_to_vector(arguments, [](Address at) { return at.offset; })});
    host.launch(launches.back().kernel, arguments);
  }
  return first ? addCase(name, *first, op, launches, results) : success();
}

/// Adds `op` to the table of moves; returns its index.
FailureOr<int64_t> Generator::addMove(MoveOpInterface op) {
  Value in = op->getOperand(0), out = op->getResult(0);
  auto from = cast<RankedTensorType>(in.getType()), to = cast<RankedTensorType>(out.getType());
  MoveKind kind = op.getMoveKind();
  int64_t dim = op.getMoveDim(), outer = 1, extent = 1, inner = 1;
  int64_t middle = 1, extent2 = 1, reduction = op.getReduction() == PartialKind::Max ? PCRT_MAX : PCRT_SUM;
  if (kind == MoveKind::AllToAll) {
    // Seen as [outer, extent, middle, extent2, inner]; `reduction` says which of the two is split first.
    int64_t low = std::min(dim, op.getOtherDim()), high = std::max(dim, op.getOtherDim());
    reduction = dim > op.getOtherDim();
    for (int64_t d = 0; d < from.getRank(); ++d) {
      int64_t size = std::max(from.getDimSize(d), to.getDimSize(d)); // whole in one of them
      (d < low ? outer : d == low ? extent : d < high ? middle : d == high ? extent2 : inner) *= size;
    }
  } else if (dim < 0) {
    outer = from.getNumElements();
  } else {
    RankedTensorType whole =
        kind == MoveKind::AllGather || kind == MoveKind::Pad || kind == MoveKind::Gather || kind == MoveKind::Insert
            ? to
            : from;
    for (int64_t d = 0; d < whole.getRank(); ++d)
      (d < dim ? outer : d == dim ? extent : inner) *= whole.getDimSize(d);
  }
  std::string name = moveName(kind).str() + " " + sourceName(op);
  SmallVector<StringAttr> with = op.getMoveWith();
  moveTable.push_back({Field::string(name), Field::i32(static_cast<int>(kind)), Field::i32(groupOf(op.getMoveAxes())),
                       Field::i32(dtypeOf(in)), Field::i32(reduction), Field::i64(outer), Field::i64(extent),
                       Field::i64(inner), Field::i64(middle), Field::i64(extent2),
                       Field::string(stepPhaseName(stepPhase(op))), Field::i32(op.getMoveShift()),
                       Field::i32(with.empty() ? 0 : 1 + groupOf(with))});
  return moveTable.size() - 1;
}

LogicalResult Generator::emitMove(MoveOpInterface op) {
  if (auto insert = dyn_cast<InsertOp>(*op);
      insert && insert.getBase() && homeOf(insert.getBase()) != homeOf(insert.getResult()))
    return insert.emitOpError() << "does not lie where its base does, which something else still reads";
  FailureOr<int64_t> index = addMove(op);
  if (failed(index))
    return failure();
  host.move(*index, addressOf(op->getOperand(0)), addressOf(op->getResult(0)));
  return success();
}

LogicalResult Generator::emitStart(StartOp op) {
  int64_t first = moveTable.size(), ticket = tickets.size();
  tickets[op.getTicket()] = ticket;
  for (MoveOpInterface move : op.getMoves())
    if (failed(addMove(move)))
      return failure();
  auto addresses = [&](ValueRange values) {
    return llvm::map_to_vector(values, [&](Value v) { return addressOf(v); });
  };
  host.start(first, addresses(op.getInputs()), addresses(op.getWait().getResults()), ticket);
  return success();
}

/// The result of the accumulation = what is yielded in the first microbatch, the result + that later.
void Generator::addToSum(OpOperand &use) {
  OpBuilder b(planned.getContext());
  Value yielded = use.get(), result = current.getResult(use.getOperandNumber());
  Address from = addressOf(yielded), to{homeOf(result), 0};
  OwningOpRef<UpdateOp> copy = UpdateOp::create(b, yielded.getLoc(), "accumulate", nullptr, yielded);
  auto launch = [&](Operation *op, ArrayRef<Address> arguments) {
    host.launch(addKernel("accumulate", **kernels.get(op, 0)), arguments);
  };
  // Two values: a kernel binds its buffers by value.
  OwningOpRef<AddOp> add = AddOp::create(b, yielded.getLoc(), withEncoding(yielded.getType(), {}), result, yielded);
  host.byMicrobatch([&] { launch(*copy, {from, to}); }, [&] { launch(*add, {to, from, to}); });
}

LogicalResult Generator::emitAccumulate(AccumulateOp op) {
  current = op;
  host.beginLoop(op.getMicrobatches());
  if (failed(emitBlock(op.getBody().front())))
    return failure();
  for (OpOperand &use : op.getBody().front().getTerminator()->getOpOperands()) {
    Address from = addressOf(use.get());
    bool done =
        op.getMicrobatches() == 1 && !from.stride && from.offset == homeOf(op.getResult(use.getOperandNumber()));
    if (!done && !addedBehind(use))
      addToSum(use);
  }
  host.endLoop();
  current = {};
  return success();
}

/// Whether nothing is called for `op`.
bool Generator::isIdle(Operation *op) {
  if (auto update = dyn_cast<UpdateOp>(op)) {
    Value leaf = leaves.lookup({update.getNameAttr(), update.getParameterAttr()});
    return leaf && homeOf(leaf) == homeOf(update.getValue());
  }
  return isa<ParameterOp, StateOp, InputOp, RopeTableOp, MicrobatchOp>(op);
}

LogicalResult Generator::emitOp(Operation *op) {
  auto resultAddresses = [&] { return llvm::map_to_vector(op->getResults(), [&](Value v) { return addressOf(v); }); };
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case<ParameterOp, StateOp, InputOp, RopeTableOp, MicrobatchOp, YieldOp, func::ReturnOp>(
          [](Operation *) { return success(); })
      .Case([&](BlockOffsetOp offset) {
        host.blockOffset(groupOf(axisList(offset.getAxes())), offset.getBlock(), addressOf(offset.getValue()));
        return success();
      })
      .Case([&](OutputOp out) {
        host.observe(outputOf(out), addressOf(out.getValue()), microbatch);
        return success();
      })
      .Case([&](UpdateOp update) -> LogicalResult {
        Value leaf = leaves.lookup({update.getNameAttr(), update.getParameterAttr()});
        if (!leaf)
          return update.emitOpError() << "'" << update.getName() << "' has no leaf in this program";
        if (homeOf(leaf) == homeOf(update.getValue()))
          return success();
        return emitKernels(op, op->getOperands(), {addressOf(leaf)});
      })
      .Case([&](AccumulateOp accumulate) { return emitAccumulate(accumulate); })
      .Case([&](TaskOp task) {
        microbatch = task.getMicrobatch().value_or(0);
        host.task(static_cast<int64_t>(task.getKind()), task.getChunk().value_or(0), microbatch);
        return success();
      })
      .Case([&](SendOp send) {
        int64_t flow = flowOf(send.getStage(), send.getFlow(), true, send.getSlots(), send.getX());
        host.send(flow, addressOf(send.getX()));
        return success();
      })
      .Case([&](ReceiveOp receive) {
        int64_t flow = flowOf(receive.getStage(), receive.getFlow(), false, receive.getSlots(), receive.getValue());
        host.receive(flow, addressOf(receive.getValue()));
        return success();
      })
      .Case([&](MoveOpInterface move) { return emitMove(move); })
      .Case([&](StartOp start) { return emitStart(start); })
      .Case([&](WaitOp wait) {
        host.wait(tickets.lookup(wait.getTicket()));
        return success();
      })
      .Case([&](FusionOp fusion) {
        if (std::optional<FusedProduct> product = asFusedProduct(fusion, cuda))
          return emitGemm(*product);
        return emitKernels(op, op->getOperands(), resultAddresses());
      })
      .Case<AttentionOp, AttentionGradOp>([&](auto attention) -> LogicalResult {
        if (!cuda || !all.libraries.takes(attention))
          return emitKernels(op, op->getOperands(), resultAddresses());
        return emitAttention(attention);
      })
      .Case([&](EinsumOp einsum) {
        if (asGemm(einsum))
          return emitGemm(einsum);
        return emitKernels(op, op->getOperands(), resultAddresses());
      })
      .Default([&](Operation *) { return emitKernels(op, op->getOperands(), resultAddresses()); });
}

LogicalResult Generator::emitBlock(Block &block) {
  for (auto op = block.begin(); op != block.end();) {
    if (Block::iterator next = cuda ? emitTogether(op) : op; next != op) {
      op = next;
      continue;
    }
    if (failed(emitOp(&*op)))
      return failure();
    for (OpOperand &use : op->getUses())
      if (addedBehind(use) && !summedByProduct(use.get()))
        addToSum(use);
    ++op;
  }
  return success();
}

void Generator::emitTables(llvm::json::Value report) {
  std::string description;
  llvm::json::Object object = describeProgram(planned, outputs, arena, all.microbatches, std::move(report));
  if (all.cases)
    object["cases"] = all.cases->take();
  llvm::raw_string_ostream(description) << llvm::json::Value(std::move(object));
  MeshAttr mesh = meshOf(planned);
  SmallVector<Entry> sizes, names;
  for (auto [name, size] : llvm::zip_equal(mesh.getNames(), mesh.getSizes())) {
    sizes.push_back({Field::i64(size)});
    names.push_back({Field::string(name.getValue())});
  }
  // Of all programs alike: the first one has it.
  auto shared = [&](StringRef name, ArrayRef<Entry> entries) {
    return Field::symbol(all.module.lookupSymbol(name) ? name.str() : tables.array(name, entries));
  };
  int64_t stage = stageOf(planned);
  bool isLast = !all.numStages || stage + 1 == all.numStages;
  tables.publish("pc_program" + suffix, {Field::i32(PCRT_ABI_VERSION),
                                         Field::i32(sizes.size()),
                                         shared("pc_mesh_sizes", sizes),
                                         shared("pc_mesh_names", names),
                                         Field::i32(all.groupTable.size()),
                                         Field::i32(kernelTable.size()),
                                         Field::i32(gemmTable.size()),
                                         Field::i32(moveTable.size()),
                                         shared("pc_groups", all.groupTable),
                                         Field::symbol(table("pc_kernel_table", kernelTable)),
                                         Field::symbol(table("pc_gemms", gemmTable)),
                                         Field::symbol(table("pc_moves", moveTable)),
                                         Field::i64(arena),
                                         Field::string(description),
                                         Field::i64(description.size()),
                                         Field::symbol("pc_step" + suffix),
                                         Field::i32(cuda ? PCRT_CUDA : PCRT_CPU),
                                         Field::i32(0),
                                         Field::i32(attentionTable.size()),
                                         Field::i32(tickets.size()),
                                         Field::symbol(""),
                                         Field::symbol(table("pc_device_kernels", deviceKernelTable)),
                                         Field::symbol(table("pc_attentions", attentionTable)),
                                         Field::i64(workspace ? arena - workspace : 0),
                                         Field::i64(workspace),
                                         Field::i32(all.numStages),
                                         Field::i32(all.stageAxis),
                                         Field::i32(stage),
                                         Field::i32(flowTable.size()),
                                         Field::symbol(table("pc_flows", flowTable)),
                                         Field::symbol(isLast ? "" : "pc_program_stage" + std::to_string(stage + 1))});
}

LogicalResult Generator::run() {
  auto step = planned.lookupSymbol<func::FuncOp>("step");
  if (!step)
    return planned.emitError() << "pc-generate-kernels: no function @step in this module";
  if (!meshOf(planned))
    return planned.emitError() << "pc-generate-kernels: no pc.mesh in this module";
  WalkResult homes = step.walk([&](Operation *op) {
    if (op->getParentOfType<FusionOp>() || op->getParentOfType<StartOp>() || isa<StartOp>(op))
      return WalkResult::advance();
    for (Value v : op->getResults())
      if (!isa_and_nonnull<HomeAttr>(cast<RankedTensorType>(v.getType()).getEncoding())) {
        op->emitOpError() << "has no home; run pc-plan-memory first";
        return WalkResult::interrupt();
      }
    return WalkResult::advance();
  });
  if (homes.wasInterrupted())
    return failure();
  step.walk([&](Operation *op) {
    if (auto parameter = dyn_cast<ParameterOp>(op))
      leaves[{parameter.getNameAttr(), StringAttr()}] = parameter.getValue();
    else if (auto state = dyn_cast<StateOp>(op))
      leaves[{state.getNameAttr(), state.getParameterAttr()}] = state.getValue();
  });
  planned.walk([&](ArenaOp op) { arena = op.getBytes(); });
  workspace = cuda ? libraryWorkspaceBytes(planned, all.libraries) : 0;
  if (failed(emitBlock(step.getBody().front())))
    return failure();
  host.finish();
  return success();
}

/// Names every flow by the task whose result it carries: the sender's.
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

/// Every receive has a send in the stage that it names.
static LogicalResult checkFlows(ArrayRef<ModuleOp> stages, const std::map<FlowKey, std::string> &names) {
  for (ModuleOp stage : stages) {
    WalkResult walked = stage.walk([&](ReceiveOp receive) {
      if (names.count({receive.getStage(), stageOf(stage), receive.getFlow()}))
        return WalkResult::advance();
      receive.emitOpError() << "waits for messages that stage " << receive.getStage() << " does not send";
      return WalkResult::interrupt();
    });
    if (walked.wasInterrupted())
      return failure();
  }
  return success();
}

namespace {
struct GenerateKernels : pc::impl::GenerateKernelsBase<GenerateKernels> {
  using GenerateKernelsBase::GenerateKernelsBase;

  void runOnOperation() override {
    ModuleOp planned = getOperation();
    std::string plan;
    OwningOpRef<ModuleOp> output = ModuleOp::create(planned.getLoc());
    Executable executable(*output, {target == "cuda", lanes, roundsToBf16}, CudaLibraries(attention, archs));
    if (checkKernels && executable.target.cuda)
      executable.cases.emplace(*output);
    planned.walk([&](PlanOp op) {
      plan = op.line();
      executable.microbatches = op.getMicrobatches();
    });
    FailureOr<llvm::json::Value> report = buildReport(planned, plan);
    SmallVector<ModuleOp> programs = programsOf(planned);
    // Kernels are written once in any case; the calls of the runtime stand one behind the other.
    for (ModuleOp program : programs)
      inlineCalls(program);
    nameFlows(programs, executable.flowNames);
    if (failed(report) || failed(checkFlows(programs, executable.flowNames)))
      return signalPassFailure();
    if (StringAttr axis = stageAxisOf(planned)) {
      executable.numStages = programs.size();
      executable.stageAxis = meshOf(programs[0]).index(axis);
    }
    SmallVector<std::unique_ptr<Generator>> generators;
    for (ModuleOp program : programs) {
      generators.push_back(std::make_unique<Generator>(program, executable));
      if (failed(generators.back()->run()))
        return signalPassFailure();
    }
    // The first program describes what all of them cost.
    for (auto [i, generator] : llvm::enumerate(generators))
      generator->emitTables(i ? llvm::json::Value(llvm::json::Object()) : std::move(*report));
    planned.getBody()->clear();
    planned.getBody()->getOperations().splice(planned.getBody()->begin(), output->getBody()->getOperations());
  }
};
} // namespace
