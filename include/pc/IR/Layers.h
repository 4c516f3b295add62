//===- Layers.h - Which layer a name belongs to ---------------------------------------------===//
// The location of an op is the name of its module in the checkpoint. Passes that work by layer (stages, recomputation,
// programs of few layers for the search) find the layer in it.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_LAYERS_H
#define PC_IR_LAYERS_H

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringRef.h"
#include <algorithm>

namespace pc {

/// The part of a Hugging Face name up to its first number: "model.layers.3" for "model.layers.3.mlp.up_proj.weight".
/// Empty if the name has no number. Refers to the characters of `name`.
inline llvm::StringRef layerOf(llvm::StringRef name) {
  for (size_t begin = 0; begin < name.size();) {
    size_t end = std::min(name.find('.', begin), name.size());
    if (end > begin && llvm::all_of(name.slice(begin, end), llvm::isDigit))
      return name.take_front(end);
    begin = end + 1;
  }
  return "";
}

/// The number of a tile, which is a part of a parameter (`pc-tile-parameters`): "2" for "h.0.mlp.c_fc.weight:2". Empty
/// for the name of another parameter.
inline llvm::StringRef tileOf(llvm::StringRef name) {
  llvm::StringRef number = name.rsplit(':').second;
  return llvm::all_of(number, llvm::isDigit) ? number : "";
}

} // namespace pc

#endif
