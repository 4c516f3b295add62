//===- Ops.cpp - Structure, leaves and moves: assembly and verifiers --------------===//
// This file has the code that ODS cannot generate: the assembly of ops with regions, verifiers, the shape of a move for
// the runtime, and a builder of moves by kind. Verifiers hold for any IR that parses and never crash. The numbers (C1),
// (C2), ... in errors are those of the constraints in PCOps.td.
//===-----------------------------------------------------------------------------===//
#include "pc/IR/Codes.h"
#include "pc/IR/Groups.h"
#include "pc/IR/PC.h"

#include "mlir/IR/Builders.h"
#include "pcrt/average.h"
#include "pcrt/pcrt.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace pc;

#define GET_OP_CLASSES
#include "pc/IR/PCOps.cpp.inc"

//===---------------------------------------------------------------------------===//
// Ops with regions: `pc.accumulate (%arg = %value : type, ...) { ... } : types`
//===---------------------------------------------------------------------------===//

/// Fusions and starts have the same syntax: (%argument = %operand : type -> type, ...) { body } : types.
static ParseResult parseRegionOp(OpAsmParser &parser, OperationState &result) {
  SmallVector<OpAsmParser::Argument> arguments;
  SmallVector<OpAsmParser::UnresolvedOperand> operands;
  SmallVector<Type> types;
  auto one = [&]() -> ParseResult {
    if (parser.parseArgument(arguments.emplace_back()) || parser.parseEqual() ||
        parser.parseOperand(operands.emplace_back()) || parser.parseColonType(types.emplace_back()) ||
        parser.parseArrow())
      return failure();
    return parser.parseType(arguments.back().type);
  };
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Paren, one) ||
      parser.parseRegion(*result.addRegion(), arguments) || parser.parseOptionalAttrDict(result.attributes) ||
      parser.parseOptionalColonTypeList(result.types) || parser.resolveOperands(operands, types, loc, result.operands))
    return failure();
  return success();
}

static void printRegionOp(OpAsmPrinter &printer, Operation *op) {
  Region &body = op->getRegion(0);
  printer << " (";
  llvm::interleaveComma(llvm::zip(body.getArguments(), op->getOperands()), printer, [&](auto pair) {
    auto [argument, operand] = pair;
    printer << argument << " = " << operand << " : " << operand.getType() << " -> " << argument.getType();
  });
  printer << ") ";
  printer.printRegion(body, /*printEntryBlockArgs=*/false);
  printer.printOptionalAttrDict(op->getAttrs());
  if (op->getNumResults())
    printer << " : " << op->getResultTypes();
}

ParseResult AccumulateOp::parse(OpAsmParser &parser, OperationState &result) { return parseRegionOp(parser, result); }
void AccumulateOp::print(OpAsmPrinter &printer) { printRegionOp(printer, *this); }
ParseResult FusionOp::parse(OpAsmParser &parser, OperationState &result) { return parseRegionOp(parser, result); }
void FusionOp::print(OpAsmPrinter &printer) { printRegionOp(printer, *this); }
ParseResult StartOp::parse(OpAsmParser &parser, OperationState &result) { return parseRegionOp(parser, result); }
void StartOp::print(OpAsmPrinter &printer) { printRegionOp(printer, *this); }

/// Checks that the body yields the types of the op's results, except for homes.
static LogicalResult verifyYield(Operation *op, StringRef constraint) {
  auto yield = dyn_cast<YieldOp>(op->getRegion(0).front().getTerminator());
  if (!yield || yield.getNumOperands() != op->getNumResults())
    return op->emitOpError() << "body must yield " << op->getNumResults() << " values " << constraint;
  for (auto [i, pair] : llvm::enumerate(llvm::zip(yield.getOperandTypes(), op->getResultTypes())))
    if (withoutHome(std::get<0>(pair)) != withoutHome(std::get<1>(pair)))
      return op->emitOpError() << "yielded value " << i << " has type " << std::get<0>(pair)
                               << ", but the result has type " << std::get<1>(pair) << " " << constraint;
  return success();
}

int64_t AccumulateOp::getMicrobatches() {
  return getInputs().empty() ? 1 : cast<RankedTensorType>(getInputs()[0].getType()).getDimSize(0);
}

/// The first dim of all operands is the number of microbatches. The arguments of the body do not have this dim.
LogicalResult AccumulateOp::verify() {
  int64_t microbatches = 0;
  if (getInputs().size() != getBody().getNumArguments())
    return emitOpError() << "has " << getInputs().size() << " operands but " << getBody().getNumArguments()
                         << " block arguments (C2)";
  for (auto [operand, argument] : llvm::zip(getInputs(), getBody().getArguments())) {
    auto type = cast<RankedTensorType>(operand.getType());
    if (type.getRank() < 1 || type.getDimSize(0) < 1 || (microbatches && type.getDimSize(0) != microbatches))
      return emitOpError() << "operands need the same leading dim of microbatches, got " << type << " (C1)";
    microbatches = type.getDimSize(0);
    Attribute encoding = type.getEncoding();
    if (PlaceAttr place = placement(type)) {
      if (!place.axes(0).empty())
        return emitOpError() << "the dim of microbatches must not be split (C1)";
      encoding = place.dropFront();
    }
    if (withoutHome(RankedTensorType::get(type.getShape().drop_front(), type.getElementType(), encoding)) !=
        withoutHome(argument.getType()))
      return emitOpError() << "block argument of type " << argument.getType() << " does not fit operand " << type
                           << " (C2)";
  }
  return verifyYield(*this, "(C3)");
}

/// Checks (C1) of fusion and start.
static LogicalResult verifyArguments(Operation *op) {
  Region &body = op->getRegion(0);
  if (op->getNumOperands() != body.getNumArguments())
    return op->emitOpError() << "has " << op->getNumOperands() << " operands but " << body.getNumArguments()
                             << " block arguments (C1)";
  for (auto [operand, argument] : llvm::zip(op->getOperands(), body.getArguments()))
    if (!isa<RankedTensorType>(argument.getType()) || withoutHome(operand.getType()) != withoutHome(argument.getType()))
      return op->emitOpError() << "block argument of type " << argument.getType() << " does not fit operand "
                               << operand.getType() << " (C1)";
  return success();
}

LogicalResult FusionOp::verify() { return failed(verifyArguments(*this)) ? failure() : verifyYield(*this, "(C2)"); }

void YieldOp::build(OpBuilder &, OperationState &) {}

std::string PlanOp::line() {
  std::string text;
  for (auto [name, size] : llvm::zip_equal(getMesh().getNames(), getMesh().getSizes()))
    text += (text.empty() ? "" : ",") + name.str() + "=" + std::to_string(size);
  if (text.empty())
    text = "1 rank";
  StringRef separator = ": ";
  for (StringRef tactic : getTactics().getAsValueRange<StringAttr>()) {
    text += (separator + tactic).str();
    separator = ", ";
  }
  return text;
}

//===---------------------------------------------------------------------------===//
// Moves in flight
//===---------------------------------------------------------------------------===//

SmallVector<MoveOpInterface> StartOp::getMoves() { return llvm::to_vector(getBody().getOps<MoveOpInterface>()); }

WaitOp StartOp::getWait() { return getTicket().hasOneUse() ? dyn_cast<WaitOp>(*getTicket().user_begin()) : WaitOp(); }

StartOp WaitOp::getStart() { return getTicket().getDefiningOp<StartOp>(); }

LogicalResult StartOp::verify() {
  if (failed(verifyArguments(*this)))
    return failure();
  Block &body = getBody().front();
  auto yield = dyn_cast<YieldOp>(body.getTerminator());
  size_t n = getInputs().size();
  if (!yield || n < 1 || n > 64 || body.getOperations().size() != n + 1 || yield.getNumOperands() != n)
    return emitOpError() << "body must be 1 to 64 moves, one per operand, and a yield of their results (C2)";
  MoveOpInterface first;
  for (auto [i, op] : llvm::enumerate(body.without_terminator())) {
    auto move = dyn_cast<MoveOpInterface>(op);
    if (!move || !hasTraffic(move.getMoveKind()) || op.getOperand(0) != body.getArgument(i) ||
        yield.getOperand(i) != op.getResult(0))
      return emitOpError() << "op " << i << " of the body must move argument " << i
                           << " with traffic, and its result must be yielded as value " << i << " (C2)";
    first = first ? first : move;
    if (move.getMoveAxes() != first.getMoveAxes())
      return emitOpError() << "contains moves over different axes (C2)";
    auto link = [](Operation *op) { return isa<CarryOp>(op) ? cast<CarryOp>(op).getLink() : ""; };
    if (link(move) != link(first))
      return emitOpError() << "contains different carries, or carries and other moves (C2)";
  }
  if (WaitOp wait = getWait(); !wait || wait->getBlock() != (*this)->getBlock())
    return emitOpError() << "needs exactly one pc.wait, in the same block (C3)";
  return success();
}

LogicalResult WaitOp::verify() {
  StartOp start = getStart();
  if (!start)
    return emitOpError() << "waits for a ticket that is not the result of a pc.start (C1)";
  Block &body = start.getBody().front();
  if (body.empty() || body.back().getNumOperands() != getNumResults())
    return emitOpError() << "has " << getNumResults() << " results, but needs one per move of its pc.start (C2)";
  for (auto [i, pair] : llvm::enumerate(llvm::zip(body.back().getOperandTypes(), getResultTypes())))
    if (!isa<RankedTensorType>(std::get<0>(pair)) || withoutHome(std::get<0>(pair)) != withoutHome(std::get<1>(pair)))
      return emitOpError() << "result " << i << " has type " << std::get<1>(pair) << ", but its move returns "
                           << std::get<0>(pair) << " (C2)";
  return success();
}

//===---------------------------------------------------------------------------===//
// Stages
//===---------------------------------------------------------------------------===//

LogicalResult TaskOp::verify() {
  bool optimizer = getKind() == TaskKind::Optimizer;
  if (optimizer ? getChunk() || getMicrobatch() : !getChunk() || !getMicrobatch())
    return emitOpError() << (optimizer ? "of the optimizer must not have a chunk or microbatch (C1)"
                                       : "needs a chunk and a microbatch (C1)");
  if (!optimizer && (static_cast<int64_t>(*getChunk()) < 0 || static_cast<int64_t>(*getMicrobatch()) < 0))
    return emitOpError() << "has a negative chunk or microbatch (C1)";
  return success();
}

LogicalResult MicrobatchOp::verify() {
  auto stack = cast<RankedTensorType>(getStack().getType());
  int64_t index = getIndex();
  PlaceAttr place = placement(stack);
  if (stack.getRank() < 1 || index < 0 || index >= stack.getDimSize(0) || (place && !place.axes(0).empty()))
    return emitOpError() << "does not have an element " << index << " in " << stack << " (C1)";
  Attribute encoding = place ? Attribute(place.dropFront()) : Attribute();
  if (withoutHome(RankedTensorType::get(stack.getShape().drop_front(), stack.getElementType(), encoding)) !=
      withoutHome(getElement().getType()))
    return emitOpError() << "cannot be " << getElement().getType() << ", an element of " << stack << " (C2)";
  return success();
}

template <typename Op> static LogicalResult verifyMessage(Op op) {
  for (int64_t number : {op.getStage(), op.getFlow(), op.getMessage(), op.getSlots() - 1})
    if (number < 0)
      return op.emitOpError() << "stage, flow and message must be at least 0, and slots at least 1 (C1)";
  return success();
}
LogicalResult SendOp::verify() { return verifyMessage(*this); }
LogicalResult ReceiveOp::verify() { return verifyMessage(*this); }

LogicalResult AddendOp::verify() {
  PlaceAttr place = placement(getX());
  for (StringAttr axis : axisList(getAxes())) {
    if (!place || !place.state(axis).isWhole() || place.getKind() == PartialKind::Max)
      return emitOpError() << "needs a placed operand that is whole on '" << axis.getValue() << "', got "
                           << getX().getType() << " (C1)";
    place = place.with(axis, AxisState::sum());
  }
  if (getResult().getType() != withEncoding(getX().getType(), place))
    return emitOpError() << "makes " << getResult().getType() << " of " << getX().getType() << " (C1)";
  return success();
}

//===---------------------------------------------------------------------------===//
// Leaves and sinks
//===---------------------------------------------------------------------------===//

LogicalResult ProgramOp::verify() {
  if (std::optional<int64_t> n = getZigzag(); n && (*n < 1 || getSequence() % (2 * *n)))
    return emitOpError() << "a sequence of " << getSequence() << " does not divide into " << 2 * *n << " chunks (C1)";
  if (getTargets() && (targetLength() < 1 || !getMasked() || getZigzag()))
    return emitOpError() << "has " << targetLength()
                         << " targets per sequence, which needs at least 1, 'masked' and no "
                         << "zigzag order (C2)";
  return success();
}

/// Returns true if a parameter group has a name and, besides, only settings that are numbers of at least 0.
static bool isGroup(DictionaryAttr group) {
  return llvm::all_of(group,
                      [](NamedAttribute setting) {
                        if (setting.getName() == "name" || setting.getName() == "optimizer")
                          return isa<StringAttr>(setting.getValue());
                        auto number = dyn_cast<FloatAttr>(setting.getValue());
                        StringRef name = setting.getName();
                        return (name == PCRT_EMA || llvm::is_contained(groupSettings, name)) && number &&
                               number.getType().isF64() && number.getValueAsDouble() >= 0;
                      }) &&
         group.contains("name");
}

/// Checks (C3) and (C5) of a parameter whose part without padding has the shape `valid`.
static LogicalResult verifyParts(ParameterOp op, ArrayRef<int64_t> valid) {
  std::optional<ArrayAttr> parts = op.getParts();
  if (parts.has_value() == op.getSource().has_value())
    return op.emitOpError() << (parts ? "has both a source and parts"
                                      : "needs a source, the box of a tensor in checkpoints, such as: source <\"" +
                                            op.getName().str() + "\", shape = [8], start = [0], size = [8]>")
                            << " (C5)";
  auto check = [&](SourceAttr source, StringRef what, int64_t elements) -> LogicalResult {
    if (ShapedType::getNumElements(source.getSize()) == elements)
      return success();
    return op.emitOpError() << "source box has " << ShapedType::getNumElements(source.getSize())
                            << " elements, but the " << what << " has " << elements << " (C3)";
  };
  if (!parts)
    return check(*op.getSource(), "parameter", ShapedType::getNumElements(valid));
  auto along = static_cast<int64_t>(op.getAlong().value_or(-1));
  if (along < 0 || along >= static_cast<int64_t>(valid.size()) || valid[along] < 1)
    return op.emitOpError() << "cannot be divided into parts along dim " << along
                            << ": there is no such dim, or it is empty (C5)";
  int64_t sum = 0;
  for (PartAttr part : parts->getAsRange<PartAttr>()) {
    sum += part.getSize();
    if (part.getSize() < 1 ||
        failed(check(part.getSource(), "part", ShapedType::getNumElements(valid) / valid[along] * part.getSize())))
      return failure();
  }
  if (sum != valid[along])
    return op.emitOpError() << "has parts with a total of " << sum << " indices along dim " << along << " of size "
                            << valid[along] << " (C5)";
  return success();
}

LogicalResult ParameterOp::verify() {
  auto type = cast<RankedTensorType>(getValue().getType());
  if (static_cast<int64_t>(getDims().size()) != type.getRank())
    return emitOpError() << "names " << getDims().size() << " dims, but its type is " << type << " (C1)";
  ArrayRef<int64_t> whole = getGlobal() ? *getGlobal() : type.getShape();
  ArrayRef<int64_t> valid = getValid() ? *getValid() : whole;
  if (static_cast<int64_t>(valid.size()) != type.getRank())
    return emitOpError() << "'valid' has rank " << valid.size() << ", but the tensor has rank " << type.getRank()
                         << " (C2)";
  for (auto [v, w] : llvm::zip(valid, whole))
    if (v > w)
      return emitOpError() << "'valid' is larger than the tensor (C2)";
  if (failed(verifyParts(*this, valid)))
    return failure();
  if (std::optional<DictionaryAttr> group = getGroup(); group && (getFrozen() || !isGroup(*group)))
    return emitOpError() << (getFrozen() ? "is frozen, so it has no group" : "has a malformed group") << " (C6)";
  if (int64_t row = getInit().getZeroRow(); row != -1 && (row < 0 || valid.empty() || row >= valid[0]))
    return emitOpError() << "has no row " << row << ", which would start as zeros (C4)";
  return success();
}

/// Random words, documents and shifted targets need a key. Only named inputs have a name and a bound of indices.
LogicalResult InputOp::verify() {
  bool hasKey =
      llvm::is_contained({InputKind::Random, InputKind::Starts, InputKind::Positions, InputKind::Shifted}, getKind());
  if (hasKey != getKey().has_value() || (hasKey && static_cast<int64_t>(*getKey()) < 0))
    return emitOpError() << (hasKey ? "needs a key of at least 0 (C1)"
                                    : "must not have a key for an input of this kind (C1)");
  bool isData = getKind() == InputKind::Data;
  auto isGood = [](char c) { return llvm::isAlnum(c) || c == '_' || c == '-' || c == '.'; };
  if (isData != getName().has_value() || (isData && (getName()->empty() || !llvm::all_of(*getName(), isGood))))
    return emitOpError() << (isData ? "needs a name of letters, digits, '_', '-' and '.' (C2)"
                                    : "must not have a name for an input of this kind (C2)");
  Type element = cast<RankedTensorType>(getValue().getType()).getElementType();
  if (isData && !element.isF32() && !element.isInteger(32))
    return emitOpError() << "'" << *getName() << "' holds " << element << ", not f32 or i32 (C3)";
  bool needsBound = isData && element.isInteger(32), mayHaveBound = needsBound || getKind() == InputKind::Targets;
  if (getBelow() ? !mayHaveBound || static_cast<int64_t>(*getBelow()) < 1 : needsBound)
    return emitOpError() << (isData && !getBelow() ? "holds indices, so it needs 'below n' with n at least 1 (C3)"
                                                   : "has a 'below' that is not a bound of indices (C3)");
  auto dims = getDims().getAsValueRange<StringAttr>();
  if (isData && !llvm::is_contained(llvm::ArrayRef(llvm::to_vector(dims)).take_front(2), "batch"))
    return emitOpError() << "'" << *getName() << "' has no first dim named \"batch\" (C4)";
  if (std::optional<DictionaryAttr> group = getGroup(); group && (getKind() != InputKind::Hyper || !isGroup(*group)))
    return emitOpError() << (isGroup(*group) ? "must not have a group" : "has a malformed group") << " (C5)";
  return success();
}

/// With pieces, position i has the value of the last piece that begins at or before i.
LogicalResult IotaOp::verify() {
  std::optional<ArrayRef<int64_t>> starts = getPieces(), of = getValues();
  if (!starts && !of)
    return success();
  bool ascends = starts && !starts->empty() && starts->front() == 0 && llvm::is_sorted(*starts);
  if (!ascends || !of || of->size() != starts->size() || getFrom() || zigzagRanks(*this))
    return emitOpError() << "needs pieces in ascending order that start at 0, with one value each (C1)";
  return success();
}
int64_t IotaOp::at(int64_t index) {
  if (!getPieces())
    return sequencePosition(*this, index) + static_cast<int64_t>(getFrom());
  return (*getValues())[llvm::upper_bound(*getPieces(), index) - getPieces()->begin() - 1];
}

LogicalResult OutputOp::verify() {
  if (PlaceAttr place = placement(getValue()); place && place.isPartial())
    return emitOpError() << "value is partial: " << getValue().getType() << " (C1)";
  return success();
}

//===---------------------------------------------------------------------------===//
// Computation: constraints beyond factor rules and element types
//===---------------------------------------------------------------------------===//

/// (C1) and (C2) of ops on packed heads: x [b, s, k, j, d] and q [b, s, k, g, d]. Verifiers of factors report wrong
/// ranks.
static LogicalResult verifyPacked(Operation *op, Value x, Value q, ValueRange tables = {}) {
  auto packed = cast<RankedTensorType>(x.getType()), queries = cast<RankedTensorType>(q.getType());
  if (packed.getRank() != 5 || queries.getRank() != 5)
    return success();
  if (packed.getDimSize(3) != queries.getDimSize(3) + 2)
    return op->emitOpError() << "packs " << packed.getDimSize(3) << " heads, but " << queries.getDimSize(3)
                             << " query heads, a key and a value make " << queries.getDimSize(3) + 2 << " (C1)";
  if (!tables.empty() && tables.size() != 2)
    return op->emitOpError() << "takes either two tables or none, got " << tables.size() << " (C2)";
  for (Value table : tables)
    if (auto type = cast<RankedTensorType>(table.getType());
        type.getRank() == 2 && 2 * type.getDimSize(1) > packed.getDimSize(4))
      return op->emitOpError() << "has tables wider than half a head (C2)";
  return success();
}
LogicalResult EinsumOp::verify() {
  if (!getRoutedAttr())
    return success();
  if (getInputs().size() < 2 || cast<RankedTensorType>(getInputs().back().getType()).getRank() < 1)
    return emitOpError() << "'routed' needs a mask after the other operands (C1)";
  if (*getRouted() < 1)
    return emitOpError() << "'routed' is " << *getRouted() << "; expected at least 1 (C2)";
  FactorRule rule = getFactorRule();
  if (rule.operands.size() == getInputs().size())
    for (int factor : rule.operands.back())
      if (llvm::count(rule.operands.back(), factor) > 1)
        return emitOpError() << "'routed' needs a mask without diagonals, but factor '" << rule.factors[factor].name
                             << "' appears in two dims (C3)";
  return success();
}

LogicalResult TopKOp::verify() {
  auto x = cast<RankedTensorType>(getX().getType());
  int64_t entries = x.getRank() ? x.getShape().back() : 0;
  if (int64_t k = static_cast<int64_t>(getK()); k < 1 || k > entries)
    return emitOpError() << "chooses " << k << " of " << entries << " (C1)";
  if (getLayer() && x.getRank() != 3)
    return emitOpError() << "chooses experts by " << x
                         << ", but a layer's choices must be [batch, sequence, experts] (C2)";
  return success();
}
/// Groups divide a row evenly and have at least two entries each, since a group's score is the sum of two.
LogicalResult TopGroupsOp::verify() {
  auto x = cast<RankedTensorType>(getX().getType());
  int64_t entries = x.getRank() ? x.getShape().back() : 0;
  auto groups = static_cast<int64_t>(getGroups()), keep = static_cast<int64_t>(getKeep());
  if (groups < 1 || entries % groups || entries / groups < 2)
    return emitOpError() << "cannot divide " << entries << " entries into " << groups << " groups of at least two (C1)";
  if (keep < 1 || keep > groups)
    return emitOpError() << "keeps " << keep << " of " << groups << " (C1)";
  return success();
}

/// Checks (C1) to (C3) of recurrences and their gradients.
static LogicalResult verifyRecurrence(Operation *op, StringRef spec, StringRef along) {
  FactorRule rule;
  if (!FactorRule::parse(spec, rule) || rule.operands.size() != 2 || rule.results.size() != 1 ||
      rule.results[0] != rule.operands[1])
    return op->emitOpError() << "\"" << spec << "\" must name the dims of a, b and the result, which has b's dims (C1)";
  ArrayRef<int> a = rule.operands[0], b = rule.operands[1];
  for (ArrayRef<int> dims : {a, b})
    for (int dim : dims)
      if (llvm::count(dims, dim) != 1 || !llvm::is_contained(b, dim))
        return op->emitOpError() << "dim '" << rule.factors[dim].name << "' of \"" << spec << "\" "
                                 << (llvm::is_contained(b, dim) ? "occurs twice in one value" : "is not a dim of b")
                                 << " (C2)";
  if (rule.find(along) < 0)
    return op->emitOpError() << "runs along '" << along << "', which is not a dim of \"" << spec << "\" (C3)";
  return success();
}
LogicalResult RecurrenceOp::verify() { return verifyRecurrence(*this, getSpec(), getAlong()); }
LogicalResult RecurrenceGradOp::verify() { return verifyRecurrence(*this, getSpec(), getAlong()); }

/// Checks (C1) and (C2) of rope.
LogicalResult RopeOp::verify() {
  auto x = cast<RankedTensorType>(getX().getType());
  int64_t d = x.getRank() ? x.getShape().back() : 0;
  auto first = static_cast<int64_t>(getFirst());
  for (Value table : {getCos(), getSin()})
    if (auto type = cast<RankedTensorType>(table.getType());
        type.getRank() >= 2 && x.getRank() > 0 && (first < 0 || 2 * type.getShape().back() > d - first))
      return emitOpError() << "rotates " << 2 * type.getShape().back() << " elements from element " << first
                           << " on, but the head has " << d << " (C1)";
  if (getInterleaved() && (d % 2 || first % 2))
    return emitOpError() << "rotates adjacent pairs, so the head size " << d << " and the first element " << first
                         << " must be even (C2)";
  return success();
}

/// Checks (C3) to (C6) of attention and its gradient.
template <typename Op> static LogicalResult verifyScores(Op op) {
  Operation *attention = op.getOperation();
  std::optional<int64_t> window = op.getWindow();
  if (window && (*window < 1 || !op.getCausal()))
    return attention->emitOpError() << "has a window of " << *window << (op.getCausal() ? "" : " but is not causal")
                                    << " (C3)";
  if (std::optional<llvm::APFloat> cap = op.getSoftcap(); cap && !(cap->convertToDouble() > 0))
    return attention->emitOpError() << "must have a positive cap (C4)";
  auto dimOf = [](Value value, int64_t dim) {
    auto type = cast<RankedTensorType>(value.getType());
    return dim < type.getRank() ? type.getDimSize(dim) : int64_t(0);
  };
  if (Value bias = op.getBias(); bias && dimOf(bias, 2) != dimOf(op.getQ(), 1) + dimOf(op.getK(), 1) - 1)
    return attention->emitOpError() << "has a bias of " << dimOf(bias, 2)
                                    << " entries per head, which does not fit (C5)";
  if (op.getStarts() && !op.getCausal())
    return attention->emitOpError() << "has document starts but is not causal (C3)";
  if ((window || op.getBias() || op.hasSinks() || op.getStarts()) && (op.getSees() || zigzagRanks(attention)))
    return attention->emitOpError()
           << "has only a part of the queries, so it cannot have a window, a bias, sinks or document starts (C6)";
  return success();
}
LogicalResult AttentionOp::verify() { return verifyScores(*this); }
LogicalResult AttentionGradOp::verify() {
  if (getDbias() && !getBias())
    return emitOpError() << "has a gradient of a bias, but no bias (C7)";
  return verifyScores(*this);
}

LogicalResult SplitQkvOp::verify() { return verifyPacked(*this, getX(), getQ(), getTables()); }
LogicalResult JoinQkvOp::verify() { return verifyPacked(*this, getResult(), getQ(), getTables()); }
/// Checks (C1) and (C2) of packed attention.
static LogicalResult verifyPackedAttention(Operation *op, Value qkv, Value o) {
  if (zigzagRanks(op))
    return op->emitOpError() << "needs keys in the order of their positions, not in zigzag order (C2)";
  return verifyPacked(op, qkv, o);
}
LogicalResult PackedAttentionOp::verify() { return verifyPackedAttention(*this, getQkv(), getO()); }
LogicalResult PackedAttentionGradOp::verify() { return verifyPackedAttention(*this, getQkv(), getO()); }

SmallVector<int64_t> pc::drawnSizes(DrawnOpInterface op) {
  if (DropAttr drop = op.getDropAttr(); drop && !drop.getGlobal().empty())
    return SmallVector<int64_t>(drop.getGlobal());
  return llvm::map_to_vector(op.getDrawnDims(), [](IndexedDim dim) {
    return cast<RankedTensorType>(dim.value.getType()).getDimSize(dim.dim);
  });
}

/// Random words and the attribute `drop` occur together. There is one offset for each split dim.
LogicalResult pc::detail::verifyDrawnOp(Operation *op) {
  auto drawn = cast<DrawnOpInterface>(op);
  DropAttr drop = drawn.getDropAttr();
  if (!drop != !drawn.getRandom())
    return op->emitOpError() << "needs both or neither of 'random' and 'drop' (C1)";
  // For other ops, verifiers of factors report wrong ranks.
  if (auto dropout = dyn_cast<DropoutOp>(op); dropout && dropout.getX().getType().getRank() < 2)
    return op->emitOpError() << "needs an operand with a batch dim and a sequence dim, got " << dropout.getX().getType()
                             << " (C1)";
  size_t offsets = drawn.getOffsetsMutable().size(), split = drop ? drop.getSplit().size() : 0;
  if (offsets != split)
    return op->emitOpError() << "has " << offsets << " offsets for " << split << " split dims (C2)";
  if (drop && !drop.getGlobal().empty() && drop.getGlobal().size() != drawn.getDrawnDims().size())
    return op->emitOpError() << "has " << drop.getGlobal().size() << " sizes after 'global', but drops elements of "
                             << drawn.getDrawnDims().size() << " dims (C2)";
  return success();
}

//===---------------------------------------------------------------------------===//
// Moves
//===---------------------------------------------------------------------------===//

// Every row of pcrt/moves.h is an op.
#define PC_ROW(Kind, KIND, NAME, ...)                                                                                  \
  static_assert(std::string_view(Kind##Op::getOperationName()) == "pc." NAME);                                         \
  static_assert(static_cast<int>(MoveKind::Kind) == PCRT_##KIND);
PCRT_MOVES(PC_ROW)
#undef PC_ROW

// Tasks have the runtime's numbers.
static_assert(int(TaskKind::Forward) == PCRT_FORWARD && int(TaskKind::Recompute) == PCRT_RECOMPUTE &&
              int(TaskKind::Backward) == PCRT_BACKWARD && int(TaskKind::Weight) == PCRT_WEIGHT &&
              int(TaskKind::Optimizer) == PCRT_OPTIMIZER);

/// Sees the tensor as [outer, extent, inner] around the moved dim or dims, with pairs of codes of 4 bits as bytes.
pcrt_move_shape pc::moveShape(MoveOpInterface move) {
  auto from = cast<RankedTensorType>(move->getOperand(0).getType());
  auto to = cast<RankedTensorType>(move->getResult(0).getType());
  pcrt_move_shape shape{1, 1, 1, 1, 1, 0};
  int64_t dim = move.getMoveDim(), other = move.getOtherDim();
  const int64_t inBytes = from.getElementType().isInteger(4) ? dimOfCodes(move->getOperand(0)) : -1;
  if (dim < 0) {
    shape.outer = from.getNumElements() / (inBytes < 0 ? 1 : 2);
    return shape;
  }
  // [outer, extent, inner], or [outer, extent, middle, extent2, inner] if blocks of one dim become blocks of another.
  int64_t low = other < 0 ? dim : std::min(dim, other), high = other < 0 ? dim : std::max(dim, other);
  shape.back = other >= 0 && dim > other;
  for (int64_t d = 0; d < from.getRank(); ++d) {
    int64_t size = std::max(from.getDimSize(d), to.getDimSize(d)); // one of the types may have only a block
    (d < low     ? shape.outer
     : d == low  ? shape.extent
     : d < high  ? shape.middle
     : d == high ? shape.extent2
                 : shape.inner) *= d == inBytes ? size / 2 : size;
  }
  return shape;
}

/// Kinds of moves have different attributes: the facts of the move decide which of dim, from and to exist.
MoveOpInterface pc::createMove(OpBuilder &builder, Location loc, MoveKind kind, Type result, Value x,
                               PartialKind reduction, int64_t dim, int64_t otherDim, ArrayAttr axes) {
  OperationState state(loc, ("pc." + moveName(kind)).str());
  state.addOperands(x);
  state.addTypes(result);
  state.addAttribute("axes", axes);
  if (factsOf(kind).needs == PCRT_STATE_PARTIAL)
    state.addAttribute("reduction", PartialKindAttr::get(builder.getContext(), reduction));
  if (takesBlocks(kind) && makesBlocks(kind)) {
    state.addAttribute("from", builder.getI64IntegerAttr(dim));
    state.addAttribute("to", builder.getI64IntegerAttr(otherDim));
  } else if (takesBlocks(kind) || makesBlocks(kind)) {
    state.addAttribute("dim", builder.getI64IntegerAttr(dim));
  }
  return cast<MoveOpInterface>(builder.create(state));
}
