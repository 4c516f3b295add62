//===- Passes.cpp - Anchors the Memory room until it has a pass --------------------===//
#include "pc/Memory/Passes.h"
