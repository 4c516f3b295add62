//===- StageCalls.cpp - The calls to other ranks in a stage's step --------===//
// Only the order of the stages' times matters, and a bad estimate only costs time. So products and attentions take
// their operations on an H100, and other calls take a constant time.
//===----------------------------------------------------------------------===//
#include "cuda/StageCalls.h"
#include "base/Failure.h"
#include "comm/Moves.h"

#include <algorithm>
#include <map>

using namespace pcrt;

namespace {

constexpr double operationsPerNanosecond = 4e5, bytesPerNanosecond = 80;
constexpr int64_t shortCall = 5000; // nanoseconds

/// The flows of all stages.
struct AllFlows {
  std::vector<MessageFlow> flows;
  std::map<std::tuple<int, int, int>, int> numbers; ///< By source, target and id.

  explicit AllFlows(const Program &program) {
    for (const Program *stage : program.stages)
      for (int i = 0; i < stage->abi.num_flows; ++i)
        if (const pcrt_flow &flow = stage->abi.flows[i]; flow.sends) {
          numbers[{stage->stage, flow.stage, flow.id}] = int(flows.size());
          flows.push_back({stage->stage, flow.stage, flow.slots, int64_t(double(flow.bytes) / bytesPerNanosecond)});
        }
  }
  int numberOf(const Program &stage, int index) const {
    const pcrt_flow &flow = stage.abi.flows[index];
    return flow.sends ? numbers.at({stage.stage, flow.stage, flow.id}) : numbers.at({flow.stage, stage.stage, flow.id});
  }
};

/// Notes the calls of one stage. It does nothing else.
class CallRecorder final : public Device {
public:
  CallRecorder(const Program &stage, const AllFlows &flows) : stage(stage), flows(flows) {}
  std::vector<StageCall> calls;

  void prepare(pcrt_context &) override {}
  void write(int64_t, const void *, int64_t) override {}
  void read(void *, int64_t, int64_t) override {}
  char *input(int64_t, int) override { return nullptr; }
  pcrt_status begin(pcrt_context &, int64_t) override { return PCRT_OK; }
  pcrt_status finish(pcrt_context &) override { return PCRT_OK; }
  pcrt_status evaluate(pcrt_context &, int64_t) override { return PCRT_OK; }
  pcrt_status endRound(pcrt_context &) override { return PCRT_OK; }
  pcrt_status wait(pcrt_context &, int) override { return PCRT_OK; }
  pcrt_status task(pcrt_context &, int, int, int) override { return PCRT_OK; }
  pcrt_status observe(pcrt_context &, int, int64_t, void *) override { return PCRT_OK; }
  pcrt_status blockOffset(pcrt_context &, int, int64_t, int32_t *) override { return PCRT_OK; }

  pcrt_status launch(pcrt_context &, int, void *const *) override { return compute(0); }
  pcrt_status gemm(pcrt_context &, int index, const void *, const void *, void *, const void *, void *) override {
    const pcrt_gemm_desc &gemm = stage.abi.gemms[index];
    return compute(2.0 * double(gemm.batch) * double(gemm.m) * double(gemm.n) * double(gemm.k));
  }
  pcrt_status attention(pcrt_context &, int index, void *const *) override {
    const pcrt_attention_desc &desc = stage.abi.attentions[index];
    return compute((desc.backward ? 10.0 : 4.0) / (desc.causal ? 2 : 1) * double(desc.batch) * double(desc.q_heads) *
                   double(desc.q_length) * double(desc.kv_length) * double(desc.head_dim));
  }
  pcrt_status move(pcrt_context &context, int index, const void *in, void *out) override {
    return start(context, index, 1, &in, &out, 0);
  }
  pcrt_status start(pcrt_context &context, int first, int count, const void *const *, void *const *, int) override {
    for (int i = first; i < first + count; ++i) {
      const pcrt_move_desc &desc = stage.abi.moves[i];
      if (desc.kind == PCRT_CARRY || isLocalMove(desc, context.groups[desc.group]))
        continue;
      const pcrt_group &group = stage.abi.groups[desc.group];
      bool meets = std::find(group.axes, group.axes + group.num_axes, stage.stageAxis) != group.axes + group.num_axes;
      return add(meets ? StageCall::Meeting : StageCall::Move, desc.group);
    }
    return compute(0);
  }
  pcrt_status send(pcrt_context &, int flow, const void *) override {
    return add(StageCall::Send, flows.numberOf(stage, flow));
  }
  pcrt_status receive(pcrt_context &, int flow, void *) override {
    return add(StageCall::Read, flows.numberOf(stage, flow));
  }

private:
  pcrt_status compute(double operations) {
    work += shortCall + int64_t(operations / operationsPerNanosecond);
    return PCRT_OK;
  }
  pcrt_status add(StageCall::Kind kind, int number) {
    calls.push_back({kind, number, work});
    work = 0;
    return PCRT_OK;
  }

  const Program &stage;
  const AllFlows &flows;
  int64_t work = 0;
};

} // namespace

std::vector<PlacedReceive> pcrt::cuda::placeReceives(const pcrt_context &context,
                                                     decltype(pcrt_program::step) pcrt_program::*function) {
  const Program &program = context.program;
  const AllFlows flows(program);
  std::vector<std::vector<StageCall>> stages;
  for (const Program *stage : program.stages) {
    pcrt_context noting(*stage, context.comm);
    CallRecorder recorder(*stage, flows);
    noting.device = &recorder;
    if (pcrt_status status = (stage->abi.*function)(&noting, nullptr); status != PCRT_OK)
      fail(status, noting.error);
    stages.push_back(std::move(recorder.calls));
  }
  std::vector<std::vector<PlacedReceive>> receives = pcrt::placeReceives(stages, flows.flows);
  if (std::string problem = checkReceives(stages, flows.flows, receives); !problem.empty())
    fail(PCRT_INTERNAL, "the order of the pipeline's messages is wrong: " + problem + "; this is a bug of the runtime");
  std::vector<PlacedReceive> own = std::move(receives[program.stage]);
  for (PlacedReceive &receive : own) // as this rank's program numbers its flows
    for (int i = 0; i < program.abi.num_flows; ++i)
      if (!program.abi.flows[i].sends && flows.numberOf(program, i) == receive.flow) {
        receive.flow = i;
        break;
      }
  return own;
}
