//===- Passes.cpp - Anchors the Overlap room until it has a pass --------------------===//
#include "pc/Overlap/Passes.h"
