//===- Advice.cpp - The best plan of a model for each number of ranks -----===//
// Each rule is one method of Adviser: it derives a number or a mesh, and checks it against plans that the search prices
// with that choice pinned.
//===----------------------------------------------------------------------===//
#include "Advice.h"

#include "pc/Driver/Flags.h"
#include "pc/IR/Layers.h"
#include "pc/Search/CompletePlan.h"
#include "llvm/Support/Format.h"
#include <set>

using namespace mlir;
using namespace pc;

namespace {

template <typename... Args> std::string formatted(const char *form, const Args &...args) {
  std::string text;
  llvm::raw_string_ostream(text) << llvm::format(form, args...);
  return text;
}

/// Makes the advice for one model: searches each number of ranks, then checks the rules. It borrows the model.
class Adviser {
public:
  Adviser(ModuleOp model, const AdviceOptions &asked, Advice &advice) : model(model), asked(asked), advice(advice) {}

  pcrt_status run(std::string &error) {
    CompileOptions options;
    if (pcrt_status status = optionsOf(" auto= ranks=1", options, error))
      return status;
    machine = *MachineModel::find(options.machine, error);
    limit = options.memoryLimitOn(machine);
    if (pcrt_status status = readModel(options))
      return status;
    for (int64_t ranks : asked.ranks) {
      Size size;
      if (pcrt_status status = search(ranks, "", size, error))
        return status;
      if (!size.fits && limit && !options.search.pins.given("offload")) {
        std::string why = size.why; // this reason is clearer than the reason with offload
        if (pcrt_status status = search(ranks, " offload=auto", size, error))
          return status;
        size.why = why;
      }
      advice.sizes.push_back(std::move(size));
    }
    addMemoryRule();
    addTensorRule();
    bool isGiven = options.search.pins.given("mesh") || options.search.pins.given("zero");
    if (isGiven)
      return PCRT_OK;
    if (pcrt_status status = addMeshRule(error))
      return status;
    return addShardingRule(error);
  }

private:
  /// Parses all flags and `more`.
  pcrt_status optionsOf(const std::string &more, CompileOptions &options, std::string &error) const {
    CompileFlags flags;
    llvm::raw_string_ostream errors(error);
    if (failed(flags.parseFromString(asked.flags + more, errors)))
      return PCRT_USAGE;
    return flags.resolve(nullptr, options, error);
  }

  pcrt_status readModel(const CompileOptions &options) {
    if (pcrt_status status = readWork(model, options, advice.work))
      return status;
    std::set<StringRef> ofLayers;
    model.walk([&](ParameterOp parameter) {
      if (StringRef layer = layerOf(parameter.getName()); !layer.empty())
        ofLayers.insert(layer);
      advice.parameters += static_cast<double>(cast<RankedTensorType>(parameter.getValue().getType()).getNumElements());
    });
    layers = static_cast<int64_t>(ofLayers.size());
    model.walk([&](ProgramOp program) {
      advice.model = program.getName().str();
      advice.stepTokens = static_cast<double>(program.getBatch()) * static_cast<double>(program.getSequence());
    });
    advice.machine = machine.name;
    advice.tokens = asked.tokens;
    return PCRT_OK;
  }

  /// Searches the best plan of `ranks`, with `pins`. It is not a failure if there is none.
  pcrt_status search(int64_t ranks, const std::string &pins, Size &size, std::string &error) {
    CompileOptions options;
    std::string more = " auto= ranks=" + std::to_string(ranks) + pins;
    if (pcrt_status status = optionsOf(more, options, error))
      return status;
    options.search.isQuiet = true;
    size.ranks = ranks;
    ScopedDiagnosticHandler quiet(model.getContext(), [&](Diagnostic &diagnostic) {
      if (diagnostic.getSeverity() == DiagnosticSeverity::Error && size.why.empty())
        size.why = diagnostic.str();
      return success();
    });
    pcrt_status status = completePlan(model, Phase::Model, options);
    if (status == PCRT_RESOURCE || status == PCRT_INFEASIBLE)
      return PCRT_OK;
    if (status)
      error = size.why;
    if (status || !options.searched)
      return status;
    const llvm::json::Object &best = *options.searched->getArray("candidates")->front().getAsObject();
    size.fits = true;
    size.plan = best.getString("plan")->str();
    size.seconds = *best.getNumber("step_seconds");
    size.bytes = *best.getInteger("arena_bytes");
    size.gap = *options.searched->getNumber("gap");
    size.offloads = options.plan.find<OffloadTactic>().has_value();
    if (auto tensor = options.plan.find<TensorParallelTactic>())
      for (StringRef axis : (*tensor)->axes())
        size.tensorRanks *= options.plan.sizeOf(axis);
    return PCRT_OK;
  }

  /// Rule: parameters, gradients and states must fit into memory.
  void addMemoryRule() {
    double bytes = 2 * advice.work.parameterBytes + advice.work.frozenBytes + advice.work.stateBytes;
    Rule rule{"Parameters, gradients and optimizer states must fit into memory, in addition to activations",
              formatted("%.0f bytes per parameter, %.3g GB in total", bytes / advice.parameters, bytes / 1e9),
              "",
              {}};
    if (limit == 0) {
      rule.derived += "; the machine's memory is unknown";
    } else {
      double least = std::ceil(bytes / static_cast<double>(limit));
      rule.derived += formatted(", so at least %.0f ranks of %.3g GB", least, static_cast<double>(limit) / 1e9);
      rule.holds = true;
      for (const Size &size : advice.sizes) {
        rule.checked +=
            formatted("%s%lld ranks: %s", rule.checked.empty() ? "" : ", ", static_cast<long long>(size.ranks),
                      size.offloads ? "fits with --offload"
                      : size.fits   ? "fits"
                                    : "does not fit");
        rule.holds = *rule.holds && !(size.fits && !size.offloads && static_cast<double>(size.ranks) < least);
      }
    }
    advice.rules.push_back(std::move(rule));
  }

  /// Rule: the ranks that split a layer's products communicate in each layer, so they are within a node.
  void addTensorRule() {
    if (machine.nodeRanks == 0)
      return;
    Rule rule{"Tensor parallelism stays inside a node",
              formatted("%lld ranks per node, whose links are %.3g times as fast as the links between nodes",
                        static_cast<long long>(machine.nodeRanks), machine.node.bandwidth / machine.network.bandwidth),
              "",
              {}};
    for (const Size &size : advice.sizes) {
      if (!size.fits || size.ranks <= machine.nodeRanks)
        continue;
      rule.holds = rule.holds.value_or(true) && size.tensorRanks <= machine.nodeRanks;
      rule.checked +=
          formatted("%sthe best plan of %lld ranks splits products over %lld", rule.checked.empty() ? "" : ", ",
                    static_cast<long long>(size.ranks), static_cast<long long>(size.tensorRanks));
    }
    advice.rules.push_back(std::move(rule));
  }

  /// The mesh by the rule of thumb, such as "pp=35,dp=8,tp=8": the smallest number of ranks that can hold the model
  /// share it, first the ranks of one node. Empty if there are too few ranks.
  std::string meshByRule(int64_t ranks) const {
    double bytes = 2 * advice.work.parameterBytes + advice.work.frozenBytes + advice.work.stateBytes;
    auto fits = [&](int64_t tensor, int64_t stages) {
      return 2 * bytes <= static_cast<double>(tensor * stages) * static_cast<double>(limit);
    };
    int64_t tensor = 1, stages = 1;
    while (tensor < machine.nodeRanks && !fits(tensor, 1))
      tensor *= 2;
    for (; !fits(tensor, stages) || ranks % (tensor * stages) != 0 || layers % stages != 0; ++stages)
      if (stages >= layers)
        return "";
    std::string mesh = stages > 1 ? "pp=" + std::to_string(stages) + "," : "";
    return mesh + "dp=" + std::to_string(ranks / tensor / stages) + ",tp=" + std::to_string(tensor);
  }

  /// Rule: a model that does not fit a device is split within a node, then over stages; the remaining ranks are data
  /// ranks.
  pcrt_status addMeshRule(std::string &error) {
    if (machine.nodeRanks == 0 || limit == 0 || layers == 0)
      return PCRT_OK;
    Rule rule{"Use tensor parallelism inside a node, then as few pipeline stages as the model needs, and data "
              "parallelism for the rest",
              formatted("half of the memory holds parameters, gradients and states; the model has %lld layers",
                        static_cast<long long>(layers)),
              "",
              {}};
    for (const Size &size : advice.sizes) {
      std::string mesh = size.ranks > machine.nodeRanks ? meshByRule(size.ranks) : "";
      if (mesh.empty())
        continue;
      rule.derived += formatted(", %lld ranks: %s", static_cast<long long>(size.ranks), mesh.c_str());
      Size byRule;
      if (pcrt_status status = search(size.ranks, " mesh=" + mesh, byRule, error))
        return status;
      rule.checked += rule.checked.empty() ? "" : "; ";
      rule.checked += byRule.fits ? formatted("%.4g s per step with %s", byRule.seconds, mesh.c_str())
                                  : mesh + " does not fit or is not possible";
      if (size.fits)
        rule.checked += formatted(", and the best plan %.4g s", size.seconds);
      // The mesh is good if it is at most a tenth slower than the best plan.
      bool isGood = byRule.fits && (!size.fits || byRule.seconds <= 1.1 * size.seconds);
      rule.holds = rule.holds.value_or(true) && isGood;
    }
    if (!rule.checked.empty())
      advice.rules.push_back(std::move(rule));
    return PCRT_OK;
  }

  /// Rule: ZeRO-3 gathers parameters for both passes and sums gradients.
  pcrt_status addShardingRule(std::string &error) {
    if (advice.sizes.empty() || advice.sizes.back().ranks < 2)
      return PCRT_OK;
    const Size &largest = advice.sizes.back();
    bool inNode = machine.nodeRanks == 0 || largest.ranks <= machine.nodeRanks;
    double bandwidth =
        inNode ? machine.node.bandwidth
               : std::min(machine.node.bandwidth, static_cast<double>(machine.nodeRanks) * machine.network.bandwidth);
    auto n = static_cast<double>(largest.ranks);
    double gather = advice.work.sentBytes, sums = gradientBytes() * advice.parameters;
    double moves = (2 * gather + sums) * (n - 1) / n / bandwidth;
    double products = leastProductSeconds(advice.work, machine) / machine.productShare / n;
    Rule rule{
        "ZeRO-3 needs a fast network or a large batch, because it sends all parameters three times per microbatch",
        formatted("sending %.3g GB per rank once takes %.3g s at %.3g GB/s; the matrix products of a step take %.3g s",
                  (2 * gather + sums) * (n - 1) / n / 1e9, moves, bandwidth / 1e9, products),
        "",
        {}};
    Size sharded;
    std::string pins = " mesh=dp=" + std::to_string(largest.ranks) + " zero=3";
    if (pcrt_status status = search(largest.ranks, pins, sharded, error))
      return status;
    if (!sharded.fits) {
      rule.checked = "there is no plan with only ZeRO-3: " + sharded.why;
    } else {
      rule.checked = formatted("a step with only ZeRO-3 takes %.4g s", sharded.seconds);
      if (largest.fits)
        rule.checked += formatted(", and the best plan %.4g s", largest.seconds);
      // The step takes as long as its moves, unless products hide them.
      rule.holds = sharded.seconds >= std::max(moves, products) * 0.98;
    }
    advice.rules.push_back(std::move(rule));
    return PCRT_OK;
  }

  /// The bytes of an element of the gradients when they are summed.
  double gradientBytes() const { return StringRef(asked.flags).contains("gradient-precision=bf16") ? 2 : 4; }

  ModuleOp model;
  const AdviceOptions &asked;
  Advice &advice;
  MachineModel machine;
  int64_t limit = 0, layers = 0;
};

} // namespace

pcrt_status pc::advise(ModuleOp model, const AdviceOptions &options, Advice &advice, std::string &error) {
  return Adviser(model, options, advice).run(error);
}

void Advice::print(llvm::raw_ostream &os) const {
  os << formatted("%s, %.3g parameters, %.4g tokens per step, on %s\n", model.c_str(), parameters, stepTokens,
                  machine.c_str());
  for (const Size &size : sizes) {
    os << formatted("%6lld  ", static_cast<long long>(size.ranks));
    if (!size.fits) {
      os << "no: " << size.why << "\n";
      continue;
    }
    os << formatted("%.4g s per step  %.4g tokens/s  %.4g GiB per rank", size.seconds, tokensPerSecond(size),
                    static_cast<double>(size.bytes) / (1 << 30));
    if (tokens > 0)
      os << formatted("  %.4g rank hours", rankHours(size));
    os << "  " << size.plan << "\n";
  }
  for (const Rule &rule : rules) {
    os << "\n" << rule.rule << ".\n  derived  " << rule.derived << "\n";
    if (!rule.checked.empty())
      os << "  checked  " << rule.checked << (rule.holds ? *rule.holds ? ": holds" : ": does not hold" : "") << "\n";
  }
}

llvm::json::Object Advice::json() const {
  llvm::json::Array ofSizes, ofRules;
  for (const Size &size : sizes) {
    llvm::json::Object object{{"ranks", size.ranks}, {"fits", size.fits}};
    if (!size.fits) {
      object["why"] = size.why;
    } else {
      object["plan"] = size.plan;
      object["step_seconds"] = size.seconds;
      object["arena_bytes"] = size.bytes;
      object["gap"] = size.gap;
      object["tokens_per_second"] = tokensPerSecond(size);
      if (tokens > 0)
        object["rank_hours"] = rankHours(size);
    }
    ofSizes.push_back(std::move(object));
  }
  for (const Rule &rule : rules) {
    llvm::json::Object object{{"rule", rule.rule}, {"derived", rule.derived}, {"checked", rule.checked}};
    if (rule.holds)
      object["holds"] = *rule.holds;
    ofRules.push_back(std::move(object));
  }
  return llvm::json::Object{
      {"model", model},   {"parameters", parameters},    {"step_tokens", stepTokens},  {"machine", machine},
      {"tokens", tokens}, {"sizes", std::move(ofSizes)}, {"rules", std::move(ofRules)}};
}
