//===- pc-meet.cpp - The server at which members of open rounds meet ------===//
// Parses the command line and calls serveMeeting (runtime/launch/Meeting.h).
//===----------------------------------------------------------------------===//
#include "comm/Environment.h"
#include "launch/Meeting.h"
#include "pcrt/pcrt.h"
#include "pcrt/version.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

static const char usage[] =
    R"(usage: pc-meet [options]

Rendezvous server for local SGD with an open axis. Its members are runs of one program, each with --meet HOST:PORT
--name NAME, and may join or leave between rounds. At the end of a round the server averages the parameters of the
members. It ends when all members have left. Members on other machines need the same secret: set PCRT_SECRET or
PCRT_SECRET_FILE here and for them.

Options
  --listen ADDRESS   address on which to listen, where 0.0.0.0 or :: means all addresses (default 127.0.0.1, which only
                     members on this machine can reach)
  --port N           port on which to listen (default: a free one, which is printed)
  --min-members N    number of members needed to begin and to end a round (default 1)
  --patience SECONDS how long to wait at least for the last members after half have arrived (default 1)
  --log FILE         write a JSON line for each round, with its members and the steps of each, before they get the average
  --replay LOG       repeat the rounds of an earlier log; the same members then compute the same bits

Information
  --version          print the version
  --help             show this text

exit codes: 0 all members have left, 2 usage or no secret, 6 no port or no log, 9 an invalid log.

example:
  pc-meet --port 29600 --min-members 2 --log rounds.jsonl &
  pc-run -n 2 ./train -- --data text:a.txt --meet 127.0.0.1:29600 --name a
)";

static int badUsage(const char *what, const char *value) {
  fprintf(stderr, "pc-meet: error: %s '%s'; try 'pc-meet --help'\n", what, value);
  return PCRT_USAGE;
}

int main(int argc, char **argv) {
  pcrt::holdStandardFiles();
  signal(SIGPIPE, SIG_IGN);
  pcrt::MeetingOptions options;
  for (int at = 1; at < argc; ++at) {
    std::string flag = argv[at], value;
    if (flag == "--help" || flag == "-h" || flag == "--version") {
      if (flag == "--version")
        printf("pc-meet %s\n", pcrt_version);
      else
        fputs(usage, stdout);
      if (pcrt::standardOutputWritten())
        return PCRT_OK;
      perror("pc-meet: error: cannot write to standard output");
      return PCRT_RESOURCE;
    }
    if (size_t equal = flag.find('='); equal != std::string::npos) {
      value = flag.substr(equal + 1);
      flag.resize(equal);
    } else if (at + 1 < argc) {
      value = argv[++at];
    }
    char *end = nullptr;
    long number = strtol(value.c_str(), &end, 10);
    bool isNumber = !value.empty() && !*end;
    if (flag == "--listen") {
      if (value.empty())
        return badUsage("--listen takes an address of this machine, not", "");
      options.listen = value;
    } else if (flag == "--port") {
      if (!isNumber || number < 0 || number > 65535)
        return badUsage("--port takes a port, not", value.c_str());
      options.port = int(number);
    } else if (flag == "--min-members") {
      if (!isNumber || number < 1 || number > 1'000'000)
        return badUsage("--min-members takes a number of at least 1, not", value.c_str());
      options.minMembers = int(number);
    } else if (flag == "--patience") {
      options.patience = strtod(value.c_str(), &end);
      if (value.empty() || *end || !(options.patience > 0))
        return badUsage("--patience takes a positive number of seconds, not", value.c_str());
    } else if (flag == "--log" || flag == "--replay") {
      if (value.empty())
        return badUsage("a file name is missing after", flag.c_str());
      (flag == "--log" ? options.log : options.replay) = value;
    } else {
      return badUsage("unknown option", argv[at]);
    }
  }
  return pcrt::serveMeeting(options);
}
