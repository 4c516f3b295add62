//===- Simt.cpp - The Emitter for the threads of a GPU ------------------------------===//
// A team of threads works on one item (a row). A team is a part of a warp, a warp or a block, depending on the length
// of rows. A thread keeps its elements in registers if they fit; otherwise it reads them again in each pass. Reductions
// use shuffles inside a warp and shared memory between warps. In rows that mix f32 and bf16, every load has 16 bytes.
//===-----------------------------------------------------------------------------===//
#include "Simt.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "pc/Cost/CudaWorkspace.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace pc::kernels;

/// The most elements of one row that a thread keeps in registers.
static constexpr int64_t registerElements = 32;
static constexpr int64_t blockThreads = 256;
static_assert(SimtEmitter::longestKept == 2 * blockThreads * registerElements);

static constexpr auto globalSpace = 1, sharedSpace = 3;

//===---------------------------------------------------------------------------===//
// Teams
//===---------------------------------------------------------------------------===//

/// A vector of mixed rows is two parts of `partElements` elements; the second begins `partDistance` after the first.
static constexpr int64_t partElements = 4, partDistance = 32 * partElements;

int64_t SimtEmitter::widthFor(int64_t n) const {
  int64_t width = widest;
  while (n % width)
    width /= 2;
  return width;
}

Num SimtEmitter::special(Value index) { return wrap(arith::IndexCastUIOp::create(b, loc, b.getI64Type(), index)); }

void SimtEmitter::mixRows(int64_t columns) {
  mixed = columns % (2 * partDistance) == 0;
  widest = mixed ? 2 * partElements : partElements;
}

SmallVector<int32_t> SimtEmitter::steps(int64_t width) {
  SmallVector<int32_t> steps = Emitter::steps(width);
  if (mixed)
    for (int32_t &step : steps)
      step += step < partElements ? 0 : partDistance - partElements;
  return steps;
}

/// The index of the first element of a vector of a row.
Num SimtEmitter::indexOf(Num vector, int64_t width) {
  Num index = vector * width;
  return mixed ? index - rank % integer(32) * partElements : index;
}

/// Computes each team's item from the ids of block and thread, and sets the sizes of grid and block.
void SimtEmitter::teams(int64_t items, int64_t threads, int64_t perBlock, llvm::function_ref<void(Num)> body) {
  team = threads;
  this->perBlock = perBlock;
  block = threads * perBlock;
  grid = llvm::divideCeil(items, perBlock) * chunks;
  auto dims = [&](int64_t n) { return b.getDenseI32ArrayAttr({static_cast<int32_t>(n), 1, 1}); };
  function.setKnownBlockSizeAttr(dims(block));
  function.setKnownGridSizeAttr(dims(grid));
  // Requests only one block per multiprocessor, because otherwise ptxas would spill registers to fit more.
  function->setAttr("nvvm.minctasm", b.getI32IntegerAttr(1));
  Num thread = special(gpu::ThreadIdOp::create(b, loc, gpu::Dimension::x));
  Num group = special(gpu::BlockIdOp::create(b, loc, gpu::Dimension::x));
  Num chunk = chunks > 1 ? group % integer(chunks) : integer(0);
  if (chunks > 1)
    group = group / integer(chunks);
  rank = perBlock > 1 ? thread % integer(threads) : thread;
  line = perBlock > 1 ? thread / integer(threads) : integer(0);
  Num item = perBlock == 1 ? group : threads == 1 ? group * block + thread : group * perBlock + line;
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
  if (independent) { // any thread may work on any vector
    perThread = vectors >= 4 * blockThreads ? 2 : 1;
    bool whole = vectors <= 2 * blockThreads && vectors % 32 == 0;
    int64_t threads = whole ? vectors : std::min<int64_t>(blockThreads, llvm::PowerOf2Ceil(vectors));
    chunks = llvm::divideCeil(vectors, threads * perThread);
    return teams(items, threads, std::max<int64_t>(1, blockThreads / threads), body);
  }
  // A warp needs no barriers; longer rows need a block.
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
    // Only the last iteration of the last chunk can exceed the row.
    if (!exact && (chunks > 1 || (i + 1) * team > vectors)) {
      piece.inside = at < integer(vectors);
      // Mixed rows consist of whole warps, which are completely inside or outside.
      at = select(piece.inside, at, mixed ? rank % integer(32) + (vectors - 32) : integer(vectors - 1));
    }
    piece.index = indexOf(at, width);
    it->second.push_back(piece);
  }
  prologue = it->second.back().index.v.getDefiningOp();
  return it->second;
}

//===---------------------------------------------------------------------------===//
// Passes over a row
//===---------------------------------------------------------------------------===//

/// The number of vectors that are read before the first result is written.
static constexpr size_t readsAhead = 4;

bool SimtEmitter::inRegisters(int64_t n) const {
  const int64_t width = widthFor(n);
  return chunks > 1 || summing || llvm::divideCeil(n / width, team) * width <= registerElements;
}

/// The conjunction of two conditions; a null condition always holds.
static Num both(Num a, Num b) { return !a.v ? b : !b.v ? a : a & b; }

void SimtEmitter::vectors(int64_t n, llvm::function_ref<void(Num, int64_t)> body) {
  vectors(
      n,
      [&](Num index, int64_t width) {
        body(index, width);
        return Carried();
      },
      nullptr);
}

/// Uses the thread's own pieces if rows are in registers. Otherwise loops over the row, with threads on adjacent
/// vectors.
void SimtEmitter::vectors(int64_t n, llvm::function_ref<Carried(Num, int64_t)> body, Store store) {
  const int64_t width = widthFor(n);
  // Such kernels may work in place, so a piece outside must not touch the element at its index, which belongs to
  // another thread.
  if (inRegisters(n) && independent && llvm::any_of(pieces(n), [](Piece piece) { return bool(piece.inside.v); })) {
    for (Piece piece : pieces(n)) {
      auto whole = [&] {
        Carried values = body(piece.index, width);
        if (store)
          store(piece.index, width, values);
      };
      if (piece.inside.v)
        when(piece.inside, whole);
      else
        whole();
    }
    return;
  }
  (void)reductions(n, {}, body, store);
}

/// Three cases: rows in registers, rows read once, and rows with an online sum of exponentials. In each, threads first
/// reduce their own elements and then combine with each other.
Emitter::Carried SimtEmitter::reductions(int64_t n, ArrayRef<bool> isMax,
                                         llvm::function_ref<Carried(Num, int64_t)> body, Store store,
                                         std::optional<SumExp> sumExp) {
  const int64_t width = widthFor(n), count = isMax.size(), step = team * width;
  assert((chunks == 1 || isMax.empty()) && "a team that reduces is in one block");
  auto combine = [&](int64_t c, Num x, Num y) { return isMax[c] ? maximumOf(x, y) : x + y; };
  // A finite initial maximum avoids NaN in e^(x - maximum) if x is -infinity.
  auto neutral = [&](int64_t c) {
    using Limits = std::numeric_limits<float>;
    return real(!isMax[c] ? 0.0 : sumExp ? Limits::lowest() : -Limits::infinity());
  };
  auto start = [&] {
    Carried init;
    for (int64_t c = 0; c < count; ++c)
      init.push_back(splat(neutral(c), width));
    return init;
  };
  // Reads all of `now`, then writes; adds to `partial`, unless that is empty.
  auto pass = [&](ArrayRef<Piece> now, Carried &partial) {
    SmallVector<Carried> values;
    Num before = sumExp ? partial[sumExp->max] : Num();
    for (Piece piece : now) {
      inside = both(rowExists, piece.inside);
      values.push_back(body(piece.index, width));
    }
    for (auto &&[piece, own] : llvm::zip_equal(now, values)) {
      inside = both(rowExists, piece.inside);
      if (store)
        store(piece.index, width, ArrayRef(own).drop_front(count));
      for (int64_t c = 0; c < count; ++c) {
        Num &x = own[c];
        x = x.width() ? x : splat(x, width);
        if (piece.inside.v)
          x = select(piece.inside, x, splat(neutral(sumExp && c == sumExp->sum ? sumExp->max : c), width));
        if (sumExp && c == sumExp->sum)
          continue;
        if (c < static_cast<int64_t>(partial.size()))
          partial[c] = combine(c, partial[c], x);
        else
          partial.push_back(x);
      }
    }
    inside = {};
    if (!sumExp)
      return;
    Num &sum = partial[sumExp->sum], largest = partial[sumExp->max];
    sum = sum * exp(before - largest);
    for (const Carried &own : values)
      sum = sum + exp(own[sumExp->sum] - largest);
  };
  Carried partial;
  if (sumExp)
    partial = start();
  // A short row is read once and stays in registers; a long row is read in a loop.
  if (inRegisters(n)) {
    ArrayRef<Piece> all = pieces(n);
    for (; !all.empty(); all = all.drop_front(std::min(readsAhead, all.size())))
      pass(all.take_front(readsAhead), partial);
  } else {
    Carried init = start();
    auto trips = [&](Num lo, Num hi, size_t ahead, const Carried &init) {
      return loop(lo, hi, ahead * step, init, [&](Num index, const Carried &carried) {
        SmallVector<Piece> now;
        for (size_t i = 0; i < ahead; ++i)
          now.push_back({index + i * step, {}});
        Carried next(carried);
        pass(now, next);
        return next;
      });
    };
    const int64_t ahead = n / (readsAhead * step) * (readsAhead * step);
    Num start = indexOf(rank, width);
    if (ahead)
      init = trips(start, integer(ahead), readsAhead, init);
    partial = ahead < n ? trips(start + ahead, integer(n), 1, init) : init;
  }
  auto ofElements = [&](int64_t c) {
    auto element = [&](int64_t i) {
      return wrap(vector::ExtractOp::create(b, loc, partial[c].v, ArrayRef<int64_t>{i}));
    };
    Num total = element(0);
    for (int64_t i = 1; i < width; ++i)
      total = combine(c, total, element(i));
    return total;
  };
  if (sumExp) {
    Num largest = splat(across({true}, {ofElements(sumExp->max)})[0], width);
    partial[sumExp->sum] = partial[sumExp->sum] * exp(partial[sumExp->max] - largest);
    partial[sumExp->max] = largest;
  }
  Carried mine;
  for (int64_t c = 0; c < count; ++c)
    mine.push_back(ofElements(c));
  return mine.empty() ? mine : across(isMax, mine);
}

Emitter::Carried SimtEmitter::unrolled(Num lo, int64_t hi, int64_t step, Carried init,
                                       llvm::function_ref<Carried(Num, const Carried &)> body) {
  const int64_t full = hi / (readsAhead * step) * (readsAhead * step);
  if (full)
    init = loop(lo, integer(full), readsAhead * step, init, [&](Num i, const Carried &carried) {
      Carried next(carried);
      for (size_t u = 0; u < readsAhead; ++u)
        next = body(i + u * step, next);
      return next;
    });
  return full < hi ? loop(lo + full, integer(hi), step, init, body) : init;
}

//===---------------------------------------------------------------------------===//
// Sums over rows
//===---------------------------------------------------------------------------===//

/// Threads of a team: one for each vector, if possible.
static int64_t sumThreads(int64_t vectors) { return std::min<int64_t>(llvm::alignTo(vectors, 32), 512); }

/// Teams of a block. Two blocks on a multiprocessor then have enough threads to keep memory busy.
int64_t SimtEmitter::linesOf(int64_t columns) const {
  return std::max<int64_t>(1, 384 / sumThreads(columns / widthFor(columns)));
}

int64_t SimtEmitter::rowSumBlocks(int64_t rows, int64_t columns) const {
  return std::min<int64_t>(columnSumBlocks, llvm::divideCeil(rows, linesOf(columns)));
}

/// Each line of threads sums every n-th row in registers. At the end, lines add up in shared memory, and each block
/// writes its sums to `partials`.
void SimtEmitter::rowSums(int64_t rows, int64_t columns, int64_t count, int64_t unroll, Ptr partials,
                          llvm::function_ref<void(Num)> body) {
  const int64_t width = widthFor(columns), lines = linesOf(columns), blocks = rowSumBlocks(rows, columns);
  const int64_t together = blocks * lines, trips = llvm::divideCeil(rows, together * unroll);
  chunks = perThread = 1;
  summing = true;
  const int64_t threads = sumThreads(columns / width);
  teams(together, threads, lines, [&](Num first) {
    // If a thread keeps one vector, requests two blocks per multiprocessor, for which ptxas finds enough registers.
    if (columns <= threads * width)
      function->setAttr("nvvm.minctasm", b.getI32IntegerAttr(2));
    SmallVector<Piece> own(pieces(columns));
    auto flat = [](ArrayRef<Carried> sums) {
      Carried all;
      for (const Carried &piece : sums)
        all.append(piece);
      return all;
    };
    auto grouped = [&](const Carried &all) {
      totals.clear();
      for (size_t at = 0; at < all.size(); at += count)
        totals.emplace_back(ArrayRef(all).slice(at, count));
    };
    auto trip = [&](Num number, const Carried &carried) {
      grouped(carried);
      for (int64_t u = 0; u < unroll; ++u) {
        Num row = (number * unroll + u) * together + first;
        if (rows % (together * unroll)) {
          rowExists = row < integer(rows);
          row = select(rowExists, row, integer(rows - 1));
        }
        body(row);
        rowExists = {};
      }
      return flat(totals);
    };
    // All teams of a block have the same number of iterations, because reductions wait for the whole block.
    Carried none(own.size() * count, zeros(width));
    grouped(trips == 1 ? trip(integer(0), none) : loop(integer(0), integer(trips), 1, none, trip));
    Num block = first / integer(lines);
    auto partial = [&](int64_t sum, Num index) { return (block + sum * blocks) * columns + index; };
    Ptr memory = lines > 1 ? shared(lines * columns) : Ptr();
    for (int64_t sum = 0; sum < count; ++sum) {
      if (lines > 1 && sum)
        barrier(); // other threads may still read the last sum
      for (auto [piece, total] : llvm::zip_equal(own, totals)) {
        inside = piece.inside;
        if (lines > 1)
          memory.store(total[sum], line * columns + piece.index);
        else
          partials.store(total[sum], partial(sum, piece.index));
        inside = {};
      }
      if (lines == 1)
        continue;
      barrier();
      when(line < integer(1), [&] {
        for (Piece piece : own) {
          Num total = memory.load(piece.index, width);
          for (int64_t other = 1; other < lines; ++other)
            total = total + memory.load(piece.index + other * columns, width);
          inside = piece.inside;
          partials.store(total, partial(sum, piece.index));
          inside = {};
        }
      });
    }
  });
}

void SimtEmitter::addToSum(int64_t sum, Num index, Num value) {
  ArrayRef<Piece> own = known.begin()->second;
  auto *piece = llvm::find_if(own, [&](Piece piece) { return piece.index.v == index.v; });
  const int64_t width = totals[0][0].width();
  if (!value.width())
    value = splat(value, width);
  if (rowExists.v)
    value = select(rowExists, value, zeros(width));
  Num &total = totals[std::distance(own.begin(), piece)][sum];
  total = total + value;
}

Emitter::Carried SimtEmitter::across(ArrayRef<bool> isMax, Carried mine) {
  auto combine = [&](int64_t c, Num x, Num y) { return isMax[c] ? maximumOf(x, y) : x + y; };
  for (int64_t mask = 16; mask >= 1; mask /= 2)
    for (auto [c, x] : llvm::enumerate(mine))
      x = combine(c, x, shuffle(x, mask));
  if (team <= 32)
    return mine;
  const int64_t warps = team / 32, count = mine.size();
  Ptr slots = shared(perBlock * warps * count) + line * (warps * count);
  Num warp = rank / integer(32), lane = rank % integer(32);
  Operation *around = b.getInsertionBlock()->getParentOp();
  if (isa<scf::ForOp>(around) || around->getParentOfType<scf::ForOp>())
    barrier(); // the previous pass may still read the slots
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
  when(both(first < integer(1), rowExists), body);
}

Num SimtEmitter::shuffle(Num value, int64_t mask) {
  auto constant = [&](int64_t n) { return arith::ConstantIntOp::create(b, loc, n, 32); };
  return wrap(
      gpu::ShuffleOp::create(b, loc, value.v, constant(mask), constant(32), gpu::ShuffleMode::XOR).getShuffleResult());
}

Num SimtEmitter::ballot(Num condition) {
  Value all = arith::ConstantIntOp::create(b, loc, -1, 32);
  auto name = b.getStringAttr("llvm.nvvm.vote.ballot.sync");
  return wrap(LLVM::CallIntrinsicOp::create(b, loc, b.getI32Type(), name, ValueRange{all, condition.v}).getResult(0));
}

Num SimtEmitter::bitCount(Num word) { return wrap(LLVM::CtPopOp::create(b, loc, word.v.getType(), word.v)); }

Num SimtEmitter::bitsBefore(Num word) {
  Type i32 = b.getI32Type();
  Value lane = arith::TruncIOp::create(b, loc, i32, (rank % integer(32)).v);
  Value one = arith::ConstantIntOp::create(b, loc, 1, 32);
  Value own = arith::ShLIOp::create(b, loc, one, lane);
  return bitCount(wrap(arith::AndIOp::create(b, loc, word.v, arith::SubIOp::create(b, loc, own, one))));
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

Ptr SimtEmitter::sharedTile(int64_t elements, Type element) {
  constexpr int64_t alignment = 1024;
  constexpr auto name = "__dynamic_shmem__tiles";
  if (!SymbolTable::lookupNearestSymbolFrom(function, b.getStringAttr(name))) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(function);
    LLVM::GlobalOp::create(b, loc, LLVM::LLVMArrayType::get(b.getI8Type(), 0), /*isConstant=*/false,
                           LLVM::Linkage::External, name, Attribute(), alignment, sharedSpace);
  }
  auto pointer = LLVM::LLVMPointerType::get(b.getContext(), sharedSpace);
  Ptr all{this, LLVM::AddressOfOp::create(b, loc, pointer, name), b.getI8Type()};
  Ptr tile = (all + integer(dynamicShared)).as(element);
  dynamicShared += llvm::alignTo(elements * element.getIntOrFloatBitWidth() / 8, alignment);
  return tile;
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

/// The known alignment of `width` elements: vectors start at multiples of their width, up to 16 bytes. Token ids do
/// not, because microbatches may start anywhere.
static unsigned alignmentOf(Type element, int64_t width) {
  int64_t bytes = element.getIntOrFloatBitWidth() / 8;
  return element.isInteger(32) ? bytes : std::min<int64_t>(16, bytes * std::max<int64_t>(width, 1));
}

/// Each of two neighbouring threads has loaded 8 of 16 consecutive bf16. Exchanges halves, so that each thread has its
/// two parts of 4 elements, or reverses such an exchange.
Value SimtEmitter::exchanged(Value halves) {
  Value words = vector::BitCastOp::create(b, loc, VectorType::get(4, b.getI32Type()), halves);
  auto word = [&](int64_t i) { return wrap(vector::ExtractOp::create(b, loc, words, ArrayRef<int64_t>{i})); };
  Num even = rank % integer(2) < integer(1);
  SmallVector<Value> first, second;
  for (int64_t i = 0; i < 2; ++i) {
    Num mine = select(even, word(i), word(i + 2)), other = shuffle(select(even, word(i + 2), word(i)), 1);
    first.push_back(select(even, mine, other).v);
    second.push_back(select(even, other, mine).v);
  }
  first.append(second);
  words = vector::FromElementsOp::create(b, loc, words.getType(), first);
  return vector::BitCastOp::create(b, loc, halves.getType(), words);
}

Num SimtEmitter::load(Ptr from, Num index, int64_t width) {
  auto read = [&](Num index, int64_t width) -> Value {
    Type element = typeInMemory(from.element);
    Type type = width ? Type(VectorType::get(width, element)) : element;
    return LLVM::LoadOp::create(b, loc, type, (from + index).base, alignmentOf(from.element, width));
  };
  Value value;
  if (!mixed || width != 2 * partElements) {
    value = read(index, width);
  } else if (from.element.isBF16()) {
    value = exchanged(read(index + rank % integer(2) * (partDistance - partElements), width));
  } else {
    Value low = read(index, partElements), high = read(index + partDistance, partElements);
    value = vector::ShuffleOp::create(b, loc, low, high, llvm::to_vector(llvm::seq<int64_t>(0, width)));
  }
  if (!from.element.isBF16())
    return fromMemory(*this, value, from.element);
  Type wide = width ? Type(VectorType::get(width, b.getF32Type())) : b.getF32Type();
  return wrap(arith::ExtFOp::create(b, loc, wide, value));
}

void SimtEmitter::store(Num value, Ptr to, Num index) {
  const int64_t width = value.width();
  Type narrow = width ? Type(VectorType::get(width, to.element)) : to.element;
  const bool isBF16 = to.element.isBF16(), apart = mixed && width == 2 * partElements;
  Value stored = isBF16 ? Value(arith::TruncFOp::create(b, loc, narrow, value.v)) : toMemory(value, to.element);
  if (apart && isBF16) {
    stored = exchanged(stored);
    index = index + rank % integer(2) * (partDistance - partElements);
  }
  auto write = [&](Value value, Num index) {
    LLVM::StoreOp::create(b, loc, value, (to + index).base,
                          alignmentOf(to.element, apart && !isBF16 ? partElements : width));
  };
  auto writeAll = [&] {
    if (!apart || isBF16)
      return write(stored, index);
    for (int64_t part : {0, 1}) {
      auto elements = llvm::to_vector(llvm::seq<int64_t>(part * partElements, (part + 1) * partElements));
      write(vector::ShuffleOp::create(b, loc, stored, stored, elements), index + part * partDistance);
    }
  };
  if (inside.v)
    when(inside, writeAll);
  else
    writeAll();
}
