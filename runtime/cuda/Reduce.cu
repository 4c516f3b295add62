//===- Reduce.cu - Adds up what several ranks hold on one device ----------===//
// The arithmetic of Moves.h (addends in order, bf16 in f32 and rounded once, NaNs survive a maximum) for virtual ranks
// on a GPU. The build makes PTX of it.
//===----------------------------------------------------------------------===//
#define GLOBAL extern "C" __attribute__((global)) void
#define DEVICE static inline __attribute__((device))

using int64 = long long;

/// This must be the same struct as ReduceArguments in VirtualMoves.cpp. Element (row, column) of the result is at shift
/// + row * pitch + column.
struct Arguments {
  const void *ins[32];
  void *outs[32];
  int64 rows, width, inPitch, inShift, outPitch, outShift;
  int numIns, numOuts;
};

struct F32 {
  using Stored = float;
  using Value = float;
  DEVICE Value load(Stored x) { return x; }
  DEVICE Stored store(Value x) { return x; }
};
struct Bf16 {
  using Stored = unsigned short;
  using Value = float;
  DEVICE Value load(Stored x) {
    unsigned bits = unsigned(x) << 16;
    return __builtin_bit_cast(float, bits);
  }
  DEVICE Stored store(Value x) {
    unsigned bits = __builtin_bit_cast(unsigned, x);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
      return Stored((bits >> 16) | 0x40u);
    return Stored((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
  }
};
struct I32 {
  using Stored = unsigned;
  using Value = int;
  DEVICE Value load(Stored x) { return int(x); }
  DEVICE Stored store(Value x) { return Stored(x); }
};
struct Sum {
  DEVICE float apply(float a, float b) { return a + b; }
  DEVICE int apply(int a, int b) { return int(unsigned(a) + unsigned(b)); }
};
struct Max {
  DEVICE float apply(float a, float b) { return a > b || a != a ? a : b; }
  DEVICE int apply(int a, int b) { return a > b ? a : b; }
};

template <typename T, typename Op> DEVICE void reduce(const Arguments &arguments) {
  int64 count = arguments.rows * arguments.width;
  int64 step = int64(__nvvm_read_ptx_sreg_nctaid_x()) * __nvvm_read_ptx_sreg_ntid_x();
  int64 at = int64(__nvvm_read_ptx_sreg_ctaid_x()) * __nvvm_read_ptx_sreg_ntid_x() + __nvvm_read_ptx_sreg_tid_x();
  for (; at < count; at += step) {
    int64 row = arguments.rows == 1 ? 0 : at / arguments.width, column = at - row * arguments.width;
    int64 from = arguments.inShift + row * arguments.inPitch + column;
    int64 to = arguments.outShift + row * arguments.outPitch + column;
    typename T::Value sum = T::load(static_cast<const typename T::Stored *>(arguments.ins[0])[from]);
    for (int k = 1; k < arguments.numIns; ++k)
      sum = Op::apply(sum, T::load(static_cast<const typename T::Stored *>(arguments.ins[k])[from]));
    typename T::Stored result = T::store(sum);
    for (int k = 0; k < arguments.numOuts; ++k)
      static_cast<typename T::Stored *>(arguments.outs[k])[to] = result;
  }
}

GLOBAL reduce_f32_sum(const Arguments arguments) { reduce<F32, Sum>(arguments); }
GLOBAL reduce_f32_max(const Arguments arguments) { reduce<F32, Max>(arguments); }
GLOBAL reduce_bf16_sum(const Arguments arguments) { reduce<Bf16, Sum>(arguments); }
GLOBAL reduce_bf16_max(const Arguments arguments) { reduce<Bf16, Max>(arguments); }
GLOBAL reduce_i32_sum(const Arguments arguments) { reduce<I32, Sum>(arguments); }
GLOBAL reduce_i32_max(const Arguments arguments) { reduce<I32, Max>(arguments); }
