//===- Attributes.cpp - Mesh, placements and leaf attributes ---------------------===//
// Every attribute prints in its shortest form and parses back to the same attribute. Verifiers refuse attributes that
// later code could not handle: an axis that is named twice, partial or root axes out of order, a box outside of its
// tensor. The numbers (C1), (C2), ... in errors are those of the constraints in PCBase.td.
//===-----------------------------------------------------------------------------===//
#include "pc/IR/PC.h"
#include "pcrt/block_codes.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace pc;

/// Sizes in brackets; a scalar has none.
static ParseResult parseSizes(AsmParser &parser, SmallVectorImpl<int64_t> &sizes) {
  return parser.parseCommaSeparatedList(AsmParser::Delimiter::Square,
                                        [&] { return parser.parseInteger(sizes.emplace_back()); });
}

static void printSizes(AsmPrinter &printer, ArrayRef<int64_t> sizes) { printer << '[' << sizes << ']'; }

#define GET_ATTRDEF_CLASSES
#include "pc/IR/PCAttrs.cpp.inc"

void PCDialect::registerAttributes() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "pc/IR/PCAttrs.cpp.inc"
      >();
}

//===---------------------------------------------------------------------------===//
// #pc.mesh
//===---------------------------------------------------------------------------===//

/// <dp = 2, tp = 4>: names are keywords, or strings if they contain other characters.
Attribute MeshAttr::parse(AsmParser &parser, Type) {
  SmallVector<StringAttr> names;
  SmallVector<int64_t> sizes;
  auto one = [&]() -> ParseResult {
    std::string name;
    if (parser.parseKeywordOrString(&name) || parser.parseEqual() || parser.parseInteger(sizes.emplace_back()))
      return failure();
    names.push_back(StringAttr::get(parser.getContext(), name));
    return success();
  };
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::LessGreater, one))
    return {};
  return getChecked([&] { return parser.emitError(loc); }, parser.getContext(), names, sizes);
}

void MeshAttr::print(AsmPrinter &printer) const {
  printer << '<';
  llvm::interleaveComma(llvm::zip(getNames(), getSizes()), printer, [&](auto pair) {
    printer.printKeywordOrString(std::get<0>(pair).getValue());
    printer << " = " << std::get<1>(pair);
  });
  printer << '>';
}

/// A box must lie inside the tensor, or inside its view, which has as many elements.
LogicalResult SourceAttr::verify(function_ref<InFlightDiagnostic()> emitError, StringRef tensor,
                                 ArrayRef<int64_t> shape, ArrayRef<int64_t> start, ArrayRef<int64_t> size,
                                 ArrayRef<int64_t> view) {
  if (!view.empty() && ShapedType::getNumElements(view) != ShapedType::getNumElements(shape))
    return emitError() << "'" << tensor << "' has a view of " << ShapedType::getNumElements(view)
                       << " elements, but its shape has " << ShapedType::getNumElements(shape) << " (C1)";
  ArrayRef<int64_t> whole = view.empty() ? shape : view;
  bool fits = whole.size() == start.size() && whole.size() == size.size();
  for (size_t d = 0; fits && d < whole.size(); ++d)
    fits = start[d] >= 0 && size[d] >= 0 && start[d] <= whole[d] && size[d] <= whole[d] - start[d];
  if (!fits)
    return emitError() << "'" << tensor << "' of shape [" << whole << "] does not contain a box of size [" << size
                       << "] at [" << start << "] (C2)";
  return success();
}

/// Axis names are unique, and sizes are at least 1.
LogicalResult MeshAttr::verify(function_ref<InFlightDiagnostic()> emitError, ArrayRef<StringAttr> names,
                               ArrayRef<int64_t> sizes) {
  llvm::StringSet<> seen;
  for (auto [name, size] : llvm::zip_equal(names, sizes)) {
    if (!seen.insert(name.getValue()).second)
      return emitError() << "mesh axis '" << name.getValue() << "' is named twice (C1)";
    if (size < 1)
      return emitError() << "mesh axis '" << name.getValue() << "' has size " << size << " (C2)";
  }
  return success();
}

int64_t MeshAttr::index(StringAttr axis) const {
  auto it = llvm::find(getNames(), axis);
  return it == getNames().end() ? -1 : it - getNames().begin();
}

int64_t MeshAttr::size(StringAttr axis) const {
  int64_t i = index(axis);
  return i < 0 ? 0 : getSizes()[i];
}

int64_t MeshAttr::size(ArrayRef<StringAttr> axes) const {
  int64_t product = 1;
  for (StringAttr axis : axes)
    product *= size(axis);
  return product;
}

int64_t MeshAttr::numRanks() const { return size(getNames()); }

/// Ranks are numbered row-major: the last axis varies fastest.
SmallVector<int64_t> MeshAttr::coordinates(int64_t rank) const {
  SmallVector<int64_t> result(getSizes().size());
  for (int64_t i = result.size() - 1; i >= 0; --i) {
    result[i] = rank % getSizes()[i];
    rank /= getSizes()[i];
  }
  return result;
}

//===---------------------------------------------------------------------------===//
// #pc.place
//===---------------------------------------------------------------------------===//

/// Parses the axes of one dim: `_`, `axis` or `(axis, axis)`.
static ParseResult parseDim(AsmParser &parser, SmallVectorImpl<ArrayAttr> &dims) {
  MLIRContext *context = parser.getContext();
  SmallVector<Attribute> axes;
  auto axis = [&]() -> ParseResult {
    std::string name;
    if (parser.parseKeywordOrString(&name))
      return failure();
    if (name != "_")
      axes.push_back(StringAttr::get(context, name));
    return success();
  };
  if (succeeded(parser.parseOptionalLParen())) {
    if (parser.parseCommaSeparatedList(axis) || parser.parseRParen())
      return failure();
  } else if (axis()) {
    return failure();
  }
  dims.push_back(ArrayAttr::get(context, axes));
  return success();
}

/// The kind of partial value and its axes are optional, and so are the axes of a root, and the space.
Attribute PlaceAttr::parse(AsmParser &parser, Type) {
  SmallVector<ArrayAttr> dims;
  SmallVector<StringAttr> partial, root;
  PartialKind kind = PartialKind::None;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseLess() ||
      parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, [&] { return parseDim(parser, dims); }))
    return {};
  Space space = Space::Device;
  StringRef word;
  SMLoc wordLoc = parser.getCurrentLocation();
  // Clauses have a fixed order, so that equal placements have equal texts.
  while (succeeded(parser.parseOptionalKeyword(&word))) {
    if (word == "in") {
      FailureOr<Space> parsed = FieldParser<Space>::parse(parser);
      if (failed(parsed))
        return {};
      space = *parsed;
      break; // the space is last
    }
    bool isRoot = word == "root";
    auto parsed = symbolizePartialKind(word);
    if (!root.empty() || (!isRoot && (kind != PartialKind::None || !parsed || *parsed == PartialKind::None))) {
      parser.emitError(wordLoc) << "expected 'sum' or 'max', then 'root', then 'in'";
      return {};
    }
    if (!isRoot)
      kind = *parsed;
    auto axis = [&]() -> ParseResult {
      std::string name;
      if (parser.parseKeywordOrString(&name))
        return failure();
      (isRoot ? root : partial).push_back(StringAttr::get(parser.getContext(), name));
      return success();
    };
    if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Paren, axis))
      return {};
    wordLoc = parser.getCurrentLocation();
  }
  if (parser.parseGreater())
    return {};
  return getChecked([&] { return parser.emitError(loc); }, parser.getContext(), dims, kind, partial, root, space);
}

/// Prints `<[dp, _, (tp, cp)] sum(pp)>`: the axes of each dim, then partial axes, then rooted axes, then the space.
void PlaceAttr::print(AsmPrinter &printer) const {
  auto axis = [&](StringAttr name) { printer.printKeywordOrString(name.getValue()); };
  printer << "<[";
  // A dim with one axis needs no parentheses.
  llvm::interleaveComma(llvm::seq<int64_t>(0, getDims().size()), printer, [&](int64_t d) {
    SmallVector<StringAttr> list = axes(d);
    if (list.empty())
      printer << '_';
    else if (list.size() == 1)
      axis(list[0]);
    else {
      printer << '(';
      llvm::interleaveComma(list, printer, axis);
      printer << ')';
    }
  });
  printer << ']';
  if (isPartial()) {
    printer << ' ' << stringifyPartialKind(getKind()) << '(';
    llvm::interleaveComma(getPartial(), printer, axis);
    printer << ')';
  }
  if (!getRoot().empty()) {
    printer << " root(";
    llvm::interleaveComma(getRoot(), printer, axis);
    printer << ')';
  }
  if (getSpace() != Space::Device)
    printer << " in " << stringifySpace(getSpace());
  printer << '>';
}

static bool isBefore(StringAttr a, StringAttr b) { return a.getValue() < b.getValue(); }

/// An axis may occur only once in a placement, whether it splits, is partial or is rooted.
LogicalResult PlaceAttr::verify(function_ref<InFlightDiagnostic()> emitError, ArrayRef<ArrayAttr> dims,
                                PartialKind kind, ArrayRef<StringAttr> partial, ArrayRef<StringAttr> root, Space) {
  llvm::StringSet<> seen;
  auto once = [&](StringRef axis) -> LogicalResult {
    if (seen.insert(axis).second)
      return success();
    return emitError() << "axis '" << axis << "' occurs twice in a placement (C2)";
  };
  for (ArrayAttr list : dims)
    for (Attribute axis : list) {
      auto name = dyn_cast<StringAttr>(axis);
      if (!name)
        return emitError() << "expected axis names in a placement (C2)";
      if (failed(once(name.getValue())))
        return failure();
    }
  for (StringAttr axis : llvm::concat<const StringAttr>(partial, root))
    if (failed(once(axis.getValue())))
      return failure();
  if ((kind == PartialKind::None) != partial.empty() || !llvm::is_sorted(partial, isBefore))
    return emitError() << "partial axes need a kind and alphabetical order (C3)";
  if (!llvm::is_sorted(root, isBefore))
    return emitError() << "root axes need alphabetical order (C3)";
  return success();
}

LogicalResult PlaceAttr::verifyEncoding(ArrayRef<int64_t> shape, Type,
                                        function_ref<InFlightDiagnostic()> emitError) const {
  if (shape.size() != getDims().size())
    return emitError() << "the placement has " << getDims().size() << " dims, but the tensor has " << shape.size()
                       << " (C1)";
  return success();
}

LogicalResult RowsAttr::verifyEncoding(ArrayRef<int64_t> shape, Type,
                                       function_ref<InFlightDiagnostic()> emitError) const {
  if (getCount() < 1 || getDims() < 1 || getDims() > static_cast<int64_t>(shape.size()))
    return emitError() << "the form for routed tokens needs a tensor of at least " << getDims()
                       << " dims, and a count and dims of at least 1 (C1)";
  return success();
}

PlaceAttr PlaceAttr::replicated(MLIRContext *context, int64_t rank) {
  SmallVector<ArrayAttr> dims(rank, ArrayAttr::get(context, {}));
  return get(context, dims, PartialKind::None, {}, {}, Space::Device);
}

SmallVector<StringAttr> PlaceAttr::axes(int64_t d) const { return axisList(getDims()[d]); }

/// An axis that the placement does not name is whole.
AxisState PlaceAttr::state(StringAttr axis) const {
  for (auto [d, list] : llvm::enumerate(getDims()))
    if (llvm::is_contained(list, axis))
      return AxisState::split(d);
  if (llvm::is_contained(getPartial(), axis))
    return getKind() == PartialKind::Max ? AxisState::max() : AxisState::sum();
  if (llvm::is_contained(getRoot(), axis))
    return AxisState::root();
  return AxisState::whole();
}

/// Removes the axis from where it is, and inserts it at its new position: among a dim's axes at `position`, or at the
/// end.
PlaceAttr PlaceAttr::with(StringAttr axis, AxisState state, int64_t position) const {
  MLIRContext *context = getContext();
  SmallVector<ArrayAttr> dims;
  for (auto [d, list] : llvm::enumerate(getDims())) {
    SmallVector<Attribute> axes(list.begin(), list.end());
    llvm::erase(axes, axis);
    if (state.isSplit() && state.dim() == static_cast<int64_t>(d))
      axes.insert(position < 0 ? axes.end() : axes.begin() + position, axis);
    dims.push_back(ArrayAttr::get(context, axes));
  }
  SmallVector<StringAttr> partial(getPartial()), root(getRoot());
  llvm::erase(partial, axis);
  llvm::erase(root, axis);
  PartialKind kind = partial.empty() ? PartialKind::None : getKind();
  if (state.isPartial()) {
    partial.push_back(axis);
    llvm::sort(partial, isBefore);
    kind = state.isMax() ? PartialKind::Max : PartialKind::Sum;
  }
  if (state.isRoot()) {
    root.push_back(axis);
    llvm::sort(root, isBefore);
  }
  return get(context, dims, kind, partial, root, getSpace());
}

PlaceAttr PlaceAttr::in(Space space) const {
  return get(getContext(), getDims(), getKind(), getPartial(), getRoot(), space);
}

PlaceAttr PlaceAttr::dropFront() const {
  return get(getContext(), getDims().drop_front(), getKind(), getPartial(), getRoot(), getSpace());
}

PlaceAttr PlaceAttr::addFront() const {
  SmallVector<ArrayAttr> dims{ArrayAttr::get(getContext(), {})};
  llvm::append_range(dims, getDims());
  return get(getContext(), dims, getKind(), getPartial(), getRoot(), getSpace());
}

//===---------------------------------------------------------------------------===//
// #pc.home
//===---------------------------------------------------------------------------===//

/// <4096>, <disk, 4096>, <host, 4096> or <4096, <32 of 3>>.
Attribute HomeAttr::parse(AsmParser &parser, Type) {
  int64_t offset = 0, base = 0;
  RowsAttr rows;
  if (parser.parseLess())
    return {};
  for (Space space : {Space::Host, Space::Disk})
    if (!base && succeeded(parser.parseOptionalKeyword(stringifySpace(space)))) {
      base = firstOffset(space);
      if (parser.parseComma())
        return {};
    }
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseInteger(offset) ||
      (succeeded(parser.parseOptionalComma()) && parser.parseCustomAttributeWithFallback(rows)) ||
      parser.parseGreater())
    return {};
  if (offset <= -PCRT_HOST || offset >= PCRT_HOST) {
    parser.emitError(loc) << "an offset must be below 2^55, got " << offset;
    return {};
  }
  return get(parser.getContext(), base + offset, rows);
}

void HomeAttr::print(AsmPrinter &printer) const {
  Space space = spaceAt(getOffset());
  printer << '<';
  if (space != Space::Device)
    printer << stringifySpace(space) << ", ";
  printer << getOffset() - firstOffset(space);
  if (getRows()) {
    printer << ", ";
    printer.printStrippedAttrOrType(getRows());
  }
  printer << '>';
}

//===---------------------------------------------------------------------------===//
// #pc.drop
//===---------------------------------------------------------------------------===//

/// The threshold comes first. Sizes, split dims and the shift of a ring are optional.
Attribute DropAttr::parse(AsmParser &parser, Type) {
  int64_t threshold = 0, shift = 0;
  SmallVector<int64_t> global, split;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseLess() || parser.parseInteger(threshold))
    return {};
  while (succeeded(parser.parseOptionalComma())) {
    StringRef word;
    SMLoc wordLoc = parser.getCurrentLocation();
    if (parser.parseKeyword(&word) || parser.parseEqual())
      return {};
    if (word == "shift") {
      if (parser.parseInteger(shift))
        return {};
      continue;
    }
    SmallVector<int64_t> *list = word == "global" ? &global : word == "split" ? &split : nullptr;
    if (!list) {
      parser.emitError(wordLoc) << "expected 'global', 'split' or 'shift'";
      return {};
    }
    if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Square,
                                       [&] { return parser.parseInteger(list->emplace_back()); }))
      return {};
  }
  if (parser.parseGreater())
    return {};
  return getChecked([&] { return parser.emitError(loc); }, parser.getContext(), threshold, global, split, shift);
}

/// Empty lists, and a shift of 0, are not printed.
void DropAttr::print(AsmPrinter &printer) const {
  printer << '<' << getThreshold();
  for (auto [word, list] : {std::pair(", global = [", getGlobal()), std::pair(", split = [", getSplit())}) {
    if (list.empty())
      continue;
    printer << word;
    llvm::interleaveComma(list, printer);
    printer << ']';
  }
  if (getShift())
    printer << ", shift = " << getShift();
  printer << '>';
}

/// The threshold is compared with 16 random bits, and must drop some elements but not all.
LogicalResult DropAttr::verify(function_ref<InFlightDiagnostic()> emitError, int64_t threshold,
                               ArrayRef<int64_t> global, ArrayRef<int64_t> split, int64_t shift) {
  if (threshold < 1 || threshold > 65535)
    return emitError() << "a threshold must be from 1 to 65535, got " << threshold << " (C1)";
  bool ascends = llvm::all_of(llvm::seq<size_t>(1, split.size() + !split.size()),
                              [&](size_t i) { return split[i - 1] < split[i]; });
  bool fits = split.empty() || (split.front() >= 0 && split.back() < static_cast<int64_t>(global.size()));
  if (!ascends || !fits || shift < 0 || llvm::any_of(global, [](int64_t size) { return size < 1; }))
    return emitError() << "expected positive sizes, split dims in ascending order and a non-negative shift (C2)";
  return success();
}

//===---------------------------------------------------------------------------===//
// #pc.wire
//===---------------------------------------------------------------------------===//

/// <int8, [16, 16]>
Attribute WireAttr::parse(AsmParser &parser, Type) {
  StringRef word;
  int64_t bits = 0;
  SmallVector<int64_t> block;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseLess() || parser.parseKeyword(&word) || parser.parseComma() || parseSizes(parser, block) ||
      parser.parseGreater())
    return {};
  if (!word.consume_front("int") || word.getAsInteger(10, bits)) {
    parser.emitError(loc) << "expected 'int8' or 'int4'";
    return {};
  }
  return getChecked([&] { return parser.emitError(loc); }, parser.getContext(), bits, block);
}

void WireAttr::print(AsmPrinter &printer) const {
  printer << '<' << text() << ", ";
  printSizes(printer, getBlock());
  printer << '>';
}

int64_t WireAttr::blockBytes() const { return PCRT_STATE_BLOCK * getBits() / 8 + static_cast<int64_t>(sizeof(float)); }

LogicalResult WireAttr::verify(function_ref<InFlightDiagnostic()> emitError, int64_t bits, ArrayRef<int64_t> block) {
  int64_t elements = 1;
  for (int64_t size : block)
    elements *= std::clamp<int64_t>(size, 0, PCRT_STATE_BLOCK + 1);
  if ((bits != 8 && bits != 4) || elements != PCRT_STATE_BLOCK)
    return emitError() << "codes must have 8 or 4 bits and blocks of " << PCRT_STATE_BLOCK << " elements, got " << bits
                       << " bits and blocks of " << elements << " (C1)";
  return success();
}

//===---------------------------------------------------------------------------===//
// #pc.init
//===---------------------------------------------------------------------------===//

/// The kind, its value and, for embeddings with padding, the row of zeros.
Attribute InitAttr::parse(AsmParser &parser, Type) {
  StringRef word;
  double value;
  int64_t zeroRow = -1;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseLess() || parser.parseKeyword(&word) || parser.parseComma() || parser.parseFloat(value))
    return {};
  if (succeeded(parser.parseOptionalComma()) &&
      (parser.parseKeyword("zero_row") || parser.parseEqual() || parser.parseInteger(zeroRow)))
    return {};
  if (parser.parseGreater())
    return {};
  auto kind = symbolizeInitKind(word);
  if (!kind) {
    parser.emitError(loc) << "expected 'normal' or 'fill'";
    return {};
  }
  return get(parser.getContext(), *kind, FloatAttr::get(Float64Type::get(parser.getContext()), value), zeroRow);
}

void InitAttr::print(AsmPrinter &printer) const {
  printer << '<' << stringifyInitKind(getKind()) << ", ";
  printer.printAttributeWithoutType(getValue());
  if (getZeroRow() != -1)
    printer << ", zero_row = " << getZeroRow();
  printer << '>';
}
