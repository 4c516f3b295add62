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

/// The address of an array of `element`, which is f32, bf16, i32, a float of 8 bits, or i8 for codes. Loads of narrower
/// elements give f32. Stores of floats round to nearest even; stores of codes round towards zero.
struct Ptr {
  Emitter *e = nullptr;
  mlir::Value base;
  mlir::Type element;

  /// Returns the element at `index`, or a vector of `width` elements from there on. No alignment is assumed.
  Num load(Num index) const;
  Num load(Num index, int64_t width) const;
  /// Writes one element or, if `value` is a vector, as many elements as it has.
  void store(Num value, Num index) const;
  /// Writes zeros to the first `count` elements (memset).
  void clear(Num count) const;
  /// Returns the address `index` elements further on.
  Ptr operator+(Num index) const;
  /// Returns the same memory as elements of another type.
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
  /// The number of f32 elements of a full vector: 16 for AVX-512, 8 for AVX2.
  const int64_t lanes;
  /// Whether the target has an instruction that rounds f32 to bf16 (AVX512-BF16, sm_80). If it does not, integer
  /// operations round.
  const bool roundsToBf16;
  /// Whether kernels multiply pairs of bf16 with instructions (addProducts; AVX512-BF16). Needs roundsToBf16.
  const bool multipliesPairs;

  /// While it is true, each of + - * / on floats is rounded by itself, in the order of the program. Otherwise sums may
  /// be reordered and products contracted, so the last bits of a result depend on the kernel that computes it.
  bool isExact = false;

  /// Constants of type i64 and f32, and wrappers of existing values.
  Num integer(int64_t value);
  Num real(double value);
  Num wrap(mlir::Value v) { return {this, v}; }
  /// Returns a vector whose elements are all `scalar`.
  Num splat(Num scalar, int64_t width);
  Num zeros(int64_t width) { return splat(real(0), width); }

  Num fma(Num a, Num b, Num c);
  /// Rounds two vectors of f32 to nearest even and packs them into words. Words are vectors of type f32 in which each
  /// element holds the bits of two bf16, the first one in the low half. Only addProducts computes with them.
  Num words(Num first, Num second);
  /// Adds to `sums` the two products of each word of a and b, in f32. Needs AVX512-BF16 on a CPU, and full vectors.
  Num addProducts(Num a, Num b, Num sums);
  Num min(Num a, Num b);
  Num max(Num a, Num b);
  Num select(Num condition, Num yes, Num no);
  Num isNan(Num x);
  Num sqrt(Num x);
  Num log(Num x);
  Num sin(Num x);
  Num cos(Num x);
  /// Computes e^x for x <= 88, with a relative error below 2e-7. The result is at most 1.2e-38 for x <= -87.33. NaN
  /// stays NaN.
  virtual Num exp(Num x);
  /// Reduce the elements of a vector to their sum or maximum. For a maximum, the number of elements must be a power of
  /// two.
  Num sum(Num x);
  Num maximum(Num x);
  /// `extend` converts a 32-bit integer to i64; `toReal` converts i32 to f32.
  Num extend(Num x);
  Num toReal(Num x);
  /// Returns whether 0 <= x < end.
  Num inRange(Num x, Num end);
  /// Returns a mask of `width` elements. Element i is set if `from` + i < `end`.
  Num before(Num from, Num end, int64_t width);

  /// for (i = lo; i < hi; i += step) body(i)
  void loop(Num lo, Num hi, int64_t step, llvm::function_ref<void(Num)> body);
  /// A loop with loop-carried values. Returns their final values.
  using Carried = llvm::SmallVector<Num>;
  Carried loop(Num lo, Num hi, int64_t step, Carried init, llvm::function_ref<Carried(Num, const Carried &)> body);
  /// Runs the body if the condition holds, and otherwise `otherwise`, which may be null.
  void when(Num condition, llvm::function_ref<void()> body, llvm::function_ref<void()> otherwise = nullptr);

  /// Covers [0, n) by full vectors and one narrower vector, and calls body(first index, width) for each. If several
  /// passes get the same SSA value as index, they work on the same elements. Then values that an earlier pass has
  /// computed may still be in registers.
  virtual void vectors(int64_t n, llvm::function_ref<void(Num, int64_t)> body);
  /// Like `vectors` above, in two parts: `body` reads and computes, and `store` gets the computed values for the same
  /// index and writes. On a GPU, several vectors are read before the first one is written, so that the reads are in
  /// flight together.
  using Store = llvm::function_ref<void(Num, int64_t, llvm::ArrayRef<Num>)>;
  virtual void vectors(int64_t n, llvm::function_ref<Carried(Num, int64_t)> body, Store store);
  /// Reduces over [0, n). body(first index, width) yields one vector per entry of `isMax`; the elements of the vector
  /// are summed, or their maximum is computed if the entry is true. Further values that the body yields are passed to
  /// `store`. Returns scalars.
  virtual Carried reductions(int64_t n, llvm::ArrayRef<bool> isMax, llvm::function_ref<Carried(Num, int64_t)> body,
                             Store store = nullptr);
  /// Returns as scalars the sums over [0, n) of the `count` vectors that body(first index, width) yields.
  Carried sums(int64_t n, int64_t count, llvm::function_ref<Carried(Num, int64_t)> body) {
    return reductions(n, llvm::SmallVector<bool>(count, false), body);
  }
  /// Returns the positions of the elements of a vector, relative to its first element.
  virtual llvm::SmallVector<int32_t> steps(int64_t width) { return llvm::to_vector(llvm::seq<int32_t>(0, width)); }
  /// Runs `body` in one thread of an item. Use it to store values that all threads of the item have.
  virtual void once(llvm::function_ref<void()> body) { body(); }

protected:
  friend struct Ptr;
  /// Loads `width` elements starting at `index`; bf16 elements become f32. If `width` is 0, loads a scalar.
  virtual Num load(Ptr from, Num index, int64_t width);
  virtual void store(Num value, Ptr to, Num index);
};

/// Converts bf16, held as 16-bit integers, to f32, and f32 to bf16 with rounding to nearest even. NaN stays NaN.
Num fromBf16(Emitter &e, mlir::Value halves);
mlir::Value roundToBf16(Num x);
/// The type with which codes of type `element` are loaded and stored, a byte. Other types are unchanged.
mlir::Type typeInMemory(mlir::Type element);
/// Returns loaded codes as f32; other values are unchanged.
Num fromMemory(Emitter &e, mlir::Value loaded, mlir::Type element);
/// Rounds f32 to codes: numbers from -128 to 255 towards zero, and floats of 8 bits to nearest even, with saturation
/// (pcrt/float8.h). Values of other types are unchanged.
mlir::Value toMemory(Num x, mlir::Type element);
/// Returns the scale of elements of type `element` whose largest magnitude is `largest`: a power of two.
Num float8Scale(Num largest, mlir::Type element);
/// Returns the number by which elements with this given scale are multiplied, which is exact, because the scale is a
/// power of two. With a scale that is not positive it is 0 (or NaN).
Num inverseOfScale(Num scale);

/// Emits the operators of Num: `op` is one of + - * /, and a scalar is broadcast to any vector.
mlir::Value emitBinary(Num a, Num b, char op);
Num compare(mlir::arith::CmpFPredicate how, Num x, Num y);
Num emitLess(Num a, Num b);

/// Returns a constant of the element type of `like`.
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
