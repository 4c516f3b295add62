//===- MathLibrary.cpp - Math functions that replace CUDA's libdevice -------------------------===//
// This file has the functions of libdevice that generated kernels call, with the same names, as LLVM IR. Their error is
// at most 3 units in the last place of f32, plus the error of ex2.approx (measured by
// test/Codegen/gpu/kernels-on-host.cpp). The polynomials are Chebyshev interpolations; those of sin and cos are from
// Cephes (sinf.c).
//===------------------------------------------------------------------------------------------===//
#include "Compile.h"

/// Every function is inlined, so that unused ones cost nothing.
llvm::StringRef pc::toolchain::mathLibrary() {
  return R"(
declare float @llvm.fma.f32(float, float, float)
declare float @llvm.fabs.f32(float)
declare float @llvm.floor.f32(float)
declare float @llvm.ceil.f32(float)
declare float @llvm.trunc.f32(float)
declare float @llvm.copysign.f32(float, float)
declare float @llvm.minimum.f32(float, float)
declare float @llvm.maximum.f32(float, float)
declare float @llvm.nvvm.ex2.approx.ftz.f32(float)
declare float @llvm.nvvm.ex2.approx.f32(float)
declare float @llvm.nvvm.rsqrt.approx.f(float)
declare float @llvm.nvvm.sqrt.rn.f(float)

define float @__nv_fmaf(float %x, float %y, float %z) alwaysinline {
  %r = call float @llvm.fma.f32(float %x, float %y, float %z)
  ret float %r
}

define float @__nv_copysignf(float %x, float %y) alwaysinline {
  %r = call float @llvm.copysign.f32(float %x, float %y)
  ret float %r
}

define float @__nv_fabsf(float %x) alwaysinline {
  %r = call float @llvm.fabs.f32(float %x)
  ret float %r
}

define float @__nv_floorf(float %x) alwaysinline {
  %r = call float @llvm.floor.f32(float %x)
  ret float %r
}

define float @__nv_ceilf(float %x) alwaysinline {
  %r = call float @llvm.ceil.f32(float %x)
  ret float %r
}

define float @__nv_truncf(float %x) alwaysinline {
  %r = call float @llvm.trunc.f32(float %x)
  ret float %r
}

define float @__nv_exp2f(float %x) alwaysinline {
  %y = call float @llvm.nvvm.ex2.approx.f32(float %x)
  ret float %y
}

define float @__nv_sqrtf(float %x) alwaysinline {
  %y = call float @llvm.nvvm.sqrt.rn.f(float %x)
  ret float %y
}

define float @__nv_rsqrtf(float %x) alwaysinline {
  %y = call float @llvm.nvvm.rsqrt.approx.f(float %x)
  ret float %y
}

; x = n ln 2 + r, |r| <= ln 2 / 2: exp x = 2^n 2^(r / ln 2). Adding 1.5 2^23 rounds to an integer, which its bits then hold.
; 2^n is two factors, so that the result may overflow or become subnormal.
define float @__nv_expf(float %x) alwaysinline {
  %low = call float @llvm.maximum.f32(float %x, float -1.050000e+02)
  %clamped = call float @llvm.minimum.f32(float %low, float 8.900000e+01)
  %scaled = fmul float %clamped, 0x3FF7154760000000
  %shifted = fadd float %scaled, 0x4168000000000000
  %n = fsub float %shifted, 0x4168000000000000
  %r0 = call float @llvm.fma.f32(float %n, float 0xBFE62E4000000000, float %clamped)
  %r = call float @llvm.fma.f32(float %n, float 0xBEB7F7D1C0000000, float %r0)
  %power = fmul float %r, 0x3FF7154760000000
  %y = call float @llvm.nvvm.ex2.approx.ftz.f32(float %power)
  %bits = bitcast float %shifted to i32
  %i = sub i32 %bits, 1262485504
  %half = ashr i32 %i, 1
  %rest = sub i32 %i, %half
  %half.biased = add i32 %half, 127
  %half.bits = shl i32 %half.biased, 23
  %half.power = bitcast i32 %half.bits to float
  %rest.biased = add i32 %rest, 127
  %rest.bits = shl i32 %rest.biased, 23
  %rest.power = bitcast i32 %rest.bits to float
  %y.half = fmul float %y, %half.power
  %result = fmul float %y.half, %rest.power
  ret float %result
}

; x = 2^e m, m in [2/3, 4/3): log x = e ln 2 + t - t^2 / 2 + t^3 P(t), t = m - 1.
define float @__nv_logf(float %x) alwaysinline {
  %subnormal = fcmp olt float %x, 0x3810000000000000
  %times = fmul float %x, 8.388608e+06
  %normal = select i1 %subnormal, float %times, float %x
  %e0 = select i1 %subnormal, float -2.300000e+01, float 0.000000e+00
  %bits = bitcast float %normal to i32
  %from = sub i32 %bits, 1059760811
  %exponent = and i32 %from, -8388608
  %m.bits = sub i32 %bits, %exponent
  %m = bitcast i32 %m.bits to float
  %e.scaled = sitofp i32 %exponent to float
  %e = call float @llvm.fma.f32(float %e.scaled, float 0x3E80000000000000, float %e0)
  %t = fadd float %m, -1.000000e+00
  %p6 = call float @llvm.fma.f32(float 0xBFBF0AAF40000000, float %t, float 0x3FC12F6260000000)
  %p5 = call float @llvm.fma.f32(float %p6, float %t, float 0xBFBF9B30C0000000)
  %p4 = call float @llvm.fma.f32(float %p5, float %t, float 0x3FC2124880000000)
  %p3 = call float @llvm.fma.f32(float %p4, float %t, float 0xBFC55678C0000000)
  %p2 = call float @llvm.fma.f32(float %p3, float %t, float 0x3FC99AD6C0000000)
  %p1 = call float @llvm.fma.f32(float %p2, float %t, float 0xBFCFFFFF00000000)
  %p0 = call float @llvm.fma.f32(float %p1, float %t, float 0x3FD55554C0000000)
  %square = fmul float %t, %t
  %q = call float @llvm.fma.f32(float %p0, float %t, float -5.000000e-01)
  %log.m = call float @llvm.fma.f32(float %q, float %square, float %t)
  %finite = call float @llvm.fma.f32(float %e, float 0x3FE62E4300000000, float %log.m)
  %is.infinite = fcmp oeq float %x, 0x7FF0000000000000
  %or.infinite = select i1 %is.infinite, float 0x7FF0000000000000, float %finite
  %is.zero = fcmp oeq float %x, 0.000000e+00
  %or.zero = select i1 %is.zero, float 0xFFF0000000000000, float %or.infinite
  %is.wrong = fcmp ult float %x, 0.000000e+00
  %result = select i1 %is.wrong, float 0x7FF8000000000000, float %or.zero
  ret float %result
}

; x + x^3 T(x^2) up to 0.55, then 1 - 2 / (exp 2x + 1).
define float @__nv_tanhf(float %x) alwaysinline {
  %a = call float @llvm.fabs.f32(float %x)
  %u = fmul float %x, %x
  %p3 = call float @llvm.fma.f32(float 0xBF7B12AEC0000000, float %u, float 0x3F95D20B00000000)
  %p2 = call float @llvm.fma.f32(float %p3, float %u, float 0xBFAB9A0280000000)
  %p1 = call float @llvm.fma.f32(float %p2, float %u, float 0x3FC110FEA0000000)
  %p0 = call float @llvm.fma.f32(float %p1, float %u, float 0xBFD5555540000000)
  %u.poly = fmul float %u, %p0
  %small = call float @llvm.fma.f32(float %u.poly, float %x, float %x)
  %twice = fadd float %a, %a
  %e = call float @__nv_expf(float %twice)
  %e.plus = fadd float %e, 1.000000e+00
  %fraction = fdiv float 2.000000e+00, %e.plus
  %large = fsub float 1.000000e+00, %fraction
  %signed = call float @llvm.copysign.f32(float %large, float %x)
  %is.small = fcmp olt float %a, 0x3FE19999A0000000
  %result = select i1 %is.small, float %small, float %signed
  ret float %result
}

; x E(x^2) up to 1, then 1 - exp(-Q(x)), Q = -log erfc; 1 from 4 on.
define float @__nv_erff(float %x) alwaysinline {
  %a = call float @llvm.fabs.f32(float %x)
  %u = fmul float %x, %x
  %p5 = call float @llvm.fma.f32(float 0x3F14A56900000000, float %u, float 0xBF4A450880000000)
  %p4 = call float @llvm.fma.f32(float %p5, float %u, float 0x3F75412700000000)
  %p3 = call float @llvm.fma.f32(float %p4, float %u, float 0xBF9B7FABA0000000)
  %p2 = call float @llvm.fma.f32(float %p3, float %u, float 0x3FBCE2D100000000)
  %p1 = call float @llvm.fma.f32(float %p2, float %u, float 0xBFD81273E0000000)
  %p0 = call float @llvm.fma.f32(float %p1, float %u, float 0x3FF20DD740000000)
  %small = fmul float %x, %p0
  %v = call float @llvm.minimum.f32(float %a, float 4.000000e+00)
  %q7 = call float @llvm.fma.f32(float 0xBEBB778300000000, float %v, float 0x3F0825CE40000000)
  %q6 = call float @llvm.fma.f32(float %q7, float %v, float 0xBF438E5E60000000)
  %q5 = call float @llvm.fma.f32(float %q6, float %v, float 0x3F737ECC60000000)
  %q4 = call float @llvm.fma.f32(float %q5, float %v, float 0xBF9B0E2460000000)
  %q3 = call float @llvm.fma.f32(float %q4, float %v, float 0x3FBC2E3560000000)
  %q2 = call float @llvm.fma.f32(float %q3, float %v, float 0x3FE437EB40000000)
  %q1 = call float @llvm.fma.f32(float %q2, float %v, float 0x3FF2156FA0000000)
  %q0 = call float @llvm.fma.f32(float %q1, float %v, float 0xBF34FB0680000000)
  %minus = fneg float %q0
  %e = call float @__nv_expf(float %minus)
  %large = fsub float 1.000000e+00, %e
  %signed = call float @llvm.copysign.f32(float %large, float %x)
  %is.small = fcmp olt float %a, 1.000000e+00
  %result = select i1 %is.small, float %small, float %signed
  ret float %result
}
)";
}

/// Sine and cosine for any argument. The reduction of the argument is in f64.
llvm::StringRef pc::toolchain::sineLibrary() {
  return R"(
declare float @llvm.fma.f32(float, float, float)
declare float @llvm.fabs.f32(float)
declare double @llvm.fma.f64(double, double, double)
declare double @llvm.rint.f64(double)
declare double @llvm.floor.f64(double)

; x = n pi / 2 + r, |r| <= pi / 4, in f64: sin x is sin r, cos r, -sin r, -cos r for n = 0, 1, 2, 3 (mod 4). NaN from 2^50 on, where
; n would not be exact.
define float @pc_sine_of(float %x, double %quarters) alwaysinline {
  %d = fpext float %x to double
  %scaled = fmul double %d, 0x3FE45F306DC9C883
  %n = call double @llvm.rint.f64(double %scaled)
  %r0 = call double @llvm.fma.f64(double %n, double 0xBFF921FB54442D18, double %d)
  %r.double = call double @llvm.fma.f64(double %n, double 0xBC91A62633145C07, double %r0)
  %r = fptrunc double %r.double to float
  %z = fmul float %r, %r
  %s1 = call float @llvm.fma.f32(float 0xBF29943F20000000, float %z, float 0x3F811073C0000000)
  %s0 = call float @llvm.fma.f32(float %s1, float %z, float 0xBFC5555460000000)
  %z.s = fmul float %z, %s0
  %sine = call float @llvm.fma.f32(float %z.s, float %r, float %r)
  %c1 = call float @llvm.fma.f32(float 0x3EF99EB9C0000000, float %z, float 0xBF56C0C340000000)
  %c0 = call float @llvm.fma.f32(float %c1, float %z, float 0x3FA55554A0000000)
  %z.c = call float @llvm.fma.f32(float %c0, float %z, float -5.000000e-01)
  %cosine = call float @llvm.fma.f32(float %z.c, float %z, float 1.000000e+00)
  %turned = fadd double %n, %quarters
  %quarter.turns = fmul double %turned, 2.500000e-01
  %whole.turns = call double @llvm.floor.f64(double %quarter.turns)
  %quarter = call double @llvm.fma.f64(double %whole.turns, double -4.000000e+00, double %turned)
  %is.one = fcmp oeq double %quarter, 1.000000e+00
  %is.three = fcmp oeq double %quarter, 3.000000e+00
  %is.odd = or i1 %is.one, %is.three
  %value = select i1 %is.odd, float %cosine, float %sine
  %minus = fneg float %value
  %is.negative = fcmp oge double %quarter, 2.000000e+00
  %signed = select i1 %is.negative, float %minus, float %value
  %a = call float @llvm.fabs.f32(float %x)
  %is.known = fcmp olt float %a, 0x4310000000000000
  %result = select i1 %is.known, float %signed, float 0x7FF8000000000000
  ret float %result
}

define float @__nv_sinf(float %x) alwaysinline {
  %y = call float @pc_sine_of(float %x, double 0.000000e+00)
  ret float %y
}

define float @__nv_cosf(float %x) alwaysinline {
  %y = call float @pc_sine_of(float %x, double 1.000000e+00)
  ret float %y
}
)";
}
