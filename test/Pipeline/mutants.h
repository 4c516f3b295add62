//===- mutants.h - Random problems and programs with one defect -----------===//
#ifndef PC_TEST_PIPELINE_MUTANTS_H
#define PC_TEST_PIPELINE_MUTANTS_H

#include "pc/Pipeline/Program.h"

#include <random>
#include <set>

namespace pc::pipeline {

using Random = std::mt19937;

/// Any chunk map, costs with zeros, recomputation, uneven memory, a limit that holds at least one microbatch.
Problem randomProblem(Random &random);

/// Adds what the other axes do: a reduction inside every task's stage, the tied embedding's sum, the norm and the loss
/// over everybody.
void addCollectives(const Problem &problem, Program &program);

/// A program with one defect, and the kinds of fault that name it. `problem` may change (its limit). False where the
/// defect does not apply.
struct Mutant {
  std::string name;
  Program program;
  std::set<std::string> kinds;
};
constexpr int numMutations = 15;
bool mutate(Problem &problem, const Order &order, const Program &program, int mutation, Random &random, Mutant &out);

} // namespace pc::pipeline

#endif
