//===- mutants.cpp - Random problems and programs with one defect ---------===//
// Each mutation has a number that selects its kind of defect: a lost, doubled or moved instruction, a wrong message, or
// a broken limit.
//===----------------------------------------------------------------------===//
#include "mutants.h"

#include <algorithm>

using namespace pc::pipeline;

static double between(Random &random, double low, double high) {
  return std::uniform_real_distribution<double>(low, high)(random);
}
static int below(Random &random, int n) { return std::uniform_int_distribution<int>(0, n - 1)(random); }
static bool chance(Random &random, double p) { return between(random, 0, 1) < p; }

Problem pc::pipeline::randomProblem(Random &random) {
  Problem p;
  p.stages = 1 + below(random, 5);
  int perStage = std::vector<int>{1, 1, 2, 2, 3}[below(random, 5)];
  p.microbatches = 1 + below(random, 9);
  p.stageOf = perStage == 2 && chance(random, 0.5) ? vShape(p.stages) : roundRobin(p.stages, perStage);
  if (chance(random, 0.15))
    std::shuffle(p.stageOf.begin(), p.stageOf.end(), random);
  size_t n = p.stageOf.size();
  auto fill = [&](auto value) {
    std::vector<double> values(n);
    std::generate(values.begin(), values.end(), value);
    return values;
  };
  auto seconds = [&](double zero) {
    return fill([&, zero] { return chance(random, zero) ? 0.0 : chance(random, 0.5) ? 1.0 : between(random, 0.2, 3); });
  };
  p.forward = seconds(0.1);
  p.backward = seconds(0.1);
  p.weight = seconds(0.1);
  p.split = chance(random, 0.6);
  if (chance(random, 0.4))
    p.recompute = seconds(0.4);
  p.hop = fill([&] { return chance(random, 0.5) ? 0.0 : between(random, 0, 1); });
  p.held = fill([&] { return chance(random, 0.5) ? 1.0 : between(random, 0.3, 2); });
  p.heldByRecompute = fill([&] { return between(random, 0, 2); });
  p.releasedByBackward = fill([] { return 0.0; });
  for (size_t c = 0; c < n; ++c)
    if (chance(random, 0.5))
      p.releasedByBackward[c] = 0.4 * p.held[c];
  for (int d = 0; d < p.stages; ++d)
    p.limit.push_back(p.floor(d) * between(random, 1, 1 + p.microbatches) + 1e-6);
  return p;
}

/// Gives every stage of `program` new instructions, which `visit(stage, old index, instruction, out)` appends. An
/// instruction that waited for an old one then waits for the first one that was appended for it.
template <typename F> static void rewrite(Program &program, F visit) {
  for (int d = 0; d < static_cast<int>(program.stages.size()); ++d) {
    std::vector<Instruction> out;
    std::vector<int> place;
    for (size_t i = 0; i < program.stages[d].size(); ++i) {
      Instruction x = program.stages[d][i];
      for (int &after : x.after)
        after = place[after];
      place.push_back(static_cast<int>(out.size()));
      visit(d, static_cast<int>(i), x, out);
    }
    program.stages[d] = std::move(out);
  }
}

void pc::pipeline::addCollectives(const Problem &p, Program &program) {
  int first = p.stageOf.front(), last = p.stageOf.back();
  for (int d = 0; d < p.stages; ++d) {
    program.groups["stage" + std::to_string(d)] = {d};
    program.groups["all"].push_back(d);
  }
  if (first != last)
    program.groups["tie"] = {first, last};
  rewrite(program, [&](int d, int, const Instruction &x, std::vector<Instruction> &out) {
    out.push_back(x);
    if (x.type == Instruction::Compute)
      out.push_back(Instruction::collective("stage" + std::to_string(d), text(x.task)));
  });
  for (int d = 0; d < p.stages; ++d) {
    auto &list = program.stages[d];
    if (first != last && (d == first || d == last))
      list.push_back(Instruction::collective("tie", "sum"));
    list.push_back(Instruction::collective("all", "norm"));
    list.push_back(Instruction::collective("all", "loss"));
  }
}

bool pc::pipeline::mutate(Problem &p, const Order &order, const Program &program, int mutation, Random &random,
                          Mutant &out) {
  static const char *names[numMutations] = {
      "drop receive", "drop send",      "swap sends", "reorder collectives", "drop collective",
      "hoist norm",   "duplicate task", "omit task",  "omit microbatch",     "W before B",
      "B before F",   "wrong stage",    "drop wait",  "drop slot wait",      "less memory"};
  std::string name = names[mutation];
  out = {name, program, {}};
  auto &stages = out.program.stages;
  using Place = std::pair<int, int>;
  auto where = [&](auto condition) {
    std::vector<Place> places;
    for (int d = 0; d < static_cast<int>(stages.size()); ++d)
      for (int i = 0; i < static_cast<int>(stages[d].size()); ++i)
        if (condition(stages[d][i]))
          places.push_back({d, i});
    return places;
  };
  auto pick = [&](const std::vector<Place> &places) -> Place {
    return places[below(random, static_cast<int>(places.size()))];
  };
  auto at = [&](Place place) -> Instruction & { return stages[place.first][place.second]; };
  auto isCompute = [](const Instruction &x) { return x.type == Instruction::Compute; };
  auto transfers = [&](bool send) {
    return where([send](const Instruction &x) { return x.type == Instruction::Transfer && x.parts[0].send == send; });
  };
  auto blank = [](Instruction &x) { x.type = Instruction::Transfer, x.parts.clear(); };
  bool many = p.stages > 1;

  if (name == "drop receive" || name == "drop send") {
    std::vector<Place> places = transfers(name == "drop send");
    if (places.empty())
      return false;
    at(pick(places)).parts.clear();
    out.kinds = {"flow"};
  } else if (name == "swap sends") {
    std::vector<Place> places = transfers(true);
    for (int tries = 0; tries < 20 && !places.empty(); ++tries) {
      Place a = pick(places), b = pick(places);
      if (a != b && at(a).parts[0].flow == at(b).parts[0].flow) {
        std::swap(at(a).parts[0].message, at(b).parts[0].message);
        out.kinds = {"flow"};
        return true;
      }
    }
    return false;
  } else if (name == "reorder collectives" || name == "drop collective" || name == "hoist norm") {
    if (!many)
      return false;
    int d = below(random, p.stages), n = static_cast<int>(stages[d].size());
    if (name == "reorder collectives")
      std::swap(stages[d][n - 1].tag, stages[d][n - 2].tag);
    else if (name == "drop collective")
      blank(stages[d][n - 1]);
    else {
      Instruction norm = stages[d][n - 2];
      stages[d].erase(stages[d].end() - 2);
      for (Instruction &x : stages[d])
        for (int &after : x.after)
          ++after;
      stages[d].insert(stages[d].begin(), norm);
    }
    out.kinds = {name == "hoist norm" ? "deadlock" : "collective"};
  } else if (name == "duplicate task") {
    Place place = pick(where(isCompute));
    stages[place.first].push_back(Instruction::compute(at(place).task));
    out.kinds = {"duplicate"};
  } else if (name == "omit task") {
    blank(at(pick(where(isCompute))));
    out.kinds = {"missing"};
  } else if (name == "omit microbatch") {
    int i = below(random, p.microbatches);
    for (auto &list : stages)
      for (Instruction &x : list)
        if (x.type == Instruction::Compute && x.task.microbatch == i)
          blank(x);
        else
          std::erase_if(x.parts, [i](const Part &part) { return part.message.microbatch == i; });
    out.kinds = {"missing"};
  } else if (name == "W before B" || name == "B before F") {
    TaskKind late = name[0] == 'W' ? TaskKind::Weight : TaskKind::Backward,
             early = name[0] == 'W' ? TaskKind::Backward : TaskKind::Forward;
    std::vector<Place> places = where([&](const Instruction &x) { return isCompute(x) && x.task.kind == late; });
    if (places.empty())
      return false;
    Task &a = at(pick(places)).task;
    Task other{early, a.chunk, a.microbatch};
    Task &b = at(where([&](const Instruction &x) { return isCompute(x) && x.task == other; })[0]).task;
    std::swap(a, b);
    out.kinds = {"order", "input"};
  } else if (name == "wrong stage") {
    Place place = pick(where(isCompute));
    std::vector<int> chunks;
    for (int c = 0; c < p.chunks(); ++c)
      if (p.stageOf[c] != place.first && p.has(at(place).task.kind, c))
        chunks.push_back(c);
    if (chunks.empty())
      return false;
    at(place).task.chunk = chunks[below(random, static_cast<int>(chunks.size()))];
    out.kinds = {"stage"};
  } else if (name == "drop wait" || name == "drop slot wait") {
    bool task = name == "drop wait";
    std::vector<Place> places = where([&](const Instruction &x) {
      return !x.after.empty() && (task ? isCompute(x) : x.type == Instruction::Transfer && !x.parts[0].send);
    });
    if (places.empty())
      return false;
    at(pick(places)).after.clear();
    out.kinds = {task ? "input" : "slot"};
  } else {
    p.limit.clear();
    for (double most : peaks(p, order))
      p.limit.push_back(most - 1e-3);
    out.kinds = {"memory"};
  }
  return true;
}
