//===- Groups.h - Settings of a parameter group ---------------------------------------------===//
// A group is a dictionary that holds a name and numbers, which replace or multiply settings of the run. The verifier,
// the compiler's flags and the interpreter read groups. The runtime reads the same names in the description
// (Program.h).
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_GROUPS_H
#define PC_IR_GROUPS_H

#include "mlir/IR/BuiltinAttributes.h"

namespace pc {

/// The names of settings: factors of learning rate and weight decay, and values for weight decay, betas and eps.
/// `sparsity` is the share of zeros in each row; alternatively, `kept` of every `among` adjacent elements stay. Masks
/// are chosen once every `every` steps, the last time in step `until`.
inline constexpr llvm::StringRef groupSettings[] = {"lr_factor", "decay_factor", "decay", "beta1", "beta2", "eps",
                                                    "sparsity",  "kept",         "among", "every", "until"};

/// The states of a parameter with sparsity: zeros and ones, the number of steps, and the steps until the next choice.
inline constexpr llvm::StringRef maskState = "mask", maskAgeState = "mask_age", maskWaitState = "mask_wait";

/// The value of a setting of `group`, or `byDefault` if the group is null or does not have it.
inline double settingOf(mlir::DictionaryAttr group, llvm::StringRef name, double byDefault) {
  auto number = group ? group.getAs<mlir::FloatAttr>(name) : mlir::FloatAttr();
  return number ? number.getValueAsDouble() : byDefault;
}

} // namespace pc

#endif
