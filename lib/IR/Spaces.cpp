//===- Spaces.cpp - The memories that hold values --------------------------------------------===//
// The space of a type follows from its placement, its local encoding or its home, whose offsets are numbered by space.
//===-----------------------------------------------------------------------------===//
#include "pc/IR/PC.h"
#include "pcrt/moves.h"

using namespace mlir;
using namespace pc;

int64_t pc::firstOffset(Space space) {
  return space == Space::Device ? 0 : space == Space::Host ? PCRT_HOST : PCRT_DISK;
}

Space pc::spaceAt(int64_t offset) {
  return offset < PCRT_HOST ? Space::Device : offset < PCRT_DISK ? Space::Host : Space::Disk;
}

Space pc::spaceOf(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  Attribute encoding = tensor ? tensor.getEncoding() : Attribute();
  if (auto place = dyn_cast_or_null<PlaceAttr>(encoding))
    return place.getSpace();
  if (auto home = dyn_cast_or_null<HomeAttr>(encoding))
    return spaceAt(home.getOffset());
  auto local = dyn_cast_or_null<InSpaceAttr>(encoding);
  return local ? local.getValue() : Space::Device;
}

StringRef CarryOp::getLink() {
  switch (spaceOf(getX())) {
  case Space::Host:
    return "host>device";
  case Space::Disk:
    return "disk>device";
  case Space::Device:
    return spaceOf(getResult()) == Space::Host ? "device>host" : "device>disk";
  }
  llvm_unreachable("not a space");
}

RankedTensorType pc::inSpace(Type type, Space space) {
  if (PlaceAttr place = placement(type))
    return withEncoding(type, place.in(space));
  return spaceOf(type) == space   ? cast<RankedTensorType>(type)
         : space == Space::Device ? withEncoding(type, {})
                                  : withEncoding(type, InSpaceAttr::get(type.getContext(), space));
}

LogicalResult ArenaOp::verify() {
  for (int64_t bytes : {sizeOf(Space::Device), sizeOf(Space::Host), sizeOf(Space::Disk)})
    if (bytes < 0 || bytes % 64)
      return emitOpError() << "has " << bytes << " bytes, but must have a multiple of 64, at least 0 (C1)";
  return success();
}

int64_t ArenaOp::sizeOf(Space space) {
  return static_cast<int64_t>(space == Space::Device ? getBytes() : space == Space::Host ? getHost() : getDisk());
}

bool ArenaOp::contains(int64_t begin, int64_t end) {
  Space space = spaceAt(begin);
  return begin >= 0 && end - firstOffset(space) <= sizeOf(space);
}
