//===- Margins.h - Margins of bounds and of composed prices -------------------------------------===//
// Bounds refer to the machine model and are not proved. Each constant was chosen so that no plan of its test has a
// bound above the seconds or bytes of its whole program. The name in parentheses is the test:
// * compose: test/Search/compose.test;
// * many: compose-many.test, with the file of plans after the colon;
// * spaces: test/EndToEnd/spaces.py;
// * search: the sizes in bench/results/searches.md.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_SEARCH_BOUND_MARGINS_H
#define PC_LIB_SEARCH_BOUND_MARGINS_H

#include <cstdint>

namespace pc::margins {

// Bounds on seconds. Most are a share of the seconds of cores and tasks.

/// A forward pass is at least this share of a stage's work. The least share is that of a stage of only attention, with
/// recomputation (many: found).
constexpr double leastForward = 0.2;
/// Recomputation is at most this share of a stage's work: it repeats the forward pass, and the backward pass takes at
/// least as long (many: found).
constexpr double mostRecomputed = 1.0 / 3;
/// On several ranks, recomputation also repeats moves. So its share of the work is at most this many times its share on
/// one rank (many: found).
constexpr double recomputed = 1.5;
/// Parameters that no axis divides are sent as a whole, or not at all (many: waits).
constexpr double sentParameters = 0.9;
/// Moves of each microbatch overlap better in many layers than in the few layers of a core (many: plans).
constexpr double coreWithData = 0.85;
/// Moves at the end of a task overlap with the next task, but not in a core of one microbatch (compose: stages).
constexpr double pipeline = 0.985;
/// Forward passes of a stage may be a smaller share than those of a whole step (compose: twelve).
constexpr double forwardOfStage = 0.95;
/// The cores of one mesh differ in recomputation, and in the work with which moves overlap (5055 plans of Llama 405B;
/// search).
constexpr double otherCore = 0.98;
/// Tasks that are functions take as long in the whole pipeline as in one of two stages (many: waits).
constexpr double calledTasks = 0.995;
/// In tasks of many layers, moves of each microbatch overlap differently than in tasks of one or two (many: plans).
constexpr double calledTasksWithData = 0.97;
/// Moves of a task that is written out continue during the next task (many: waits).
constexpr double writtenTasks = 0.95;
/// Tasks certainly are functions if their layers have this many times as many ops as are inlined (many: waits).
constexpr double callsTasks = 1.1;

// Bounds on bytes.

/// Stages get different numbers of layers, and no axis divides some of the parameters (compose, many: plans).
constexpr double bytes = 0.85;
/// With ZeRO-2 and 3 the numbers differ more, because the ends of the model send more (compose: sums).
constexpr double bytesWithData = 0.75;
/// The bytes that tasks keep if they are functions, in the order of the schedule (many: plans).
constexpr double calledTaskBytes = 0.97;
/// A task that is written out may begin later than a call, and end earlier (many: waits).
constexpr double writtenTaskBytes = 0.85;

// Estimates: only the order of the first plans depends on them (search).

constexpr double waitOfChunks = 0.05;   ///< microbatches per stage, if weights' gradients fill several chunks
constexpr double waitOfStages = 0.25;   ///< microbatches per stage, for stages of one chunk
constexpr double hiddenSums = 0.6;      ///< share of a microbatch in which the backward pass hides sums of gradients
constexpr double likelyTooLarge = 0.85; ///< share of the memory limit; a plan with a higher bound seldom fits
constexpr double alikePlan = 0.03;      ///< share of a plan's seconds that is added to them for each similar plan

// Margins that decide when a search stops.

/// Composed seconds are exact to half of this share. So a plan is not opened if it can be better only by less
/// (compose).
constexpr double composedSeconds = 0.015;
/// A plan that was compiled whole is accepted if no other can be better by more than this share (spaces).
constexpr double acceptedGap = 0.02;
/// Until it has compiled this many programs, a search continues until no other plan can be better at all (spaces).
constexpr int64_t cheapCompositions = 400;
/// Composed bytes may be too high by this share, seldom by more; the whole compile decides (many).
constexpr double composedBytes = 0.02;
/// The best plan probably stays the best if no other can be better by more than this share (search).
constexpr double likelyBest = 0.025;

} // namespace pc::margins

#endif
