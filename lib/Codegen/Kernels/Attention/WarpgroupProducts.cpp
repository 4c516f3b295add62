//===- WarpgroupProducts.cpp - Products of tiles by wgmma, for attention ------------------------===//
// The source is the PTX ISA, "asynchronous warpgroup level matrix instructions". A tile consists of columns of 64
// elements, one after another. In row r of a column, which has 128 bytes, chunk c of 16 bytes is stored at chunk c ^ (r
// % 8). This is the swizzle of 128 bytes, with which neither copies to the tile nor reads of tensor cores have bank
// conflicts. The matrix of a descriptor has 16 elements of the summed dim: 16 elements of a column's rows or, if
// transposed, 16 of its rows.
//===-----------------------------------------------------------------------------===//
#include "MmaAttention.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace pc;
using namespace pc::kernels;

static constexpr int64_t columnWidth = 64, rowBytes = 128, groupBytes = 8 * rowBytes;

Num MmaAttention::placeInTile(Num line, Num at, int64_t rows) {
  constexpr int64_t vector = 8;
  Num chunk = at % columnWidth / vector;
  Num swizzled = e.wrap(arith::XOrIOp::create(e.b, e.loc, chunk.v, (line % vector).v));
  return at / columnWidth * (rows * columnWidth) + line * columnWidth + swizzled * vector;
}

/// The descriptor of the matrix at `at`. `leading` is the number of bytes from a column of the tile to the next, if
/// there is one.
Num MmaAttention::descriptor(Ptr at, int64_t leading) {
  constexpr uint64_t swizzle = uint64_t(1) << 62;
  auto encoded = [](int64_t bytes) { return uint64_t(bytes) >> 4; };
  uint64_t constant = encoded(leading) << 16 | encoded(groupBytes) << 32 | swizzle;
  Num address = e.wrap(LLVM::PtrToIntOp::create(e.b, e.loc, e.b.getI64Type(), at.base));
  Num start = e.wrap(arith::ShRUIOp::create(e.b, e.loc, (address & 0x3ffff).v, e.integer(4).v));
  return start + static_cast<int64_t>(constant);
}

/// Emits inline PTX with `count` results of f32.
static MmaAttention::Carried emitPtx(SimtEmitter &e, int64_t count, ValueRange operands, const std::string &text,
                                     const std::string &constraints) {
  auto type = LLVM::LLVMStructType::getLiteral(e.b.getContext(), SmallVector<Type>(count, e.b.getF32Type()));
  Value all = LLVM::InlineAsmOp::create(e.b, e.loc, type, operands, text, constraints + "~{memory}",
                                        /*has_side_effects=*/true, /*is_align_stack=*/false, LLVM::TailCallKind::None,
                                        LLVM::AsmDialectAttr(), ArrayAttr())
                  .getRes();
  MmaAttention::Carried results;
  for (int64_t i = 0; i < count; ++i)
    results.push_back(e.wrap(LLVM::ExtractValueOp::create(e.b, e.loc, all, i)));
  return results;
}

/// Adds the product of `left` and `right` to `before`, or to zeros if that is empty, for one piece of 16 per descriptor
/// in `right`. With `waits`, the emitted code waits for the result; otherwise its registers may not be used before
/// `finish`.
MmaAttention::Carried MmaAttention::multiply(ArrayRef<Num> before, int64_t columns, const Left &left,
                                             ArrayRef<Num> right, bool transposed, bool waits) {
  const int64_t count = columns / 2;
  SmallVector<Value> operands = llvm::map_to_vector(before, [](Num sum) { return sum.v; });
  std::string constraints, list;
  for (int64_t i = 0; i < count; ++i) {
    constraints += "=f,";
    list += (i ? ", $" : "$") + std::to_string(i);
  }
  for (size_t i = 0; i < before.size(); ++i)
    constraints += std::to_string(i) + ",";
  auto operand = [&](Value value, StringRef constraint) {
    operands.push_back(value);
    constraints += constraint.str() + ",";
    return "$" + std::to_string(count + operands.size() - 1);
  };
  std::string text = "{\n.reg .pred sets, adds;\nsetp.ne.b32 sets, 0, 0;\nsetp.ne.b32 adds, 1, 0;\n"
                     "wgmma.fence.sync.aligned;\n";
  // The tile of a left operand contains the rows of all warpgroups.
  Num rowsBefore = left.tile.e ? e.rank / 128 * (64 * columnWidth) : Num();
  for (auto [k, matrix] : llvm::enumerate(right)) {
    text += "wgmma.mma_async.sync.aligned.m64n" + std::to_string(columns) + "k16.f32.bf16.bf16 {" + list + "}, ";
    if (left.tile.e) {
      int64_t at = 16 * static_cast<int64_t>(k), column = at / columnWidth;
      Ptr rows = left.tile + rowsBefore + e.integer(column * perBlock * columnWidth + at % columnWidth);
      text += operand(descriptor(rows, /*leading=*/16).v, "l");
    } else {
      text += "{";
      for (auto [i, word] : llvm::enumerate(left.pieces[k]))
        text += (i ? ", " : "") + operand(word, "r");
      text += "}";
    }
    text += ", " + operand(matrix.v, "l") + (k || !before.empty() ? ", adds, 1, 1, " : ", sets, 1, 1, ") +
            (left.tile.e ? "0, " : "") + (transposed ? "1" : "0") + ";\n";
  }
  text += "wgmma.commit_group.sync.aligned;\n";
  text += waits ? "wgmma.wait_group.sync.aligned 0;\n}" : "}";
  return emitPtx(e, count, operands, text, constraints);
}

/// The lists pass through the wait, so no instruction that reads them can come before it.
void MmaAttention::finish(int64_t inFlight, ArrayRef<MutableArrayRef<Num>> lists) {
  if (!warpgroups)
    return;
  SmallVector<Value> operands;
  std::string outputs, inputs;
  for (MutableArrayRef<Num> list : lists)
    for (Num &value : list) {
      outputs += "=f,";
      inputs += std::to_string(operands.size()) + ",";
      operands.push_back(value.v);
    }
  Carried results = emitPtx(e, static_cast<int64_t>(operands.size()), operands,
                            "wgmma.wait_group.sync.aligned " + std::to_string(inFlight) + ";", outputs + inputs);
  const Num *next = results.begin();
  for (MutableArrayRef<Num> list : lists)
    for (Num &value : list)
      value = *next++;
}

/// Uses one descriptor of the tile for every 16 columns of the left operand.
MmaAttention::Carried MmaAttention::timesTransposedByWarpgroups(const Left &left, Ptr tile, int64_t rows, bool waits) {
  SmallVector<Num> right;
  for (int64_t p = 0; p < pieces; ++p) {
    int64_t at = 16 * p, column = at / columnWidth;
    right.push_back(descriptor(tile + e.integer(column * rows * columnWidth + at % columnWidth), /*leading=*/16));
  }
  return multiply({}, rows, left, right, /*transposed=*/false, waits);
}

/// The right operand has one descriptor for each 16 rows of the tile.
MmaAttention::Carried MmaAttention::addByWarpgroups(ArrayRef<Num> before, const Left &left, Ptr tile, bool waits) {
  const auto count = static_cast<int64_t>(left.pieces.size());
  SmallVector<Num> right;
  for (int64_t k = 0; k < count; ++k)
    right.push_back(descriptor(tile + e.integer(16 * k * columnWidth), /*leading=*/16 * count * rowBytes));
  return multiply(before, a.d, left, right, /*transposed=*/true, waits);
}
