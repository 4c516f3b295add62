//===- Passes.cpp - Anchors the Cost room until it has a pass --------------------===//
#include "pc/Cost/Passes.h"
