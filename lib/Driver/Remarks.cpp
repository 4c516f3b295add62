//===- Remarks.cpp - Remarks about a plan for users ---------------------------------------------===//
// Remarks never change a plan. They only point out facts in the report that a user may want to act on.
//===--------------------------------------------------------------------------------------------===//
#include "Remarks.h"

#include "llvm/Support/FormatVariadic.h"

using namespace pc;
namespace json = llvm::json;

/// Bytes that the fullest rank sends over `axis` in a step.
static int64_t sentOver(const json::Object &report, llvm::StringRef axis) {
  int64_t most = 0;
  for (const json::Value &rank : *report.getArray("per_rank")) {
    int64_t sent = 0;
    for (const json::Value &row : *rank.getAsObject()->getArray("traffic"))
      if (row.getAsObject()->getString("axis") == axis)
        sent += *row.getAsObject()->getInteger("wire_bytes");
    most = std::max(most, sent);
  }
  return most;
}

/// Adds a remark that states are rounded, with the bytes of the rank that has the most.
static void addStates(const json::Object &report, json::Array &remarks) {
  int64_t tensors = 0, bytes = 0;
  for (const json::Value &rank : *report.getArray("per_rank"))
    if (const json::Object *states = rank.getAsObject()->getObject("states")) {
      const json::Object &codes = *states->getObject("bits_8");
      tensors = std::max(tensors, codes.getInteger("tensors").value_or(0));
      bytes = std::max(bytes, codes.getInteger("bytes").value_or(0) + codes.getInteger("scale_bytes").value_or(0));
    }
  if (tensors)
    remarks.push_back(
        llvm::formatv("{0} states of the optimizer are stored in 8 bits, in {1} bytes per rank; every step "
                      "rounds them, on all plans in the same way",
                      tensors, bytes)
            .str());
}

/// Says which values are rounded: matrices, operands of products, and gradients, by the rank with most of them.
static void addLossy(const json::Object &report, const Plan &plan, json::Array &remarks) {
  auto most = [&](llvm::StringRef what, llvm::StringRef field) {
    int64_t most = 0;
    for (const json::Value &rank : *report.getArray("per_rank")) {
      int64_t own = 0;
      if (const json::Array *rows = rank.getAsObject()->getArray("lossy"))
        for (const json::Value &row : *rows)
          if (row.getAsObject()->getString("what") == what)
            own += row.getAsObject()->getInteger(field).value_or(0);
      most = std::max(most, own);
    }
    return most;
  };
  if (auto code = plan.find<CodeGradientsTactic>()) {
    const int64_t sums = most("gradients", "count");
    remarks.push_back(
        sums ? llvm::formatv("{0} sums of gradients per step are sent in {1} bits, {2} bytes from each rank; each rank "
                             "rounds its addends",
                             sums, code->bits(), most("gradients", "wire_bytes"))
                   .str()
             : llvm::formatv("--gradient-precision=int{0} changes nothing, because ranks add no gradients of large "
                             "matrices whose parts have whole blocks",
                             code->bits())
                   .str());
  }
  for (auto [what, text] : {std::pair("weights", "matrices are read in 8 bits"),
                            std::pair("operands", "operands of products are floats of 8 bits")})
    if (int64_t tensors = most(what, "tensors"))
      remarks.push_back(
          llvm::formatv("{0} {1}; every step rounds them, on all plans in the same way", tensors, text).str());
  if (int64_t decoded = most("operands", "decoded"))
    remarks.push_back(
        llvm::formatv("{0} operands of products are decoded to bf16, which takes longer than "
                      "--precision=bf16; with --arch=sm_90a, products multiply floats of 8 bits if dims are multiples "
                      "of 128, or of 16 with one scale per operand",
                      decoded)
            .str());
}

json::Array pc::remarksOn(const json::Value &report, const Plan &plan) {
  json::Array remarks;
  addStates(*report.getAsObject(), remarks);
  addLossy(*report.getAsObject(), plan, remarks);
  if (!plan.pipeline() || plan.microbatches < 2)
    return remarks;
  for (const Tactic &tactic : plan.tactics) {
    auto zero = tactic.as<ZeroTactic>();
    if (!zero || zero->stage() < 2)
      continue;
    std::string what = zero->stage() == 3 && tactic.option("keep") != "*"
                           ? "gathers a stage's parameters for each forward and backward pass of each "
                             "microbatch and reduces its gradients after each"
                           : "reduces a stage's gradients after every microbatch";
    remarks.push_back(
        llvm::formatv(
            "ZeRO-{0} with a pipeline {1}: {2} microbatches send {3} bytes per step over '{4}' from each rank. ZeRO "
            "stage 1 sends gradients and parameters once per step, and is the usual choice if it fits in memory.",
            zero->stage(), what, plan.microbatches, sentOver(*report.getAsObject(), zero->axis()), zero->axis())
            .str());
  }
  return remarks;
}

llvm::SmallVector<std::string, 2> pc::memoryWarnings(int64_t bytes, int64_t hostBytes, const MachineModel &machine) {
  llvm::SmallVector<std::string, 2> warnings;
  auto warn = [&](int64_t needed, double memory, const char *text) {
    auto bytes = static_cast<double>(needed);
    if (memory > 0 && bytes > memory)
      warnings.push_back(llvm::formatv(text, bytes / 1e9, machine.name, machine.device, memory / 1e9).str());
  };
  warn(hostBytes, machine.hostBytes,
       "a rank keeps {0:f1} GB on its host, but a host of {1} ({2}) has {3:f1} GB per device; keep values on disk "
       "(--offload=KIND:disk), or use more ranks");
  warn(bytes, machine.memoryBytes,
       "a rank needs {0:f1} GB, but a device of {1} ({2}) has {3:f1} GB; split more (ZeRO, tensor parallelism, "
       "pipeline stages), use more microbatches, or recompute (--recompute=auto --memory-limit=BYTES)");
  return warnings;
}
