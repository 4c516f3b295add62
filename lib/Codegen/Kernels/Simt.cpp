//===- Simt.cpp - The Emitter for the threads of a GPU ------------------------------===//
#include "Simt.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace pc::kernels;

/// The most elements of one row that a thread keeps in registers.
static constexpr int64_t registerElements = 32;
static constexpr int64_t blockThreads = 256;

static constexpr auto globalSpace = 1, sharedSpace = 3;

//===---------------------------------------------------------------------------===//
// Teams
//===---------------------------------------------------------------------------===//

int64_t SimtEmitter::widthFor(int64_t n) const {
  int64_t width = lanes;
  while (n % width)
    width /= 2;
  return width;
}

Num SimtEmitter::special(Value index) { return wrap(arith::IndexCastUIOp::create(b, loc, b.getI64Type(), index)); }

void SimtEmitter::teams(int64_t items, int64_t threads, int64_t perBlock, llvm::function_ref<void(Num)> body) {
  team = threads;
  block = threads * perBlock;
  grid = llvm::divideCeil(items, perBlock) * chunks;
  auto dims = [&](int64_t n) { return b.getDenseI32ArrayAttr({static_cast<int32_t>(n), 1, 1}); };
  function.setKnownBlockSizeAttr(dims(block));
  function.setKnownGridSizeAttr(dims(grid));
  // Asks for one block per multiprocessor only, because ptxas would spill registers to fit more.
  function->setAttr("nvvm.minctasm", b.getI32IntegerAttr(1));
  Num thread = special(gpu::ThreadIdOp::create(b, loc, gpu::Dimension::x));
  Num group = special(gpu::BlockIdOp::create(b, loc, gpu::Dimension::x));
  Num chunk = chunks > 1 ? group % integer(chunks) : integer(0);
  if (chunks > 1)
    group = group / integer(chunks);
  rank = perBlock > 1 ? thread % integer(threads) : thread;
  Num item = perBlock == 1  ? group
             : threads == 1 ? group * block + thread
                            : group * perBlock + thread / integer(threads);
  first = chunks > 1 ? chunk * (threads * perThread) + rank : rank;
  // Values that several passes use are emitted here, where they dominate all passes.
  prologue = arith::ConstantIntOp::create(b, loc, 0, 64);
  if (items % perBlock)
    when(item < integer(items), [&] { body(item); });
  else
    body(item);
}

void SimtEmitter::items(int64_t items, int64_t columns, bool reduces, llvm::function_ref<void(Num)> body) {
  const int64_t width = widthFor(columns), vectors = columns / width;
  chunks = perThread = 1;
  independent = !reduces;
  if (independent) { // any thread may do any vector
    perThread = vectors >= 4 * blockThreads ? 2 : 1;
    bool whole = vectors <= 2 * blockThreads && vectors % 32 == 0;
    int64_t threads = whole ? vectors : std::min<int64_t>(blockThreads, llvm::PowerOf2Ceil(vectors));
    chunks = llvm::divideCeil(vectors, threads * perThread);
    return teams(items, threads, std::max<int64_t>(1, blockThreads / threads), body);
  }
  // A warp needs no barriers; longer rows take a block.
  if (columns <= 32 * registerElements)
    return teams(items, 32, items >= 1024 ? 4 : 1, body);
  teams(items, columns <= blockThreads * registerElements ? blockThreads : 2 * blockThreads, 1, body);
}

ArrayRef<SimtEmitter::Piece> SimtEmitter::pieces(int64_t n) {
  const int64_t width = widthFor(n), vectors = n / width;
  auto [it, inserted] = known.try_emplace(n);
  if (!inserted)
    return it->second;
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointAfter(prologue);
  int64_t each = chunks > 1 ? perThread : llvm::divideCeil(vectors, team);
  bool exact = chunks * each * team == vectors;
  for (int64_t i = 0; i < each; ++i) {
    Num at = first + i * team;
    Piece piece;
    // Only the last iteration of the last chunk can go beyond the end of the row.
    if (!exact && (chunks > 1 || (i + 1) * team > vectors)) {
      piece.inside = at < integer(vectors);
      at = select(piece.inside, at, integer(vectors - 1));
    }
    piece.index = at * width;
    it->second.push_back(piece);
  }
  prologue = it->second.back().index.v.getDefiningOp();
  return it->second;
}

//===---------------------------------------------------------------------------===//
// Passes over a row
//===---------------------------------------------------------------------------===//

void SimtEmitter::vectors(int64_t n, llvm::function_ref<void(Num, int64_t)> body) {
  const int64_t width = widthFor(n), count = n / width;
  if (chunks > 1 || llvm::divideCeil(count, team) * width <= registerElements) {
    for (Piece piece : pieces(n)) {
      // Such kernels may work in place, so a piece outside must not touch the element at its index, which belongs to
      // another thread.
      if (independent && piece.inside.v) {
        when(piece.inside, [&] { body(piece.index, width); });
        continue;
      }
      inside = piece.inside;
      body(piece.index, width);
      inside = {};
    }
    return;
  }
  loop(rank * width, integer(n), team * width, [&](Num index) { body(index, width); });
}

Emitter::Carried SimtEmitter::reductions(int64_t n, ArrayRef<bool> isMax,
                                         llvm::function_ref<Carried(Num, int64_t)> body) {
  const int64_t width = widthFor(n), count = n / width;
  assert(chunks == 1 && "a team that reduces is in one block");
  auto combine = [&](int64_t c, Num x, Num y) { return isMax[c] ? maximumOf(x, y) : x + y; };
  auto neutral = [&](int64_t c) { return real(isMax[c] ? -std::numeric_limits<float>::infinity() : 0.0); };
  Carried partial;
  if (llvm::divideCeil(count, team) * width <= registerElements) {
    for (Piece piece : pieces(n)) {
      inside = piece.inside;
      Carried addends = body(piece.index, width);
      inside = {};
      for (auto [c, x] : llvm::enumerate(addends)) {
        if (!x.width())
          x = splat(x, width);
        if (piece.inside.v)
          x = select(piece.inside, x, splat(neutral(c), width));
        if (partial.size() <= c)
          partial.push_back(x);
        else
          partial[c] = combine(c, partial[c], x);
      }
    }
  } else {
    Carried init;
    for (size_t c = 0; c < isMax.size(); ++c)
      init.push_back(splat(neutral(c), width));
    partial = loop(rank * width, integer(n), team * width, init, [&](Num index, const Carried &carried) {
      Carried next;
      for (auto [c, x] : llvm::enumerate(body(index, width)))
        next.push_back(combine(c, carried[c], x));
      return next;
    });
  }
  Carried mine;
  for (auto [c, x] : llvm::enumerate(partial)) {
    auto element = [&](int64_t i) { return wrap(vector::ExtractOp::create(b, loc, x.v, ArrayRef<int64_t>{i})); };
    Num total = element(0);
    for (int64_t i = 1; i < width; ++i)
      total = combine(c, total, element(i));
    mine.push_back(total);
  }
  return across(isMax, mine);
}

Emitter::Carried SimtEmitter::across(ArrayRef<bool> isMax, Carried mine) {
  auto combine = [&](int64_t c, Num x, Num y) { return isMax[c] ? maximumOf(x, y) : x + y; };
  for (int64_t mask = 16; mask >= 1; mask /= 2)
    for (auto [c, x] : llvm::enumerate(mine))
      x = combine(c, x, shuffle(x, mask));
  if (team <= 32)
    return mine;
  const int64_t warps = team / 32, count = mine.size();
  Ptr slots = shared(warps * count);
  Num warp = rank / integer(32), lane = rank % integer(32);
  Operation *around = b.getInsertionBlock()->getParentOp();
  if (isa<scf::ForOp>(around) || around->getParentOfType<scf::ForOp>())
    barrier(); // the pass before may still read the slots
  when(lane < integer(1), [&] {
    for (auto [c, x] : llvm::enumerate(mine))
      slots.store(x, warp + static_cast<int64_t>(c) * warps);
  });
  barrier();
  Carried totals;
  for (int64_t c = 0; c < count; ++c) {
    Num total = slots.load(integer(c * warps));
    for (int64_t w = 1; w < warps; ++w)
      total = combine(c, total, slots.load(integer(c * warps + w)));
    totals.push_back(total);
  }
  return totals;
}

//===---------------------------------------------------------------------------===//
// Single operations
//===---------------------------------------------------------------------------===//

Num SimtEmitter::exp(Num x) { return wrap(math::ExpOp::create(b, loc, x.v)); }

Num SimtEmitter::exp2(Num x) {
  auto name = b.getStringAttr("llvm.nvvm.ex2.approx.ftz");
  return wrap(LLVM::CallIntrinsicOp::create(b, loc, x.v.getType(), name, ValueRange{x.v}).getResult(0));
}

Num SimtEmitter::maximumOf(Num x, Num y) { return wrap(arith::MaximumFOp::create(b, loc, x.v, y.v)); }

void SimtEmitter::once(llvm::function_ref<void()> body) {
  if (team == 1)
    return body();
  when(first < integer(1), body);
}

Num SimtEmitter::shuffle(Num value, int64_t mask) {
  auto constant = [&](int64_t n) { return arith::ConstantIntOp::create(b, loc, n, 32); };
  return wrap(
      gpu::ShuffleOp::create(b, loc, value.v, constant(mask), constant(32), gpu::ShuffleMode::XOR).getShuffleResult());
}

Num SimtEmitter::matches(Num condition) {
  Value lane = arith::TruncIOp::create(b, loc, b.getI32Type(), (rank % integer(32)).v);
  Value bit = arith::ShLIOp::create(b, loc, arith::ConstantIntOp::create(b, loc, 1, 32), lane);
  Num bits = wrap(arith::SelectOp::create(b, loc, condition.v, bit, arith::ConstantIntOp::create(b, loc, 0, 32)));
  for (int64_t mask = 16; mask >= 1; mask /= 2)
    bits = wrap(arith::OrIOp::create(b, loc, bits.v, shuffle(bits, mask).v));
  return bits;
}

Num SimtEmitter::bitClear(Num bits, Num bit) {
  Value place = arith::TruncIOp::create(b, loc, b.getI32Type(), bit.v);
  Num shifted = wrap(arith::ShRUIOp::create(b, loc, bits.v, place));
  Value low = arith::AndIOp::create(b, loc, shifted.v, arith::ConstantIntOp::create(b, loc, 1, 32));
  return wrap(
      arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, low, arith::ConstantIntOp::create(b, loc, 0, 32)));
}

Num SimtEmitter::notBefore(Num x, Num y) {
  return wrap(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, x.v, y.v));
}

Emitter::Carried SimtEmitter::choose(Num condition, const Carried &yes, llvm::function_ref<Carried()> otherwise) {
  auto values = [](const Carried &nums) { return llvm::map_to_vector(nums, [](Num n) { return n.v; }); };
  SmallVector<Value> kept = values(yes);
  auto f = scf::IfOp::create(b, loc, TypeRange(ValueRange(kept)), condition.v, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(f.thenBlock());
  scf::YieldOp::create(b, loc, kept);
  b.setInsertionPointToStart(f.elseBlock());
  scf::YieldOp::create(b, loc, values(otherwise()));
  Carried results;
  for (Value v : f.getResults())
    results.push_back(wrap(v));
  return results;
}

Num SimtEmitter::pick(Num condition, llvm::function_ref<Num()> yes, llvm::function_ref<Num()> no) {
  auto f = scf::IfOp::create(b, loc, TypeRange(b.getF32Type()), condition.v, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(f.thenBlock());
  scf::YieldOp::create(b, loc, yes().v);
  b.setInsertionPointToStart(f.elseBlock());
  scf::YieldOp::create(b, loc, no().v);
  return wrap(f.getResult(0));
}

Ptr SimtEmitter::shared(int64_t elements, Type element) {
  element = element ? element : b.getF32Type();
  std::string name = (function.getName() + "_shared" + llvm::Twine(numShared++)).str();
  auto type = LLVM::LLVMArrayType::get(element, elements);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(function);
    LLVM::GlobalOp::create(b, loc, type, /*isConstant=*/false, LLVM::Linkage::Internal, name, Attribute(),
                           /*alignment=*/16, sharedSpace);
  }
  auto pointer = LLVM::LLVMPointerType::get(b.getContext(), sharedSpace);
  return {this, LLVM::AddressOfOp::create(b, loc, pointer, name), element};
}

void SimtEmitter::barrier() { gpu::BarrierOp::create(b, loc); }

void SimtEmitter::copyAsync(Ptr from, Ptr to, int64_t bytes) {
  auto pointer = LLVM::LLVMPointerType::get(b.getContext(), globalSpace);
  Value source = LLVM::AddrSpaceCastOp::create(b, loc, pointer, from.base);
  // Only copies of 16 bytes can bypass the first-level cache.
  auto cached = bytes == 16 ? NVVM::LoadCacheModifierKind::CG : NVVM::LoadCacheModifierKind::CA;
  NVVM::CpAsyncOp::create(b, loc, to.base, source, static_cast<uint32_t>(bytes), cached, Value());
}

void SimtEmitter::commitCopies() { NVVM::CpAsyncCommitGroupOp::create(b, loc); }

void SimtEmitter::waitForCopies() { NVVM::CpAsyncWaitGroupOp::create(b, loc, 0u); }

/// What is known of the alignment of `width` elements: vectors start at multiples of their width, up to 16 bytes.
static unsigned alignmentOf(Type element, int64_t width) {
  int64_t bytes = element.getIntOrFloatBitWidth() / 8;
  if (!isa<FloatType>(element)) // token ids: microbatches may start anywhere
    return bytes;
  return std::min<int64_t>(16, bytes * std::max<int64_t>(width, 1));
}

Num SimtEmitter::load(Ptr from, Num index, int64_t width) {
  Ptr at = from + index;
  auto typed = [&](Type element) -> Type { return width ? Type(VectorType::get(width, element)) : element; };
  Value value = LLVM::LoadOp::create(b, loc, typed(from.element), at.base, alignmentOf(from.element, width));
  if (from.element.isBF16())
    value = arith::ExtFOp::create(b, loc, typed(b.getF32Type()), value);
  return wrap(value);
}

void SimtEmitter::store(Num value, Ptr to, Num index) {
  auto write = [&] {
    Ptr at = to + index;
    Value stored = value.v;
    if (to.element.isBF16()) {
      Type type = value.width() ? Type(VectorType::get(value.width(), to.element)) : to.element;
      stored = arith::TruncFOp::create(b, loc, type, stored);
    }
    LLVM::StoreOp::create(b, loc, stored, at.base, alignmentOf(to.element, value.width()));
  };
  if (inside.v)
    when(inside, write);
  else
    write();
}
