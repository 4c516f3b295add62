//===- Calls.cpp - Task functions and their calls ------------------------------------------===//
// A task function holds the ops of one pipeline task and is called once per microbatch. This file verifies calls, maps
// a function's homes to those of its callers (TaskFunctions), moves leaves out of functions (tidyCalls), and inlines
// calls (inlineCalls).
//===-----------------------------------------------------------------------------===//
#include "pc/IR/Calls.h"
#include "pc/IR/Liveness.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"
#include <map>

using namespace mlir;
using namespace pc;

/// Returns true if two types are equal except for homes.
static bool agree(Type a, Type b) {
  auto s = cast<RankedTensorType>(a), t = cast<RankedTensorType>(b);
  return s.getShape() == t.getShape() && s.getElementType() == t.getElementType() && placement(a) == placement(b) &&
         rowsOf(a) == rowsOf(b);
}

/// The callee must be a private function of one block, with the types of the call. Homes may differ.
LogicalResult CallOp::verifySymbolUses(SymbolTableCollection &symbols) {
  auto function = symbols.lookupNearestSymbolFrom<func::FuncOp>(*this, getCalleeAttr());
  if (!function || !function.isPrivate() || !function.getBody().hasOneBlock())
    return emitOpError() << "calls '" << getCallee() << "', which is not a private function of one block (C1)";
  auto allAgree = [](TypeRange a, TypeRange b) {
    return a.size() == b.size() && llvm::all_of(llvm::zip(a, b), [](auto pair) {
             return isa<RankedTensorType>(std::get<1>(pair)) && agree(std::get<0>(pair), std::get<1>(pair));
           });
  };
  if (!allAgree(getInputs().getTypes(), function.getArgumentTypes()) ||
      !allAgree(getResultTypes(), function.getResultTypes()))
    return emitOpError() << "has a different type than '" << getCallee() << "': " << function.getFunctionType()
                         << " (C2)";
  return success();
}

int64_t pc::homeOrNone(Value value) {
  auto home = dyn_cast_or_null<HomeAttr>(cast<RankedTensorType>(value.getType()).getEncoding());
  return home ? home.getOffset() : -1;
}

/// Reads a function at its first call. Addresses in it begin with the frame, followed by those of arguments and
/// results.
const TaskFunction &TaskFunctions::of(CallOp call) {
  auto &known = functions[{call->getParentOfType<ModuleOp>(), call.getCalleeAttr()}];
  if (known)
    return *known;
  known = std::make_unique<TaskFunction>();
  known->function = SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(call, call.getCalleeAttr());
  known->body = &known->function.getBody().front();
  // Arguments and results have addresses above the frame, so the lowest of them on the device is the end of the frame.
  bool isEmpty = known->body->getNumArguments() == 0 && known->results().empty();
  known->frameBytes = isEmpty ? 0 : PCRT_HOST;
  for (Value argument : known->body->getArguments())
    known->frameBytes = std::min(known->frameBytes, homeOrNone(argument));
  for (Value result : known->results()) {
    int64_t home = homeOrNone(result);
    known->frameBytes = std::min(known->frameBytes, home);
    known->inPlace.push_back(-1);
    for (BlockArgument argument : known->body->getArguments())
      if (home >= 0 && homeOrNone(argument) == home)
        known->inPlace.back() = static_cast<int>(argument.getArgNumber());
  }
  return *known;
}

/// Functions of tasks are private; all others are steps.
SmallVector<func::FuncOp> pc::stepsOf(ModuleOp program) {
  SmallVector<func::FuncOp> steps;
  for (auto function : program.getOps<func::FuncOp>())
    if (!function.isPrivate())
      steps.push_back(function);
  return steps;
}

namespace {
/// A function and its calls.
struct Called {
  func::FuncOp function;
  SmallVector<CallOp> calls;
};
} // namespace

/// Every function that steps call, with its calls, in the order of the first calls.
static SmallVector<Called> calledIn(ModuleOp program) {
  SmallVector<Called> all;
  llvm::DenseMap<Attribute, size_t> number;
  for (func::FuncOp step : stepsOf(program))
    for (auto call : step.getOps<CallOp>()) {
      auto [it, first] = number.try_emplace(call.getCalleeAttr(), all.size());
      if (first)
        all.push_back({program.lookupSymbol<func::FuncOp>(call.getCalleeAttr()), {}});
      all[it->second].calls.push_back(call);
    }
  return all;
}

/// Replaces the leaves of `body` by new arguments. Returns, for each new argument, the leaf of `step` to pass; adds
/// missing leaves to `step`.
static SmallVector<Value> takeLeavesOut(Block &body, Block &step) {
  SmallVector<Value> outside;
  for (Operation &op : llvm::make_early_inc_range(body)) {
    if (!isLeaf(&op))
      continue;
    Operation *same = nullptr;
    for (Operation &other : step)
      if (OperationEquivalence::isEquivalentTo(&other, &op, OperationEquivalence::IgnoreLocations)) {
        same = &other;
        break;
      } else if (!isLeaf(&other)) {
        break;
      }
    if (!same)
      same = OpBuilder::atBlockBegin(&step).clone(op);
    auto *known = llvm::find(outside, same->getResult(0));
    Value argument = known == outside.end() ? body.addArgument(op.getResult(0).getType(), op.getLoc())
                                            : body.getArgument(body.getNumArguments() - (outside.end() - known));
    if (known == outside.end())
      outside.push_back(same->getResult(0));
    op.getResult(0).replaceAllUsesWith(argument);
    op.erase();
  }
  return outside;
}

/// After the leaves have been moved out, replaces results that are arguments, or that repeat other results, by values
/// of the caller.
void pc::tidyCalls(ModuleOp program) {
  for (Called &called : calledIn(program)) {
    Block &body = called.function.getBody().front();
    SmallVector<Value> outside = takeLeavesOut(body, *called.calls.front()->getBlock());
    // Keep results that are neither arguments nor earlier results.
    SmallVector<Value> returned(body.getTerminator()->getOperands()), kept;
    for (Value value : returned)
      if (!isa<BlockArgument>(value) && !llvm::is_contained(kept, value))
        kept.push_back(value);
    body.getTerminator()->setOperands(kept);
    for (CallOp call : called.calls) {
      OpBuilder builder(call);
      SmallVector<Value> inputs(call.getInputs());
      llvm::append_range(inputs, outside);
      auto tidy = CallOp::create(builder, call.getLoc(), ValueRange(kept).getTypes(), call.getCallee(), inputs,
                                 call.getFrameAttr());
      for (auto [value, result] : llvm::zip_equal(returned, call.getResults())) {
        auto argument = dyn_cast<BlockArgument>(value);
        result.replaceAllUsesWith(argument ? inputs[argument.getArgNumber()]
                                           : tidy.getResult(llvm::find(kept, value) - kept.begin()));
      }
      call.erase();
    }
    called.function.setType(
        FunctionType::get(program.getContext(), body.getArgumentTypes(), ValueRange(kept).getTypes()));
  }
}

/// Clones the body at each call. In planned programs, every range of the function's addresses is mapped to the caller's
/// arena.
void pc::inlineCalls(ModuleOp program) {
  TaskFunctions functions;
  SmallVector<Called> all = calledIn(program);
  for (Called &called : all)
    for (CallOp call : called.calls) {
      const TaskFunction &function = functions.of(call);
      OpBuilder builder(call);
      IRMapping mapping;
      mapping.map(function.body->getArguments(), call.getInputs());
      std::map<int64_t, int64_t> places; // start of a range of the function's addresses -> offset in the arena
      if (call.getFrame()) {
        // Addresses of the frame begin at 0; those of arguments and results begin where each of them has its home.
        places[0] = *call.getFrame();
        auto add = [&](ValueRange inside, ValueRange outside) {
          for (auto [from, to] : llvm::zip_equal(inside, outside))
            places[homeOrNone(from)] = homeOrNone(to);
        };
        add(function.body->getArguments(), call.getInputs());
        add(function.results(), call.getResults());
      }
      for (Operation &op : function.body->without_terminator()) {
        Operation *clone = builder.clone(op, mapping);
        if (places.empty())
          continue;
        for (Value result : clone->getResults()) {
          if (isa<TicketType>(result.getType()))
            continue;
          // The range that contains the address is the last one that starts at or before it.
          int64_t address = homeOrNone(result);
          auto place = std::prev(places.upper_bound(address));
          auto home = HomeAttr::get(program.getContext(), place->second + address - place->first, rowsOf(result));
          result.setType(withEncoding(result.getType(), home));
        }
      }
      for (auto [result, value] : llvm::zip_equal(call.getResults(), function.results()))
        result.replaceAllUsesWith(mapping.lookup(value));
      call.erase();
    }
  for (Called &called : all)
    called.function.erase();
}
