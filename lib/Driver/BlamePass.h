//===- BlamePass.h - Finds the pass that broke a program -------------------------------------===//
// Input: a program whose proof has failed, and the options of its compile. Result: a message that names the first pass
// after which the proof fails.
//===-----------------------------------------------------------------------------------------===//
#ifndef PC_LIB_DRIVER_BLAMEPASS_H
#define PC_LIB_DRIVER_BLAMEPASS_H

#include "pc/Driver/Compile.h"

namespace pc {

class Proof;

/// Names the first pass of `phase` after which the program no longer computes what the first program of `proof`
/// computes. The name is for the message that the proof of the phase failed. Compiles again from the first program of
/// `proof`, with a proof after every pass of the phase. Returns "" if no pass is found.
std::string passThatBroke(const Proof &proof, Phase phase, CompileOptions options);

} // namespace pc

#endif
