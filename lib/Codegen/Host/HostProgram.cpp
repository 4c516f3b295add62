//===- HostProgram.cpp - The step function and its calls of the runtime -----------------===//
// Each call of the runtime is written as an LLVM call followed by a branch to the exit if its status is not 0. A loop
// over microbatches, if there is one, is the only other control flow; StepReader.cpp reads the function back.
//===-----------------------------------------------------------------------------===//
#include "HostProgram.h"

using namespace mlir;
using namespace pc;

/// A function (context, arena) -> status. If a call fails, the function jumps to its single exit.
HostProgram::HostProgram(ModuleOp module, StringRef name)
    : b(module.getContext()), loc(module.getLoc()), module(module) {
  b.setInsertionPointToEnd(module.getBody());
  Type pointer = LLVM::LLVMPointerType::get(b.getContext());
  function = LLVM::LLVMFuncOp::create(b, loc, name, LLVM::LLVMFunctionType::get(b.getI32Type(), {pointer, pointer}));
  Block *entry = function.addEntryBlock(b);
  context = entry->getArgument(0);
  arena = entry->getArgument(1);
  exit = newBlock();
  exit->addArgument(b.getI32Type(), loc);
  b.setInsertionPointToStart(exit);
  LLVM::ReturnOp::create(b, loc, exit->getArgument(0));
  b.setInsertionPointToStart(entry);
  arguments = LLVM::AllocaOp::create(b, loc, pointer, pointer, integer(maxKernelArguments));
}

Value HostProgram::integer(int64_t value, unsigned bits) {
  return LLVM::ConstantOp::create(b, loc, b.getIntegerType(bits), value);
}

/// An address inside the loop over microbatches grows by a stride per microbatch.
Value HostProgram::address(Address at) {
  Type pointer = LLVM::LLVMPointerType::get(b.getContext());
  Value result = LLVM::GEPOp::create(b, loc, pointer, b.getI8Type(), arena, ValueRange{integer(at.offset)});
  if (!at.stride || !microbatch)
    return result;
  Value offset = LLVM::MulOp::create(b, loc, microbatch, integer(at.stride));
  return LLVM::GEPOp::create(b, loc, pointer, b.getI8Type(), result, ValueRange{offset});
}

/// Declares the function at its first use.
Value HostProgram::callFunction(StringRef name, ValueRange arguments) {
  auto callee = module.lookupSymbol<LLVM::LLVMFuncOp>(name);
  if (!callee) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(module.getBody());
    callee = LLVM::LLVMFuncOp::create(
        b, loc, name, LLVM::LLVMFunctionType::get(b.getI32Type(), llvm::to_vector(arguments.getTypes())));
  }
  return LLVM::CallOp::create(b, loc, callee, arguments).getResult();
}

void HostProgram::check(Value status) {
  Value ok = LLVM::ICmpOp::create(b, loc, LLVM::ICmpPredicate::eq, status, integer(0, 32));
  Block *next = newBlock();
  LLVM::CondBrOp::create(b, loc, ok, next, ValueRange{}, exit, ValueRange{status});
  b.setInsertionPointToStart(next);
}

/// Writes the addresses into the argument array from position `at` on.
Value HostProgram::pass(ArrayRef<Address> list, int32_t at) {
  Type pointer = LLVM::LLVMPointerType::get(b.getContext());
  auto slot = [&](int32_t i) -> Value {
    return i ? LLVM::GEPOp::create(b, loc, pointer, pointer, arguments, ArrayRef<LLVM::GEPArg>{i}).getResult()
             : arguments;
  };
  for (auto [i, item] : llvm::enumerate(list))
    LLVM::StoreOp::create(b, loc, address(item), slot(at + static_cast<int32_t>(i)));
  return slot(at);
}

void HostProgram::launch(int64_t kernel, ArrayRef<Address> list) {
  count(numCalls.kernels, kernel, times);
  call<decltype(pcrt_launch)>("pcrt_launch", kernel, list);
}

/// A product without bias or further operand passes null for it.
void HostProgram::gemm(int64_t index, Address a, Address bAt, Address c, std::optional<Address> bias,
                       std::optional<Address> aux, int64_t later) {
  auto orNull = [&](std::optional<Address> at) -> Value {
    return at ? address(*at) : LLVM::ZeroOp::create(b, loc, LLVM::LLVMPointerType::get(b.getContext())).getResult();
  };
  Value biasAddress = orNull(bias);
  Value product = integer(index, 32);
  // The first microbatch writes the sum and the others add to it. These are two table entries, chosen at run time.
  bool changes = later >= 0 && microbatch;
  count(numCalls.products, index, changes ? 1 : times);
  if (changes) {
    count(numCalls.products, later, times - 1);
    Value isFirst = LLVM::ICmpOp::create(b, loc, LLVM::ICmpPredicate::eq, microbatch, integer(0));
    product = LLVM::SelectOp::create(b, loc, isFirst, product, integer(later, 32));
  }
  Value auxAddress = orNull(aux);
  call<decltype(pcrt_gemm)>("pcrt_gemm", product, a, bAt, c, biasAddress, auxAddress);
}

void HostProgram::attention(int64_t index, ArrayRef<Address> list) {
  count(numCalls.attentions, index, times);
  call<decltype(pcrt_attention)>("pcrt_attention", index, list);
}

void HostProgram::move(int64_t index, Address in, Address out) {
  call<decltype(pcrt_move)>("pcrt_move", index, in, out);
}

void HostProgram::start(int64_t first, ArrayRef<Address> ins, ArrayRef<Address> outs, int64_t ticket) {
  Value in = pass(ins), out = pass(outs, ins.size());
  call<decltype(pcrt_start)>("pcrt_start", first, ins.size(), in, out, ticket);
}

void HostProgram::wait(int64_t ticket) { call<decltype(pcrt_wait)>("pcrt_wait", ticket); }

void HostProgram::observe(int64_t output, Address value, int64_t of) {
  if (microbatch)
    call<decltype(pcrt_observe)>("pcrt_observe", output, microbatch, value);
  else
    call<decltype(pcrt_observe)>("pcrt_observe", output, of, value);
}

void HostProgram::send(int64_t flow, Address value) { call<decltype(pcrt_send)>("pcrt_send", flow, value); }

void HostProgram::receive(int64_t flow, Address value) { call<decltype(pcrt_receive)>("pcrt_receive", flow, value); }

void HostProgram::task(int64_t kind, int64_t chunk, int64_t of) {
  call<decltype(pcrt_task)>("pcrt_task", kind, chunk, of);
}

void HostProgram::blockOffset(int64_t group, int64_t block, Address to) {
  call<decltype(pcrt_block_offset)>("pcrt_block_offset", group, block, to);
}

/// With one microbatch there is no loop.
void HostProgram::beginLoop(int64_t microbatches) {
  loopCount = times = microbatches;
  if (microbatches == 1)
    return;
  loopHead = newBlock();
  microbatch = loopHead->addArgument(b.getI64Type(), loc);
  LLVM::BrOp::create(b, loc, ValueRange{integer(0)}, loopHead);
  b.setInsertionPointToStart(loopHead);
}

/// Ends the loop over microbatches.
void HostProgram::endLoop() {
  times = 1;
  if (loopCount == 1)
    return;
  Value next = LLVM::AddOp::create(b, loc, microbatch, integer(1));
  Value more = LLVM::ICmpOp::create(b, loc, LLVM::ICmpPredicate::slt, next, integer(loopCount));
  Block *after = newBlock();
  LLVM::CondBrOp::create(b, loc, more, loopHead, ValueRange{next}, after, ValueRange{});
  b.setInsertionPointToStart(after);
  microbatch = {};
}

/// Writes a branch at run time. With one microbatch, only the code of the first one is written.
void HostProgram::byMicrobatch(llvm::function_ref<void()> first, llvm::function_ref<void()> later) {
  if (loopCount == 1)
    return first();
  Value isFirst = LLVM::ICmpOp::create(b, loc, LLVM::ICmpPredicate::eq, microbatch, integer(0));
  Block *yes = newBlock(), *no = newBlock(), *after = newBlock();
  LLVM::CondBrOp::create(b, loc, isFirst, yes, ValueRange{}, no, ValueRange{});
  b.setInsertionPointToStart(yes);
  times = 1;
  first();
  LLVM::BrOp::create(b, loc, ValueRange{}, after);
  b.setInsertionPointToStart(no);
  times = loopCount - 1;
  later();
  times = loopCount;
  LLVM::BrOp::create(b, loc, ValueRange{}, after);
  b.setInsertionPointToStart(after);
}

void HostProgram::finish() { LLVM::BrOp::create(b, loc, ValueRange{integer(0, 32)}, exit); }
