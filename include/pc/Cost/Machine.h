//===- Machine.h - What a rank can do per second ------------------------------------------===//
// Peaks are the makers' published figures, shares what measurements reach of them; docs/rationale/machines.md has the
// sources. Times made of them are predictions: they order plans, they don't tell seconds to the percent.
//===-----------------------------------------------------------------------------===//
#ifndef PC_COST_MACHINE_H
#define PC_COST_MACHINE_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/JSON.h"
#include <optional>
#include <string>

namespace pc {

/// A way between two ranks.
struct Link {
  double bandwidth = 0; ///< bytes per second that a rank sends, at most
  double latency = 0;   ///< seconds of one hop
};

/// One rank's device and its links.
struct MachineModel {
  std::string name = "cpu";
  std::string device = "a core of a current server CPU, ranks on one machine";
  double f32Flops = 1.0e11, bf16Flops = 1.0e11; ///< operations per second of matrix products, at most
  double productShare = 1;                      ///< of these, what products of a training step reach
  double unalignedShare = 1;                    ///< of that, those of bf16 with rows not at multiples of 16 bytes
  double attentionShare = 0.5;                  ///< of these, what attention reaches, masked scores not counted
  double attentionKeys = 0;                     ///< that a query has more, by time; 0: shapes do not matter
  double memoryBytes = 0;                       ///< of device memory; 0: not known
  double memoryBandwidth = 2.0e10;              ///< bytes per second of device memory, at most
  double memoryShare = 1;                       ///< of it, what kernels that only read and write reach
  double opSeconds = 0;                         ///< that every operation takes, whatever its size
  int64_t nodeRanks = 0;                        ///< ranks that `node` connects; 0: all
  Link node{8.0e9, 0}, network{8.0e9, 0};       ///< inside a node, and between nodes
  double linkShare = 1;                         ///< of both bandwidths, what large moves reach
  double moveSeconds = 5.0e-6;                  ///< that every collective and message takes besides its hops

  /// The machines there are: cpu, a100, h100, h200, b200.
  static llvm::ArrayRef<MachineModel> all();
  /// The machine called `name`, or the one in the file of that name (*.json: an object with members as `json` writes
  /// them; "like" names the machine that those left out are taken from). Nothing, with the reason in `error`.
  static std::optional<MachineModel> find(llvm::StringRef name, std::string &error);
  /// The name of the one for a GPU architecture: a100 for sm_80, h100 for sm_90a, b200 for sm_100a.
  static llvm::StringRef nameFor(llvm::StringRef arch);
  /// All members, as the report has them.
  llvm::json::Object json() const;
};

} // namespace pc

#endif
