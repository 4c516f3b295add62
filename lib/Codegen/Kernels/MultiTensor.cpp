//===- MultiTensor.cpp - One kernel for many tensors, on a GPU ----------------------===//
// A constant table lists the tensors; each block finds its tensor by binary search and works on up to 8192 elements of
// it. Addresses are offsets in the arena, because a launch can pass only few arguments.
//===-----------------------------------------------------------------------------===//
#include "MultiTensor.h"
#include "Optimizer.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace pc::kernels;

static constexpr int64_t threads = 256, width = 4, blockElements = 8 * threads * width;

static int64_t blocksOf(int64_t elements) { return llvm::divideCeil(elements, blockElements); }

int64_t TensorList::numBlocks() const {
  int64_t blocks = 0;
  for (int64_t n : elements)
    blocks += blocksOf(n);
  return blocks;
}

namespace {
/// The table of a list: per tensor its first block, its elements and its offsets.
class TensorTable {
public:
  /// The table is a constant of the device, with a row per tensor: its first block, its elements, and its offsets.
  TensorTable(SimtEmitter &e, gpu::GPUFuncOp function, const TensorList &tensors)
      : e(e), stride(2 + tensors.offsets[0].size()), count(tensors.elements.size()) {
    SmallVector<int64_t> rows;
    int64_t block = 0;
    for (auto [elements, offsets] : llvm::zip_equal(tensors.elements, tensors.offsets)) {
      rows.push_back(block);
      rows.push_back(elements);
      rows.append(offsets);
      block += blocksOf(elements);
    }
    constexpr unsigned global = 1; // address space
    std::string name = (function.getName() + "_table").str();
    auto type = LLVM::LLVMArrayType::get(e.b.getI64Type(), rows.size());
    auto values = DenseElementsAttr::get(RankedTensorType::get(rows.size(), e.b.getI64Type()), ArrayRef<int64_t>(rows));
    OpBuilder outside(function);
    LLVM::GlobalOp::create(outside, e.loc, type, /*isConstant=*/true, LLVM::Linkage::Internal, name, values,
                           /*alignment=*/16, global);
    auto pointer = LLVM::LLVMPointerType::get(e.b.getContext(), global);
    at = {&e, LLVM::AddressOfOp::create(e.b, e.loc, pointer, name), e.b.getI64Type()};
  }

  Num firstBlock(Num tensor) { return at.load(tensor * stride); }
  Num elements(Num tensor) { return at.load(tensor * stride + 1); }
  Num offset(Num tensor, int64_t role) { return at.load(tensor * stride + (2 + role)); }

  /// The tensor of `block`: the last one whose first block is at most `block`.
  Num find(Num block) {
    Num low = e.integer(0);
    // Binary search without branches: `low` is always a tensor that begins at or before the block.
    for (int64_t step = llvm::bit_floor(uint64_t(count)); step >= 1; step /= 2) {
      Num next = low + step, exists = next < e.integer(count);
      Num inside = exists & e.notBefore(block, firstBlock(e.select(exists, next, e.integer(0))));
      low = e.select(inside, next, low);
    }
    return low;
  }

private:
  SimtEmitter &e;
  const int64_t stride, count;
  Ptr at;
};

/// The address `arena` + `offset` bytes, of f32.
Ptr after(SimtEmitter &e, Value arena, Num offset) {
  Ptr bytes{&e, arena, e.b.getI8Type()};
  return {&e, (bytes + offset).base, e.b.getF32Type()};
}

/// Covers the elements of this block: body(first, width) for whole vectors and single elements.
void elementsOf(SimtEmitter &e, Num first, Num count, llvm::function_ref<void(Num, int64_t)> body) {
  Num end = e.min(first + blockElements, count);
  e.loop(first + e.rank * width, end, threads * width, [&](Num i) {
    e.when(
        e.notBefore(count, i + width), [&] { body(i, width); },
        [&] { e.loop(i, count, 1, [&](Num single) { body(single, 0); }); });
  });
}
} // namespace

/// Each block finds its tensor in the table and updates its elements.
void pc::kernels::emitAdamW(SimtEmitter &e, Value arena, const TensorList &tensors, int64_t coefficient,
                            int64_t hyper) {
  e.teams(tensors.numBlocks(), threads, 1, [&](Num block) {
    TensorTable table(e, e.function, tensors);
    Num tensor = table.find(block);
    Num first = (block - table.firstBlock(tensor)) * blockElements;
    SmallVector<Ptr> roles;
    for (int64_t role = 0; role < 4; ++role)
      roles.push_back(after(e, arena, table.offset(tensor, role)));
    AdamW adam(e, after(e, arena, e.integer(coefficient)), after(e, arena, e.integer(hyper)));
    elementsOf(e, first, table.elements(tensor), [&](Num i, int64_t w) {
      AdamW::State next =
          adam.step({roles[0].load(i, w), roles[2].load(i, w), roles[3].load(i, w)}, roles[1].load(i, w));
      roles[0].store(next.parameter, i);
      roles[2].store(next.first, i);
      roles[3].store(next.second, i);
    });
  });
}

/// Works like emitAdamW, but without states.
void pc::kernels::emitSGD(SimtEmitter &e, Value arena, const TensorList &tensors, int64_t coefficient, int64_t hyper) {
  e.teams(tensors.numBlocks(), threads, 1, [&](Num block) {
    TensorTable table(e, e.function, tensors);
    Num tensor = table.find(block);
    Num first = (block - table.firstBlock(tensor)) * blockElements;
    Ptr parameter = after(e, arena, table.offset(tensor, 0)), gradient = after(e, arena, table.offset(tensor, 1));
    SGD sgd(e, after(e, arena, e.integer(coefficient)), after(e, arena, e.integer(hyper)));
    elementsOf(e, first, table.elements(tensor),
               [&](Num i, int64_t w) { parameter.store(sgd.step(parameter.load(i, w), gradient.load(i, w)), i); });
  });
}

/// A warp reads f32 and writes bf16 in whole tiles, so that both accesses are contiguous.
void pc::kernels::emitRounding(SimtEmitter &e, Value arena, const TensorList &tensors) {
  constexpr int64_t warp = 32, tile = warp * 2 * width; // elements that a warp rounds at once
  static_assert(blockElements % (threads / warp * tile) == 0);
  e.mixRows(tile);
  e.teams(tensors.numBlocks(), threads, 1, [&](Num block) {
    TensorTable table(e, e.function, tensors);
    Num tensor = table.find(block);
    Ptr from = after(e, arena, table.offset(tensor, 0));
    Ptr to{&e, after(e, arena, table.offset(tensor, 1)).base, e.b.getBF16Type()};
    Num first = (block - table.firstBlock(tensor)) * blockElements, count = table.elements(tensor);
    Num lane = e.rank % e.integer(warp);
    e.loop(first + e.rank / e.integer(warp) * tile, e.min(first + blockElements, count), threads / warp * tile,
           [&](Num start) {
             e.when(
                 e.notBefore(count, start + tile),
                 [&] {
                   Num i = start + lane * width;
                   to.store(from.load(i, 2 * width), i);
                 },
                 [&] { e.loop(start + lane, count, warp, [&](Num i) { to.store(from.load(i), i); }); });
           });
  });
}

/// Each block writes its sum of squares to `partials`.
void pc::kernels::emitSquares(SimtEmitter &e, Value arena, const TensorList &tensors, int64_t partials) {
  e.teams(tensors.numBlocks(), threads, 1, [&](Num block) {
    TensorTable table(e, e.function, tensors);
    Num tensor = table.find(block), count = table.elements(tensor);
    Num first = (block - table.firstBlock(tensor)) * blockElements, end = e.min(first + blockElements, count);
    Ptr x = after(e, arena, table.offset(tensor, 0));
    // In the last vector, elements after the end count as zeros.
    Num total =
        e.loop(first + e.rank * width, end, threads * width, {e.real(0)}, [&](Num i, const Emitter::Carried &sum) {
          return Emitter::Carried{sum[0] + e.pick(
                                               e.notBefore(count, i + width),
                                               [&] {
                                                 Num v = x.load(i, width);
                                                 return e.sum(v * v);
                                               },
                                               [&] {
                                                 return e.loop(i, count, 1, {e.real(0)},
                                                               [&](Num j, const Emitter::Carried &sum) {
                                                                 Num v = x.load(j);
                                                                 return Emitter::Carried{sum[0] + v * v};
                                                               })[0];
                                               })};
        })[0];
    Num sum = e.across({false}, {total})[0];
    e.once([&] { after(e, arena, e.integer(partials)).store(sum, block); });
  });
}

/// Each block adds the sums of one tensor.
void pc::kernels::emitSquareTotals(SimtEmitter &e, Value arena, const TensorList &tensors, int64_t partials) {
  e.teams(tensors.elements.size(), threads, 1, [&](Num tensor) {
    TensorTable table(e, e.function, tensors);
    Num first = table.firstBlock(tensor);
    Num blocks = (table.elements(tensor) + (blockElements - 1)) / e.integer(blockElements);
    Ptr from = after(e, arena, e.integer(partials)) + first;
    Num mine = e.loop(e.rank, blocks, threads, {e.real(0)},
                      [&](Num i, const Emitter::Carried &sum) { return Emitter::Carried{sum[0] + from.load(i)}; })[0];
    Num sum = e.across({false}, {mine})[0];
    e.once([&] { after(e, arena, table.offset(tensor, 1)).store(sum, e.integer(0)); });
  });
}
