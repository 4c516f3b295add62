//===- Scheduler.h - Which tokens a step of generation reads --------------===//
// A step of a generating program reads tokens for each data group; each token has a slot of the cache and a position in
// it. The scheduler gives every request a slot, feeds its prompt in as many steps as necessary, and then feeds each
// chosen token back. All ranks run a copy of it. Its decisions depend only on the sequence of its calls.
//===----------------------------------------------------------------------===//
#ifndef PCRT_GENERATE_SCHEDULER_H
#define PCRT_GENERATE_SCHEDULER_H

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace pcrt {

/// How a token is chosen from its logits.
struct Sampling {
  float temperature = 0; ///< 0: the token with the largest logit.
  int32_t topK = 0;      ///< 0: off.
  float topP = 1, minP = 0;
};

/// A request: tokens to continue.
struct GenerationRequest {
  std::vector<int32_t> prompt;
  int32_t maxTokens = 16; ///< The number of new tokens, unless an end token comes first.
  Sampling sampling;
  uint64_t seed = 0;
};

/// Why a request is refused: the field, as OpenAI names it, and a sentence.
struct Refusal {
  std::string field, reason;
};

/// The sizes of a generating program. Slot n of turn t is slot t N + n of its group's cache.
struct GenerationShape {
  int32_t groups = 1;     ///< Data groups (D).
  int32_t turns = 1;      ///< Turns, each with its own slots: in a pipeline, that many steps can be in flight.
  int32_t slots = 1;      ///< Slots per group in a turn (N), which is also the number of chosen rows per group.
  int32_t context = 0;    ///< Positions per slot (T).
  int32_t vocabulary = 0; ///< The limit of token ids.
  int32_t size = 1;       ///< Tokens per group in a step (S), at least `slots`.
  int32_t chunk = 0;      ///< More tokens per group in a step, for prompts; 0: prompts use the rows of `size`.

  /// Whether the program can run the request. Any number of threads may ask.
  std::optional<Refusal> refusal(const GenerationRequest &request) const;
};

/// The inputs of a part of a step, row major. A row without a token has slot -1, token 0 and position 0.
struct GenerationInputs {
  std::vector<int32_t> tokens, slots, positions; ///< [D, S]
  /// [D, N]: for each slot, the row from whose logits its next token is chosen; 0 if the step gives it no token.
  std::vector<int32_t> chosen;
  std::vector<float> sampling; ///< [D, N, 4]: temperature, top-k, top-p, min-p.
  std::vector<int32_t> seeds;  ///< [D, N, 3]: the low and the high word of the request's seed, and the position.
};

/// A step: tokens that are fed back, and prompts. Without chunks, prompts are also in `back`.
struct GenerationStep {
  GenerationInputs back, prompts;
  bool hasBack = false, hasPrompts = false; ///< A part that has no tokens need not run.
};

/// The outputs of a part, [D, N]; entries of slots without a chosen row are not read.
struct GenerationOutputs {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
};

/// Why a request is complete.
enum class FinishReason {
  None,      ///< The answer has not ended.
  Stop,      ///< The token is an end token.
  Length,    ///< The request has as many tokens as it asked for.
  NotFinite, ///< The logits were not finite, so there is no token.
};

/// A new token of a request.
struct TokenEvent {
  uint64_t id = 0;
  int32_t token = 0;
  float logprob = 0;
  FinishReason reason = FinishReason::None;
};

/// Gives slots to requests, first come, first served, and plans the steps of the turns in a circle. Every step feeds
/// back the last token of each answer, and as many tokens of prompts as fit, the oldest request first. A program
/// computes a token in the same way in every row of a part, so the bits of an answer do not depend on other requests.
class Scheduler {
public:
  /// Throws PCRT_USAGE if the shape is invalid.
  Scheduler(GenerationShape shape, std::vector<int32_t> endTokens);

  const GenerationShape &shape() const { return program; }

  /// Appends a request and returns its id; ids count from 1. Throws PCRT_BAD_DATA if the shape refuses the request.
  uint64_t add(GenerationRequest request);
  /// Removes a request, and returns whether there was one with this id. The request has no more events.
  bool cancel(uint64_t id);

  /// Whether the next turn waits for its last step to end.
  bool isOpen() const { return !open.empty() && open.front() == turn; }
  /// Plans the step of the turn that comes next, which must not be open, and writes its inputs. Returns whether there
  /// is anything to do.
  bool next(GenerationStep &step);
  /// Ends the oldest step that next() planned, whose parts had these outputs. Returns the new tokens, by group and
  /// slot.
  std::vector<TokenEvent> finish(const GenerationOutputs &back, const GenerationOutputs &prompts);

  size_t waiting() const { return queue.size(); } ///< The number of requests without a slot.
  size_t running() const;                         ///< The number of requests with a slot.

private:
  struct Entry {
    uint64_t id = 0; ///< 0: the slot is free.
    GenerationRequest request;
    int32_t fed = 0;   ///< The number of tokens that are in the cache.
    int32_t given = 0; ///< The number of new tokens, of which `last` is the last one.
    int32_t last = 0;

    bool inPrompt() const { return id && fed < int32_t(request.prompt.size()); }
    bool feedsBack() const { return id && !inPrompt(); }
  };

  void fillSlots();
  /// The number of entries of a turn, and the first entry of a group in the turn that comes next.
  size_t places() const { return size_t(program.groups) * size_t(program.slots); }
  size_t placeOf(int32_t group) const { return size_t(turn) * places() + size_t(group) * size_t(program.slots); }
  /// The slots of a group, in the order in which their requests came.
  std::vector<int32_t> byArrival(int32_t group) const;
  /// Appends the next `count` tokens of a slot to its group's rows of a part.
  void feed(int32_t group, int32_t slot, int32_t count, int32_t &rows, GenerationInputs &inputs);
  /// Which output gives a slot its next token.
  enum class Part : uint8_t { None, Back, Prompts };

  GenerationShape program;
  std::vector<int32_t> endTokens;
  std::deque<Entry> queue;
  std::vector<Entry> entries;   ///< [turns, D, N]
  std::vector<uint64_t> giving; ///< [turns, D, N]: the request that gets a token in the turn's step, or 0.
  std::vector<Part> from;       ///< [turns, D, N]: by which part.
  uint64_t lastId = 0;
  int32_t turn = 0;                          ///< The next turn.
  std::deque<int32_t> open;                  ///< The turns of steps that have not ended.
  const GenerationInputs *prompts = nullptr; ///< The prompts of the step that is being planned.
};

} // namespace pcrt

#endif // PCRT_GENERATE_SCHEDULER_H
