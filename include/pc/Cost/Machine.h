//===- Machine.h - What a rank can do per second ------------------------------------------===//
// Peaks are the makers' published figures; shares are the parts of them that measurements reach.
// docs/rationale/machines.md lists the sources. Times computed from them are predictions: good enough to order plans,
// but not exact to a percent.
//===-----------------------------------------------------------------------------===//
#ifndef PC_COST_MACHINE_H
#define PC_COST_MACHINE_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/JSON.h"
#include <optional>
#include <string>
#include <vector>

namespace pc {

/// A way between two ranks.
struct Link {
  double bandwidth = 0; ///< bytes per second that a rank sends, at most
  double latency = 0;   ///< seconds of a message, and of one hop of what goes by pairs of ranks
};

/// A part of a product's result that one multiprocessor makes.
struct ProductTile {
  int64_t rows, columns;
  double share; ///< of the best tile's rate
};

/// One rank's device and its links.
struct MachineModel {
  std::string name = "cpu";
  std::string device = "a core of a current server CPU, ranks on one machine";
  double f32Flops = 1.0e11, bf16Flops = 1.8e11; ///< operations per second of matrix products, at most
  double productShare = 1;                      ///< of these, what products reach: inside of a tile, if there are any
  double unalignedShare = 1;                    ///< of that, those of bf16 with rows not at multiples of 16 bytes
  double accumulateSeconds = 0;                 ///< of an element of an f32 sum to which a bf16 product adds
  double productRamp = 0;                       ///< steps of the summed dim that a tile begins and ends with
  int64_t multiprocessors = 0;                  ///< that make tiles, in whole waves; 0: shapes do not matter
  std::vector<ProductTile> productTiles = {
      {256, 128, 1}, {128, 256, 1}, {128, 128, 0.92}, {128, 64, 0.75}, {64, 64, 0.55}};
  double attentionShare = 0.5;            ///< of these, what attention reaches, masked scores not counted
  double attentionKeys = 0;               ///< that a query has more, by time; 0: shapes do not matter
  double sharedBandwidth = 0;             ///< bytes per second that shared memory gives to tensor cores; 0: not known
  double memoryBytes = 0;                 ///< of device memory; 0: not known
  double memoryBandwidth = 2.0e10;        ///< bytes per second of device memory, at most
  double memoryShare = 1;                 ///< of it, what copies reach
  double streamShare = 1;                 ///< of it, what the kernels of a layer reach
  double opSeconds = 0;                   ///< that every operation takes, whatever its size
  int64_t nodeRanks = 0;                  ///< ranks that `node` connects; 0: all
  Link node{8.0e9, 0}, network{8.0e9, 0}; ///< inside a node, and between nodes
  double allReduceSpeed = 1;              ///< of an all_reduce inside a node, by what other moves reach
  double linkShare = 1;                   ///< of both bandwidths, what large moves reach
  double moveSeconds = 5.0e-6;            ///< of a message, and what goes by pairs, besides hops
  double collectiveSeconds = 5.0e-6;      ///< of what goes round a ring, besides hops
  double nodeHopSeconds = 0;              ///< of a hop of a ring inside a node
  double networkHopSeconds = 0;           ///< of one between nodes
  double treeHopSeconds = 0;              ///< of one of a tree of nodes, which an all_reduce may take
  double contendShare = 0;                ///< of the seconds in which hidden moves copy, the part that other work loses
  double jitterSeconds = 0; ///< s seconds after they synchronised, ranks wait sqrt(s x this) for the last one
  double straggleShare = 0; ///< of a step, that each doubling of nodes adds: they do not run in step
  double stepSeconds = 0;   ///< of a step besides its program
  double spread = 0.05;     ///< by which measured seconds of the same thing differ; closer plans are a tie

  /// Seconds of a step on `ranks` ranks whose program takes `seconds`.
  double wholeStep(double seconds, int64_t ranks) const;

  /// The machines there are: cpu, a100, h100, h200, b200.
  static llvm::ArrayRef<MachineModel> all();
  /// The machine called `name`, or the one in the file of that name (*.json: an object with members as `json` writes
  /// them; "like" names the machine that those left out are taken from, "measured" is for people); `here`: what
  /// pc-calibrate has measured. Nothing, with the reason in `error`.
  static std::optional<MachineModel> find(llvm::StringRef name, std::string &error);
  /// The name of the one for a GPU architecture: a100 for sm_80, h100 for sm_90a, b200 for sm_100a.
  static llvm::StringRef nameFor(llvm::StringRef arch);
  /// All members, as the report has them.
  llvm::json::Object json() const;
  /// A file of this machine: the one that is most like it, and the members that differ.
  llvm::json::Object file() const;
};

} // namespace pc

#endif
