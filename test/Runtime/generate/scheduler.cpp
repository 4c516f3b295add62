//===- scheduler.cpp - Answers do not depend on other requests ------------===//
// usage: generate-scheduler DIRECTORY INPUTS   (neither is used)
// Requests that come and go at random get the same tokens and bits as each of them alone, on programs of all shapes.
//===----------------------------------------------------------------------===//
#include "FakeModel.h"
#include "base/Failure.h"

#include <algorithm>
#include <deque>
#include <map>
#include <random>

using namespace pcrt;

namespace {

struct Result {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  FinishReason reason = FinishReason::None;
  int lastStep = 0; ///< The step that gave the last token.
};

using Random = std::mt19937;
int draw(Random &random, int least, int most) { return std::uniform_int_distribution<int>(least, most)(random); }

struct Case {
  GenerationShape shape;
  std::vector<int32_t> endTokens;
};

Case randomCase(Random &random) {
  Case one;
  GenerationShape &shape = one.shape;
  shape.groups = draw(random, 1, 3), shape.turns = draw(random, 1, 3), shape.slots = draw(random, 1, 5);
  shape.context = draw(random, 8, 60), shape.vocabulary = draw(random, 20, 200);
  shape.size = shape.slots + draw(random, 0, 3), shape.chunk = draw(random, 0, 2) ? draw(random, 1, 20) : 0;
  for (int count = draw(random, 0, 3); count > 0; --count)
    one.endTokens.push_back(draw(random, 0, shape.vocabulary - 1));
  return one;
}

GenerationRequest randomRequest(Random &random, const GenerationShape &shape) {
  GenerationRequest request;
  request.prompt.resize(size_t(draw(random, 1, shape.context - 1)));
  for (int32_t &token : request.prompt)
    token = draw(random, 0, shape.vocabulary - 1);
  int room = shape.context - int(request.prompt.size());
  request.maxTokens = draw(random, 0, 3) ? draw(random, 1, std::min(room, 12)) : room;
  request.sampling = {draw(random, 0, 1) ? 0.0f : 0.7f, draw(random, 0, 5), 1, 0.25f * float(draw(random, 0, 2))};
  request.seed = uint64_t(random()) << 32 | random();
  return request;
}

/// Adds the events of a step to the results, by request.
void record(const std::vector<TokenEvent> &events, int step, std::map<uint64_t, Result> &results) {
  for (const TokenEvent &event : events) {
    Result &result = results[event.id];
    CHECK(result.reason == FinishReason::None);
    result.tokens.push_back(event.token), result.logprobs.push_back(event.logprob);
    result.reason = event.reason, result.lastStep = step;
  }
}

Result alone(const Case &one, const GenerationRequest &request) {
  GenerationShape shape = one.shape;
  shape.turns = 1;
  Scheduler scheduler(shape, one.endTokens);
  FakeModel model(shape);
  GenerationStep inputs;
  std::map<uint64_t, Result> results;
  uint64_t id = scheduler.add(request);
  for (int step = 0; scheduler.next(inputs); ++step) {
    model.run(inputs);
    record(scheduler.finish(model.back, model.chunk), step, results);
  }
  return results[id];
}

/// The tokens of a request, without a scheduler.
std::vector<int32_t> expected(const Case &one, const GenerationRequest &request) {
  uint64_t hash = 1;
  for (int32_t token : request.prompt)
    hash = mixed(hash, uint64_t(token));
  std::vector<int32_t> tokens;
  while (int32_t(tokens.size()) < request.maxTokens) {
    tokens.push_back(tokenAfter(hash, request.sampling.temperature, request.seed, one.shape.vocabulary));
    hash = mixed(hash, uint64_t(tokens.back()));
    if (std::count(one.endTokens.begin(), one.endTokens.end(), tokens.back()))
      break;
  }
  return tokens;
}

bool equal(const GenerationInputs &a, const GenerationInputs &b) {
  return a.tokens == b.tokens && a.slots == b.slots && a.positions == b.positions && a.chosen == b.chosen &&
         a.sampling == b.sampling && a.seeds == b.seeds;
}

struct Served {
  std::map<uint64_t, GenerationRequest> requests;
  std::map<uint64_t, bool> cancelled;
  std::map<uint64_t, Result> results;
};

/// Serves requests that come and are cancelled at random, while the steps of several turns are in progress. Two ranks
/// must make the same decisions.
Served serve(const Case &one, Random &random) {
  Scheduler scheduler(one.shape, one.endTokens), other = scheduler;
  FakeModel model(one.shape);
  GenerationStep inputs, otherInputs;
  Served served;
  int left = draw(random, 1, 25), steps = 0, rate = draw(random, 1, 6);
  std::deque<std::pair<GenerationOutputs, GenerationOutputs>> underWay;
  auto end = [&] {
    const auto &[back, prompts] = underWay.front();
    std::vector<TokenEvent> events = scheduler.finish(back, prompts);
    record(events, ++steps, served.results);
    for (const TokenEvent &event : events)
      CHECK(!served.cancelled[event.id]);
    CHECK(other.finish(back, prompts).size() == events.size());
    underWay.pop_front();
  };
  while (true) {
    while (!underWay.empty() && (scheduler.isOpen() || draw(random, 0, 2) == 0))
      end();
    while (left > 0 && draw(random, 0, rate) == 0) {
      GenerationRequest request = randomRequest(random, one.shape);
      uint64_t id = scheduler.add(request);
      CHECK(other.add(request) == id);
      served.requests[id] = request, --left;
    }
    bool goesOn = scheduler.next(inputs);
    CHECK(other.next(otherInputs) == goesOn);
    if (!served.requests.empty() && draw(random, 0, 9) == 0) { // also cancels a request that is complete
      uint64_t id = uint64_t(draw(random, 1, int(served.requests.size())));
      bool had = scheduler.cancel(id);
      CHECK(other.cancel(id) == had &&
            had == (!served.cancelled[id] && served.results[id].reason == FinishReason::None));
      served.cancelled[id] |= had;
    }
    if (!goesOn && left == 0 && underWay.empty() && scheduler.waiting() + scheduler.running() == 0)
      break;
    if (!goesOn)
      continue;
    CHECK(equal(inputs.back, otherInputs.back) && equal(inputs.prompts, otherInputs.prompts));
    model.run(inputs);
    underWay.push_back({model.back, model.chunk});
    require(steps < 100000, "a schedule ends");
  }
  CHECK(scheduler.waiting() == 0 && scheduler.running() == 0);
  return served;
}

void testSchedules() {
  int compared = 0;
  for (unsigned seed = 0; seed < 400; ++seed) {
    Random random(seed);
    Case one = randomCase(random);
    Served served = serve(one, random);
    int before = failures;
    for (const auto &[id, request] : served.requests) {
      Result result = served.results[id], single = alone(one, request);
      CHECK(single.tokens == expected(one, request));
      if (served.cancelled[id]) {
        CHECK(result.tokens.size() <= single.tokens.size());
        single.tokens.resize(result.tokens.size()), single.logprobs.resize(result.tokens.size());
      } else {
        CHECK(result.reason == single.reason && result.reason != FinishReason::None);
      }
      CHECK(result.tokens == single.tokens);
      CHECK(result.logprobs == single.logprobs); // the same bits
      ++compared;
    }
    if (failures > before)
      fprintf(stderr, "in schedule %u\n", seed);
  }
  CHECK(compared > 3000);
}

/// A request whose prompt has `prompt` tokens.
GenerationRequest plain(int prompt, int tokens) { return {std::vector<int32_t>(size_t(prompt), 1), tokens, {}, 5}; }

/// Requests are served in the order in which they come. While prompts are read, other answers continue.
void testOrder() {
  GenerationShape shape{.groups = 1, .slots = 2, .context = 100, .vocabulary = 50, .size = 2, .chunk = 8};
  Scheduler scheduler(shape, {});
  FakeModel model(shape);
  GenerationStep inputs;
  std::map<uint64_t, Result> results;
  for (int i = 0; i < 4; ++i)
    scheduler.add(plain(i == 1 ? 60 : 3, 5));
  std::string kinds;
  for (int step = 0; scheduler.next(inputs); ++step) {
    model.run(inputs);
    kinds += inputs.hasBack && inputs.hasPrompts ? 'b' : inputs.hasPrompts ? 'P' : 'd';
    record(scheduler.finish(model.back, model.chunk), step, results);
  }
  CHECK(kinds.substr(0, 5) == "Pbbbb"); // the second prompt is long; meanwhile the first request gets tokens
  CHECK(results[1].lastStep < results[3].lastStep && results[3].lastStep < results[4].lastStep);
}

void testRefusals() {
  GenerationShape shape{.groups = 2, .slots = 3, .context = 10, .vocabulary = 50, .size = 4};
  Scheduler scheduler(shape, {});
  auto refusal = [&](GenerationRequest request) {
    std::optional<Refusal> why = shape.refusal(request);
    try {
      scheduler.add(request);
      CHECK(!why);
    } catch (const Failure &failure) {
      CHECK(why && failure.status == PCRT_BAD_DATA);
    }
    return why ? why->field + ": " + why->reason : "";
  };
  CHECK(refusal(plain(9, 1)).empty());
  CHECK(refusal(plain(0, 1)) == "prompt: the prompt has no tokens");
  CHECK(refusal(plain(9, 2)) ==
        "max_tokens: the prompt has 9 tokens, and with 2 new ones it is longer than the context of 10");
  CHECK(refusal(plain(10, 1)).starts_with("prompt: the prompt has 10 tokens"));
  CHECK(refusal(plain(5, 0)) == "max_tokens: an answer must have at least 1 token, not 0");
  CHECK(refusal(plain(1, INT32_MAX)).starts_with("max_tokens: "));
  for (int32_t token : {-1, 50})
    CHECK(refusal({{1, token}, 1, {}, 0}) ==
          "prompt: token " + std::to_string(token) + " is not in the vocabulary of 50");
  CHECK(!scheduler.cancel(0) && !scheduler.cancel(77) && scheduler.cancel(1) && !scheduler.cancel(1));
  for (auto [size, chunk] : {std::pair(2, 0), {0, 8}, {4, -1}}) {
    shape.size = size, shape.chunk = chunk;
    try {
      Scheduler wrong(shape, {});
      expect(false, "sizes are refused");
    } catch (const Failure &failure) {
      CHECK(failure.status == PCRT_USAGE);
    }
  }
}

/// Logits that are not finite end their request only.
void testNotFinite() {
  GenerationShape shape{.groups = 1, .slots = 3, .context = 10, .vocabulary = 50, .size = 4};
  Scheduler scheduler(shape, {7});
  GenerationStep inputs;
  GenerationOutputs made, none;
  for (int i = 0; i < 3; ++i)
    scheduler.add(plain(1, 4));
  scheduler.next(inputs);
  made = {{-3, 5, 6}, {-1, NAN, -1}};
  std::vector<TokenEvent> events = scheduler.finish(made, none);
  CHECK(events.size() == 3 && events[0].reason == FinishReason::NotFinite &&
        events[1].reason == FinishReason::NotFinite && events[2].reason == FinishReason::None);
  CHECK(scheduler.running() == 1);
  scheduler.next(inputs);
  made = {{7, 7, 7}, {0, 0, 0}};
  events = scheduler.finish(made, none);
  CHECK(events.size() == 1 && events[0].id == 3 && events[0].reason == FinishReason::Stop);
}

} // namespace

int main() {
  testOrder();
  testRefusals();
  testNotFinite();
  testSchedules();
  return finishChecks();
}
