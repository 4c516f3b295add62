//===- Admission.h - Accepts callers that know the secret -----------------===//
// A caller has a few seconds to prove that it knows the secret (Handshake.h). All callers are served at the same time.
// The number of callers is limited, and this process never allocates memory by a length that a caller sends. At the
// limit of open files the listener pauses before it accepts again.
//===----------------------------------------------------------------------===//
#ifndef PCRT_COMM_ADMISSION_H
#define PCRT_COMM_ADMISSION_H

#include "comm/Handshake.h"
#include "comm/Sockets.h"

#include <cstdint>
#include <functional>
#include <list>
#include <vector>

namespace pcrt {

/// The rules by which a listener admits its callers.
struct AdmissionRules {
  std::string name;                                ///< The start of its warnings, such as "rank 0".
  Greeting greeting;                               ///< The listener's own.
  std::string secret;                              ///< If empty, every caller is admitted.
  std::function<bool(const Greeting &)> expects;   ///< Whether a caller may belong to the run; called before its proof.
  std::function<Verdict(const Greeting &)> judges; ///< Whether to admit a caller; called after its proof.
};

/// A caller that has proved that it knows the secret.
struct Admitted {
  Socket socket; ///< Does not block.
  Greeting greeting;
};

/// A listening socket and the connections that are not admitted yet. Admission owns all of them. One thread calls
/// serve() whenever descriptor() can be read. A bad caller loses only its own connection and causes at most one warning
/// of its kind.
class Admission {
public:
  Admission(Socket listener, AdmissionRules rules);

  /// A descriptor for poll(2): it can be read when serve() has work.
  int descriptor() const { return epoll.fd; }

  /// Continues all handshakes without waiting, and returns the callers that are admitted. Call it when descriptor() can
  /// be read, and at least every restSeconds.
  std::vector<Admitted> serve();

  static constexpr double restSeconds = 0.1;
  static constexpr double patienceSeconds = 5; ///< For a whole handshake.
  static constexpr size_t mostVisitors = 128;  ///< Limit of callers without a proof; beyond it, closes the oldest.

private:
  /// A connection that is not admitted yet.
  struct Visitor {
    Socket socket;
    double since = 0;
    enum { Greets, Proves, Confirms, Done, Failed } state = Greets;
    Greeting theirs{}, mine{};
    Bytes32 proof{};
    size_t got = 0; ///< Bytes received of the current message.
  };

  void acceptSome();
  bool dropOldest();
  void advance(Visitor &visitor);
  bool receive(Visitor &visitor, void *to, size_t bytes);
  void takeGreeting(Visitor &visitor);
  void takeProof(Visitor &visitor);
  void warn(bool *told, const std::string &what);

  Socket listener, epoll;
  AdmissionRules rules;
  std::list<Visitor> visitors; ///< In the order in which they connected.
  double restsUntil = 0;       ///< The end of a pause because no descriptors were left; 0: it listens.
  bool toldOfProof = false, toldOfTime = false, toldOfFiles = false;
};

} // namespace pcrt

#endif // PCRT_COMM_ADMISSION_H
