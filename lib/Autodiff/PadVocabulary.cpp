//===- PadVocabulary.cpp - Pad dims named "vocab" to a multiple ------------------------===//
#define GEN_PASS_DEF_PADVOCABULARY
#include "pc/Autodiff/Passes.h"

#include "mlir/IR/Builders.h"
#include "pc/IR/DimClasses.h"

using namespace mlir;
using namespace pc;

namespace {
struct PadVocabulary : pc::impl::PadVocabularyBase<PadVocabulary> {
  using PadVocabularyBase::PadVocabularyBase;

  void runOnOperation() override {
    if (multiple < 1) {
      getOperation().emitError() << "pc-pad-vocabulary: multiple must be positive, got " << int64_t(multiple);
      return signalPassFailure();
    }
    DimClasses classes(getOperation());
    SmallVector<std::pair<unsigned, int64_t>> padded;
    getOperation().walk([&](ParameterOp parameter) {
      auto type = cast<RankedTensorType>(parameter.getValue().getType());
      for (auto [d, name] : llvm::enumerate(parameter.getDims().getAsValueRange<StringAttr>()))
        if (name == "vocab" && type.getDimSize(d) % multiple) {
          padded.push_back({classes.classOf(parameter.getValue(), d), llvm::alignTo(type.getDimSize(d), multiple)});
          if (!parameter.getValid())
            parameter.setValid(type.getShape());
        }
    });
    if (padded.empty())
      return;
    getOperation().walk([&](OutputOp output) {
      auto type = cast<RankedTensorType>(output.getValue().getType());
      for (int64_t d = 0; d < type.getRank() && !output.getValid(); ++d)
        for (auto [id, size] : padded)
          if (classes.classOf(output.getValue(), d) == id && type.getDimSize(d) != size)
            output.setValid(type.getShape());
    });
    int64_t valid = 0;
    getOperation().walk(
        [&](CrossEntropyOp loss) { valid = cast<RankedTensorType>(loss.getLogits().getType()).getShape().back(); });
    for (auto [id, size] : padded)
      classes.resize(id, size);
    getOperation().walk([&](CrossEntropyOp loss) {
      if (cast<RankedTensorType>(loss.getLogits().getType()).getShape().back() == valid)
        return;
      OpBuilder builder(loss);
      loss.getLogitsMutable().assign(MaskPaddingOp::create(builder, loss.getLoc(), loss.getLogits().getType(),
                                                           loss.getLogits(), builder.getI64IntegerAttr(valid),
                                                           builder.getF64FloatAttr(-1e30), Value()));
    });
  }
};
} // namespace
