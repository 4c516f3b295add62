//===- Passes.cpp - Anchors the Localize room until it has a pass --------------------===//
#include "pc/Localize/Passes.h"
