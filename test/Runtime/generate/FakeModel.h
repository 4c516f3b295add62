//===- FakeModel.h - A model without arithmetic ---------------------------===//
// Its cache holds a hash of every token and of those before it, so a token depends on the whole sequence and on nothing
// else. It checks every step. A check fails if the compiled program could not run the step, or if the step would read
// cache entries that no token of the same sequence has written.
//===----------------------------------------------------------------------===//
#ifndef PC_TEST_RUNTIME_GENERATE_FAKEMODEL_H
#define PC_TEST_RUNTIME_GENERATE_FAKEMODEL_H

#include "../../Checks.h"
#include "schedule/Scheduler.h"

#include <cmath>

namespace pcrt {

inline uint64_t mixed(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15 + b + 0x632be59bd9b4e019;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

/// The token that follows a sequence with this hash, chosen with this seed and temperature.
inline int32_t tokenAfter(uint64_t hash, float temperature, uint64_t seed, int32_t vocabulary) {
  return int32_t(mixed(hash, temperature != 0 ? seed : 0) % uint64_t(vocabulary));
}

class FakeModel {
public:
  explicit FakeModel(const GenerationShape &shape)
      : shape(shape), cache(size_t(shape.groups) * shape.turns * shape.slots * shape.context) {}

  /// Runs a step.
  void run(const GenerationStep &step) {
    live = prompts = 0;
    back = run(false, step.back);
    int fedBack = live;
    chunk = shape.chunk ? run(true, step.prompts) : GenerationOutputs();
    CHECK(live > 0 && step.hasBack == (fedBack > 0) && step.hasPrompts == (live > fedBack));
  }

  GenerationOutputs back, chunk;
  int live = 0;    ///< Rows with a token in the last step.
  int prompts = 0; ///< Among these rows, the number of runs that have several rows or begin at position 0.

private:
  /// Runs a part: a token and a logprob for every chosen row. The logprob depends on the bits that real kernels would
  /// give, that is, on the parts that wrote the sequence.
  GenerationOutputs run(bool isChunk, const GenerationInputs &inputs) {
    int32_t rows = isChunk ? shape.chunk : shape.size;
    size_t places = size_t(shape.groups) * shape.slots;
    CHECK(inputs.tokens.size() == size_t(rows) * shape.groups && inputs.slots.size() == inputs.tokens.size() &&
          inputs.positions.size() == inputs.tokens.size());
    CHECK(inputs.chosen.size() == places && inputs.sampling.size() == 4 * places && inputs.seeds.size() == 3 * places);
    GenerationOutputs made{std::vector<int32_t>(places, -7), std::vector<float>(places, NAN)}; // never read
    for (int32_t group = 0; group < shape.groups; ++group) {
      written.assign(size_t(rows), nullptr);
      for (int32_t row = 0; row < rows; ++row)
        feed(group, row, rows, isChunk, inputs);
      for (int32_t slot = 0; slot < shape.slots; ++slot)
        choose(size_t(group) * shape.slots + slot, slot, size_t(group) * rows, rows, inputs, made);
    }
    return made;
  }

  struct Cached {
    uint64_t hash = 0, bits = 0; ///< Hash and bits of the tokens up to this one; 0 if it was never written.
  };
  Cached &at(int32_t group, int32_t slot, int32_t position) {
    return cache[(size_t(group) * shape.turns * shape.slots + slot) * shape.context + position];
  }

  /// Rows of a slot are one run of ascending positions.
  void feed(int32_t group, int32_t row, int32_t rows, bool isChunk, const GenerationInputs &inputs) {
    size_t i = size_t(group) * rows + row;
    int32_t slot = inputs.slots[i], position = inputs.positions[i], token = inputs.tokens[i];
    if (slot == -1) {
      CHECK(position == 0 && token == 0);
      return;
    }
    ++live;
    require(slot >= 0 && slot < shape.turns * shape.slots && position >= 0 && position < shape.context && token >= 0 &&
                token < shape.vocabulary,
            "a slot, a position and a token that exist");
    bool continues = row > 0 && inputs.slots[i - 1] == slot;
    if (continues)
      CHECK(position == inputs.positions[i - 1] + 1);
    for (int32_t other = 0; other < row && !continues; ++other)
      CHECK(inputs.slots[i - row + other] != slot);
    if (!continues)
      prompts += position == 0 || (row + 1 < rows && inputs.slots[i + 1] == slot);
    uint64_t hash = 1, bits = 1;
    if (position > 0) {
      const Cached &before = at(group, slot, position - 1);
      CHECK(before.hash != 0);
      hash = before.hash, bits = before.bits;
    }
    Cached &now = at(group, slot, position);
    now = {mixed(hash, uint64_t(token)), mixed(mixed(bits, uint64_t(token)), isChunk)};
    // A cache entry after this one is older: it must not be read before it is written again.
    if (position + 1 < shape.context)
      at(group, slot, position + 1) = {};
    written[row] = &now;
  }

  void choose(size_t place, int32_t slot, size_t first, int32_t rows, const GenerationInputs &inputs,
              GenerationOutputs &made) {
    int32_t row = inputs.chosen[place];
    require(row >= 0 && row < rows, "a chosen row that exists");
    const float *how = &inputs.sampling[4 * place];
    int32_t ofRow = inputs.slots[first + row];
    if (ofRow < 0 || ofRow % shape.slots != slot) { // the slot gets no token
      CHECK(row == 0 && how[0] == 0 && inputs.seeds[3 * place] == 0);
      return;
    }
    bool isLast = row + 1 == rows || inputs.slots[first + row + 1] != ofRow;
    CHECK(isLast || row == 0);
    uint64_t seed = uint32_t(inputs.seeds[3 * place]) | uint64_t(uint32_t(inputs.seeds[3 * place + 1])) << 32;
    made.tokens[place] = tokenAfter(written[row]->hash, how[0], seed, shape.vocabulary);
    made.logprobs[place] = -float(mixed(written[row]->bits, uint64_t(how[1] + 100 * how[2] + 1000 * how[3])) >> 40);
  }

  GenerationShape shape;
  std::vector<Cached> cache;
  std::vector<const Cached *> written;
};

} // namespace pcrt

#endif // PC_TEST_RUNTIME_GENERATE_FAKEMODEL_H
