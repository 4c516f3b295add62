//===- BlockCodes.h - Codes of 8 bits in kernels -----------------------------------------===//
// Implements the codes of pcrt/block_codes.h and pcrt/float8.h as arithmetic on vectors, and loops over the blocks of a
// value that share a scale.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_KERNELS_BLOCKCODES_H
#define PC_LIB_CODEGEN_KERNELS_BLOCKCODES_H

#include "../Emit/Kernel.h"
#include "pcrt/block_codes.h"

namespace pc::kernels {

/// Converts between 8-bit codes and the numbers that they stand for. Bytes are held as f32, because loads and stores of
/// i8 convert from and to f32. Loads and stores of floats of 8 bits convert from and to their numbers.
class BlockCode {
public:
  BlockCode(Emitter &e, bool isUnsigned, bool isLinear = false, mlir::Type float8 = {})
      : isLinear(isLinear), float8(float8), e(e), code(pcrt_dynamic(isUnsigned)), isUnsigned(isUnsigned) {}

  const bool isLinear;
  const mlir::Type float8; ///< the type of codes that are floats of 8 bits, otherwise null

  /// Converts signed bytes to the numbers that they stand for. Those of a dynamic code have the bits of
  /// pcrt_number_of_byte.
  Num decode(Num bytes) const;
  /// Returns the byte of the number that is nearest to `x`, from -128 to 255.
  Num encode(Num x) const;

private:
  Emitter &e;
  const pcrt_dynamic_code code;
  const bool isUnsigned;
};

/// Splits a value into blocks that each have one scale.
class Blocks {
public:
  /// On a GPU, a vector has at most `widest` elements.
  Blocks(Kernel &kernel, llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> scales, int64_t widest = 8);

  /// Calls body(block number, first element) for each block. On a CPU, an item of the kernel is a row of blocks that
  /// differ only in the last dim. On a GPU, an item is the block of a warp. If blocks have one element in the last dim,
  /// a thread works on neighbouring blocks together: each element of a vector belongs to another block.
  void each(llvm::function_ref<void(Num, Num)> body) const;

  using Carried = Emitter::Carried;
  using Body = llvm::function_ref<Carried(Num, Num, const Carried &)>;
  /// Calls body(index, index in the block, carried values) for each vector of width() elements of a block, or for each
  /// element if width() is 0. On a GPU, a thread covers only its own vectors, which are the same each time.
  Carried elements(Num first, Carried init, Body body) const;
  /// Returns memory for `count` f32 per element of the block. On a GPU, a thread reads only what it has written.
  Ptr memory(Num block, int64_t count) const;
  int64_t width() const { return vectorWidth; }
  /// The number of blocks that are worked on together; 0 if it is one.
  int64_t together() const { return isAcross ? vectorWidth : 0; }
  /// Whether one thread works on a block; otherwise, on a GPU, it is a warp.
  bool isOfThread() const { return !kernel.simt || isAcross; }
  /// The number of elements of a block.
  int64_t size() const { return numElements; }
  /// Returns the first halves of the blocks, for `elements`. `other` is set to the distance from an element to the same
  /// element of the second half.
  Blocks firstHalves(int64_t &other) const;

private:
  Carried along(size_t dim, Num at, Num inBlock, const Carried &init, Body body) const;

  Kernel &kernel;
  Emitter &e;
  llvm::SmallVector<int64_t> counts, sides, strides; ///< per dim: number and size of blocks, stride of elements
  int64_t numRows = 1, numElements = 1, vectorWidth;
  bool isAcross; ///< each element of a vector belongs to another block
};

} // namespace pc::kernels
#endif
