//===- Scheduler.cpp - Which tokens a step of generation reads ------------===//
// See Scheduler.h. Everything here is arithmetic on small tables: there are no threads or clocks, and no order depends
// on addresses.
//===----------------------------------------------------------------------===//
#include "schedule/Scheduler.h"
#include "base/Failure.h"

#include <algorithm>
#include <cmath>

using namespace pcrt;

std::optional<Refusal> GenerationShape::refusal(const GenerationRequest &request) const {
  auto number = [](auto value) { return std::to_string(value); };
  if (request.prompt.empty())
    return Refusal{"prompt", "the prompt has no tokens"};
  for (int32_t token : request.prompt)
    if (token < 0 || token >= vocabulary)
      return Refusal{"prompt", "token " + number(token) + " is not in the vocabulary of " + number(vocabulary)};
  if (request.maxTokens < 1)
    return Refusal{"max_tokens", "an answer must have at least 1 token, not " + number(request.maxTokens)};
  if (int64_t(request.prompt.size()) + request.maxTokens > context)
    return Refusal{request.prompt.size() < size_t(context) ? "max_tokens" : "prompt",
                   "the prompt has " + number(request.prompt.size()) + " tokens, and with " +
                       number(request.maxTokens) + " new ones it is longer than the context of " + number(context)};
  return std::nullopt;
}

Scheduler::Scheduler(GenerationShape shape, std::vector<int32_t> endTokens)
    : program(shape), endTokens(std::move(endTokens)) {
  if (program.groups < 1 || program.turns < 1 || program.slots < 1 || program.context < 1 || program.vocabulary < 1)
    fail(PCRT_USAGE, "a generating program needs a group, a slot, a position and a token");
  if (program.size < program.slots || program.chunk < 0)
    fail(PCRT_USAGE,
         "a step of a generating program must have at least as many tokens as slots, " + std::to_string(program.slots));
  entries.resize(size_t(program.turns) * places());
  giving.resize(entries.size());
  from.resize(entries.size());
}

uint64_t Scheduler::add(GenerationRequest request) {
  if (std::optional<Refusal> refusal = program.refusal(request))
    fail(PCRT_BAD_DATA, refusal->field + ": " + refusal->reason);
  queue.push_back({.id = ++lastId, .request = std::move(request)});
  return lastId;
}

bool Scheduler::cancel(uint64_t id) {
  for (Entry &entry : entries)
    if (id && entry.id == id) {
      entry = {};
      return true;
    }
  return std::erase_if(queue, [&](const Entry &entry) { return entry.id == id; }) > 0;
}

size_t Scheduler::running() const {
  return size_t(std::count_if(entries.begin(), entries.end(), [](const Entry &entry) { return entry.id != 0; }));
}

/// A request gets the first free slot of the turn and group with the most free slots.
void Scheduler::fillSlots() {
  while (!queue.empty()) {
    int32_t most = 0;
    Entry *to = nullptr;
    for (auto group = entries.begin(); group != entries.end(); group += program.slots) {
      auto isFree = [](const Entry &entry) { return entry.id == 0; };
      auto count = int32_t(std::count_if(group, group + program.slots, isFree));
      if (count > most)
        most = count, to = &*std::find_if(group, group + program.slots, isFree);
    }
    if (!to)
      return;
    *to = std::move(queue.front());
    queue.pop_front();
  }
}

std::vector<int32_t> Scheduler::byArrival(int32_t group) const {
  const Entry *first = &entries[placeOf(group)];
  std::vector<int32_t> order;
  for (int32_t slot = 0; slot < program.slots; ++slot)
    if (first[slot].id)
      order.push_back(slot);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return first[a].id < first[b].id; });
  return order;
}

void Scheduler::feed(int32_t group, int32_t slot, int32_t count, int32_t &rows, GenerationInputs &inputs) {
  size_t place = placeOf(group) + slot, here = size_t(group) * program.slots + slot;
  size_t row = inputs.tokens.size() / program.groups * group + rows;
  Entry &entry = entries[place];
  if (count <= 0)
    return;
  for (int32_t i = 0; i < count; ++i, ++row, ++entry.fed) {
    inputs.tokens[row] = entry.inPrompt() ? entry.request.prompt[entry.fed] : entry.last;
    inputs.slots[row] = turn * program.slots + slot;
    inputs.positions[row] = entry.fed;
  }
  rows += count;
  if (entry.inPrompt())
    return;
  giving[place] = entry.id;
  from[place] = &inputs == prompts ? Part::Prompts : Part::Back;
  inputs.chosen[here] = rows - 1;
  const Sampling &how = entry.request.sampling;
  float values[] = {how.temperature, float(how.topK), how.topP, how.minP};
  std::copy_n(values, 4, &inputs.sampling[4 * here]);
  int32_t words[] = {int32_t(uint32_t(entry.request.seed)), int32_t(uint32_t(entry.request.seed >> 32)), entry.fed - 1};
  std::copy_n(words, 3, &inputs.seeds[3 * here]);
}

bool Scheduler::next(GenerationStep &step) {
  if (std::find(open.begin(), open.end(), turn) != open.end())
    fail(PCRT_INTERNAL, "the scheduler was asked for a step before the last one ended");
  fillSlots();
  auto clear = [&](GenerationInputs &inputs, int32_t tokens) {
    size_t rows = size_t(program.groups) * size_t(tokens);
    inputs.tokens.assign(rows, 0);
    inputs.slots.assign(rows, -1);
    inputs.positions.assign(rows, 0);
    inputs.chosen.assign(places(), 0);
    inputs.sampling.assign(4 * places(), 0);
    inputs.seeds.assign(3 * places(), 0);
  };
  clear(step.back, program.size);
  clear(step.prompts, program.chunk);
  prompts = &step.prompts;
  std::fill_n(giving.begin() + ptrdiff_t(placeOf(0)), places(), 0);
  std::fill_n(from.begin() + ptrdiff_t(placeOf(0)), places(), Part::None);
  step.hasBack = step.hasPrompts = false;
  for (int32_t group = 0; group < program.groups; ++group) {
    std::vector<int32_t> order = byArrival(group);
    const Entry *first = &entries[placeOf(group)];
    int32_t back = 0, chunk = 0;
    std::vector<int32_t> inPrompt;
    for (int32_t slot : order)
      if (first[slot].inPrompt())
        inPrompt.push_back(slot);
      else
        feed(group, slot, 1, back, step.back);
    for (int32_t slot : inPrompt) {
      int32_t left = int32_t(first[slot].request.prompt.size()) - first[slot].fed;
      if (program.chunk)
        feed(group, slot, std::min(left, program.chunk - chunk), chunk, step.prompts);
      else
        feed(group, slot, std::min(left, program.size - back), back, step.back);
    }
    step.hasBack |= back > 0;
    step.hasPrompts |= chunk > 0;
  }
  bool any = step.hasBack || step.hasPrompts;
  if (any)
    open.push_back(turn);
  turn = (turn + 1) % program.turns;
  return any;
}

std::vector<TokenEvent> Scheduler::finish(const GenerationOutputs &back, const GenerationOutputs &prompts) {
  if (open.empty())
    fail(PCRT_INTERNAL, "the scheduler got the outputs of a step that it has not planned");
  size_t first = size_t(open.front()) * places();
  open.pop_front();
  std::vector<TokenEvent> events;
  for (size_t here = 0; here < places(); ++here) {
    size_t place = first + here;
    const GenerationOutputs &outputs = from[place] == Part::Prompts ? prompts : back;
    if (giving[place] && (outputs.tokens.size() != places() || outputs.logprobs.size() != places()))
      fail(PCRT_INTERNAL, "the outputs of a step of generation do not match the step");
    Entry &entry = entries[place];
    if (!giving[place] || entry.id != giving[place]) // cancelled meanwhile
      continue;
    TokenEvent event{.id = entry.id, .token = outputs.tokens[here], .logprob = outputs.logprobs[here]};
    entry.last = event.token;
    ++entry.given;
    if (event.token < 0 || event.token >= program.vocabulary || !std::isfinite(event.logprob))
      event.reason = FinishReason::NotFinite;
    else if (std::find(endTokens.begin(), endTokens.end(), event.token) != endTokens.end())
      event.reason = FinishReason::Stop;
    else if (entry.given == entry.request.maxTokens)
      event.reason = FinishReason::Length;
    events.push_back(event);
    if (event.reason != FinishReason::None)
      entry = {};
  }
  return events;
}
