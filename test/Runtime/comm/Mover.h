//===- Mover.h - The interface of transports for the conformance suite ----===//
// The suite writes sources into an arena, moves, and reads results. The arena is host memory of a Comm, or memory of a
// device on which moves are enqueued.
//===----------------------------------------------------------------------===//
#ifndef PCRT_TEST_MOVER_H
#define PCRT_TEST_MOVER_H

#include "comm/Comm.h"

/// The moves of one mesh: `moves[i].group` is an index into `groups`. Neither changes while it is in use.
struct MeshMoves {
  std::vector<pcrt::Group> groups;
  std::vector<pcrt_move_desc> moves;
};

/// Carries out moves of one rank. All ranks of a test make the same calls.
class Mover {
public:
  virtual ~Mover() = default;

  /// The name for messages: "shm", "nccl on NVIDIA H200".
  virtual std::string name() const = 0;
  /// Returns true if results have the bits that pcrt.h promises. NCCL adds in another order.
  virtual bool isExact() const = 0;
  /// Returns true if this transport carries out `move` itself.
  virtual bool carries(const pcrt_move_desc &move, const pcrt::Group &group) const = 0;

  virtual void prepare(const MeshMoves &) {}
  /// Writes to the arena, from byte `at` on, and waits.
  virtual void write(int64_t at, const void *from, int64_t bytes) = 0;
  virtual void read(int64_t at, void *to, int64_t bytes) = 0;

  /// The way in which a move is called.
  enum class Way { Plain, Threads };
  /// Carries out `count` moves of one group, as one call if the transport has such calls. Offsets are those in the
  /// arena.
  virtual pcrt_status move(const pcrt_move_desc *moves, int count, const pcrt::Group &group, const int64_t *ins,
                           const int64_t *outs, Way way) = 0;
  virtual std::string error() const = 0;
};

/// A mover of host memory that uses `comm` and the arena at `arena`.
std::unique_ptr<Mover> makeHostMover(pcrt::Comm &comm, char *arena);

/// A mover on the CUDA device of this rank, with an arena of `bytes` bytes. Throws a Failure.
std::unique_ptr<Mover> makeDeviceMover(pcrt::Comm &comm, int64_t bytes);

#endif // PCRT_TEST_MOVER_H
