//===- NameGlobs.cpp - Globs that name parameters -------------------------------------------===//
// A parameter that packs several tensors is trained as a whole, so a glob must match all of these tensors or none.
//===-----------------------------------------------------------------------------===//
#include "pc/IR/NameGlobs.h"

using namespace mlir;
using namespace pc;

/// Reads `dim=1`, `dim>=2` or `dim<=1` as the smallest and the largest number of dims; std::nullopt for any other text.
static std::optional<std::pair<int64_t, int64_t>> numbersOfDims(StringRef text) {
  constexpr int64_t most = std::numeric_limits<int64_t>::max();
  bool least = text.consume_front("dim>="), largest = !least && text.consume_front("dim<=");
  int64_t number;
  if ((!least && !largest && !text.consume_front("dim=")) || text.getAsInteger(10, number) || number < 0)
    return std::nullopt;
  return std::pair(largest ? 0 : number, least ? most : number);
}

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
    std::optional<std::pair<int64_t, int64_t>> dims = numbersOfDims(part);
    if (!dims && part.starts_with("dim") && part.find_first_of("=<>") == 3) {
      why = "has '" + part.str() + "', which is not a number of dims; write dim=1, dim>=2 or dim<=1";
      return failure();
    }
    result.globs.push_back({part.str(), std::move(*glob), dims});
  }
  return result;
}

bool NameGlobs::fits(StringRef name) {
  bool any = false;
  for (Glob &glob : globs)
    for (StringRef rest = name; !rest.empty(); rest = rest.split('.').second)
      if (!glob.dims && glob.pattern.match(rest))
        any = glob.isUsed = true;
  return any;
}

/// Whether an entry matches the name, the tensor or the tensor's number of dims. All entries are tried, because each
/// records whether it has matched.
bool NameGlobs::fitsPart(const ParameterPart &part) {
  bool any = fits(part.source.getTensor());
  any |= fits(part.name);
  auto number = static_cast<int64_t>(part.source.getShape().size());
  for (Glob &glob : globs)
    if (glob.dims && glob.dims->first <= number && number <= glob.dims->second)
      any = glob.isUsed = true;
  return any;
}

int64_t NameGlobs::countFitting(ParameterOp parameter) {
  return llvm::count_if(partsOf(parameter), [&](const ParameterPart &part) { return fitsPart(part); });
}

bool NameGlobs::fitsSome(ParameterOp parameter) {
  int64_t count = countFitting(parameter);
  return fits(parameter.getName()) || count;
}

FailureOr<bool> NameGlobs::fits(ParameterOp parameter) {
  int64_t count = countFitting(parameter), parts = numParts(parameter);
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

/// ", whose names are such as 'a' and 'b'": the names of two parameters of the module.
static std::string namesOfParameters(ModuleOp module) {
  SmallVector<std::string> names;
  module.walk(
      [&](ParameterOp parameter) { names.push_back("'" + partsOf(parameter)[0].source.getTensor().str() + "'"); });
  if (names.empty())
    return "; the model has none";
  return ", whose names are such as " + names[names.size() / 3] + " and " + names.back();
}

LogicalResult NameGlobs::requireUsed(ModuleOp module, const llvm::Twine &where) const {
  StringRef glob = unused();
  if (glob.empty())
    return success();
  return module.emitError() << where << ": '" << glob << "' fits no parameter" << namesOfParameters(module);
}
