//===- DispatchExperts.h - What goes to experts and comes back ------------------===//
#ifndef PC_SHARD_DISPATCHEXPERTS_H
#define PC_SHARD_DISPATCHEXPERTS_H

#include "mlir/Pass/Pass.h"

namespace pc {

/// The pass pc-dispatch-experts: step program -> step program, in front of pc-set-mesh.
std::unique_ptr<mlir::Pass> createDispatchExperts();

} // namespace pc

#endif
