//===- QuantizeWeights.cpp - Lets the passes read matrices as codes of 8 bits -----------------===//
// The step encodes each large matrix once, and decodes it before its first reader in the forward pass and in the
// backward pass. So a plan that gathers the matrix sends its codes, and no decoded matrix is kept between the passes.
// The optimizer reads and writes the f32 parameter. Its gradient is that of the decoded matrix (straight-through).
// Reference: G. Wang et al., "ZeRO++: extremely efficient collective communication for giant model training", 2023.
//===--------------------------------------------------------------------------------------------===//
#define GEN_PASS_DEF_QUANTIZEWEIGHTS
#include "pc/Autodiff/Passes.h"

#include "Blocks.h"
#include "pc/IR/BlockCodes.h"
#include "pc/IR/Readers.h"

using namespace mlir;
using namespace pc;

namespace {

/// The pass pc-quantize-weights.
struct QuantizeWeights : pc::impl::QuantizeWeightsBase<QuantizeWeights> {
  using QuantizeWeightsBase::QuantizeWeightsBase;

  void runOnOperation() override {
    auto step = getOperation().lookupSymbol<func::FuncOp>("step");
    if (!step || step.getOps<AccumulateOp>().empty()) {
      getOperation().emitError() << "pc-quantize-weights: this module has no step that trains; run pc-differentiate "
                                    "first";
      return signalPassFailure();
    }
    bool any = false;
    for (ParameterOp parameter : llvm::to_vector(step.getOps<ParameterOp>()))
      if (std::optional<SmallVector<int64_t>> block = blockFor(parameter))
        any |= quantize(parameter, *block);
    if (any)
      return;
    step.emitError() << "pc-quantize-weights: every parameter is a table or a vector, has fewer than " << fewestForCodes
                     << " elements, or has no dims that blocks divide, so none would be rounded; leave out "
                        "--weight-precision";
    signalPassFailure();
  }

private:
  /// Returns false if no pass reads the parameter.
  static bool quantize(ParameterOp parameter, ArrayRef<int64_t> block) {
    auto type = cast<RankedTensorType>(parameter.getType());
    EncodeOp encode;
    separateReaders(parameter.getValue(), [&](OpBuilder &builder) -> Value {
      if (!encode) {
        OpBuilder::InsertionGuard guard(builder);
        builder.setInsertionPointAfter(parameter);
        auto codes = RankedTensorType::get(type.getShape(), builder.getI8Type()),
             scales = RankedTensorType::get(shapeOfScales(type.getShape(), block), type.getElementType());
        encode = EncodeOp::create(builder, parameter.getLoc(), TypeRange{codes, scales}, parameter.getValue(),
                                  /*is_unsigned=*/false, /*is_linear=*/true);
      }
      Location loc = builder.getInsertionPoint()->getLoc(); // of its reader, which decides its layer
      return DecodeOp::create(builder, loc, type, encode.getCodes(), encode.getScales(), /*is_unsigned=*/false,
                              /*is_linear=*/true);
    });
    return encode != nullptr;
  }
};

} // namespace
