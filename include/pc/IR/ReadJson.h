//===- ReadJson.h - JSON of somebody else ---------------------------------------------===//
// llvm::json::parse calls itself for every level, so a file of brackets alone would end it; what we read is shallow.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_READJSON_H
#define PC_IR_READJSON_H

#include "llvm/Support/JSON.h"

namespace pc {

/// The value of `text`, or why there is none: no JSON, or more than 64 levels deep.
inline llvm::Expected<llvm::json::Value> readJson(llvm::StringRef text) {
  int depth = 0;
  bool inString = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (inString && text[i] == '\\')
      ++i;
    else if (text[i] == '"')
      inString = !inString;
    else if (!inString && (text[i] == '[' || text[i] == '{') && ++depth > 64)
      return llvm::createStringError("more than 64 levels deep");
    else if (!inString && (text[i] == ']' || text[i] == '}'))
      --depth;
  }
  return llvm::json::parse(text);
}

} // namespace pc

#endif
