//===- ReadJson.h - JSON of unknown origin --------------------------------------------===//
// llvm::json::parse is recursive, so a file of nested brackets could overflow the stack. The files that pc reads are
// shallow.
//===-----------------------------------------------------------------------------===//
#ifndef PC_SUPPORT_READJSON_H
#define PC_SUPPORT_READJSON_H

#include "llvm/Support/JSON.h"

namespace pc {

/// The value of `text`; an error if it is not JSON, or more than 64 levels deep.
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
