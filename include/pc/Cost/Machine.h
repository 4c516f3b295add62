//===- Machine.h - What a rank can do per second ------------------------------------------===//
// Peaks are the makers' published figures; shares are the parts of the peaks that measurements reach.
// docs/rationale/machines.md lists the sources. Times computed from them are predictions. They are good enough to order
// plans, but their errors exceed a percent.
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

/// A connection between two ranks.
struct Link {
  double bandwidth = 0; ///< peak, in bytes per second that a rank sends
  double latency = 0;   ///< seconds of a message, and of one hop of a move between pairs of ranks
};

/// A part of a product's result that one multiprocessor computes.
struct ProductTile {
  int64_t rows, columns;
  double share; ///< its rate, as a part of the best tile's rate
};

/// One rank's device and its links.
struct MachineModel {
  std::string name = "cpu";
  std::string device = "a core of a current server CPU, ranks on one machine";
  double f32Flops = 1.0e11, bf16Flops = 1.8e11; ///< peaks of matrix products, in operations per second
  double fp8Flops = 0;                          ///< the same of operands of 8 bits; 0: they have no products
  double productShare = 1;      ///< the part of the peak that products reach (within a tile, if there are tiles)
  double unalignedShare = 1;    ///< the part of that rate with bf16 rows not at multiples of 16 bytes
  double accumulateSeconds = 0; ///< per element, if a bf16 product adds to an f32 sum
  double productRamp = 0;       ///< start and end of a tile, in steps of the summed dim
  int64_t multiprocessors = 0;  ///< multiprocessors, on which tiles run in whole waves; 0: shapes do not matter
  std::vector<ProductTile> productTiles = {
      {256, 128, 1}, {128, 256, 1}, {128, 128, 0.92}, {128, 64, 0.75}, {64, 64, 0.55}};
  double attentionShare = 0.5;            ///< the part of the peak that attention reaches; masked scores do not count
  double attentionKeys = 0;               ///< fixed cost of a query, in keys; 0: shapes do not matter
  double sharedBandwidth = 0;             ///< bytes per second from shared memory to tensor cores; 0: not known
  double memoryBytes = 0;                 ///< bytes of device memory; 0: not known
  double memoryBandwidth = 2.0e10;        ///< peak of device memory, in bytes per second
  double memoryShare = 1;                 ///< the part of that peak that copies reach
  double streamShare = 1;                 ///< the part of that peak that the kernels of a layer reach
  double opSeconds = 0;                   ///< fixed cost of each operation
  double diskBandwidth = 2.0e9;           ///< bytes per second of a rank from or to its scratch file
  double hostBandwidth = 2.5e10;          ///< bytes per second from or to page-locked memory of the host
  double hostBytes = 0;                   ///< bytes of the host's memory per device; 0: not known
  int64_t nodeRanks = 0;                  ///< number of ranks that `node` connects; 0: all
  Link node{8.0e9, 0}, network{8.0e9, 0}; ///< connections inside a node, and between nodes
  double allReduceSpeed = 1;              ///< speed of an all_reduce inside a node, relative to other moves
  double linkShare = 1;                   ///< the part of both bandwidths that large moves reach
  double moveSeconds = 5.0e-6;       ///< fixed cost of a message or a move between pairs of ranks, without its hops
  double collectiveSeconds = 5.0e-6; ///< fixed cost of a move around a ring, without its hops
  double nodeHopSeconds = 0;         ///< one hop of a ring inside a node
  double networkHopSeconds = 0;      ///< one hop of a ring between nodes
  double treeHopSeconds = 0;         ///< one hop of a tree of nodes, which an all_reduce may use
  double contendShare = 0;           ///< the part of the seconds of hidden copies that other work loses
  double jitterSeconds = 0; ///< ranks that last met s seconds ago wait sqrt(s x jitterSeconds) for the last one
  double straggleShare = 0; ///< the part of a step that each doubling of the nodes adds
  double stepSeconds = 0;   ///< fixed cost of a step outside of its program
  double spread = 0.05;     ///< relative difference of repeated measurements; plans closer than this are a tie

  /// Seconds of a step on `ranks` ranks whose program takes `seconds`.
  double wholeStep(double seconds, int64_t ranks) const;

  /// All known machines: cpu, a100, h100, h200, b200.
  static llvm::ArrayRef<MachineModel> all();
  /// The machine called `name`, or the one in the file of that name. A file (*.json) is an object with members as
  /// `json` writes them; "like" names the machine from which missing members are taken, and "measured" is a note for
  /// people. `here` is the machine that pc-calibrate has measured. Returns std::nullopt, with the reason in `error`, if
  /// there is no such machine.
  static std::optional<MachineModel> find(llvm::StringRef name, std::string &error);
  /// The name of the machine for a GPU architecture: a100 for sm_80, h100 for sm_90a, b200 for sm_100a.
  static llvm::StringRef nameFor(llvm::StringRef arch);
  /// All members, as the report shows them.
  llvm::json::Object json() const;
  /// The text of a file for this machine: the most similar known machine, and the members that differ.
  llvm::json::Object file() const;
};

} // namespace pc

#endif
