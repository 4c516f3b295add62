//===- mutants.h - Random problems and programs with one defect -----------===//
// The generators of test/Pipeline: problems for schedules, and programs that a verifier must refuse.
//===----------------------------------------------------------------------===//
#ifndef PC_TEST_PIPELINE_MUTANTS_H
#define PC_TEST_PIPELINE_MUTANTS_H

#include "pc/Pipeline/Program.h"

#include <random>
#include <set>

namespace pc::pipeline {

using Random = std::mt19937;

/// A random problem: any chunk map, costs with zeros, recomputation, uneven memory, a limit that holds at least one
/// microbatch.
Problem randomProblem(Random &random);

/// Adds the collectives of other axes: a reduction inside every task's stage, the tied embedding's sum, and the norm
/// and the loss over all ranks.
void addCollectives(const Problem &problem, Program &program);

/// A program with one defect, and the kinds of fault that name it. `problem` may change (its limit). mutate returns
/// false if the defect does not apply.
struct Mutant {
  std::string name;
  Program program;
  std::set<std::string> kinds;
};
constexpr int numMutations = 15;
bool mutate(Problem &problem, const Order &order, const Program &program, int mutation, Random &random, Mutant &out);

} // namespace pc::pipeline

#endif
