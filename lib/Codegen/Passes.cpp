//===- Passes.cpp - Anchors the Codegen room until it has a pass --------------------===//
#include "pc/Codegen/Passes.h"
