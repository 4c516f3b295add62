//===- MoveKey.cpp - Describes what a rank is about to do with a group ----===//
// Keys are zeroed first, because they are compared with memcmp. Members are hashed by FNV-1a.
//===----------------------------------------------------------------------===//
#include "comm/MoveKey.h"
#include "comm/Moves.h"
#include "comm/Rows.h"

#include <cstdio>
#include <cstring>

using namespace pcrt;

std::string pcrt::rankName(int rank) { return "rank " + std::to_string(rank); }

std::string pcrt::groupName(const Group &group) {
  std::string text = group.name.empty() ? "ranks" : group.name + ": ranks";
  for (int i = 0; i < group.size(); ++i)
    text += (i ? ", " : " ") + std::to_string(group.ranks[i]);
  return "group (" + text + ")";
}

Group pcrt::worldGroup(int rank, int size) {
  Group world;
  for (int i = 0; i < size; ++i)
    world.ranks.push_back(i);
  world.me = rank;
  world.id = kWorldGroup;
  world.name = "all";
  return world;
}

std::string pcrt::secondsText(double seconds) {
  char text[32];
  snprintf(text, sizeof text, "%g", seconds);
  return text;
}

MoveKey pcrt::makeKey(const char *name, const Group &group) {
  MoveKey key;
  memset(&key, 0, sizeof key);
  strncpy(key.name, name ? name : "?", sizeof key.name - 1);
  key.kind = -1;
  key.members = group.size();
  key.ranksHash = 14695981039346656037u; // FNV-1a
  for (int rank : group.ranks)
    key.ranksHash = (key.ranksHash ^ uint64_t(rank)) * 1099511628211u;
  return key;
}

MoveKey pcrt::makeKey(const pcrt_move_desc &desc, const Group &group) {
  MoveKey key = makeKey(desc.name, group);
  key.kind = desc.kind;
  key.dtype = desc.dtype;
  key.reduction = desc.reduction;
  key.outer = desc.outer;
  key.extent = desc.extent;
  key.inner = desc.inner;
  key.middle = desc.middle;
  key.extent2 = desc.extent2;
  key.routed = routedOf(desc);
  return key;
}

std::string pcrt::describeKey(const MoveKey &key) {
  if (key.kind < 0)
    return key.name;
  pcrt_move_desc desc{key.name,  key.kind,   0,           key.dtype, key.reduction,       key.outer, key.extent,
                      key.inner, key.middle, key.extent2, nullptr,   int32_t(key.routed), 0,         0};
  return describeMove(desc, key.members);
}

std::string pcrt::describeMismatch(int rank, const MoveKey &key, int other, const MoveKey &theirs) {
  std::string text =
      rankName(rank) + " runs " + describeKey(key) + ", " + rankName(other) + " runs " + describeKey(theirs);
  if (describeKey(key) == describeKey(theirs))
    text += " (with other members)";
  return text + "; all ranks must run the same program";
}
