//===- Zigzag.cpp - The sequence in an order that balances causal attention ------------------===//
#define GEN_PASS_DEF_ZIGZAG
#include "pc/Shard/Passes.h"

using namespace mlir;
using namespace pc;

namespace {
struct Zigzag : pc::impl::ZigzagBase<Zigzag> {
  using ZigzagBase::ZigzagBase;

  void runOnOperation() override {
    constexpr int64_t mostRanks = 1 << 20;
    if (ranks < 1 || ranks > mostRanks) {
      getOperation().emitError() << "pc-zigzag: ranks is from 1 to " << mostRanks << ", got " << int64_t(ranks);
      return signalPassFailure();
    }
    WalkResult attentions = getOperation().walk([](AttentionOp op) -> WalkResult {
      if (op.getWindow() || op.getBias() || op.hasSinks() || op.getStarts())
        return op.emitError() << "pc-zigzag: attention "
                              << (op.getWindow()  ? "with a sliding window"
                                  : op.getBias()  ? "with a bias"
                                  : op.hasSinks() ? "with sinks"
                                                  : "of documents")
                              << " needs the sequence in its own order; context parallelism of form 'heads' keeps it";
      return WalkResult::advance();
    });
    if (attentions.wasInterrupted())
      return signalPassFailure();
    for (auto program : getOperation().getOps<ProgramOp>()) {
      int64_t length = program.getSequence(), unit = 2 * ranks;
      if (length % unit) {
        InFlightDiagnostic diagnostic =
            program.emitError() << "pc-zigzag: a sequence of " << length << " does not divide into " << unit
                                << " chunks, two for each of " << int64_t(ranks) << " ranks; nearest legal sizes: ";
        diagnostic << (length > unit ? std::to_string(length / unit * unit) + " and " : "")
                   << (length / unit + 1) * unit;
        return signalPassFailure();
      }
      program.setZigzag(ranks);
      return;
    }
    getOperation().emitError() << "pc-zigzag: the module has no pc.program";
    signalPassFailure();
  }
};
} // namespace
