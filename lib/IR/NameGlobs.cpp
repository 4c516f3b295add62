//===- NameGlobs.cpp - Globs that name parameters -------------------------------------------===//
// A parameter that packs several tensors is trained as one, so globs must fit all of them or none.
//===-----------------------------------------------------------------------------===//
#include "pc/IR/NameGlobs.h"

using namespace mlir;
using namespace pc;

FailureOr<NameGlobs> NameGlobs::parse(StringRef text, std::string &why) {
  NameGlobs result;
  result.all = text.str();
  SmallVector<StringRef> parts;
  text.split(parts, '|');
  for (StringRef part : parts) {
    llvm::Expected<llvm::GlobPattern> glob = llvm::GlobPattern::create(part);
    if (!glob || part.empty()) {
      why = glob ? "has an empty glob" : "is not a glob: " + llvm::toString(glob.takeError());
      return failure();
    }
    result.globs.push_back({part.str(), std::move(*glob)});
  }
  return result;
}

bool NameGlobs::fits(StringRef name) {
  bool any = false;
  for (Glob &glob : globs)
    for (StringRef rest = name; !rest.empty(); rest = rest.split('.').second)
      if (glob.pattern.match(rest))
        any = glob.isUsed = true;
  return any;
}

/// Calls `fits` for the name and the tensor of each part.
static int64_t countFitting(ParameterOp parameter, NameGlobs &globs) {
  return llvm::count_if(partsOf(parameter), [&](const ParameterPart &part) {
    bool tensor = globs.fits(part.source.getTensor());
    return globs.fits(part.name) || tensor;
  });
}

bool NameGlobs::fitsSome(ParameterOp parameter) {
  int64_t count = countFitting(parameter, *this);
  return fits(parameter.getName()) || count;
}

FailureOr<bool> NameGlobs::fits(ParameterOp parameter) {
  int64_t count = countFitting(parameter, *this), parts = numParts(parameter);
  if (fits(parameter.getName()) || count == parts)
    return true;
  if (count)
    return parameter.emitError() << "'" << all << "' fits " << count << " of the " << parts << " tensors in '"
                                 << parameter.getName() << "', which are trained as one";
  return false;
}

StringRef NameGlobs::unused() const {
  for (const Glob &glob : globs)
    if (!glob.isUsed)
      return glob.text;
  return "";
}

std::string pc::namesOfParameters(ModuleOp module) {
  SmallVector<std::string> names;
  module.walk(
      [&](ParameterOp parameter) { names.push_back("'" + partsOf(parameter)[0].source.getTensor().str() + "'"); });
  if (names.empty())
    return "; the model has none";
  return ", whose names are such as " + names[names.size() / 3] + " and " + names.back();
}
