//===- CutUnits.cpp - Assigns units to chunks ----------------------------------------------===//
// Input: seconds and bytes of each unit (half a layer, embedding, head), and the stage of every chunk. Result: the
// chunk of every unit. `cost` balances by dynamic programming, minimizing the slowest chunk and then the sum of
// squares, within a budget of memory if one is given; `layers` assigns equal numbers; a list of numbers is used
// directly.
//===-----------------------------------------------------------------------------===//
#include "ChooseSchedule.h"

#include "llvm/ADT/StringExtras.h"
#include <set>

using namespace llvm;
using namespace pc::pipeline;

/// Returns the chunk of every unit, where chunk c has `sizes[c]` units.
static SmallVector<int> ofSizes(ArrayRef<int> sizes) {
  SmallVector<int> chunkOf;
  for (auto [c, size] : enumerate(sizes))
    chunkOf.append(size, static_cast<int>(c));
  return chunkOf;
}

/// The chunk of every unit, from the chunk of every layer (including the embedding and the head).
static SmallVector<int> ofLayers(const Units &units, ArrayRef<int> chunkOfLayer) {
  return map_to_vector(units.layer, [&](int layer) { return chunkOfLayer[layer]; });
}

/// Joins the units of each layer to one unit.
static Units wholeLayers(const Units &units) {
  Units whole;
  size_t n = units.layer.back() + 1;
  whole.names.resize(n);
  for (auto member : {&Units::seconds, &Units::held, &Units::fixed})
    (whole.*member).resize(n);
  for (auto [unit, layer] : enumerate(units.layer)) {
    whole.seconds[layer] += units.seconds[unit];
    whole.held[layer] += units.held[unit];
    whole.fixed[layer] += units.fixed[unit];
  }
  return whole;
}

/// best[c][j]: the lexicographically least (largest chunk, sum of squares) of units 0 .. j-1 in c chunks, none empty.
/// This order is not exact for the second figure, so the largest chunk is minimized first and then limits the second
/// search. Empty if no cut is within the budget.
static SmallVector<int> balance(const Units &units, int chunks, const Budget &budget) {
  size_t n = units.seconds.size();
  auto sums = [&](ArrayRef<double> values) {
    std::vector<double> before(n + 1);
    for (size_t j = 0; j < n; ++j)
      before[j + 1] = before[j] + values[j];
    return before;
  };
  // Sums of the first j units, so that the sum of units i to j - 1 is a difference.
  std::vector<double> before = sums(units.seconds), held = sums(units.held), fixed = sums(units.fixed);
  auto fits = [&](int c, size_t i, size_t j) {
    double times = budget.inFlight.empty() ? 1 : budget.inFlight[c];
    return budget.bytes <= 0 || fixed[j] - fixed[i] + times * (held[j] - held[i]) <= budget.bytes;
  };
  constexpr double infinity = 1e300;
  double bound = infinity;
  std::vector<std::vector<size_t>> from;
  for (bool squares : {false, true}) {
    std::vector<std::vector<double>> best(chunks + 1, std::vector<double>(n + 1, infinity));
    from.assign(chunks + 1, std::vector<size_t>(n + 1));
    best[0][0] = 0;
    for (int c = 1; c <= chunks; ++c)
      for (size_t j = c; j <= n; ++j)
        for (size_t i = c - 1; i < j; ++i) {
          double part = before[j] - before[i];
          // The tolerance is for rounding: the second search must find the first one's result again.
          if (best[c - 1][i] >= infinity || part > bound * (1 + 1e-9) || !fits(c - 1, i, j))
            continue;
          double whole = squares ? best[c - 1][i] + part * part : std::max(best[c - 1][i], part);
          if (whole < best[c][j]) {
            best[c][j] = whole;
            from[c][j] = i;
          }
        }
    bound = best[chunks][n];
    if (bound >= infinity)
      return {};
  }
  // Follows the choices back from the last chunk.
  SmallVector<int> sizes(chunks);
  for (size_t j = n, c = chunks; c > 0; --c) {
    sizes[c - 1] = static_cast<int>(j - from[c][j]);
    j = from[c][j];
  }
  return ofSizes(sizes);
}

/// The seconds of the slowest stage; the stage of every chunk is `stageOf`.
static double slowest(const Units &units, ArrayRef<int> chunkOf, ArrayRef<int> stageOf) {
  std::vector<double> seconds(*std::max_element(stageOf.begin(), stageOf.end()) + 1);
  for (auto [unit, chunk] : enumerate(chunkOf))
    seconds[stageOf[chunk]] += units.seconds[unit];
  return *std::max_element(seconds.begin(), seconds.end());
}

/// Moves ends of chunks, one or two at a time, as long as the slowest stage gets faster. So the other chunks of a stage
/// compensate for a chunk that cannot be small (the head).
static void evenStages(const Units &units, SmallVector<int> &chunkOf, ArrayRef<int> stageOf) {
  auto n = static_cast<int>(chunkOf.size()), chunks = static_cast<int>(stageOf.size());
  // Moves the end of `chunk` by one unit. Returns false if that is impossible.
  auto moved = [&](SmallVector<int> &cut, int chunk, bool onward) {
    auto end = static_cast<int>(upper_bound(cut, chunk) - cut.begin());
    if (onward) {
      if (end + 1 >= n || cut[end + 1] != chunk + 1)
        return false;
      cut[end] = chunk;
    } else {
      if (end < 2 || cut[end - 2] != chunk)
        return false;
      cut[end - 1] = chunk + 1;
    }
    return true;
  };
  double best = slowest(units, chunkOf, stageOf);
  for (bool better = true; better;) {
    better = false;
    SmallVector<int> next = chunkOf;
    auto consider = [&](const SmallVector<int> &cut) {
      // Chooses the best of all neighbours, not the first better one. Each round finds a faster cut, so the loop ends.
      if (double seconds = slowest(units, cut, stageOf); seconds < best * (1 - 1e-9)) {
        best = seconds;
        next = cut;
        better = true;
      }
    };
    for (int a = 0; a + 1 < chunks; ++a)
      for (bool aOnward : {false, true}) {
        SmallVector<int> one = chunkOf;
        if (!moved(one, a, aOnward))
          continue;
        consider(one);
        for (int b = a + 1; b + 1 < chunks; ++b)
          for (bool bOnward : {false, true})
            if (SmallVector<int> two = one; moved(two, b, bOnward))
              consider(two);
      }
    chunkOf = next;
  }
}

/// A layer is cut in half only if this makes the slowest chunk faster by more than this share, because stages of whole
/// layers are easier to understand.
static constexpr double worthHalves = 0.02;

/// The best cut at layers, unless a cut within layers makes the slowest stage faster by more than `worthHalves`.
static SmallVector<int> cutByCost(const Units &units, ArrayRef<int> stageOf, const Budget &budget) {
  auto chunks = static_cast<int>(stageOf.size());
  Units whole = wholeLayers(units);
  SmallVector<int> layers = balance(whole, chunks, budget), halves = balance(units, chunks, budget);
  bool several = std::set<int>(stageOf.begin(), stageOf.end()).size() < stageOf.size();
  if (several && budget.bytes <= 0) {
    evenStages(whole, layers, stageOf);
    evenStages(units, halves, stageOf);
  }
  if (layers.empty())
    return halves;
  layers = ofLayers(units, layers);
  return slowest(units, halves, stageOf) < (1 - worthHalves) * slowest(units, layers, stageOf) ? halves : layers;
}

/// In a list, the first and the last number may be 0: these chunks are only the embedding and only the head.
std::optional<SmallVector<int>> pc::pipeline::cutUnits(const Units &units, ArrayRef<int> stageOf, StringRef stages,
                                                       const Budget &budget, std::string &error) {
  auto chunks = static_cast<int>(stageOf.size());
  std::string pieces = std::to_string(chunks) + " chunks";
  if (stages == "cost") {
    if (units.layers() && chunks <= units.layers() + 2) {
      SmallVector<int> cut = cutByCost(units, stageOf, budget);
      // If no cut is within the budget, the fastest one is returned, and the memory limit is reported later.
      return cut.empty() ? cutByCost(units, stageOf, {}) : cut;
    }
    error = "the model has " + std::to_string(units.layers()) +
            " layers, an embedding and a head, which are too few for " + pieces;
    return std::nullopt;
  }
  // The first and the last chunk also get the ops before and after the layers.
  auto dealt = [&](SmallVector<int> layers) {
    layers.front() += 1;
    layers.back() += 1;
    return ofLayers(units, ofSizes(layers));
  };
  SmallVector<int> layers;
  if (stages == "layers") {
    for (int c = 0; c < chunks; ++c)
      layers.push_back(units.layers() * (c + 1) / chunks - units.layers() * c / chunks);
    if (units.layers() >= chunks)
      return dealt(layers);
    error = "the model has " + std::to_string(units.layers()) + " layers, which are too few for " + pieces;
    return std::nullopt;
  }
  SmallVector<StringRef> parts;
  stages.split(parts, ',');
  int sum = 0;
  for (StringRef part : parts) {
    int number = 0;
    if (part.trim().getAsInteger(10, number) || number < 0) {
      error = "stages '" + stages.str() +
              "' is not a way to divide the layers; expected cost, layers or a list such as 3,5,4";
      return std::nullopt;
    }
    layers.push_back(number);
    sum += number;
  }
  // A chunk without layers must be only the embedding, or only the head.
  bool empty = any_of(ArrayRef(layers).drop_front().drop_back(layers.size() > 1), [](int n) { return n == 0; });
  if (static_cast<int>(layers.size()) == chunks && sum == units.layers() && !empty)
    return dealt(layers);
  error = "stages '" + stages.str() + "' must distribute " + std::to_string(units.layers()) + " layers over " + pieces;
  return std::nullopt;
}
