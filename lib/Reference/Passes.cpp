//===- Passes.cpp - Anchors the Reference room until it has a pass --------------------===//
#include "pc/Reference/Passes.h"
