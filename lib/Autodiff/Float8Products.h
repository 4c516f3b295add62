//===- Float8Products.h - Products of layers with operands of 8 bits -----------------------===//
#ifndef PC_LIB_AUTODIFF_FLOAT8PRODUCTS_H
#define PC_LIB_AUTODIFF_FLOAT8PRODUCTS_H

#include "pc/IR/PC.h"

namespace pc {

class Float8Scales;

/// What roundProducts did.
struct RoundedProducts {
  int64_t rounded = 0; ///< products whose operands are floats of 8 bits
  int64_t kept = 0;    ///< products of matrices that stay bf16, because blocks do not divide their dims
};

/// Rounds the operands of bf16 products in the body of an accumulation to floats of 8 bits: products of an activation
/// or a gradient with a matrix, and those that are the gradient of such a matrix. Gradients of activations have the
/// type `ofGradients`, all other operands E4M3. An operand has a scale per block: 128 elements along the contracted
/// dims, and for a matrix also 128 along its other dims; or, with `scales`, one scale, so that all products fit.
/// Products with tables, with the head and of the router stay.
RoundedProducts roundProducts(mlir::Block &body, mlir::Type ofGradients, Float8Scales *scales);

} // namespace pc

#endif
