//===- Passes.cpp - Anchors the Shard room until it has a pass --------------------===//
#include "pc/Shard/Passes.h"
