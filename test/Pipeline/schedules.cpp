//===- schedules.cpp - Schedules compared with theory, publications and mutants -===//
// Golden orders, closed forms, published bubbles, random problems, and the generated table and reference of docs/.
// Sources are cited at each check.
//===----------------------------------------------------------------------===//
#include "../Checks.h"
#include "mutants.h"
#include "transfers.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>

using namespace pc::pipeline;

static Order named(const Problem &p, std::string_view name) {
  std::string error;
  const NamedSchedule *schedule = findSchedule(name);
  std::optional<Order> order = schedule ? schedule->order(p, error) : std::nullopt;
  require(order.has_value(), error.c_str());
  return *order;
}

static std::string write(const Order &order, bool chunks) {
  std::string all;
  for (size_t d = 0; d < order.size(); ++d) {
    all += d ? " |" : "";
    for (const Task &task : order[d]) {
      std::string word = text(task);
      all += (all.empty() ? "" : " ") + (chunks ? word : word.substr(0, 1) + word.substr(word.find('.') + 1));
    }
  }
  return all;
}

static void goldenOrders() {
  struct Golden {
    const char *name;
    std::vector<int> stageOf;
    int microbatches;
    bool split;
    const char *order;
  };
  const Golden list[] = {
      {"naive", roundRobin(2, 1), 2, false, "F0 B0 F1 B1 | F0 B0 F1 B1"},
      {"gpipe", roundRobin(2, 1), 2, false, "F0 F1 B0 B1 | F0 F1 B0 B1"},
      {"1f1b", roundRobin(3, 1), 4, false,
       "F0 F1 F2 B0 F3 B1 B2 B3 | F0 F1 B0 F2 B1 F3 B2 B3 | F0 B0 F1 B1 F2 B2 F3 B3"},
      {"zb-h1", roundRobin(2, 1), 3, true, "F0 F1 B0 W0 F2 B1 W1 B2 W2 | F0 B0 F1 B1 W0 F2 B2 W1 W2"},
      {"zb-h2", roundRobin(2, 1), 3, true, "F0 F1 F2 B0 W0 B1 W1 B2 W2 | F0 B0 F1 B1 F2 B2 W0 W1 W2"},
      {"interleaved", roundRobin(2, 2), 3, false,
       "F0.0 F0.1 F0.2 F2.0 F2.1 F2.2 B2.0 B2.1 B2.2 B0.0 B0.1 B0.2 | F1.0 F1.1 F1.2 F3.0 B3.0 F3.1 B3.1 F3.2 B3.2 "
       "B1.0 "
       "B1.1 B1.2"},
      {"zb-v", vShape(2), 3, true,
       "F0.0 F0.1 F0.2 F3.0 B3.0 W3.0 F3.1 B3.1 W3.1 B0.0 W0.0 F3.2 B3.2 W3.2 B0.1 W0.1 B0.2 W0.2 | F1.0 F2.0 F1.1 "
       "F2.1 "
       "B2.0 W2.0 F1.2 B1.0 W1.0 F2.2 B2.1 W2.1 B1.1 B2.2 B1.2 W1.1 W2.2 W1.2"},
  };
  int same = 0;
  for (const Golden &golden : list) {
    std::string got = write(named(uniform(golden.microbatches, golden.stageOf, 1, 1, 1, golden.split), golden.name),
                            golden.stageOf.size() > 3 || golden.stageOf.back() == 0);
    if (got == golden.order)
      ++same;
    else
      std::printf("%s is %s\n", golden.name, got.c_str());
  }
  std::printf("golden orders: %d as written down\n", same);
}

/// Idle time and memory for uniform costs and free links. Sources: GPipe (Huang et al., 2019); 1F1B and interleaved
/// (Narayanan et al., 2021, section 2.2); zero bubble (Qi et al., 2023, table 2 and appendix H). `cost - ideal` in
/// seconds, memory in microbatches of one stage.
static void closedForms() {
  int checked = 0, differ = 0;
  const double ratios[][3] = {{1, 1, 1}, {2, 2, 1}, {2, 3, 1}, {1, 1, .5},
                              {2, 1, 1}, {1, 2, 1}, {3, 3, 2}, {1, 1.5, 1.5}};
  for (int p : {1, 2, 3, 4, 6, 8})
    for (int m : std::set<int>{1, 2, p, p + 1, 2 * p - 1, 2 * p, 3 * p, 4 * p + 1})
      for (auto [f, b, w] : ratios) {
        double t = f + b + w;
        auto check = [&, f = f, b = b, w = w](const char *name, std::vector<int> stageOf, bool split, double idle,
                                              double memory) {
          Problem problem = uniform(m, stageOf, f, b, w, split);
          Measure got = *measure(problem, named(problem, name));
          double most =
              *std::max_element(got.memory.begin(), got.memory.end()) * p / static_cast<double>(stageOf.size());
          ++checked;
          if (std::abs(got.cost - got.ideal - idle) > 1e-6 || std::abs(most - memory) > 1e-6) {
            ++differ;
            std::printf("%s p %d m %d: idle %g, not %g; memory %g, not %g\n", name, p, m, got.cost - got.ideal, idle,
                        most, memory);
          }
        };
        std::vector<int> one = roundRobin(p, 1);
        check("naive", one, false, m * (p - 1) * t, 1);
        check("gpipe", one, false, (p - 1) * t, m);
        check("1f1b", one, false, (p - 1) * t, std::min(m, p));
        check("1f1b-eager", one, false, (p - 1) * t, std::min(m, 2 * p - 1));
        for (int v : {2, 3, 4}) {
          std::vector<int> groups = interleavingGroups(p, m);
          int largest = *std::max_element(groups.begin(), groups.end());
          check("interleaved", roundRobin(p, v), false, (p - 1) * t / v + (v - 1) * std::max(0, p - m) * t / v,
                std::min(v * m, 2 * (p - 1) + (v - 1) * largest + 1) / static_cast<double>(v));
        }
        if (m >= p)
          check("zb-h1", one, true, (p - 1) * (b + std::max(0.0, f - w)), p);
        else
          check("zb-h1", one, true, (m + p - 1) * (f + b) + w + (m - 1) * std::max(0.0, w - f) - m * t, m);
        if (m >= 2 * p - 1)
          check("zb-h2", one, true, (p - 1) * std::max({0.0, f + b - 2 * w, b - f}), 2 * p - 1);
        if (m >= 2 * p - 1 && f == b && b == w && p > 1)
          check("zb-v", vShape(p), true, 0, p);
      }
  std::printf("closed forms: %d checked, %d differ\n", checked, differ);
}

/// Checks the claims of every schedule's row: its idle time in closed form, and its microbatches in flight.
static void rows() {
  int checked = 0, differ = 0;
  for (const NamedSchedule &schedule : namedSchedules())
    for (int p : {1, 2, 3, 4, 6, 8})
      for (int m : std::set<int>{1, 2, p, p + 1, 2 * p - 1, 2 * p, 4 * p + 1})
        for (int v : schedule.anyChunks ? std::vector{1, 2, 3} : std::vector{schedule.chunksPerStage})
          for (auto [f, b, w] : {std::array{1.0, 1.0, 1.0}, {2.0, 3.0, 1.0}, {1.0, 1.5, 1.5}, {3.0, 3.0, 2.0}}) {
            Problem problem = uniform(m, schedule.stageOfChunks(p, v), f, b, w, schedule.split);
            Measure got = *measure(problem, named(problem, schedule.name));
            UniformStages stages{double(p), double(m), double(v), f, b, w};
            const ClosedForm *form = schedule.closedForm(stages);
            if (form && (!form->equalTimes || (f == b && b == w && p > 1))) {
              ++checked;
              if (std::abs(got.idleOverIdeal() - form->idleOverIdeal(stages)) > 1e-9) {
                ++differ;
                std::printf("%s p %d m %d v %d: idle over ideal %g, not %g\n", schedule.name.data(), p, m, v,
                            got.idleOverIdeal(), form->idleOverIdeal(stages));
              }
            }
            for (int d = 0; d < p && v == 1 && schedule.inFlight; ++d)
              if (int most = std::min(m, schedule.inFlight(p, d)); ++checked, got.memory[d] > most) {
                ++differ;
                std::printf("%s p %d m %d: %g in flight on %d, not %d\n", schedule.name.data(), p, m, got.memory[d], d,
                            most);
              }
          }
  std::printf("rows of schedules: %d figures checked, %d differ\n", checked, differ);
}

/// A published bubble and the simulated one.
struct Bubble {
  std::string name;
  double published, simulated, tolerance;
};
struct PublishedRow {
  std::string model;
  int p, m, v;
  std::vector<Bubble> bubbles;
};

static std::vector<PublishedRow> readPublished(const char *path) {
  std::vector<PublishedRow> rows;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#' || line.rfind("model", 0) == 0)
      continue;
    std::vector<double> cell;
    std::stringstream cells(line);
    for (std::string word; std::getline(cells, word, ',');)
      cell.push_back(std::atof(word.c_str()));
    PublishedRow row{line.substr(0, line.find(',')),
                     static_cast<int>(cell[5]),
                     static_cast<int>(cell[7]),
                     static_cast<int>(cell[16]),
                     {}};
    auto add = [&](const char *name, std::vector<int> stageOf, bool split, double bubble, double tolerance) {
      Problem problem = uniform(row.m, std::move(stageOf), cell[8], cell[9], cell[10], split, cell[11]);
      row.bubbles.push_back({name, bubble, measure(problem, named(problem, name))->bubble(), tolerance});
    };
    add("1f1b", roundRobin(row.p, 1), false, cell[12], 5e-5);
    add("interleaved", roundRobin(row.p, row.v), false, cell[13], 3.5e-3);
    add("zb-h1", roundRobin(row.p, 1), true, cell[14], 5e-5);
    add("zb-h2", roundRobin(row.p, 1), true, cell[15], 5e-5);
    rows.push_back(std::move(row));
  }
  return rows;
}

static void published(const char *path) {
  std::vector<PublishedRow> rows = readPublished(path);
  int beyond = 0;
  for (const PublishedRow &row : rows)
    for (const Bubble &bubble : row.bubbles)
      if (std::abs(bubble.simulated - bubble.published) > bubble.tolerance) {
        ++beyond;
        std::printf("%s p %d m %d: bubble %.5f, published %.5f\n", bubble.name.c_str(), row.p, row.m, bubble.simulated,
                    bubble.published);
      }
  std::printf("published bubbles: %d rows, %d beyond 5e-5 (1f1b, zb-h1, zb-h2) or 0.0035 (interleaved)\n",
              static_cast<int>(rows.size()), beyond);
}

/// The table of docs/rationale/pipeline.md.
static void table(const char *path) {
  for (const PublishedRow &row : readPublished(path)) {
    std::printf("| %s, p = %d, m = %d |", row.model.c_str(), row.p, row.m);
    for (const Bubble &bubble : row.bubbles)
      std::printf(" %.4f | %.4f |", bubble.published, bubble.simulated);
    std::printf("\n");
  }
}

/// Prints docs/reference/schedules.md without its first lines.
static void reference() {
  std::printf("| schedule | chunks a stage | W apart from B | idle over ideal | where | known from "
              "|\n|---|---|---|---|---|---|\n");
  for (const NamedSchedule &schedule : namedSchedules())
    for (const ClosedForm &form : schedule.idle)
      std::printf("| %s | %d%s | %s | %s | %s | %s |\n", schedule.name.data(), schedule.chunksPerStage,
                  schedule.anyChunks ? ", or any" : "", schedule.split ? "yes" : "no", form.formula.data(),
                  form.needs.data(), form.source.data());
  const int p = 8, m = 32;
  std::printf(
      "\n**Peak activations** depend on the order alone, not on times: the most that stage d = 0 .. p - 1 holds, in "
      "activations of one\nmicrobatch of a stage; p = %d and m = %d.\n\n| schedule | most on stage d | counted, stages "
      "0 to %d | source |\n|---|---|---|---|\n",
      p, m, p - 1);
  for (const NamedSchedule &schedule : namedSchedules()) {
    Problem problem = uniform(m, schedule.stageOfChunks(p), 1, 1, 1, schedule.split);
    std::printf("| %s | %s |", schedule.name.data(), schedule.memory.formula.data());
    for (double memory : peaks(problem, named(problem, schedule.name)))
      std::printf(" %g", memory / schedule.chunksPerStage);
    std::printf(" | %s |\n", schedule.memory.source.data());
  }
}

/// Tests any number of microbatches. The usual grouping deadlocks in 54 of these cases.
static void interleaving() {
  int finish = 0;
  for (int p = 2; p <= 8; ++p)
    for (int v = 2; v <= 4; ++v)
      for (int m = 1; m <= 4 * p; m += std::max(1, 4 * p / 10)) {
        Problem problem = uniform(m, roundRobin(p, v), 1, 1, 1, false);
        finish += simulate(problem, named(problem, "interleaved")).has_value();
      }
  std::printf("interleaving: %d cases finish\n", finish);
}

static void randomProblems() {
  Random random(1);
  int accepted = 0, refused = 0, worse = 0, broken = 0, passed = 0, otherReason = 0, inOneThread = 0, moreSlots = 0;
  for (int n = 0; n < 500; ++n) {
    Problem limited = randomProblem(random), free = limited;
    free.limit.clear();
    std::vector<std::pair<Problem, Order>> orders;
    for (const NamedSchedule &schedule : namedSchedules()) {
      std::string error;
      if (std::optional<Order> order = schedule.order(free, error))
        orders.push_back({free, *order});
    }
    size_t numNamed = orders.size();
    std::string error;
    std::optional<AutoOrder> best = autoOrder(limited, Goal::Span, error);
    if (!best) {
      std::printf("problem %d: auto says %s\n", n, error.c_str());
      ++refused;
      continue;
    }
    double span = measure(limited, best->order)->span;
    for (size_t i = 0; i < numNamed; ++i)
      worse += fits(limited, orders[i].second) && measure(limited, orders[i].second)->span < span - 1e-6;
    orders.push_back({limited, best->order});
    for (auto &[problem, order] : orders) {
      VerifyOptions options;
      options.slots = 1 + static_cast<int>(random() % 3);
      Program program = placeTransfers(problem, order, options.slots);
      addCollectives(problem, program);
      if (std::optional<Fault> fault = verify(problem, program, options)) {
        ++refused;
        std::printf("problem %d refused: %s: %s\n", n, fault->kind.c_str(), fault->text.c_str());
        continue;
      }
      ++accepted;
      Program thread = placeInline(problem, order);
      int slots = slotsFor(problem, thread);
      if (std::optional<Fault> fault = verify(problem, thread, {0, slots}); fault || !slots)
        std::printf("problem %d in one thread with %d slots: %s\n", n, slots, fault ? fault->text.c_str() : "stalls");
      else
        ++inOneThread;
      moreSlots += slots > 2;
      for (int i = 0; i < 3; ++i) {
        Problem changed = problem;
        Mutant mutant;
        if (!mutate(changed, order, program, static_cast<int>(random() % numMutations), random, mutant))
          continue;
        ++broken;
        std::optional<Fault> fault = verify(changed, mutant.program, options);
        if (fault && mutant.kinds.count(fault->kind))
          continue;
        ++(fault ? otherReason : passed);
        std::printf("problem %d, %s: %s\n", n, mutant.name.c_str(),
                    fault ? (fault->kind + ": " + fault->text).c_str() : "accepted");
      }
    }
  }
  std::printf("random problems: 500, %d programs accepted, %d refused, auto worse than a named order in %d\n", accepted,
              refused, worse);
  std::printf("in one thread: %d programs accepted, %d need more than 2 slots\n", inOneThread, moreSlots);
  std::printf("broken programs: %d, %d accepted, %d refused for another reason\n", broken, passed, otherReason);
}

/// With blocking sends right after and receives right before the task, without buffers, 1F1B deadlocks at once. The
/// message must show the circle.
static void rendezvous() {
  Problem p = uniform(4, roundRobin(2, 1), 1, 1, 1, false);
  Order order = named(p, "1f1b");
  Program program = placeInline(p, order);
  std::optional<Fault> fault = verify(p, program, {0, 0});
  std::printf("rendezvous in one thread:\n%s\n", fault ? fault->text.c_str() : "no fault");
}

/// usage: pc-schedules-test TABLE-OF-PUBLISHED-BUBBLES [--table]
///        pc-schedules-test --reference, or --names (and numbers of chunks a stage: 0 any)
int main(int argc, char **argv) {
  std::string_view last = argv[argc - 1];
  if (last == "--reference")
    return reference(), 0;
  if (last == "--table")
    return table(argv[1]), 0;
  if (last == "--names") {
    for (const NamedSchedule &schedule : namedSchedules())
      std::printf("%s %d\n", schedule.name.data(), schedule.anyChunks ? 0 : schedule.chunksPerStage);
    return 0;
  }
  goldenOrders();
  closedForms();
  rows();
  published(argv[1]);
  interleaving();
  randomProblems();
  rendezvous();
}
