//===- Accesses.cpp - Counts reads and writes of a GPU kernel from its code ---------------===//
// A box is a range of blocks, threads and iterations. If a condition or a number of iterations is not the same in the
// whole box, the box is divided in two. Conditions of kernels change at few points, so few boxes are enough.
//===-----------------------------------------------------------------------------===//
#include "Accesses.h"
#include "Forms.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

#include <numeric>
#include <set>

using namespace mlir;
using namespace pc;

int64_t pc::bytesOf(const Access &access) {
  int64_t sum = 0;
  for (auto [width, bytes] : access)
    sum += bytes;
  return sum;
}

namespace {

/// The known facts at some point of the kernel.
struct State {
  Box box;
  llvm::DenseMap<Value, Form> counters; ///< counters of the enclosing loops
  llvm::DenseMap<Value, Form> known;    ///< values that are known in this box
};

/// The result of testing a condition. Data: it depends on memory. Divide: it holds only in a part of the box, which has
/// to be divided along `divided`.
enum class Truth { No, Yes, Data, Divide };

/// Interprets one kernel symbolically for all its threads at once. A state is a box: a range for each digit of the
/// numbers of block and thread (see readDigits) and for each loop variable. If a condition holds only in a part of the
/// box, the visit stops, the box is cut along `divided`, and both halves are visited. The result does not depend on the
/// order of boxes.
class AccessCounter {
public:
  AccessCounter(gpu::GPUFuncOp kernel, ArrayRef<CountedBuffer> buffers)
      : kernel(kernel), buffers(buffers), accesses(buffers.size()), byData(buffers.size()) {}

  FailureOr<SmallVector<Accesses>> run();
  TensorWork products;

private:
  /// Chooses digits for numbers below `size`. If the kernel divides a value by a constant, a step of a higher digit
  /// changes that value by a multiple of the constant. Returns boxes that cover all numbers.
  template <typename OpT> std::vector<Box> readDigits(Variable::Kind kind, int64_t size);

  void visit(Block &block, State &state);
  void visit(Operation *op, State &state);
  bool tryVisit(Operation *op, State &state);
  bool visitLoop(scf::ForOp loop, State &state);
  bool visitBranch(scf::IfOp branch, State &state);
  bool visitAccess(Value pointer, int64_t width, bool stores, State &state);
  void visitProduct(Operation *op, const State &state);

  /// Returns the value as a form, or std::nullopt if the box must be divided.
  std::optional<Form> evaluate(Value value, State &state);
  std::optional<Form> compute(Value value, State &state);
  std::optional<Form> load(LLVM::LoadOp op, State &state);
  Truth decide(Value condition, State &state);
  Truth compare(arith::CmpIOp op, State &state);
  /// Tests x < y or, if `orEqual`, x <= y.
  Truth isLess(const Form &x, const Form &y, bool orEqual, State &state);
  /// Divides the box along the dim that `form` depends on most.
  Truth undecided(const Form &form, State &state);

  struct Address {
    Value base; ///< an argument or a global
    Form bytes;
  };
  std::optional<Address> addressOf(Value pointer, State &state);

  /// A value that may depend on all enclosing variables.
  Form dataOf(Value value, State &state) {
    Form all;
    for (auto [dim, range] : state.box)
      all.terms[dim] = 1;
    return forms.data(value.getAsOpaquePointer(), all);
  }

  gpu::GPUFuncOp kernel;
  ArrayRef<CountedBuffer> buffers;
  Forms forms;
  std::optional<Form> digits[2];          ///< the number of the block, and of the thread
  SmallVector<Accesses> accesses, byData; ///< by buffer; `byData` are accesses that depend on data
  /// The accesses so far: buffer, whether it was written, address, width, and the part of the box.
  std::set<std::tuple<unsigned, bool, Form, int64_t, std::vector<Extent>>> done;
  bool inFlight = false; ///< whether products are in flight before the next op
  /// The work of one execution of an op, and whether products are in flight after it.
  llvm::DenseMap<Operation *, std::pair<TensorWork, bool>> ofThread;
  VariableId divided = 0; ///< the variable along which to divide the box
  bool underData = false; ///< whether data decide if, or how often, the visited op runs
  bool failed = false;
};

/// Scales an access to at most `most` bytes.
void limit(Access &access, int64_t most) {
  int64_t all = bytesOf(access);
  for (auto &[width, bytes] : access)
    if (all > most)
      bytes = static_cast<int64_t>(static_cast<double>(bytes) / static_cast<double>(all) * static_cast<double>(most));
}

/// The growth of an index: `weight` for each `period` by which the number of the block (or thread) grows. Weight 0
/// means that the analysis finds no growth.
struct Growth {
  int64_t weight = 0, period = 1;
};

/// Finds how indices grow with the number that an OpT returns.
template <typename OpT> class Growths {
public:
  Growth of(Value value) {
    if (auto it = known.find(value); it != known.end())
      return it->second;
    Growth growth = compute(value.getDefiningOp());
    known[value] = growth;
    return growth;
  }
  /// The number of blocks (or threads) by which `value` grows by a multiple of `divisor`; 0 if it does not grow.
  int64_t period(Value value, int64_t divisor) {
    Growth growth = of(value);
    return growth.weight ? growth.period * (divisor / std::gcd(divisor, growth.weight)) : 0;
  }

private:
  Growth compute(Operation *op) {
    if (!op)
      return {};
    if (isa<OpT>(op))
      return {1};
    if (isa<arith::IndexCastOp, arith::IndexCastUIOp>(op))
      return of(op->getOperand(0));
    APInt number;
    bool byConstant = op->getNumOperands() == 2 && matchPattern(op->getOperand(1), m_ConstantInt(&number));
    int64_t constant = byConstant ? number.getSExtValue() : 0;
    if (isa<arith::AddIOp>(op)) {
      Growth x = of(op->getOperand(0)), y = of(op->getOperand(1));
      int64_t period = std::lcm(x.period, y.period);
      return {x.weight * (period / x.period) + y.weight * (period / y.period), period};
    }
    if (isa<arith::MulIOp>(op) && byConstant) {
      Growth x = of(op->getOperand(0));
      return {x.weight * constant, x.period};
    }
    if (isa<arith::DivUIOp, arith::DivSIOp>(op) && constant > 0)
      if (int64_t every = period(op->getOperand(0), constant)) {
        Growth x = of(op->getOperand(0));
        return {x.weight * (every / x.period) / constant, every};
      }
    return {};
  }

  llvm::DenseMap<Value, Growth> known;
};

template <typename OpT> std::vector<Box> AccessCounter::readDigits(Variable::Kind kind, int64_t size) {
  Growths<OpT> growths;
  std::set<int64_t> periods;
  kernel.walk([&](Operation *op) {
    APInt divisor;
    if (isa<arith::DivUIOp, arith::DivSIOp, arith::RemUIOp, arith::RemSIOp>(op) &&
        matchPattern(op->getOperand(1), m_ConstantInt(&divisor)) && divisor.isStrictlyPositive())
      periods.insert(growths.period(op->getOperand(0), divisor.getSExtValue()));
  });
  SmallVector<int64_t> weights = {1};
  for (int64_t period : periods)
    if (period > weights.back() && period < size && period % weights.back() == 0)
      weights.push_back(period);
  // The first box has the numbers whose highest digit is below the highest digit of size - 1. The second box has those
  // with the same highest digit and a smaller second digit, and so on.
  std::vector<Box> boxes;
  Box around;
  Form number;
  for (size_t i = weights.size(); i-- > 0; size %= weights[i]) {
    Form digit = forms.variable({kind, weights[i]});
    VariableId id = digit.terms.begin()->first;
    number = number + digit * weights[i];
    if (int64_t whole = size / weights[i]) {
      Box box = around;
      box[id] = {0, whole - 1};
      for (size_t lower = 0; lower < i; ++lower)
        box[forms.variable({kind, weights[lower]}).terms.begin()->first] = {0, weights[lower + 1] / weights[lower] - 1};
      boxes.push_back(std::move(box));
    }
    around[id] = {size / weights[i], size / weights[i]};
  }
  digits[kind == Variable::Thread] = number;
  return boxes;
}

FailureOr<SmallVector<Accesses>> AccessCounter::run() {
  auto grid = kernel.getKnownGridSizeAttr(), block = kernel.getKnownBlockSizeAttr();
  if (!grid || !block)
    return kernel.emitOpError() << "has a grid or block whose size is not known at compile time";
  std::vector<Box> blocks = readDigits<gpu::BlockIdOp>(Variable::Block, grid[0]),
                   threads = readDigits<gpu::ThreadIdOp>(Variable::Thread, block[0]);
  for (const Box &ofBlocks : blocks)
    for (const Box &ofThreads : threads) {
      State state;
      state.box = ofBlocks;
      state.box.insert(ofThreads.begin(), ofThreads.end());
      visit(kernel.getBody().front(), state);
    }
  if (failed)
    return failure();
  for (auto [buffer, sure, maybe] : llvm::zip_equal(buffers, accesses, byData))
    for (Access Accesses::*way : {&Accesses::loads, &Accesses::stores}) {
      limit(maybe.*way, buffer.bytes);
      for (auto [width, bytes] : maybe.*way)
        (sure.*way)[width] += bytes;
      if (buffer.bytes <= cachedBytes)
        limit(sure.*way, buffer.bytes);
    }
  return std::move(accesses);
}

void AccessCounter::visit(Block &block, State &state) {
  for (Operation &op : block)
    visit(&op, state);
}

/// Visits `op` in the whole box, which is divided if necessary.
void AccessCounter::visit(Operation *op, State &state) {
  if (failed || tryVisit(op, state))
    return;
  Extent all = state.box.at(divided), low = all, high = all;
  low.last = all.first + (all.last - all.first) / 2;
  high.first = low.last + 1;
  for (auto [dim, part] : {std::pair(divided, low), std::pair(divided, high)}) {
    State inPart = state;
    inPart.known.clear();
    inPart.box[dim] = part;
    visit(op, inPart);
  }
}

/// Returns false if the box must be divided.
bool AccessCounter::tryVisit(Operation *op, State &state) {
  auto isPointer = [](Type type) { return isa<LLVM::LLVMPointerType>(type); };
  auto bytesOf = [](Type type) {
    int64_t elements = isa<VectorType>(type) ? cast<VectorType>(type).getNumElements() : 1;
    return elements * getElementTypeOrSelf(type).getIntOrFloatBitWidth() / 8;
  };
  return llvm::TypeSwitch<Operation *, bool>(op)
      .Case([&](scf::ForOp loop) { return visitLoop(loop, state); })
      .Case([&](scf::IfOp branch) { return visitBranch(branch, state); })
      .Case([&](LLVM::LoadOp load) {
        return visitAccess(load.getAddr(), bytesOf(load.getType()), /*stores=*/false, state);
      })
      .Case([&](LLVM::StoreOp store) {
        return visitAccess(store.getAddr(), bytesOf(store.getValue().getType()), /*stores=*/true, state);
      })
      .Case([&](NVVM::CpAsyncOp copy) { return visitAccess(copy.getSrc(), copy.getSize(), /*stores=*/false, state); })
      .Case<LLVM::GEPOp, LLVM::AddrSpaceCastOp, LLVM::AddressOfOp, LLVM::ICmpOp>([](Operation *) { return true; })
      .Case<NVVM::LdMatrixOp, NVVM::MmaOp, LLVM::InlineAsmOp, LLVM::CallIntrinsicOp>([&](Operation *op) {
        visitProduct(op, state);
        return true;
      })
      .Case([&](LLVM::PtrToIntOp number) { // for a descriptor of wgmma, whose operands are in shared memory
        if (cast<LLVM::LLVMPointerType>(number.getArg().getType()).getAddressSpace() == NVVM::NVVMMemorySpace::Shared)
          return true;
        number.emitOpError() << "accesses memory in a way that this report cannot count";
        return failed = true;
      })
      .Default([&](Operation *other) {
        if (other->getNumRegions() || llvm::any_of(other->getOperandTypes(), isPointer)) {
          other->emitOpError() << "accesses memory in a way that this report cannot count";
          failed = true;
        }
        return true;
      });
}

/// Visits the body of a loop once for all iterations: the index of the iteration is a variable of the forms. Returns
/// false if the box has to be divided first.
bool AccessCounter::visitLoop(scf::ForOp loop, State &state) {
  std::optional<Form> first = evaluate(loop.getLowerBound(), state), end = evaluate(loop.getUpperBound(), state),
                      step = evaluate(loop.getStep(), state);
  if (!first || !end || !step)
    return false;
  Form length = *end - *first;
  State inside = state;
  if (forms.isData(length) || !step->isConstant()) {
    inside.counters[loop.getInductionVar()] = dataOf(loop.getInductionVar(), state);
    bool around = std::exchange(underData, true);
    visit(*loop.getBody(), inside);
    underData = around;
    return true;
  }
  auto iterations = [&](int64_t n) { return llvm::divideCeil(std::max<int64_t>(n, 0), step->constant); };
  Extent lengths = forms.range(length, state.box);
  if (iterations(lengths.first) != iterations(lengths.last))
    return undecided(length, state) != Truth::Divide;
  int64_t count = iterations(lengths.first);
  if (!count)
    return true;
  Form counter = count == 1 ? Form() : forms.counter();
  if (count > 1)
    inside.box[counter.terms.begin()->first] = {0, count - 1};
  inside.counters[loop.getInductionVar()] = *first + counter * step->constant;
  visit(*loop.getBody(), inside);
  return true;
}

/// Counts both sides if the condition depends on data; their accesses then count separately, as dependent on data.
bool AccessCounter::visitBranch(scf::IfOp branch, State &state) {
  Truth truth = decide(branch.getCondition(), state);
  auto run = [&](Block *block) {
    if (!block)
      return;
    State inside = state;
    visit(*block, inside);
  };
  bool around = underData;
  underData |= truth == Truth::Data;
  if (truth == Truth::Yes || truth == Truth::Data)
    run(branch.thenBlock());
  if (truth == Truth::No || truth == Truth::Data)
    run(branch.elseBlock());
  underData = around;
  return truth != Truth::Divide;
}

void AccessCounter::visitProduct(Operation *op, const State &state) {
  auto [it, inserted] = ofThread.try_emplace(op);
  auto &[work, isAfter] = it->second;
  if (inserted) {
    work.addThread(op, inFlight);
    isAfter = inFlight;
  }
  inFlight = isAfter;
  int64_t count = 1;
  for (auto [dim, values] : state.box)
    count *= values.size();
  products.flops += count * work.flops;
  products.sharedBytes += count * work.sharedBytes;
  products.exponentials += count * work.exponentials;
  products.hidden += count * work.hidden;
  products.dependOnData |= underData && work.flops;
}

/// Counts an access for all threads of the box, unless an earlier access had the same address.
bool AccessCounter::visitAccess(Value pointer, int64_t width, bool stores, State &state) {
  std::optional<Address> at = addressOf(pointer, state);
  if (!at)
    return false;
  auto argument = dyn_cast<BlockArgument>(at->base);
  if (!argument) // the base is shared memory or a table
    return true;
  std::set<VariableId> moving = forms.dims(at->bytes);
  int64_t count = 1;
  std::vector<Extent> where;
  for (auto [dim, values] : state.box)
    if (forms[dim].kind == Variable::Block || moving.count(dim)) {
      count *= values.size();
      where.push_back(values);
    }
  Accesses &ofBuffer = (underData ? byData : accesses)[argument.getArgNumber()];
  if (done.insert({argument.getArgNumber(), stores, at->bytes, width, std::move(where)}).second)
    (stores ? ofBuffer.stores : ofBuffer.loads)[width] += count * width;
  return true;
}

/// The argument or other base of a pointer, and the byte offset from there.
std::optional<AccessCounter::Address> AccessCounter::addressOf(Value pointer, State &state) {
  Form bytes;
  while (Operation *op = pointer.getDefiningOp()) {
    if (auto cast = dyn_cast<LLVM::AddrSpaceCastOp>(op)) {
      pointer = cast.getArg();
      continue;
    }
    auto gep = dyn_cast<LLVM::GEPOp>(op);
    if (!gep)
      break;
    int64_t size = gep.getElemType().getIntOrFloatBitWidth() / 8;
    for (auto index : gep.getIndices()) {
      auto fixed = dyn_cast<IntegerAttr>(index);
      std::optional<Form> form = fixed ? Form{fixed.getInt()} : evaluate(cast<Value>(index), state);
      if (!form)
        return std::nullopt;
      bytes = bytes + *form * size;
    }
    pointer = gep.getBase();
  }
  return Address{pointer, std::move(bytes)};
}

//===---------------------------------------------------------------------------===//
// Values
//===---------------------------------------------------------------------------===//

std::optional<Form> AccessCounter::evaluate(Value value, State &state) {
  if (auto it = state.counters.find(value); it != state.counters.end())
    return it->second;
  if (auto it = state.known.find(value); it != state.known.end())
    return it->second;
  std::optional<Form> form = compute(value, state);
  if (form)
    state.known[value] = *form;
  return form;
}

std::optional<Form> AccessCounter::compute(Value value, State &state) {
  Operation *op = value.getDefiningOp();
  if (!op)
    return dataOf(value, state);
  if (APInt constant; matchPattern(value, m_ConstantInt(&constant)))
    return Form{constant.getSExtValue()};
  auto operands = [&](auto &&then) -> std::optional<Form> {
    std::optional<Form> x = evaluate(op->getOperand(0), state);
    std::optional<Form> y = x ? evaluate(op->getOperand(1), state) : std::nullopt;
    return y ? std::optional<Form>(then(*x, *y)) : std::nullopt;
  };
  auto divided = [&](bool quotient) {
    return operands([&](const Form &x, const Form &y) {
      // A value that is not a form of indices becomes data: an unknown number, equal for equal operands.
      if (!y.isConstant() || y.constant <= 0 || forms.isData(x))
        return forms.data(op->getName().getAsOpaquePointer(), x, y);
      auto [result, rest] = forms.divide(x, y.constant, state.box);
      return quotient ? result : rest;
    });
  };
  return llvm::TypeSwitch<Operation *, std::optional<Form>>(op)
      .Case<arith::IndexCastOp, arith::IndexCastUIOp, arith::ExtSIOp, arith::ExtUIOp, arith::TruncIOp>(
          [&](Operation *) { return evaluate(op->getOperand(0), state); })
      .Case([&](gpu::BlockIdOp id) { return id.getDimension() == gpu::Dimension::x ? *digits[0] : Form(); })
      .Case([&](gpu::ThreadIdOp id) { return id.getDimension() == gpu::Dimension::x ? *digits[1] : Form(); })
      .Case([&](arith::AddIOp) { return operands([](const Form &x, const Form &y) { return x + y; }); })
      .Case([&](arith::SubIOp) { return operands([](const Form &x, const Form &y) { return x - y; }); })
      .Case([&](arith::MulIOp) {
        return operands([&](const Form &x, const Form &y) {
          return y.isConstant()   ? x * y.constant
                 : x.isConstant() ? y * x.constant
                                  : forms.data(op->getName().getAsOpaquePointer(), x, y);
        });
      })
      .Case([&](arith::ShLIOp) {
        return operands([&](const Form &x, const Form &y) {
          return y.isConstant() ? x * (int64_t(1) << y.constant) : forms.data(op->getName().getAsOpaquePointer(), x, y);
        });
      })
      .Case<arith::DivUIOp, arith::DivSIOp>([&](Operation *) { return divided(/*quotient=*/true); })
      .Case<arith::RemUIOp, arith::RemSIOp>([&](Operation *) { return divided(/*quotient=*/false); })
      .Case<arith::MinSIOp, arith::MinUIOp>([&](Operation *) {
        return operands([&](const Form &x, const Form &y) { return forms.least(x, y, state.box); });
      })
      .Case<arith::MaxSIOp, arith::MaxUIOp>([&](Operation *) {
        return operands([&](const Form &x, const Form &y) { return forms.least(x * -1, y * -1, state.box) * -1; });
      })
      .Case([&](arith::SelectOp choice) -> std::optional<Form> {
        Truth truth = decide(choice.getCondition(), state);
        if (truth == Truth::Divide)
          return std::nullopt;
        if (truth != Truth::Data)
          return evaluate(truth == Truth::Yes ? choice.getTrueValue() : choice.getFalseValue(), state);
        std::optional<Form> yes = evaluate(choice.getTrueValue(), state);
        std::optional<Form> no = yes ? evaluate(choice.getFalseValue(), state) : std::nullopt;
        return no ? std::optional(forms.data(op->getName().getAsOpaquePointer(), *yes, *no)) : std::nullopt;
      })
      .Case([&](LLVM::LoadOp from) { return load(from, state); })
      .Default([&](Operation *) { return dataOf(value, state); });
}

/// The value of a load. The values of constant tables are known.
std::optional<Form> AccessCounter::load(LLVM::LoadOp op, State &state) {
  std::optional<Address> at = addressOf(op.getAddr(), state);
  if (!at)
    return std::nullopt;
  auto name = at->base.getDefiningOp<LLVM::AddressOfOp>();
  auto global = name ? SymbolTable::lookupNearestSymbolFrom<LLVM::GlobalOp>(op, name.getGlobalNameAttr()) : nullptr;
  auto values =
      global && global.getConstant() ? dyn_cast_or_null<DenseIntElementsAttr>(global.getValueOrNull()) : nullptr;
  if (!values || forms.isData(at->bytes))
    return forms.data(at->base.getAsOpaquePointer(), at->bytes);
  Extent bytes = forms.range(at->bytes, state.box);
  if (bytes.first != bytes.last && undecided(at->bytes, state) == Truth::Divide)
    return std::nullopt;
  return Form{values.getValues<int64_t>()[bytes.first / 8]};
}

Truth AccessCounter::decide(Value condition, State &state) {
  APInt constant;
  if (matchPattern(condition, m_ConstantInt(&constant)))
    return constant.isZero() ? Truth::No : Truth::Yes;
  if (auto comparison = condition.getDefiningOp<arith::CmpIOp>())
    return isa<VectorType>(comparison.getLhs().getType()) ? Truth::Data : compare(comparison, state);
  auto both = condition.getDefiningOp<arith::AndIOp>();
  auto either = condition.getDefiningOp<arith::OrIOp>();
  if (both || either) {
    Truth ends = both ? Truth::No : Truth::Yes;
    Truth x = decide(condition.getDefiningOp()->getOperand(0), state);
    Truth y = x == ends ? ends : decide(condition.getDefiningOp()->getOperand(1), state);
    if (x == ends || y == ends)
      return ends;
    return x == Truth::Divide || y == Truth::Divide ? Truth::Divide : x == Truth::Data ? x : y;
  }
  if (auto pointers = condition.getDefiningOp<LLVM::ICmpOp>()) {
    auto x = dyn_cast<BlockArgument>(pointers.getLhs()), y = dyn_cast<BlockArgument>(pointers.getRhs());
    if (x && y && x.getOwner() == y.getOwner() && x.getOwner() == &kernel.getBody().front()) {
      bool same = buffers[x.getArgNumber()].home == buffers[y.getArgNumber()].home;
      return same == (pointers.getPredicate() == LLVM::ICmpPredicate::eq) ? Truth::Yes : Truth::No;
    }
  }
  return Truth::Data;
}

Truth AccessCounter::compare(arith::CmpIOp op, State &state) {
  std::optional<Form> x = evaluate(op.getLhs(), state), y = x ? evaluate(op.getRhs(), state) : std::nullopt;
  if (!y)
    return Truth::Divide;
  auto inverse = [](Truth truth) { return truth == Truth::Yes ? Truth::No : truth == Truth::No ? Truth::Yes : truth; };
  switch (op.getPredicate()) {
  case arith::CmpIPredicate::ult: { // unsigned: also false for negative x
    Truth negative = isLess(*x, {}, /*orEqual=*/false, state);
    return negative == Truth::No ? isLess(*x, *y, false, state) : inverse(negative);
  }
  case arith::CmpIPredicate::slt:
    return isLess(*x, *y, false, state);
  case arith::CmpIPredicate::sle:
  case arith::CmpIPredicate::ule:
    return isLess(*x, *y, true, state);
  case arith::CmpIPredicate::sgt:
  case arith::CmpIPredicate::ugt:
    return isLess(*y, *x, false, state);
  case arith::CmpIPredicate::sge:
  case arith::CmpIPredicate::uge:
    return isLess(*y, *x, true, state);
  case arith::CmpIPredicate::eq:
  case arith::CmpIPredicate::ne: {
    bool isEq = op.getPredicate() == arith::CmpIPredicate::eq;
    Form difference = *x - *y;
    if (forms.isData(difference))
      return Truth::Data;
    Extent values = forms.range(difference, state.box);
    if (values.first > 0 || values.last < 0)
      return isEq ? Truth::No : Truth::Yes;
    if (values.first == values.last)
      return isEq ? Truth::Yes : Truth::No;
    return undecided(difference, state);
  }
  }
  return Truth::Data;
}

Truth AccessCounter::isLess(const Form &x, const Form &y, bool orEqual, State &state) {
  Form difference = x - y;
  if (forms.isData(difference))
    return Truth::Data;
  Extent values = forms.range(difference, state.box);
  int64_t limit = orEqual ? 0 : -1;
  if (values.last <= limit)
    return Truth::Yes;
  return values.first > limit ? Truth::No : undecided(difference, state);
}

Truth AccessCounter::undecided(const Form &form, State &state) {
  std::optional<VariableId> dim = forms.widest(form, state.box);
  if (!dim)
    return Truth::Data;
  divided = *dim;
  return Truth::Divide;
}

} // namespace

FailureOr<SmallVector<Accesses>> pc::countAccesses(gpu::GPUFuncOp kernel, ArrayRef<CountedBuffer> buffers,
                                                   TensorWork *products) {
  AccessCounter counter(kernel, buffers);
  FailureOr<SmallVector<Accesses>> accesses = counter.run();
  if (products)
    *products = counter.products;
  return accesses;
}
