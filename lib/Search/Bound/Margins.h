//===- Margins.h - By how much bounds and composed prices are trusted ---------------------------===//
// Bounds hold on the machine model and are no proofs: each of these shares was chosen so that no plan of its test has a
// bound above what its whole program takes. "compose" is test/Search/compose.test, "many" compose-many.test with the
// file of plans in it, "spaces" test/EndToEnd/spaces.py, "search" means only the sizes in bench/results/searches.md.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_SEARCH_BOUND_MARGINS_H
#define PC_LIB_SEARCH_BOUND_MARGINS_H

#include <cstdint>

namespace pc::margins {

// Bounds on seconds: a share of what cores and tasks take.

/// A forward pass is at least this share of a stage's work. The least share is that of attention alone, with
/// recomputation (many: found).
constexpr double leastForward = 0.2;
/// Recomputation is at most this share: it repeats the forward pass, and the backward pass takes at least as long
/// (many: found).
constexpr double mostRecomputed = 1.0 / 3;
/// On several ranks recomputation also repeats moves: its share of the work is at most this many times its share on one
/// rank (many: found).
constexpr double recomputed = 1.5;
/// Parameters that no axis divides are sent as a whole, or not at all (many: waits).
constexpr double sentParameters = 0.9;
/// Moves of each microbatch hide better with many layers than with the few of a core (many: plans).
constexpr double coreWithData = 0.85;
/// Moves at the ends of a task hide behind the next one, which a core of one microbatch cannot show (compose: stages).
constexpr double pipeline = 0.985;
/// Forward passes of a stage may be a smaller share than those of a whole step (compose: twelve).
constexpr double forwardOfStage = 0.95;
/// Recomputation, and what moves hide behind, differ among the cores of one mesh (5055 plans of Llama 405B; search).
constexpr double otherCore = 0.98;
/// Tasks that are functions take as long in the whole pipeline as in one of two stages (many: waits).
constexpr double calledTasks = 0.995;
/// In tasks of many layers, moves of each microbatch hide differently from those in tasks of one and two (many: plans).
constexpr double calledTasksWithData = 0.97;
/// Moves go on past the end of a task that is written out (many: waits).
constexpr double writtenTasks = 0.95;
/// Tasks are functions for sure if only their layers have this many times the ops that are inlined (many: waits).
constexpr double callsTasks = 1.1;

// Bounds on bytes.

/// Stages are dealt out unevenly, and some parameters have no axis that divides them (compose, many: plans).
constexpr double bytes = 0.85;
/// With ZeRO-2 and 3 stages are dealt out less evenly: the ends of the model send more (compose: sums).
constexpr double bytesWithData = 0.75;
/// What tasks that are functions keep, in the order of the schedule (many: plans).
constexpr double calledTaskBytes = 0.97;
/// A task that is written out may begin later than a call, and end earlier (many: waits).
constexpr double writtenTaskBytes = 0.85;

// Guesses: only the order of the first plans depends on them (search).

constexpr double waitOfChunks = 0.05;   ///< of a microbatch for each stage, if weights' gradients fill several chunks
constexpr double waitOfStages = 0.25;   ///< the same for stages of one chunk
constexpr double hiddenSums = 0.6;      ///< of a microbatch: its backward pass, during which gradients are summed
constexpr double likelyTooLarge = 0.85; ///< of the limit: bounds of bytes above it mean that a plan seldom fits
constexpr double alikePlan = 0.03;      ///< by which a plan like an earlier one is put back

// When a search stops.

/// Composed seconds are right to half of this share: no plan need be opened that can be better by less (compose).
constexpr double composedSeconds = 0.015;
/// A plan that was compiled whole is accepted if no other can be better by more than this share (spaces).
constexpr double acceptedGap = 0.02;
/// A search that has compiled no more programs than these continues until no other plan can be better at all (spaces).
constexpr int64_t cheapCompositions = 400;
/// Composed bytes may be too many by this share, seldom by more; the whole compile decides (many).
constexpr double composedBytes = 0.02;
/// The best plan probably stays the best if no other can be better by more than this share (search).
constexpr double likelyBest = 0.025;

} // namespace pc::margins

#endif
