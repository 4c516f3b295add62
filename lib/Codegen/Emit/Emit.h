//===- Emit.h - Numbers, addresses and loops for writing kernels --------------------===//
// Kernels are written once, in C++ that reads like the loop nest it emits. `Num` is an SSA value with operators, `Ptr`
// is an address of f32, bf16 or i32 elements, and `Emitter` creates constants, loops and vector operations. The Emitter
// itself is for CPUs: shapes are static, so the rest of a loop is a narrower vector and never a mask. SimtEmitter
// (Simt.h) writes the same loops for the threads of a GPU.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_EMIT_EMIT_H
#define PC_LIB_CODEGEN_EMIT_EMIT_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/TypeUtilities.h"
#include <type_traits>

namespace pc::kernels {
class Emitter;

/// An SSA value: i64, i32, i1, f32, or a vector of i32, i1 or f32. Binary operators take two values of one element type
/// (a scalar with a vector is broadcast) or a C++ number on one side.
struct Num {
  Emitter *e = nullptr;
  mlir::Value v;

  bool isFloat() const { return llvm::isa<mlir::FloatType>(mlir::getElementTypeOrSelf(v.getType())); }
  /// Number of elements; 0 for a scalar.
  int64_t width() const {
    auto type = llvm::dyn_cast<mlir::VectorType>(v.getType());
    return type ? type.getNumElements() : 0;
  }
};

/// Address of an array of `element` (f32, bf16, i32, or codes of i8). Loads of bf16 and codes give f32; stores round to
/// nearest even, or codes towards zero.
struct Ptr {
  Emitter *e = nullptr;
  mlir::Value base;
  mlir::Type element;

  /// The element at `index`, or `width` elements from there on (no alignment assumed).
  Num load(Num index) const;
  Num load(Num index, int64_t width) const;
  /// Writes one element or, if `value` is a vector, as many elements as it has.
  void store(Num value, Num index) const;
  /// Writes zeros to the first `count` elements (memset).
  void clear(Num count) const;
  /// The address `index` elements further on.
  Ptr operator+(Num index) const;
  /// This memory as elements of another type.
  Ptr as(mlir::Type other) const { return {e, base, other}; }
};

/// Emits ops at the builder's insertion point.
class Emitter {
public:
  Emitter(mlir::OpBuilder &b, mlir::Location loc, int64_t lanes, bool roundsToBf16 = false,
          bool multipliesPairs = false)
      : b(b), loc(loc), lanes(lanes), roundsToBf16(roundsToBf16), multipliesPairs(multipliesPairs) {}
  virtual ~Emitter() = default;

  mlir::OpBuilder &b;
  mlir::Location loc;
  /// f32 elements of a full vector: 16 for AVX-512, 8 for AVX2.
  const int64_t lanes;
  /// Whether the target has an instruction that rounds f32 to bf16 (AVX512-BF16, sm_80); if not, integer operations
  /// round.
  const bool roundsToBf16;
  /// Whether kernels multiply pairs of bf16 with instructions (addProducts; AVX512-BF16). Needs roundsToBf16.
  const bool multipliesPairs;

  /// Constants of type i64 and f32, and wrappers of existing values.
  Num integer(int64_t value);
  Num real(double value);
  Num wrap(mlir::Value v) { return {this, v}; }
  /// A vector whose elements are all `scalar`.
  Num splat(Num scalar, int64_t width);
  Num zeros(int64_t width) { return splat(real(0), width); }

  Num fma(Num a, Num b, Num c);
  /// Rounds two vectors of f32 to nearest even and packs them into words. Words are vectors of type f32 in which each
  /// element holds the bits of two bf16, the first one in the low half. Only addProducts computes with them.
  Num words(Num first, Num second);
  /// sums + the two products of each word of a and b, in f32 (AVX512-BF16 on a CPU; full vectors).
  Num addProducts(Num a, Num b, Num sums);
  Num min(Num a, Num b);
  Num max(Num a, Num b);
  Num select(Num condition, Num yes, Num no);
  Num isNan(Num x);
  Num sqrt(Num x);
  Num log(Num x);
  Num sin(Num x);
  Num cos(Num x);
  /// e^x for x <= 88, relative error below 2e-7; at most 1.2e-38 for x <= -87.33; NaN stays NaN.
  virtual Num exp(Num x);
  /// Sum and maximum of the elements of a vector. For a maximum, their number must be a power of two.
  Num sum(Num x);
  Num maximum(Num x);
  /// Converts a 32-bit integer to i64, and i32 to f32.
  Num extend(Num x);
  Num toReal(Num x);
  /// Whether 0 <= x < end.
  Num inRange(Num x, Num end);
  /// A mask of `width` elements. Element i is set if `from` + i < `end`.
  Num before(Num from, Num end, int64_t width);

  /// for (i = lo; i < hi; i += step) body(i)
  void loop(Num lo, Num hi, int64_t step, llvm::function_ref<void(Num)> body);
  /// A loop with loop-carried values. Returns their final values.
  using Carried = llvm::SmallVector<Num>;
  Carried loop(Num lo, Num hi, int64_t step, Carried init, llvm::function_ref<Carried(Num, const Carried &)> body);
  /// The body runs if the condition holds, and `otherwise` (may be null) if it does not.
  void when(Num condition, llvm::function_ref<void()> body, llvm::function_ref<void()> otherwise = nullptr);

  /// Covers [0, n) by full vectors and one narrower vector: body(first index, width). If several passes get the same
  /// SSA value as index, they work on the same elements, and values computed in an earlier pass may still be in
  /// registers.
  virtual void vectors(int64_t n, llvm::function_ref<void(Num, int64_t)> body);
  /// Like `vectors` above, in two parts: `body` reads and computes, `store` gets the values for the same index and
  /// writes. On a GPU, several vectors are read before the first one is written, so that the reads are in flight
  /// together.
  using Store = llvm::function_ref<void(Num, int64_t, llvm::ArrayRef<Num>)>;
  virtual void vectors(int64_t n, llvm::function_ref<Carried(Num, int64_t)> body, Store store);
  /// Reduces over [0, n): body(first index, width) yields one vector per entry of `isMax`, whose elements are summed or
  /// whose maximum is computed. Further values that it yields are passed to `store`. Returns scalars.
  virtual Carried reductions(int64_t n, llvm::ArrayRef<bool> isMax, llvm::function_ref<Carried(Num, int64_t)> body,
                             Store store = nullptr);
  /// Returns as scalars the sums over [0, n) of the `count` vectors that body(first index, width) yields.
  Carried sums(int64_t n, int64_t count, llvm::function_ref<Carried(Num, int64_t)> body) {
    return reductions(n, llvm::SmallVector<bool>(count, false), body);
  }
  /// Positions of the elements of a vector, relative to its first element.
  virtual llvm::SmallVector<int32_t> steps(int64_t width) { return llvm::to_vector(llvm::seq<int32_t>(0, width)); }
  /// Runs `body` in one thread of an item; for storing values that all threads of the item have.
  virtual void once(llvm::function_ref<void()> body) { body(); }

protected:
  friend struct Ptr;
  /// Loads `width` elements starting at `index`; bf16 elements become f32. Width 0 loads a scalar.
  virtual Num load(Ptr from, Num index, int64_t width);
  virtual void store(Num value, Ptr to, Num index);
};

/// Conversions of bf16, held as 16-bit integers: to f32, and from f32 with rounding to nearest even (NaN stays NaN).
Num fromBf16(Emitter &e, mlir::Value halves);
mlir::Value roundToBf16(Num x);
/// The codes of numbers from -128 to 255, which are rounded towards zero, as bytes.
mlir::Value roundToCodes(Num x);

/// Emits the operators of Num: `op` is one of + - * /, and a scalar is broadcast to any vector.
mlir::Value emitBinary(Num a, Num b, char op);
Num compare(mlir::arith::CmpFPredicate how, Num x, Num y);
Num emitLess(Num a, Num b);

/// A constant of the element type of `like`.
template <typename T> Num constantLike(Num like, T value);

#define PC_NUM_OPERATOR(OP, CODE)                                                                                      \
  inline Num operator OP(Num a, Num b) { return {a.e, emitBinary(a, b, CODE)}; }                                       \
  template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>> Num operator OP(Num a, T b) {            \
    return a OP constantLike(a, b);                                                                                    \
  }                                                                                                                    \
  template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>> Num operator OP(T a, Num b) {            \
    return constantLike(b, a) OP b;                                                                                    \
  }
PC_NUM_OPERATOR(+, '+')
PC_NUM_OPERATOR(-, '-')
PC_NUM_OPERATOR(*, '*')
PC_NUM_OPERATOR(/, '/')
PC_NUM_OPERATOR(%, '%')
PC_NUM_OPERATOR(&, '&')
#undef PC_NUM_OPERATOR

inline Num operator<(Num a, Num b) { return emitLess(a, b); }

template <typename T> Num constantLike(Num like, T value) {
  return like.isFloat() ? like.e->real(double(value)) : like.e->integer(int64_t(value));
}

} // namespace pc::kernels
#endif
