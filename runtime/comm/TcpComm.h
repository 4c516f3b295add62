//===- TcpComm.h - Ranks of any machines, over one connection each --------===//
// The control plane of runs on several machines, and of devices that move their data themselves. It can also carry
// moves of host memory. All data then pass through rank 0, so this is only for small runs and tests.
//===----------------------------------------------------------------------===//
#ifndef PCRT_COMM_TCPCOMM_H
#define PCRT_COMM_TCPCOMM_H

#include "comm/HostArena.h"
#include "comm/TcpControl.h"

namespace pcrt {

/// The transport over TCP. A move is one gather of all sources, after which each member computes its own result. A
/// TcpComm owns the control plane and the arena.
class TcpComm final : public Comm {
public:
  /// Connects to the other ranks and waits for all of them.
  static pcrt_status join(const Place &place, std::unique_ptr<Comm> *out, std::string *error);

  const char *transport() const override { return "tcp"; }
  pcrt_status allocateArena(int64_t bytes, char **base) override;
  pcrt_status barrier() override;
  pcrt_status allGatherBytes(const void *mine, int64_t n, void *all) override;
  void abort(pcrt_status status, const char *message) override;
  TcpControl *control() override { return plane.get(); }
  void note(const char *doing) override { plane->note(doing); }
  void setBusy(bool busy) override { plane->setBusy(busy); }

protected:
  pcrt_status exchange(const pcrt_move_desc &desc, const Group &group, const void *in, void *out,
                       const ParallelFor &parallelFor) override;
  pcrt_status prepareFlows() override;
  pcrt_status put(Flow &flow, int index, const void *data) override;
  pcrt_status take(Flow &flow, int index, void *data) override;

private:
  TcpComm(const Place &place, std::unique_ptr<TcpControl> plane);

  /// Gathers the data of the members of `group` into `parts`. Returns PCRT_INTERNAL if their keys or sizes differ.
  pcrt_status gather(const Group &group, const MoveKey &key, const void *mine, int64_t n);

  HostArena arena;
  std::vector<TcpControl::Part> parts;
  std::vector<const char *> ins;
  std::unique_ptr<TcpControl> plane;
};

} // namespace pcrt

#endif // PCRT_COMM_TCPCOMM_H
