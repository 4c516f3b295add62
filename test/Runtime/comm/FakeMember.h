//===- FakeMember.h - A member of a meeting that trains nothing -----------===//
// For tests of pc-meet: it speaks the protocol of comm/MeetMessages.h without a program.
//===----------------------------------------------------------------------===//
#ifndef PCRT_TEST_FAKEMEMBER_H
#define PCRT_TEST_FAKEMEMBER_H

#include "comm/Handshake.h"
#include "comm/MeetMessages.h"
#include "comm/ShmControl.h"
#include "comm/Sockets.h"

#include <cstdio>
#include <string>
#include <vector>

/// A member of one rank, with a few parameters. It owns its connection; errors end the process.
class FakeMember {
public:
  static constexpr int64_t every = 4, batch = 2, elements = 8;

  FakeMember(int port, const std::string &secret, const std::string &name, int rank = 0, int size = 1,
             const std::string &program = "program")
      : deadline(pcrt::monotonicSeconds() + 60) {
    pcrt::Greeting mine = greetingOf(name, rank), host;
    do {
      connection = pcrt::connectTo("127.0.0.1", port, deadline);
      result =
          connection.fd < 0 ? pcrt::CallResult::NoAnswer : pcrt::callHost(connection.fd, secret, mine, deadline, &host);
    } while (result == pcrt::CallResult::NoAnswer && pcrt::monotonicSeconds() < deadline && usleep(1000) == 0);
    snprintf(hello.name, sizeof hello.name, "%s", name.c_str());
    snprintf(hello.program, sizeof hello.program, "%s", program.c_str());
    hello.rank = rank, hello.size = size;
    hello.every = every, hello.batch = batch, hello.elements = elements;
  }

  static pcrt::Greeting greetingOf(const std::string &name, int rank = 0) {
    pcrt::Greeting greeting;
    greeting.protocol = pcrt::Protocol::Members;
    greeting.rank = rank, greeting.size = 1;
    snprintf(greeting.name, sizeof greeting.name, "%s", name.c_str());
    return greeting;
  }

  template <typename T> void send(pcrt::MeetKind kind, const T &fields, const std::vector<float> &values = {}) {
    pcrt::MeetHead head{kind, 0, sizeof fields + 4 * values.size()};
    std::string text(reinterpret_cast<const char *>(&head), sizeof head);
    text.append(reinterpret_cast<const char *>(&fields), sizeof fields);
    text.append(reinterpret_cast<const char *>(values.data()), 4 * values.size());
    pcrt::sendBytes(connection.fd, text.data(), text.size());
  }
  void leave() {
    pcrt::MeetHead head{pcrt::MeetKind::Leave};
    pcrt::sendBytes(connection.fd, &head, sizeof head);
  }
  /// Returns the body of the next message of that kind; empty if there are no more.
  std::string until(pcrt::MeetKind kind) {
    for (pcrt::MeetHead head{}; pcrt::receiveBytes(connection.fd, &head, sizeof head, deadline);) {
      std::string body(head.bytes, 0);
      if (!pcrt::receiveBytes(connection.fd, body.data(), body.size(), deadline))
        return "";
      if (head.kind == kind)
        return body;
    }
    return "";
  }

  pcrt::CallResult result;
  pcrt::Socket connection;
  pcrt::MeetHello hello;

private:
  double deadline;
};

#endif // PCRT_TEST_FAKEMEMBER_H
