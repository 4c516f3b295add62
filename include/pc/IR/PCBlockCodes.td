//===- PCBlockCodes.td - Values as codes of 8 bits with a scale per block ---------------------===//
// pc-quantize-states, pc-quantize-weights and pc-mixed-precision write these ops. Few parts of the compiler need to know them, so their
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
    and each of their sizes divides the value's size;
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
    are 0, all elements of the value are 0.

    Example: `%v = pc.decode dynamic unsigned %c, %s : (tensor<64x256xi8>, tensor<4x16xf32>) -> tensor<64x256xf32>`
  }];
  let arguments = (ins AnyRankedTensor:$codes, AnyRankedTensor:$scales, UnitAttr:$is_unsigned, UnitAttr:$is_linear, UnitAttr:$is_float8);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "(`linear` $is_linear^) : ((`float8` $is_float8^) : (`dynamic`)?)? (`unsigned` $is_unsigned^)? $codes `,` $scales attr-dict `:` functional-type(operands, $result)";
}

#endif
