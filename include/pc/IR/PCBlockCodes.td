//===- PCBlockCodes.td - Values as codes of 8 bits with a scale per block ---------------------===//
// pc-quantize-states, pc-quantize-weights, pc-mixed-precision and pc-localize write these ops. Few parts of the compiler need to know them, so their
// classes are in a separate header (pc/IR/BlockCodes.h).
//===-----------------------------------------------------------------------------------------===//
#ifndef PC_IR_PCBLOCKCODES_TD
#define PC_IR_PCBLOCKCODES_TD

include "pc/IR/PCBase.td"
include "pc/IR/FactorOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

class PC_BlockCoding<string name>
    : Op<PC_Dialect, name, [Pure, DeclareOpInterfaceMethods<FactorOpInterface>]> {
  let hasVerifier = 1;
}

def PC_EncodeOp : PC_BlockCoding<"encode"> {
  let summary = "Rounds a value to codes of 8 bits and f32 scales: `x0 x1 -> x0 x1, x0 x1`";
  let description = [{
    The value is divided into blocks, which are equal boxes, counted from its first element. The block's size in each
    dim is the size of the value divided by the size of `scales`. The scale of a block is its element with the largest
    magnitude. Each code stands for a number; the code of an element is the one whose number is nearest to the element
    divided by the scale. With `dynamic`, the numbers are from -1 to 1, and with `dynamic unsigned` from 0 to 1
    (`pcrt/block_codes.h`). Encoding a result of `pc.decode` gives the same codes and scales again.

    With `linear`, the numbers are the integers from -127 to 127, and the scale is the largest magnitude divided by 127.
    A decoded element differs from the original by at most 1/254 of the largest magnitude of its block. A block with an
    element that is not finite has the scale NaN.

    With `float8`, codes are floats of 8 bits: of type f8E4M3FN or f8E5M2. The scale is the smallest power of two with
    which no quotient exceeds the largest number of the format, 448 or 57344, so dividing and multiplying by it is exact
    (`pcrt/float8.h`). Quotients are rounded to nearest even. The value may be bf16. A block with an element that is not
    finite has the scale NaN. Decoding and encoding again gives the same value.

    Dims may be split between blocks: a rank has codes and scales of whole blocks, equal to the ones that one device
    would compute.

    Constraints: (C1) codes have the value's shape, and type i8 or, with `float8`, a float of 8 bits; (C2) scales have the same number of dims as the value,
    and each of their sizes divides the value's size (of `pc.decode float8`, they may also be one scalar);
    (C3) `linear` and `float8` are never `unsigned`, and only the value of `float8` may be bf16.

    Example: `%c, %s = pc.encode dynamic unsigned %v : (tensor<64x256xf32>) -> (tensor<64x256xi8>, tensor<4x16xf32>)` has blocks of 16 x 16.
    `%c, %s = pc.encode float8 %v : (tensor<64x256xbf16>) -> (tensor<64x256xf8E4M3FN>, tensor<64x2xf32>)` has blocks of 128 elements of a row.
  }];
  let arguments = (ins AnyRankedTensor:$x, UnitAttr:$is_unsigned, UnitAttr:$is_linear, UnitAttr:$is_float8);
  let results = (outs AnyRankedTensor:$codes, AnyRankedTensor:$scales);
  let assemblyFormat = "(`linear` $is_linear^) : ((`float8` $is_float8^) : (`dynamic`)?)? (`unsigned` $is_unsigned^)? $x attr-dict `:` functional-type($x, results)";
}

def PC_DecodeOp : PC_BlockCoding<"decode"> {
  let summary = "The numbers of codes times the scales of their blocks: `x0 x1, x0 x1 -> x0 x1`";
  let description = [{
    The op is the counterpart of `pc.encode`, with the same constraints. Code 0 stands for the number 0, so if all codes
    are 0, all elements of the value are 0. With `float8`, `scales` may be a scalar, which all elements share. Then the op
    is the counterpart of `pc.encode_scaled`: `x0 x1, -> x0 x1`, and any dim may be split.

    Example: `%v = pc.decode dynamic unsigned %c, %s : (tensor<64x256xi8>, tensor<4x16xf32>) -> tensor<64x256xf32>`
  }];
  let arguments = (ins AnyRankedTensor:$codes, AnyRankedTensor:$scales, UnitAttr:$is_unsigned, UnitAttr:$is_linear, UnitAttr:$is_float8);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "(`linear` $is_linear^) : ((`float8` $is_float8^) : (`dynamic`)?)? (`unsigned` $is_unsigned^)? $codes `,` $scales attr-dict `:` functional-type(operands, $result)";
}

def PC_MaxMagnitudeOp : PC_BlockCoding<"max_magnitude"> {
  let summary = "The largest magnitude along the dims that the result lacks: `pc.max_magnitude \"b s e -> b s\" %x`";
  let description = [{
    It is the maximum of the absolute values. As for `pc.reduce_max`, the result is a partial maximum if such a dim is
    split. But the operand must be whole: a maximum of a part says nothing about the smallest element.
  }];
  let arguments = (ins StrAttr:$spec, AnyRankedTensor:$x);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$spec $x attr-dict `:` functional-type($x, $result)";
  let hasVerifier = 0;
}

def PC_Float8ScaleOp : PC_BlockCoding<"float8_scale"> {
  let summary = "The scale of a value whose largest magnitude is given: a scalar -> a scalar";
  let description = [{
    The scale is the smallest power of two with which the largest magnitude, divided by it, is at most the largest number
    of the format (`pcrt/float8.h`). It is 0 if the magnitude is below 1e-30, and NaN if it is not finite.

    Constraint (C1): operand and result are scalars of f32, and the format is f8E4M3FN or f8E5M2.

    Example: `%s = pc.float8_scale f8E4M3FN %largest : (tensor<f32>) -> tensor<f32>`
  }];
  let arguments = (ins AnyRankedTensor:$largest, TypeAttr:$format);
  let results = (outs AnyRankedTensor:$scale);
  let assemblyFormat = "$format $largest attr-dict `:` functional-type($largest, $scale)";
}

def PC_EncodeScaledOp : PC_BlockCoding<"encode_scaled"> {
  let summary = "Rounds a value to floats of 8 bits with a given scale: `x0 x1, -> x0 x1`";
  let description = [{
    Elements are divided by the scale, a power of two, and rounded to nearest even. A quotient beyond the largest number of
    the format becomes this number, as does an infinity; NaN stays NaN. If the scale is 0, elements are multiplied by 0 instead.
    The value may be bf16. `pc.decode float8` with the same scale is the counterpart.

    Constraint (C1): codes have the value's shape and type f8E4M3FN or f8E5M2, and the scale is a scalar.

    Example: `%c = pc.encode_scaled %v, %s : (tensor<64x256xbf16>, tensor<f32>) -> tensor<64x256xf8E4M3FN>`
  }];
  let arguments = (ins AnyRankedTensor:$x, AnyRankedTensor:$scale);
  let results = (outs AnyRankedTensor:$codes);
  let assemblyFormat = "$x `,` $scale attr-dict `:` functional-type(operands, $codes)";
}

class PC_AddendCoding<string name> : Op<PC_Dialect, name, [Pure]> {
  let hasVerifier = 1;
}

def PC_EncodeAddendOp : PC_AddendCoding<"encode_addend"> {
  let summary = "Rounds this rank's addend of a sum to codes, which are sent instead of the addend";
  let description = [{
    The op exists in local programs only. With `pc.decode_sum` and a move between them, it is a sum with `wire`
    (`pc.all_reduce`) over `axes`. The result is a stack of the addends of all ranks, of which each rank has its own one,
    so its first dim has size 1. The other dims are the numbers of blocks along each dim of `x`, and the bytes of a block.
    These are its codes, in the order of its elements, and then its scale. With 4 bits, the codes a of an element in the
    first half of the block and b of the same element in the second half share the byte 16 b + a.

    Constraint (C1): the result has type i8 and this shape.

    Example: `%c = pc.encode_addend %g <int8, [16, 16]> on ["dp"] : tensor<64x256xf32> -> tensor<1x4x16x260xi8>`
  }];
  let arguments = (ins AnyRankedTensor:$x, PC_WireAttr:$wire, StrArrayAttr:$axes);
  let results = (outs AnyRankedTensor:$codes);
  let assemblyFormat = "$x $wire `on` $axes attr-dict `:` type($x) `->` type($codes)";
}

def PC_DecodeSumOp : PC_AddendCoding<"decode_sum"> {
  let summary = "Adds the numbers that the codes of all addends stand for, in the order of coordinates";
  let description = [{
    Constraint (C1): `codes` has type i8 and is a stack of one or more addends of the result's shape, as
    `pc.encode_addend` describes.

    Example: `%s = pc.decode_sum %c <int8, [16, 16]> : tensor<2x4x16x260xi8> -> tensor<64x256xf32>`
  }];
  let arguments = (ins AnyRankedTensor:$codes, PC_WireAttr:$wire);
  let results = (outs AnyRankedTensor:$sum);
  let assemblyFormat = "$codes $wire attr-dict `:` type($codes) `->` type($sum)";
}

#endif
