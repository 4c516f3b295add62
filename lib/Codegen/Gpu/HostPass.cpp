//===- HostPass.cpp - NVPTX LLVM IR -> LLVM IR for this machine --------------------------------===//
// Address spaces stay, because x86 treats 1 to 255 as flat memory; only variables in shared memory are replaced. Calls
// in which a thread may wait carry a site number, because the optimizer merges and duplicates calls.
//===------------------------------------------------------------------------------------------===//
#include "HostPass.h"
#include "WarpgroupAsm.h"
#include "pcrt/host_image.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/ReplaceConstant.h"
#include "llvm/Support/Path.h"

using namespace llvm;
using namespace pc::toolchain;

namespace {

constexpr unsigned sharedAddressSpace = 3;
constexpr uint64_t gapBytes = 32; ///< between shared variables, so that a wrong index does not reach another one

std::string underscored(StringRef prefix, StringRef name) {
  std::string text = (prefix + name).str();
  std::replace(text.begin(), text.end(), '.', '_');
  return text;
}

/// Rewrites functions one after another. `fault` is the first instruction that cannot be replaced, or null.
struct Rewriter {
  Module &module;
  bool check;
  StringRef suffix;
  std::vector<HostSite> &sites;
  LLVMContext &context = module.getContext();
  const DataLayout &layout = module.getDataLayout();
  Type *voidType = Type::getVoidTy(context);
  IntegerType *i32 = Type::getInt32Ty(context), *i64 = Type::getInt64Ty(context);
  PointerType *pointer = PointerType::get(context, 0);
  GlobalVariable *running = nullptr; ///< pc_thread
  SmallVector<Constant *> shared;    ///< variables in shared memory
  std::string fault;

  // State of the function that is being rewritten.
  Function *function = nullptr;
  Value *thread = nullptr;
  bool synchronizes = false;

  Rewriter(Module &module, bool check, StringRef suffix, std::vector<HostSite> &sites)
      : module(module), check(check), suffix(suffix), sites(sites) {
    running = new GlobalVariable(module, pointer, false, GlobalValue::ExternalLinkage, nullptr, "pc_thread", nullptr,
                                 GlobalValue::InitialExecTLSModel);
  }

  void refuse(const Twine &what) {
    if (fault.empty())
      fault = (what + " in kernel " + function->getName() + " cannot be emulated on the CPU").str();
  }

  /// Adds a site, such as "store #7 at model.mlir:12:5".
  Value *site(Instruction *at, int32_t kind, const Twine &what) {
    std::string text = what.str() + " #" + std::to_string(sites.size());
    if (const DebugLoc &location = at->getDebugLoc(); location && location.getLine()) {
      auto *scope = cast<DIScope>(location.getScope());
      text += " at " + sys::path::filename(scope->getFilename()).str() + ":" + std::to_string(location.getLine()) +
              ":" + std::to_string(location.getCol());
    }
    sites.push_back({kind, function->getName().str(), text});
    return ConstantInt::get(i32, sites.size() - 1);
  }

  CallInst *call(IRBuilder<> &builder, StringRef name, Type *result, ArrayRef<Value *> arguments) {
    SmallVector<Type *> types;
    for (Value *argument : arguments)
      types.push_back(argument->getType());
    auto callee = module.getOrInsertFunction(name, FunctionType::get(result, types, false));
    return builder.CreateCall(callee, arguments);
  }

  /// A call that waits for other threads: no other instruction may move across it, and it keeps its place in the
  /// control flow.
  CallInst *waitingCall(IRBuilder<> &builder, StringRef name, Type *result, ArrayRef<Value *> arguments) {
    synchronizes = true;
    CallInst *instruction = call(builder, name, result, arguments);
    instruction->setConvergent();
    return instruction;
  }

  CallInst *pureCall(IRBuilder<> &builder, StringRef name, Type *result, ArrayRef<Value *> arguments) {
    CallInst *instruction = call(builder, name, result, arguments);
    instruction->setDoesNotAccessMemory();
    instruction->setDoesNotThrow();
    return instruction;
  }

  Value *field(IRBuilder<> &builder, size_t offset, Type *type) {
    LoadInst *load = builder.CreateLoad(type, builder.CreateConstGEP1_64(builder.getInt8Ty(), thread, offset));
    load->setMetadata(LLVMContext::MD_invariant_load, MDNode::get(context, {}));
    return load;
  }

  Value *flat(IRBuilder<> &builder, Value *address) { return builder.CreateAddrSpaceCast(address, pointer); }

  Value *specialRegister(IRBuilder<> &builder, StringRef name) {
    auto dim = [&](size_t first) { return field(builder, first + 4 * (name.back() - 'x'), i32); };
    if (name.starts_with("tid."))
      return dim(offsetof(pcrt_host_thread, tid));
    if (name.starts_with("ntid."))
      return dim(offsetof(pcrt_host_thread, ntid));
    if (name.starts_with("ctaid."))
      return dim(offsetof(pcrt_host_thread, ctaid));
    if (name.starts_with("nctaid."))
      return dim(offsetof(pcrt_host_thread, nctaid));
    if (name == "laneid")
      return field(builder, offsetof(pcrt_host_thread, lane), i32);
    if (name == "dynamic.smem.size" || name == "dynamic_smem_size")
      return field(builder, offsetof(pcrt_host_thread, dynamic_bytes), i32);
    if (name == "warpsize")
      return ConstantInt::get(i32, 32);
    return nullptr;
  }

  /// shfl.sync.<kind>.<type>[p]: (mask, value, operand, clamp) -> value, or value and predicate.
  Value *shuffle(IRBuilder<> &builder, CallInst *instruction, StringRef name) {
    int kind = StringSwitch<int>(name.split('.').first)
                   .Case("bfly", PCRT_SHUFFLE_BFLY)
                   .Case("up", PCRT_SHUFFLE_UP)
                   .Case("down", PCRT_SHUFFLE_DOWN)
                   .Case("idx", PCRT_SHUFFLE_IDX)
                   .Default(-1);
    if (kind < 0)
      return nullptr;
    Value *value = builder.CreateBitCast(instruction->getArgOperand(1), i32);
    Value *packed = waitingCall(builder, "pc_shuffle", i64,
                                {thread, ConstantInt::get(i32, kind), instruction->getArgOperand(0), value,
                                 instruction->getArgOperand(2), instruction->getArgOperand(3),
                                 site(instruction, PCRT_SITE_WARP, "shuffle")});
    auto *pair = dyn_cast<StructType>(instruction->getType());
    Type *type = pair ? pair->getElementType(0) : instruction->getType();
    Value *low = builder.CreateBitCast(builder.CreateTrunc(packed, i32), type);
    if (!pair)
      return low;
    Value *inRange = builder.CreateTrunc(builder.CreateLShr(packed, 32), builder.getInt1Ty());
    return builder.CreateInsertValue(builder.CreateInsertValue(PoisonValue::get(pair), low, 0), inRange, 1);
  }

  /// Calls any other instruction of a whole warp. Its operands and results are in slots of 8 bytes.
  Value *warp(IRBuilder<> &builder, CallInst *instruction, StringRef name) {
    std::string function = underscored("pc_warp_", name);
    if (StringRef rest = name; rest.consume_front("ldmatrix.sync.aligned.m8n8.")) {
      StringRef count = rest.split('.').first;
      function = ("pc_warp_ldmatrix_" + count + (rest.contains("trans") ? "_trans" : "")).str();
      if (!rest.contains("b16"))
        return nullptr;
      if (check)
        access(builder, instruction, instruction->getArgOperand(0), ConstantInt::get(i32, 16), PCRT_ACCESS_READ, 4,
               PCRT_SITE_LOAD, "ldmatrix");
    }
    auto callee = module.getOrInsertFunction(function, FunctionType::get(voidType, {pointer, pointer, i32}, false));
    IRBuilder<> entry(&*this->function->getEntryBlock().begin());
    auto slots = [&](uint64_t count) { return entry.CreateAlloca(ArrayType::get(i64, count)); };
    Value *in = slots(instruction->arg_size()), *out = slots(8);
    for (unsigned i = 0; i < instruction->arg_size(); ++i) {
      Value *argument = instruction->getArgOperand(i);
      if (argument->getType()->isPointerTy())
        argument = flat(builder, argument);
      if (argument->getType()->isIntegerTy(1))
        argument = builder.CreateZExt(argument, i64);
      builder.CreateStore(argument, builder.CreateConstGEP1_64(i64, in, i));
    }
    Value *mask = ConstantInt::get(i32, ~0u);
    if (name.starts_with("redux."))
      mask = instruction->getArgOperand(1);
    else if (name.starts_with("vote.") || name.starts_with("match."))
      mask = instruction->getArgOperand(0);
    waitingCall(builder, "pc_warp", voidType,
                {thread, mask, callee.getCallee(), in, out, site(instruction, PCRT_SITE_WARP, name.split('.').first)});
    auto result = [&](Type *type, unsigned i) -> Value * {
      Value *slot = builder.CreateConstGEP1_64(i64, out, i);
      if (type->isIntegerTy(1))
        return builder.CreateTrunc(builder.CreateLoad(i64, slot), type);
      return builder.CreateLoad(type, slot);
    };
    auto *structure = dyn_cast<StructType>(instruction->getType());
    if (!structure)
      return result(instruction->getType(), 0);
    Value *all = PoisonValue::get(structure);
    for (unsigned i = 0; i < structure->getNumElements(); ++i)
      all = builder.CreateInsertValue(all, result(structure->getElementType(i), i), i);
    return all;
  }

  /// cp.async.{ca,cg}.shared.global.<bytes>[.s], .commit.group, .wait.group, .wait.all.
  bool asyncCopy(IRBuilder<> &builder, CallInst *instruction, StringRef name) {
    if (name == "commit.group") {
      call(builder, "pc_cp_async_commit", voidType, {thread});
      return true;
    }
    if (name == "wait.group" || name == "wait.all") {
      bool all = name == "wait.all";
      Value *left = all ? ConstantInt::get(i32, 0) : builder.CreateZExtOrTrunc(instruction->getArgOperand(0), i32);
      call(builder, "pc_cp_async_wait", voidType,
           {thread, left, ConstantInt::get(i32, all), site(instruction, PCRT_SITE_WAIT, "wait for copies")});
      return true;
    }
    if (!name.consume_front("ca.shared.global.") && !name.consume_front("cg.shared.global."))
      return false;
    unsigned bytes = 0;
    if (name.split('.').first.getAsInteger(10, bytes))
      return false;
    Value *size = ConstantInt::get(i32, bytes);
    Value *source = instruction->arg_size() > 2 ? instruction->getArgOperand(2) : size;
    call(builder, "pc_cp_async", voidType,
         {thread, flat(builder, instruction->getArgOperand(0)), flat(builder, instruction->getArgOperand(1)), size,
          source, site(instruction, PCRT_SITE_COPY, "asynchronous copy")});
    return true;
  }

  /// Intrinsics that have an equivalent in target-independent LLVM IR; null for others.
  Value *generic(IRBuilder<> &builder, CallInst *instruction, StringRef name) {
    auto argument = [&](unsigned i) { return instruction->getArgOperand(i); };
    Type *type = instruction->getType();
    if (name.starts_with("fma.rn.") && !name.contains("ftz") && !name.contains("sat") && !name.contains("relu"))
      return builder.CreateIntrinsic(Intrinsic::fma, {type}, {argument(0), argument(1), argument(2)});
    if (name == "fabs.f" || name == "fabs.f32" || name == "fabs.d")
      return builder.CreateUnaryIntrinsic(Intrinsic::fabs, argument(0));
    if (name == "sqrt.rn.f" || name == "sqrt.rn.d")
      return builder.CreateUnaryIntrinsic(Intrinsic::sqrt, argument(0));
    return nullptr;
  }

  /// Replaces a call of an NVPTX intrinsic.
  void intrinsic(CallInst *instruction, StringRef name) {
    IRBuilder<> builder(instruction);
    Value *result = nullptr;
    bool done = false; // set if the intrinsic has no result to replace
    if (StringRef rest = name; rest.consume_front("read.ptx.sreg.")) {
      result = specialRegister(builder, rest);
    } else if (name == "barrier.cta.sync.aligned.all" || name == "barrier.cta.sync.all" || name == "barrier0") {
      waitingCall(builder, "pc_barrier", voidType, {thread, site(instruction, PCRT_SITE_BARRIER, "barrier")});
      done = true;
    } else if (StringRef rest = name; rest.consume_front("shfl.sync.")) {
      result = shuffle(builder, instruction, rest);
    } else if (name == "bar.warp.sync") {
      waitingCall(builder, "pc_syncwarp", voidType,
                  {thread, instruction->getArgOperand(0), site(instruction, PCRT_SITE_SYNCWARP, "warp barrier")});
      done = true;
    } else if (name.starts_with("mma.") || name.starts_with("ldmatrix.") || name.starts_with("vote.") ||
               name.starts_with("match.") || name.starts_with("redux.")) {
      result = warp(builder, instruction, name);
    } else if (StringRef rest = name;
               rest.consume_front("cp.async.") && !rest.starts_with("bulk") && !rest.starts_with("mbarrier")) {
      done = asyncCopy(builder, instruction, rest);
    } else if (name.starts_with("membar.") || name.starts_with("fence.")) {
      done = true; // fibers see memory in order
    } else if (name.starts_with("barrier.") || name.starts_with("mbarrier.") || name.starts_with("cp.async.") ||
               name.starts_with("wgmma.") || name.starts_with("tcgen05.") || name.starts_with("stmatrix.") ||
               instruction->getType()->isVoidTy()) {
      // None of the remaining intrinsics is a pure function.
    } else {
      result = generic(builder, instruction, name);
      if (!result) {
        SmallVector<Value *> arguments(instruction->args());
        result = pureCall(builder, underscored("pc_nvvm_", name), instruction->getType(), arguments);
      }
    }
    if (!result && !done)
      return refuse("the instruction llvm.nvvm." + name);
    if (result)
      instruction->replaceAllUsesWith(result);
    instruction->eraseFromParent();
  }

  /// The operands of an inline assembly by number: results with the inputs tied to them, then other inputs.
  struct AssemblyOperands {
    SmallVector<Value *> values; ///< by number; a result has the value of its tied input at first
    unsigned results = 0;
  };
  AssemblyOperands operandsOf(IRBuilder<> &builder, CallInst *instruction) {
    AssemblyOperands operands;
    unsigned argument = 0;
    for (const InlineAsm::ConstraintInfo &info : cast<InlineAsm>(instruction->getCalledOperand())->ParseConstraints()) {
      if (info.Type == InlineAsm::isOutput) {
        operands.values.push_back(Constant::getAllOnesValue(i32));
        ++operands.results;
      } else if (info.Type == InlineAsm::isInput) {
        Value *value = instruction->getArgOperand(argument++);
        value = builder.CreateBitCast(value, builder.getIntNTy(layout.getTypeSizeInBits(value->getType())));
        operands.values.push_back(value);
        if (unsigned tied; !StringRef(info.Codes[0]).getAsInteger(10, tied))
          operands.values[tied] = value;
      }
    }
    return operands;
  }

  /// Replaces inline PTX of fence.proxy.async and wgmma by calls.
  void warpgroup(CallInst *instruction, ArrayRef<WarpgroupInstruction> steps) {
    IRBuilder<> builder(instruction), entry(&*function->getEntryBlock().begin());
    AssemblyOperands operands = operandsOf(builder, instruction);
    auto slots = [&](uint64_t count) { return entry.CreateAlloca(ArrayType::get(i64, count)); };
    auto slot = [&](Value *slots, unsigned i) { return builder.CreateConstGEP1_64(i64, slots, i); };
    auto write = [&](ArrayRef<unsigned> numbers, Value *slots, unsigned from) {
      for (auto [i, number] : enumerate(numbers))
        builder.CreateStore(builder.CreateZExt(operands.values[number], i64), slot(slots, from + i));
    };
    auto read = [&](ArrayRef<unsigned> numbers, Value *slots) {
      for (auto [i, number] : enumerate(numbers))
        operands.values[number] = builder.CreateLoad(i32, slot(slots, i));
    };
    auto all = llvm::to_vector(seq(operands.results));
    for (const WarpgroupInstruction &step : steps) {
      switch (step.kind) {
      case WarpgroupInstruction::ProxyFence:
      case WarpgroupInstruction::Fence: {
        bool proxy = step.kind == WarpgroupInstruction::ProxyFence;
        call(builder, proxy ? "pc_fence_proxy_async" : "pc_wgmma_fence", voidType,
             {thread, site(instruction, PCRT_SITE_WAIT, proxy ? "fence of the asynchronous proxy" : "wgmma fence")});
        break;
      }
      case WarpgroupInstruction::Commit:
        call(builder, "pc_wgmma_commit", voidType, {thread});
        break;
      case WarpgroupInstruction::Product: {
        Value *in = slots(step.d.size() + step.ab.size()), *out = slots(step.d.size());
        write(step.d, in, 0);
        write(step.ab, in, step.d.size());
        waitingCall(builder, "pc_wgmma", voidType,
                    {thread, ConstantInt::get(i32, step.n), ConstantInt::get(i32, step.flags), in, out,
                     site(instruction, PCRT_SITE_WARP, "wgmma")});
        read(step.d, out);
        break;
      }
      case WarpgroupInstruction::Wait: {
        Value *values = slots(std::max<uint64_t>(all.size(), 1));
        write(all, values, 0);
        waitingCall(builder, "pc_wgmma_wait", voidType,
                    {thread, ConstantInt::get(i32, step.left), values, ConstantInt::get(i32, all.size()),
                     site(instruction, PCRT_SITE_WAIT, "wait for wgmma")});
        read(all, values);
        break;
      }
      }
    }
    if (auto *structure = dyn_cast<StructType>(instruction->getType())) {
      Value *results = PoisonValue::get(structure);
      for (unsigned i : all)
        results = builder.CreateInsertValue(results,
                                            builder.CreateBitCast(operands.values[i], structure->getElementType(i)), i);
      instruction->replaceAllUsesWith(results);
    }
    instruction->eraseFromParent();
  }

  /// Inline PTX of the form "op.modifier $0, $1, ...;" without side effects becomes a call of pc_ptx_op_modifier.
  /// warpgroup() handles the sequences for warpgroup products; everything else is refused.
  void inlineAssembly(CallInst *instruction) {
    auto *assembly = cast<InlineAsm>(instruction->getCalledOperand());
    StringRef text = StringRef(assembly->getAsmString()).trim();
    if (auto steps = parseWarpgroupAsm(text))
      return warpgroup(instruction, *steps);
    StringRef one = text;
    if (!one.consume_back(";") || one.contains(';') || assembly->hasSideEffects() ||
        instruction->getType()->isVoidTy() || instruction->getType()->isStructTy())
      return refuse("inline PTX \"" + text + "\"");
    StringRef name = one.take_until([](char c) { return isSpace(c); });
    IRBuilder<> builder(instruction);
    SmallVector<Value *> arguments(instruction->args());
    Value *result = pureCall(builder, underscored("pc_ptx_", name), instruction->getType(), arguments);
    instruction->replaceAllUsesWith(result);
    instruction->eraseFromParent();
  }

  /// Makes a conversion to an integer saturate, as on a device; x86 does not.
  void saturate(CastInst *instruction) {
    IRBuilder<> builder(instruction);
    Intrinsic::ID name = isa<FPToSIInst>(instruction) ? Intrinsic::fptosi_sat : Intrinsic::fptoui_sat;
    Type *types[] = {instruction->getDestTy(), instruction->getSrcTy()};
    instruction->replaceAllUsesWith(builder.CreateIntrinsic(name, types, {instruction->getOperand(0)}));
    instruction->eraseFromParent();
  }

  /// A call of pc_access before `at`. `log` is the alignment's binary logarithm.
  void access(IRBuilder<> &builder, Instruction *at, Value *address, Value *bytes, uint32_t kind, unsigned log,
              int32_t siteKind, const Twine &what, Value *value = nullptr) {
    call(builder, "pc_access", voidType,
         {thread, flat(builder, address), builder.CreateZExtOrTrunc(bytes, i32), ConstantInt::get(i32, kind | log << 8),
          value ? value : ConstantInt::get(i64, 0), site(at, siteKind, what)});
  }

  /// Returns true if no other thread can access the memory at `address`.
  bool isPrivate(Value *address) {
    const Value *object = getUnderlyingObject(address);
    return isa<AllocaInst>(object) || isa<GlobalVariable>(object);
  }

  void checkAccess(Instruction *instruction) {
    if (instruction->hasMetadata(LLVMContext::MD_invariant_load) && isa<Instruction>(instruction) &&
        getUnderlyingObject(getLoadStorePointerOperand(instruction)) == thread)
      return;
    IRBuilder<> builder(instruction);
    auto bytes = [&](Type *type) { return ConstantInt::get(i32, layout.getTypeStoreSize(type).getFixedValue()); };
    if (auto *load = dyn_cast<LoadInst>(instruction)) {
      if (!isPrivate(load->getPointerOperand()))
        access(builder, load, load->getPointerOperand(), bytes(load->getType()), PCRT_ACCESS_READ,
               Log2(load->getAlign()), PCRT_SITE_LOAD, "load");
    } else if (auto *store = dyn_cast<StoreInst>(instruction)) {
      if (isPrivate(store->getPointerOperand()))
        return;
      Value *value = store->getValueOperand(), *word = nullptr;
      Type *type = value->getType();
      uint32_t kind = PCRT_ACCESS_WRITE;
      if (!type->isVectorTy() && !type->isAggregateType() && layout.getTypeStoreSize(type) <= 8) {
        if (type->isPointerTy())
          value = builder.CreatePtrToInt(value, i64);
        word = builder.CreateZExt(
            builder.CreateBitCast(value, builder.getIntNTy(layout.getTypeSizeInBits(value->getType()))), i64);
        kind |= PCRT_ACCESS_VALUE;
      }
      access(builder, store, store->getPointerOperand(), bytes(type), kind, Log2(store->getAlign()), PCRT_SITE_STORE,
             "store", word);
    } else if (auto *update = dyn_cast<AtomicRMWInst>(instruction)) {
      access(builder, update, update->getPointerOperand(), bytes(update->getType()),
             PCRT_ACCESS_READ | PCRT_ACCESS_WRITE | PCRT_ACCESS_ATOMIC, Log2(update->getAlign()), PCRT_SITE_ATOMIC,
             "atomic update");
    } else if (auto *exchange = dyn_cast<AtomicCmpXchgInst>(instruction)) {
      access(builder, exchange, exchange->getPointerOperand(), bytes(exchange->getNewValOperand()->getType()),
             PCRT_ACCESS_READ | PCRT_ACCESS_WRITE | PCRT_ACCESS_ATOMIC, Log2(exchange->getAlign()), PCRT_SITE_ATOMIC,
             "atomic exchange");
    } else if (auto *memory = dyn_cast<MemIntrinsic>(instruction)) {
      if (auto *transfer = dyn_cast<MemTransferInst>(memory); transfer && !isPrivate(transfer->getRawSource()))
        access(builder, memory, transfer->getRawSource(), memory->getLength(), PCRT_ACCESS_READ,
               Log2(transfer->getSourceAlign().valueOrOne()), PCRT_SITE_LOAD, "copy from");
      if (!isPrivate(memory->getRawDest()))
        access(builder, memory, memory->getRawDest(), memory->getLength(), PCRT_ACCESS_WRITE,
               Log2(memory->getDestAlign().valueOrOne()), PCRT_SITE_STORE, "copy or fill of");
    }
  }

  /// Assigns offsets to the shared variables that the kernel uses: static ones first, dynamic shared memory last.
  void placeShared(HostKernel &kernel) {
    IRBuilder<> entry(&*function->getEntryBlock().getFirstInsertionPt());
    entry.SetInsertPoint(cast<Instruction>(thread)->getNextNode());
    Value *base = nullptr;
    uint64_t dynamicAlign = 1;
    for (bool dynamic : {false, true}) {
      for (Constant *constant : shared) {
        auto *variable = cast<GlobalVariable>(constant);
        uint64_t bytes = layout.getTypeAllocSize(variable->getValueType());
        uint64_t align = std::max<uint64_t>(16, variable->getAlign().valueOrOne().value());
        if (bytes == 0)
          dynamicAlign = std::max(dynamicAlign, align);
        if ((bytes == 0) != dynamic)
          continue;
        SmallVector<Use *> uses;
        for (Use &use : variable->uses())
          if (auto *user = dyn_cast<Instruction>(use.getUser()); user && user->getFunction() == function)
            uses.push_back(&use);
        if (uses.empty())
          continue;
        if (!dynamic) {
          kernel.sharedExtent = alignTo(kernel.sharedExtent, align);
          kernel.sharedBytes = alignTo(kernel.sharedBytes, align) + bytes;
          kernel.shared.push_back({uint32_t(kernel.sharedExtent), uint32_t(bytes)});
        }
        if (!base)
          base = field(entry, offsetof(pcrt_host_thread, shared), pointer);
        Value *address = entry.CreateConstGEP1_64(entry.getInt8Ty(), base, kernel.sharedExtent);
        address = entry.CreateAddrSpaceCast(address, PointerType::get(context, sharedAddressSpace));
        for (Use *use : uses)
          use->set(address);
        if (!dynamic)
          kernel.sharedExtent += bytes + gapBytes;
      }
      kernel.sharedExtent = alignTo(kernel.sharedExtent, dynamicAlign); // dynamic shared memory begins here
    }
  }

  void statedBlock(HostKernel &kernel) {
    for (StringRef name : {"nvvm.reqntid", "nvvm.maxntid"}) {
      if (!function->hasFnAttribute(name) || kernel.block[0])
        continue;
      std::fill(kernel.block, kernel.block + 3, 1);
      unsigned i = 0;
      for (StringRef part : split(function->getFnAttribute(name).getValueAsString(), ','))
        if (i < 3)
          part.trim().getAsInteger(10, kernel.block[i++]);
      kernel.exact = name == "nvvm.reqntid";
    }
  }

  /// pc_entry_<name>(void **params): loads the parameters and calls the kernel.
  void addEntry(HostKernel &kernel) {
    auto *entry = Function::Create(FunctionType::get(voidType, {pointer}, false), GlobalValue::ExternalLinkage,
                                   "pc_entry_" + kernel.name + suffix, module);
    entry->setVisibility(GlobalValue::HiddenVisibility);
    IRBuilder<> builder(BasicBlock::Create(context, "", entry));
    SmallVector<Value *> arguments;
    for (Argument &parameter : function->args()) {
      kernel.paramBytes.push_back(layout.getTypeAllocSize(parameter.getType()));
      Value *slot = builder.CreateConstGEP1_64(pointer, entry->getArg(0), parameter.getArgNo());
      arguments.push_back(builder.CreateLoad(parameter.getType(), builder.CreateLoad(pointer, slot)));
    }
    builder.CreateCall(function, arguments);
    builder.CreateRetVoid();
  }

  void rewriteFunction(Function &f, std::vector<HostKernel> &kernels) {
    function = &f;
    synchronizes = false;
    bool isKernel = f.getCallingConv() == CallingConv::PTX_Kernel;
    IRBuilder<> entry(&*f.getEntryBlock().getFirstInsertionPt());
    thread = entry.CreateLoad(pointer, entry.CreateThreadLocalAddress(running));
    SmallVector<Instruction *> instructions;
    for (BasicBlock &block : f)
      for (Instruction &instruction : block)
        instructions.push_back(&instruction);
    HostKernel kernel;
    kernel.name = f.getName().str();
    if (isKernel)
      placeShared(kernel);
    else if (any_of(shared, [&](Constant *c) {
               return any_of(c->users(), [&](User *user) {
                 auto *instruction = dyn_cast<Instruction>(user);
                 return instruction && instruction->getFunction() == &f;
               });
             }))
      return refuse("shared memory of a function that was not inlined");
    for (Instruction *instruction : instructions) {
      if (instruction == thread)
        continue;
      auto *callee = dyn_cast<CallInst>(instruction);
      if (callee && callee->isInlineAsm())
        inlineAssembly(callee);
      else if (callee && callee->getCalledFunction() &&
               callee->getCalledFunction()->getName().starts_with("llvm.nvvm."))
        intrinsic(callee, callee->getCalledFunction()->getName().drop_front(10));
      else if (isa<FPToSIInst, FPToUIInst>(instruction))
        saturate(cast<CastInst>(instruction));
      else if (check)
        checkAccess(instruction);
      if (!fault.empty())
        return;
    }
    f.setCallingConv(CallingConv::C);
    statedBlock(kernel);
    f.setAttributes(f.getAttributes().removeFnAttributes(context));
    f.addFnAttr(Attribute::NoUnwind);
    f.setLinkage(GlobalValue::InternalLinkage);
    if (!isKernel) {
      deviceFunctionsWait |= synchronizes;
      return;
    }
    kernel.synchronizes = synchronizes;
    f.setName("pc_kernel_" + kernel.name + suffix);
    addEntry(kernel);
    kernels.push_back(std::move(kernel));
  }
  bool deviceFunctionsWait = false;

  Expected<std::vector<HostKernel>> run() {
    SmallVector<Function *> functions;
    for (Function &f : module)
      if (!f.isDeclaration())
        functions.push_back(&f);
    for (GlobalVariable &global : module.globals())
      if (global.getAddressSpace() == sharedAddressSpace)
        shared.push_back(&global);
    convertUsersOfConstantsToInstructions(shared);
    std::vector<HostKernel> kernels;
    for (Function *f : functions) {
      rewriteFunction(*f, kernels);
      if (!fault.empty())
        return createStringError(fault);
    }
    if (deviceFunctionsWait) // kernels that call functions that wait also wait
      for (HostKernel &kernel : kernels)
        kernel.synchronizes = true;
    for (Constant *constant : shared) {
      constant->replaceAllUsesWith(PoisonValue::get(constant->getType()));
      cast<GlobalVariable>(constant)->eraseFromParent();
    }
    for (Function &f : make_early_inc_range(module))
      if (f.isDeclaration() && f.use_empty())
        f.eraseFromParent();
    if (NamedMDNode *annotations = module.getNamedMetadata("nvvm.annotations"))
      annotations->eraseFromParent();
    return kernels;
  }
};

} // namespace

Expected<std::vector<HostKernel>> pc::toolchain::rewriteForHost(Module &module, bool check, StringRef suffix,
                                                                std::vector<HostSite> &sites) {
  return Rewriter(module, check, suffix, sites).run();
}
