//===- Requests.h - Random requests for a program that generates text -----===//
// Feeds requests to the slots of a step in ways that no scheduler would choose: at random times, in chunks of any
// length, tokens in any order and at any rows.
//===----------------------------------------------------------------------===//
#ifndef PC_TOOLS_CHECK_GENERATION_REQUESTS_H
#define PC_TOOLS_CHECK_GENERATION_REQUESTS_H

#include "Choice.h"

#include "pc/Reference/Tensor.h"
#include "llvm/ADT/StringMap.h"
#include <random>
#include <vector>

/// The sizes of a step program.
struct StepSizes {
  int64_t groups = 0, size = 0; ///< the tokens of a step are [groups, size]
  int64_t chunk = 0;            ///< the step has a second part, of [groups, chunk] tokens; 0: no second part
  int64_t slots = 0;            ///< per group
  int64_t chosen = 0;           ///< tokens per group that a part of a step chooses
  int64_t context = 0, vocabulary = 0;
  bool samples = false; ///< there are inputs "sampling" and "seeds"
};

/// A sequence: a prompt, and then tokens that were chosen.
struct Request {
  std::vector<int64_t> tokens;
  int64_t fed = 0;     ///< the number of tokens in the cache
  int64_t limit = 0;   ///< the number of tokens that will be fed
  int64_t arrival = 0; ///< the step in which it comes
  int64_t place = -1;  ///< group * slots + slot while it runs
  bool cancelled = false;
  Sampling sampling;
  std::vector<Choice> choices;

  bool ended() const { return cancelled || fed == limit; }
};

/// The requests and the inputs of the current step. The same seed draws the same on every machine.
class Requests {
public:
  Requests(const StepSizes &sizes, uint64_t seed, int64_t count);

  /// Gives slots to requests and writes the inputs of the next step. Returns false if all requests have ended.
  bool next();
  /// The places (group * slots + slot) that got new requests in this step.
  const std::vector<int64_t> &newPlaces() const { return arrived; }
  /// The input called `name`, or null.
  const pc::Tensor *input(llvm::StringRef name) const;
  /// The suffixes of the names of inputs and outputs, one for each part of a step.
  std::vector<std::string> parts() const;
  /// Takes the tokens and logarithmic probabilities [groups, chosen] that a part chose. Returns what is wrong with one
  /// of them, after which no step can follow, or an empty string.
  std::string finish(llvm::StringRef part, const pc::Tensor &tokens, const pc::Tensor &logprobs);

  const std::vector<Request> &all() const { return requests; }
  int64_t steps() const { return step; }

private:
  /// A row that chooses a token. Only the last token of a sequence gets a successor.
  struct Chosen {
    Request *request;
    Sampling sampling;
    bool isLast;
  };

  int64_t between(int64_t low, int64_t high) { return low + static_cast<int64_t>(engine() % uint64_t(high - low + 1)); }
  bool chance(int percent) { return between(1, 100) <= percent; }
  template <typename T> void shuffle(std::vector<T> &list) {
    for (size_t i = list.size(); i > 1; --i)
      std::swap(list[i - 1], list[size_t(between(0, int64_t(i) - 1))]);
  }
  Sampling drawSampling();
  void fillSlots();
  void fillPart(llvm::StringRef part);
  void fillGroup(llvm::StringRef part, int64_t group);
  int64_t sizeOf(llvm::StringRef part) const { return part.empty() ? sizes.size : sizes.chunk; }

  const StepSizes sizes;
  std::mt19937_64 engine;
  std::vector<Request> requests;
  std::vector<int64_t> arrived;
  std::vector<Request *> running; ///< by place
  /// For each part, one for each group and row that chooses; without a request, it is not read.
  llvm::StringMap<std::vector<Chosen>> chosen;
  llvm::StringMap<pc::Tensor> inputs;
  int64_t step = -1;
};

#endif
