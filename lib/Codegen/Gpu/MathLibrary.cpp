//===- MathLibrary.cpp - math functions where CUDA's libdevice is missing ---------------------===//
// The functions of libdevice that generated kernels call, under its names, as LLVM IR. The error is within 3 units in
// the last place of f32, as test/Codegen/gpu/kernels-on-host.cpp measures, plus that of ex2.approx. The polynomials are
// Chebyshev interpolations.
//===------------------------------------------------------------------------------------------===//
#include "Compile.h"

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
