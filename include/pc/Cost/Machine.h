//===- Machine.h - What a rank can do per second ------------------------------------------===//
#ifndef PC_COST_MACHINE_H
#define PC_COST_MACHINE_H

namespace pc {

/// One rank's device and its links. All figures are sustained ones; they order plans, they don't predict seconds to the
/// percent.
struct Machine {
  double flops = 1.0e11;           ///< f32 operations per second
  double memoryBandwidth = 2.0e10; ///< bytes per second, device memory
  double linkBandwidth = 8.0e9;    ///< bytes per second that a rank sends in a collective
  double linkLatency = 5.0e-6;     ///< seconds per collective

  /// A core of a current server CPU, ranks on one machine (shared memory).
  static Machine cpu() { return {}; }
};

} // namespace pc

#endif
