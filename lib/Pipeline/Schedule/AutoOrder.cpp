//===- AutoOrder.cpp - Searches for the best order -----------------------------------------===//
// Tries many orders: named ones, named ones whose weight gradients are moved, and list schedules with different rules
// and caps. Then tries the best of these again with noise. The result is deterministic.
//===-----------------------------------------------------------------------------===//
#include "ListSchedule.h"

#include <algorithm>
#include <array>
#include <cstdio>

using namespace pc::pipeline;

namespace {

/// Keeps the best order that was offered, by the figure of the goal. Orders that exceed the memory limit count as
/// infinitely slow. An order must be better by more than rounding to replace another one, so that the result is
/// deterministic.
class Portfolio {
public:
  Portfolio(const Problem &problem, Goal goal) : p(problem), goal(goal) {}

  /// Returns the order's figure, or infinity if it does not fit.
  double offer(const std::string &name, std::optional<Order> order) {
    if (!order || !fits(p, *order))
      return infinity;
    std::optional<Measure> figures = measure(p, *order);
    if (!figures)
      return infinity;
    double figure = goal == Goal::Span ? figures->span : figures->cost;
    if (figure < bestFigure - 1e-9) {
      bestFigure = figure;
      best = {name, std::move(*order)};
    }
    return figure;
  }

  /// Tries all named schedules, then list schedules of all rules, and then the best of these again with noise.
  void run() {
    for (const NamedSchedule &schedule : namedSchedules()) {
      std::string name(schedule.name), ignored;
      std::optional<Order> order = schedule.order(p, ignored);
      if (!order)
        continue;
      offer(name, order);
      for (double gap : {1.0, 0.5, 0.0})
        if (p.split) {
          ListRule rule;
          rule.gap = gap;
          rule.fixed = &*order;
          offer(name + ", weight gradients in gaps", listSchedule(p, rule));
        }
    }
    std::vector<ListRule> all = rules();
    std::vector<std::pair<double, size_t>> tried; // figure and number of the rule
    for (size_t i = 0; i < all.size(); ++i)
      tried.push_back({offer("list schedule", listSchedule(p, all[i])), i});
    std::sort(tried.begin(), tried.end());
    std::mt19937 random(0);
    for (int attempt = 0; attempt < 24; ++attempt) {
      ListRule rule = all[tried[attempt % std::min<size_t>(6, tried.size())].second];
      rule.noise = std::array{0.6, 1.2, 2.5}[attempt % 3];
      rule.random = &random;
      offer("list schedule", listSchedule(p, rule));
    }
  }

  AutoOrder best;
  static constexpr double infinity = 1e300;

private:
  /// Returns every combination of a preference, a gap for weight gradients, and one of four caps on microbatches in
  /// flight.
  std::vector<ListRule> rules() const {
    std::vector<std::vector<int>> caps(4);
    for (int d = 0; d < p.stages; ++d) {
      caps[1].push_back(std::min(p.microbatches, p.stages - d));
      caps[2].push_back(std::min(p.microbatches, 2 * (p.stages - d) - 1));
      caps[3].push_back(p.stages);
    }
    std::vector<ListRule> list;
    for (ListRule::Prefer prefer : {ListRule::Backward, ListRule::Forward, ListRule::Alternate})
      for (bool deepest : {true, false})
        for (double gap : p.split ? std::vector{1.0, 0.5} : std::vector{1.0})
          for (const std::vector<int> &cap : caps) {
            ListRule rule;
            rule.prefer = prefer;
            rule.deepestFirst = deepest;
            rule.gap = gap;
            rule.inFlight = cap;
            list.push_back(rule);
          }
    return list;
  }

  const Problem &p;
  Goal goal;
  double bestFigure = infinity;
};

} // namespace

/// Without memory for one microbatch there is no order at all, so this error is checked first.
std::optional<AutoOrder> pc::pipeline::autoOrder(const Problem &problem, Goal goal, std::string &error) {
  for (int d = 0; d < problem.stages && !problem.limit.empty(); ++d)
    if (problem.floor(d) > problem.limit[d] * (1 + 1e-12)) {
      char text[160];
      snprintf(text, sizeof text, "stage %d needs %.6g of memory for one microbatch, but its limit is %.6g", d,
               problem.floor(d), problem.limit[d]);
      error = text;
      return std::nullopt;
    }
  Portfolio portfolio(problem, goal);
  portfolio.run();
  return portfolio.best;
}
