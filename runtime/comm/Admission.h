//===- Admission.h - A listener that lets in those who know the secret ----===//
// Whoever connects has a few seconds to prove that it knows the secret (Handshake.h). All are served side by side,
// their number is limited, and none makes this process allocate by a length that it sends. At the limit of open files
// the listener rests instead of trying again at once.
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

/// How a listener deals with its callers.
struct AdmissionRules {
  std::string name;                                ///< Begins its warnings: "rank 0".
  Greeting greeting;                               ///< Its own.
  std::string secret;                              ///< Empty: everybody knows it.
  std::function<bool(const Greeting &)> expects;   ///< Whether it may be one of ours; asked before it has proved so.
  std::function<Verdict(const Greeting &)> judges; ///< Asked after it has.
};

/// Somebody who knows the secret.
struct Admitted {
  Socket socket; ///< Does not block.
  Greeting greeting;
};

class Admission {
public:
  Admission(Socket listener, AdmissionRules rules);

  /// Can be read when there is something to serve.
  int descriptor() const { return epoll.fd; }

  /// Goes on with all connections, without waiting, and returns those that are done. Call it when descriptor() can be
  /// read, and at least every restSeconds.
  std::vector<Admitted> serve();

  static constexpr double restSeconds = 0.1;
  static constexpr double patienceSeconds = 5; ///< For a whole handshake.
  static constexpr size_t mostVisitors = 128;  ///< Who have not proved anything yet; beyond it the oldest has to go.

private:
  /// A connection that is not admitted yet.
  struct Visitor {
    Socket socket;
    double since = 0;
    enum { Greets, Proves, Confirms, Done, Failed } state = Greets;
    Greeting theirs{}, mine{};
    Bytes32 proof{};
    size_t got = 0; ///< Bytes of the message that it sends now.
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
  std::list<Visitor> visitors; ///< In the order in which they came.
  double restsUntil = 0;       ///< No descriptors are left; 0: it listens.
  bool toldOfProof = false, toldOfTime = false, toldOfFiles = false;
};

} // namespace pcrt

#endif // PCRT_COMM_ADMISSION_H
