//===- Settings.h - Settings in flags of the optimizer ----------------------------------------===//
// Entries of `--group` and of `--optimizer` have the same form.
//===-----------------------------------------------------------------------------===//
#ifndef PC_AUTODIFF_SETTINGS_H
#define PC_AUTODIFF_SETTINGS_H

#include "llvm/ADT/StringRef.h"

namespace pc {

/// The name and the value of "NAME=VALUE".
inline std::pair<llvm::StringRef, llvm::StringRef> settingIn(llvm::StringRef entry) { return entry.split('='); }

} // namespace pc

#endif
