//===- Groups.h - Settings of a parameter group ---------------------------------------------===//
// A group is a dictionary: its name, and numbers that replace or multiply what a run is given. The verifier, the
// compiler's flags and the interpreter read it; the runtime reads the same names in the description (Program.h).
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_GROUPS_H
#define PC_IR_GROUPS_H

#include "mlir/IR/BuiltinAttributes.h"

namespace pc {

/// The settings: factors of the learning rate and the weight decay, and values of the weight decay, the betas and eps.
inline constexpr llvm::StringRef groupSettings[] = {"lr_factor", "decay_factor", "decay", "beta1", "beta2", "eps"};

/// The number of a setting of `group`, which may be null, or `byDefault`.
inline double settingOf(mlir::DictionaryAttr group, llvm::StringRef name, double byDefault) {
  auto number = group ? group.getAs<mlir::FloatAttr>(name) : mlir::FloatAttr();
  return number ? number.getValueAsDouble() : byDefault;
}

} // namespace pc

#endif
