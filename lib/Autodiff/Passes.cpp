//===- Passes.cpp - Anchors the Autodiff room until it has a pass --------------------===//
#include "pc/Autodiff/Passes.h"
