//===- pc-run.cpp - Runs a compiled program on the ranks of this machine --===//
// Parses the command line and calls launch (runtime/launch/Launch.h).
//===----------------------------------------------------------------------===//
#include "comm/Environment.h"
#include "comm/ShmControl.h"
#include "launch/Launch.h"
#include "pcrt/version.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

static const char usage[] =
    R"(usage: pc-run [-n N] [options] PROGRAM [--] [ARGUMENTS...]

Runs PROGRAM as N ranks on this machine and waits for them.

Ranks
  -n N               number of ranks, which is the product of the program's mesh axes (default 1)
  --virtual          run all ranks as threads of one process on one device
  --no-pin           let the system choose the cores; by default the ranks share them evenly

Failures
  --restarts N       restart the command at most N times if a rank is lost or late (default 0); the run continues from its
                     newest checkpoint, or from memory unless a rank was lost during an update
  --or OTHER         when PROGRAM has used its restarts, continue from the newest checkpoint with OTHER, a program of the
                     same model and batch for fewer ranks; may be repeated

Time
  --timeout SECONDS  how long a rank waits for another one before the run fails (default 300)
  --grace SECONDS    how long ranks may take to save after a signal (default: no limit)

Instead of a run
  --version          print the version
  --help             show this text

ARGUMENTS go to the program: try 'pc-run PROGRAM -- --help'.

Rank 0 writes to the standard output of pc-run. The output of the other ranks goes to standard error, with the rank
at the start of each line. With --or, the first program that needs at most N ranks starts.
SIGINT, SIGTERM, SIGUSR1 and SIGHUP are passed to the ranks, unless pc-run was started to ignore them (nohup). A
program with --save or --checkpoint then saves and ends, and any other ends at once; a second signal kills it.
If standard output is closed, the run ends in the same way, with exit code 141. The same program also runs under
torchrun, mpirun and srun.

exit codes, from the first rank that fails: 1 internal, 2 usage, 3 bad model or a program for another runtime,
5 verification, 6 resource, 7 a rank was lost (killed, or ended early), 8 timeout, 9 bad data, 10 non-finite numbers; 128 + n if
pc-run itself was ended by signal n.

example:
  pc-run -n 4 ./train -- --data tokens.bin --steps 100
)";

static int badUsage(const char *what, const char *value) {
  fprintf(stderr, "pc-run: error: %s '%s'; try 'pc-run --help'\n", what, value);
  return PCRT_USAGE;
}

int main(int argc, char **argv) {
  pcrt::holdStandardFiles();
  signal(SIGXFSZ, SIG_IGN); // shared memory beyond `ulimit -f` is an error
  pcrt::LaunchOptions options;
  int at = 1;
  // The value of an option given as "--name value" or "--name=value"; null if argv[at] is another option.
  const char *value = nullptr;
  auto isOption = [&](const char *name) {
    size_t length = strlen(name);
    if (strncmp(argv[at], name, length) != 0)
      return false;
    if (argv[at][length] == '=')
      value = argv[at] + length + 1;
    else if (argv[at][length] == 0)
      value = at + 1 < argc ? argv[++at] : "";
    else
      return false;
    return true;
  };
  for (; at < argc && argv[at][0] == '-'; ++at) {
    char *end;
    bool help = !strcmp(argv[at], "--help") || !strcmp(argv[at], "-h");
    if (help || !strcmp(argv[at], "--version")) {
      if (help)
        fputs(usage, stdout);
      else
        printf("pc-run %s\n", pcrt_version);
      if (pcrt::standardOutputWritten())
        return PCRT_OK;
      perror("pc-run: error: cannot write to standard output");
      return PCRT_RESOURCE;
    }
    if (!strcmp(argv[at], "--no-pin")) {
      options.pin = false;
    } else if (!strcmp(argv[at], "--virtual")) {
      options.virtualRanks = true;
    } else if (isOption("-n")) {
      long ranks = strtol(value, &end, 10);
      if (!*value || *end || ranks < 1 || ranks > pcrt::kMaxRanks)
        return badUsage("-n takes a number of ranks from 1 to 1024, not", value);
      options.ranks = int(ranks);
    } else if (isOption("--restarts")) {
      long restarts = strtol(value, &end, 10);
      if (!*value || *end || restarts < 0 || restarts > 1'000'000)
        return badUsage("--restarts takes a whole number, not", value);
      options.restarts = int(restarts);
    } else if (isOption("--or")) {
      if (!*value)
        return badUsage("--or takes the name of a program, not", value);
      options.others.push_back(value);
    } else if (isOption("--timeout")) {
      if (!(strtod(value, &end) > 0) || *end)
        return badUsage("--timeout takes a positive number of seconds, not", value);
      options.timeout = value;
    } else if (isOption("--grace")) {
      options.grace = strtod(value, &end);
      if (!(options.grace > 0) || *end)
        return badUsage("--grace takes a positive number of seconds, not", value);
    } else {
      return badUsage("unknown option", argv[at]);
    }
  }
  // The user's environment may ask for virtual ranks; then each of N processes would run all ranks of a separate run.
  if (const char *transport = getenv("PCRT_TRANSPORT"); transport && !strcmp(transport, "virtual"))
    options.virtualRanks = true;
  if (at == argc) {
    fputs(usage, stderr);
    return PCRT_USAGE;
  }
  options.command.push_back(argv[at++]);
  if (at < argc && !strcmp(argv[at], "--"))
    ++at;
  options.command.insert(options.command.end(), argv + at, argv + argc);
  return pcrt::launch(options);
}
