//===- Functions.cpp - NVPTX instructions that x86 lacks ------------------===//
// Host images call these functions as pc_nvvm_<intrinsic> and pc_ptx_<instruction>, with underscores for dots. Exact
// instructions are exact. The results of *.approx* are correctly rounded here, or differ by at most one unit in the
// last place; on a device, they are within the documented error.
//===----------------------------------------------------------------------===//
#include "Worker.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

using namespace pc::standin;

/// .ftz: subnormal operands and results are zero.
static float ftz(float x) { return std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.f, x) : x; }

/// s + e is exactly a * b + c for floats where nothing overflows.
static void exactFma(float a, float b, float c, double &s, double &e) {
  double p = double(a) * b;
  s = p + c;
  double v = s - p;
  e = (p - (s - v)) + (c - v);
}

/// a * b + c, rounded downwards (direction -1), upwards (1) or towards zero (0).
static float fmaDirected(float a, float b, float c, int direction) {
  double s, e;
  exactFma(a, b, c, s, e);
  if (!std::isfinite(s))
    return float(s);
  float r = float(s);
  double above = double(r) - s; // r - (s + e) has the sign of above - e
  bool high = above > e, low = above < e;
  if (direction == 0)
    direction = s + e > 0 ? -1 : 1;
  if (direction < 0 && high)
    return std::nextafterf(r, -std::numeric_limits<float>::infinity());
  if (direction > 0 && low)
    return std::nextafterf(r, std::numeric_limits<float>::infinity());
  return r;
}

template <class T> static T saturated(double x) { // conversions to integers clamp, and NaN is zero
  if (std::isnan(x))
    return 0;
  if (x <= double(std::numeric_limits<T>::min()))
    return std::numeric_limits<T>::min();
  if (x >= double(std::numeric_limits<T>::max()))
    return std::numeric_limits<T>::max();
  return T(x);
}

extern "C" {

#define UNARY(name, expression)                                                                                        \
  float pc_nvvm_##name(float x) { return expression; }
UNARY(ex2_approx_f, exp2f(x))
UNARY(ex2_approx_f32, exp2f(x))
UNARY(ex2_approx_ftz_f, ftz(exp2f(ftz(x))))
UNARY(ex2_approx_ftz_f32, ftz(exp2f(ftz(x))))
UNARY(lg2_approx_f, log2f(x))
UNARY(lg2_approx_ftz_f, ftz(log2f(ftz(x))))
UNARY(sin_approx_f, sinf(x))
UNARY(sin_approx_ftz_f, ftz(sinf(ftz(x))))
UNARY(cos_approx_f, cosf(x))
UNARY(cos_approx_ftz_f, ftz(cosf(ftz(x))))
UNARY(tanh_approx_f, tanhf(x))
UNARY(tanh_approx_f32, tanhf(x))
UNARY(rcp_approx_ftz_f, ftz(1.f / ftz(x)))
UNARY(rcp_rn_f, 1.f / x)
UNARY(rcp_rn_ftz_f, ftz(1.f / ftz(x)))
UNARY(rsqrt_approx_f, 1.f / sqrtf(x))
UNARY(rsqrt_approx_ftz_f, ftz(1.f / sqrtf(ftz(x))))
UNARY(sqrt_approx_f, sqrtf(x))
UNARY(sqrt_approx_ftz_f, ftz(sqrtf(ftz(x))))
UNARY(sqrt_f, sqrtf(x))
UNARY(sqrt_rn_f, sqrtf(x))
UNARY(sqrt_rn_ftz_f, ftz(sqrtf(ftz(x))))
UNARY(saturate_f, x > 0 ? (x < 1 ? x : 1) : 0)
UNARY(saturate_ftz_f, x > 0 ? (x < 1 ? ftz(x) : 1) : 0)
UNARY(fabs_f, fabsf(x))
UNARY(fabs_ftz_f, ftz(fabsf(x)))
UNARY(floor_f, floorf(x))
UNARY(floor_ftz_f, floorf(ftz(x)))
UNARY(ceil_f, ceilf(x))
UNARY(ceil_ftz_f, ceilf(ftz(x)))
UNARY(trunc_f, truncf(x))
UNARY(trunc_ftz_f, truncf(ftz(x)))
UNARY(round_f, rintf(x))
UNARY(round_ftz_f, rintf(ftz(x)))
#undef UNARY

#define BINARY(name, expression)                                                                                       \
  float pc_nvvm_##name(float x, float y) { return expression; }
BINARY(add_rn_f, x + y)
BINARY(add_rn_ftz_f, ftz(ftz(x) + ftz(y)))
BINARY(mul_rn_f, x *y)
BINARY(mul_rn_ftz_f, ftz(ftz(x) * ftz(y)))
BINARY(mul_rz_f, fmaDirected(x, y, 0, 0))
BINARY(add_rz_f, fmaDirected(x, 1, y, 0))
BINARY(add_rm_f, fmaDirected(x, 1, y, -1))
BINARY(add_rp_f, fmaDirected(x, 1, y, 1))
BINARY(div_rn_f, x / y)
BINARY(div_approx_f, x / y)
BINARY(div_approx_ftz_f, ftz(ftz(x) / ftz(y)))
BINARY(div_full, x / y)
BINARY(div_full_ftz, ftz(ftz(x) / ftz(y)))
BINARY(fmin_f, fminf(x, y))
BINARY(fmax_f, fmaxf(x, y))
BINARY(fmin_ftz_f, fminf(ftz(x), ftz(y)))
BINARY(fmax_ftz_f, fmaxf(ftz(x), ftz(y)))
BINARY(fmin_nan_f, std::isnan(x) || std::isnan(y) ? NAN : fminf(x, y))
BINARY(fmax_nan_f, std::isnan(x) || std::isnan(y) ? NAN : fmaxf(x, y))
#undef BINARY

float pc_nvvm_fma_rn_ftz_f(float a, float b, float c) { return ftz(fmaf(ftz(a), ftz(b), ftz(c))); }
float pc_nvvm_fma_rm_f(float a, float b, float c) { return fmaDirected(a, b, c, -1); }
float pc_nvvm_fma_rp_f(float a, float b, float c) { return fmaDirected(a, b, c, 1); }
float pc_nvvm_fma_rz_f(float a, float b, float c) { return fmaDirected(a, b, c, 0); }

int32_t pc_nvvm_f2i_rn(float x) { return saturated<int32_t>(rintf(x)); }
int32_t pc_nvvm_f2i_rn_ftz(float x) { return saturated<int32_t>(rintf(ftz(x))); }
int32_t pc_nvvm_f2i_rz(float x) { return saturated<int32_t>(truncf(x)); }
int32_t pc_nvvm_f2i_rm(float x) { return saturated<int32_t>(floorf(x)); }
int32_t pc_nvvm_f2i_rp(float x) { return saturated<int32_t>(ceilf(x)); }
uint32_t pc_nvvm_f2ui_rn(float x) { return saturated<uint32_t>(rintf(x)); }
uint32_t pc_nvvm_f2ui_rz(float x) { return saturated<uint32_t>(truncf(x)); }
float pc_nvvm_i2f_rn(int32_t x) { return float(x); }
float pc_nvvm_ui2f_rn(uint32_t x) { return float(x); }
int32_t pc_nvvm_mulhi_i(int32_t a, int32_t b) { return int32_t(int64_t(a) * b >> 32); }
uint32_t pc_nvvm_mulhi_ui(uint32_t a, uint32_t b) { return uint32_t(uint64_t(a) * b >> 32); }
uint64_t pc_nvvm_mulhi_ull(uint64_t a, uint64_t b) { return uint64_t((unsigned __int128)a * b >> 64); }
int32_t pc_nvvm_bitcast_f2i(float x) { return std::bit_cast<int32_t>(x); }
float pc_nvvm_bitcast_i2f(int32_t x) { return std::bit_cast<float>(x); }
uint32_t pc_nvvm_prmt(uint32_t a, uint32_t b, uint32_t selector) {
  uint64_t bytes = uint64_t(b) << 32 | a;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    uint32_t pick = selector >> (4 * i) & 0xf, byte = bytes >> (8 * (pick & 7)) & 0xff;
    if (pick & 8)
      byte = byte & 0x80 ? 0xff : 0;
    result |= byte << (8 * i);
  }
  return result;
}

float pc_ptx_rcp_approx_ftz_f32(float x) { return ftz(1.f / ftz(x)); }
float pc_ptx_ex2_approx_ftz_f32(float x) { return ftz(exp2f(ftz(x))); }
float pc_ptx_lg2_approx_ftz_f32(float x) { return ftz(log2f(ftz(x))); }
float pc_ptx_tanh_approx_f32(float x) { return tanhf(x); }
float pc_ptx_sqrt_rn_f32(float x) { return sqrtf(x); }
float pc_ptx_div_approx_f32(float x, float y) { return x / y; }

/// The function that cf.assert calls in a gpu.module.
void __assertfail(const char *message, const char *file, uint32_t line, const char *, uint64_t) {
  Fiber *me = fiberOf(pc_thread);
  me->worker->fail(me,
                   std::string("assertion: ") + message + " at " + (file ? file : "?") + ":" + std::to_string(line));
}
}
