//===- Requests.cpp - Random requests for a program that generates text ---===//
// Lengths include the shortest and the longest that the context has. Rows of a step without a token have slot -1.
//===----------------------------------------------------------------------===//
#include "Requests.h"

#include "llvm/Support/FormatVariadic.h"
#include <cmath>
#include <numeric>

Requests::Requests(const StepSizes &sizes, uint64_t seed, int64_t count)
    : sizes(sizes), engine(seed * 0x9e3779b97f4a7c15ull + 1), running(size_t(sizes.groups * sizes.slots)) {
  for (int64_t i = 0; i < count; ++i) {
    Request request;
    request.limit = chance(25) ? sizes.context : between(1, sizes.context);
    request.tokens.resize(size_t(chance(20) ? 1 : between(1, request.limit)));
    for (int64_t &token : request.tokens)
      token = between(0, sizes.vocabulary - 1);
    request.arrival = between(0, 2 * count);
    if (chance(40))
      request.sampling = drawSampling();
    requests.push_back(std::move(request));
  }
}

Sampling Requests::drawSampling() {
  Sampling sampling;
  if (!sizes.samples)
    return sampling;
  sampling.temperature = double(between(1, 16)) / 8;
  sampling.seed = engine();
  if (chance(40))
    sampling.k = double(between(1, sizes.vocabulary));
  if (chance(40))
    sampling.p = double(between(1, 15)) / 16;
  if (chance(40))
    sampling.leastShare = double(between(1, 15)) / 16;
  return sampling;
}

/// Cancels some requests, and gives each free slot a waiting request.
void Requests::fillSlots() {
  arrived.clear();
  std::vector<int64_t> order(running.size());
  std::iota(order.begin(), order.end(), 0);
  shuffle(order);
  for (int64_t place : order) {
    Request *&here = running[size_t(place)];
    if (here && here->fed && chance(3))
      here->cancelled = true;
    if (here && here->ended())
      here = nullptr;
    if (here)
      continue;
    for (Request &request : requests)
      if (request.place < 0 && request.arrival <= step) {
        request.place = place;
        here = &request;
        arrived.push_back(place);
        break;
      }
  }
}

std::vector<std::string> Requests::parts() const {
  return sizes.chunk ? std::vector<std::string>{"", ".chunk"} : std::vector<std::string>{""};
}

/// Tokens of the second part come after the tokens of the first part.
bool Requests::next() {
  ++step;
  fillSlots();
  bool anyRow = false;
  for (const std::string &part : parts()) {
    fillPart(part);
    anyRow |= llvm::any_of(chosen[part], [](const Chosen &row) { return row.request; });
  }
  return anyRow || llvm::any_of(requests, [](const Request &request) { return !request.ended(); });
}

/// Writes the inputs of a part.
void Requests::fillPart(llvm::StringRef part) {
  auto make = [&](llvm::StringRef name, llvm::ArrayRef<int64_t> shape, double value) -> pc::Tensor & {
    return inputs[(name + part).str()] = pc::Tensor(shape, value);
  };
  pc::Tensor &tokens = make("tokens", {sizes.groups, sizeOf(part)}, 0);
  for (double &number : tokens.data)
    number = double(between(0, sizes.vocabulary - 1));
  make("slots", {sizes.groups, sizeOf(part)}, -1);
  pc::Tensor &positions = make("positions", {sizes.groups, sizeOf(part)}, 0);
  for (double &number : positions.data)
    number = double(between(0, sizes.context - 1));
  make("chosen", {sizes.groups, sizes.chosen}, 0);
  make("sampling", {sizes.groups, sizes.chosen, 4}, 0);
  make("seeds", {sizes.groups, sizes.chosen, 3}, 0);
  chosen[part].assign(size_t(sizes.groups * sizes.chosen), {});
  for (int64_t group = 0; group < sizes.groups; ++group)
    fillGroup(part, group);
}

/// Feeds a chunk of each sequence, and chooses a token after each sequence whose tokens are all fed. All other rows
/// that choose a token do so after an arbitrary token.
void Requests::fillGroup(llvm::StringRef part, int64_t group) {
  auto in = [&](const char *name) -> pc::Tensor & { return inputs[(name + part).str()]; };
  std::vector<int64_t> rows(size_t(sizeOf(part))), order(size_t(sizes.slots)), choosing(size_t(sizes.chosen));
  std::iota(rows.begin(), rows.end(), group * sizeOf(part));
  std::iota(order.begin(), order.end(), group * sizes.slots);
  std::iota(choosing.begin(), choosing.end(), group * sizes.chosen);
  shuffle(rows);
  shuffle(order);
  shuffle(choosing);
  std::vector<std::pair<int64_t, Request *>> fed; // rows with tokens
  auto choose = [&](int64_t row, Request *request, bool isLast) {
    int64_t at = choosing.back();
    choosing.pop_back();
    Sampling sampling = isLast ? request->sampling : chance(70) ? Sampling() : drawSampling();
    sampling.position = static_cast<int64_t>(in("positions")[row]);
    chosen[part][size_t(at)] = {request, sampling, isLast};
    in("chosen")[at] = double(row - group * sizeOf(part));
    const double settings[] = {sampling.temperature, sampling.k, sampling.p, sampling.leastShare};
    const double words[] = {double(int32_t(sampling.seed)), double(int32_t(sampling.seed >> 32)),
                            double(sampling.position)};
    std::copy_n(settings, 4, &in("sampling")[4 * at]);
    std::copy_n(words, 3, &in("seeds")[3 * at]);
  };
  for (int64_t place : order) {
    Request *request = running[size_t(place)];
    if (!request)
      continue;
    auto ready = static_cast<int64_t>(request->tokens.size()) - request->fed;
    int64_t count = chance(40) ? ready : between(0, ready);
    if (choosing.empty()) // the last token must wait
      count = std::min(count, ready - 1);
    for (; count > 0 && !rows.empty(); --count) {
      int64_t row = rows.back(), position = request->fed++;
      rows.pop_back();
      in("tokens")[row] = double(request->tokens[size_t(position)]);
      in("slots")[row] = double(place % sizes.slots);
      in("positions")[row] = double(position);
      fed.push_back({row, request});
      if (request->fed == static_cast<int64_t>(request->tokens.size()))
        choose(row, request, /*isLast=*/true);
    }
  }
  while (!fed.empty() && !choosing.empty()) {
    auto [row, request] = fed[size_t(between(0, int64_t(fed.size()) - 1))];
    choose(row, request, /*isLast=*/false);
  }
}

const pc::Tensor *Requests::input(llvm::StringRef name) const {
  auto it = inputs.find(name);
  return it == inputs.end() ? nullptr : &it->second;
}

std::string Requests::finish(llvm::StringRef part, const pc::Tensor &tokens, const pc::Tensor &logprobs) {
  for (auto [i, row] : llvm::enumerate(chosen[part])) {
    if (!row.request)
      continue;
    const double token = tokens.data[i], logprob = logprobs.data[i];
    auto wrong = [&](const char *what) {
      return llvm::formatv("in step {0}, slot {1} of group {2} at position {3}: {4}", step,
                           row.request->place % sizes.slots, row.request->place / sizes.slots, row.sampling.position,
                           what)
          .str();
    };
    if (!std::isfinite(logprob))
      return wrong("the logarithmic probability is not finite, so an entry of a cache was read before it was written");
    if (!(token >= 0 && token < double(sizes.vocabulary)) || token != std::floor(token))
      return wrong("the choice is not a token of the vocabulary");
    row.request->choices.push_back({row.sampling, static_cast<int64_t>(token), logprob});
    if (row.isLast && row.request->fed < row.request->limit)
      row.request->tokens.push_back(static_cast<int64_t>(token));
  }
  return "";
}
