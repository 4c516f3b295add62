//===- Launch.cpp - Starts the ranks of a run on this machine -------------===//
// One thread runs one poll loop. It gets signals from a signalfd, output from pipes, and ends of ranks as SIGCHLD.
// Ranks that fail record the reason in the shared file. The launcher prefers that reason to an exit code, and an exit
// code to "lost another rank". Ranks get PR_SET_PDEATHSIG, so that they die with it.
//===----------------------------------------------------------------------===//
#include "launch/Launch.h"
#include "base/Failure.h"
#include "base/Printing.h"
#include "base/StopSignals.h"
#include "comm/Environment.h"
#include "comm/Secret.h"
#include "comm/ShmControl.h"
#include "launch/Ladder.h"
#include "launch/LineRelay.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace pcrt;

/// The file that `command` names, looked up in PATH if it has no slash.
static std::string fileOf(const std::string &command) {
  if (command.find('/') != std::string::npos)
    return command;
  const char *path = getenv("PATH");
  std::string folders = path ? path : "/usr/bin:/bin";
  for (size_t at = 0; at <= folders.size();) {
    size_t end = std::min(folders.find(':', at), folders.size());
    if (std::string file = folders.substr(at, end - at) + "/" + command; access(file.c_str(), X_OK) == 0)
      return file;
    at = end + 1;
  }
  return "";
}

/// The reason why `command` cannot be run, as far as that is known in advance; empty: none. A shell would run a file
/// that is neither an executable nor begins with "#!" as a script, and count an empty one as a success.
static std::string checkExecutable(const std::string &command) {
  std::string path = fileOf(command);
  if (path.empty())
    return "it was not found in PATH; for a program in this directory, write './" + command + "'";
  struct stat file;
  if (stat(path.c_str(), &file) == 0 && S_ISDIR(file.st_mode))
    return strerror(EISDIR);
  if (access(path.c_str(), X_OK) != 0)
    return strerror(errno);
  char begin[4] = {};
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return ""; // the program may be executable but not readable
  ssize_t count = read(fd, begin, sizeof begin);
  close(fd);
  if (memcmp(begin,
             "\x7f"
             "ELF",
             4) == 0 ||
      memcmp(begin, "#!", 2) == 0)
    return "";
  return count <= 0 ? "the file is empty" : "it is not a program; compile one with pc-compile model.mlir -o " + command;
}

/// Ignores SIGPIPE in this process, and returns the earlier disposition, which ranks get.
static void (*ranksOnBrokenPipe())(int) {
  static void (*const before)(int) = ::signal(SIGPIPE, SIG_IGN);
  return before;
}

/// The signals that this process passes on. One that it was started to ignore stays ignored, also by the ranks.
static const std::vector<int> &passedOn() {
  static const std::vector<int> signals = [] {
    std::vector<int> signals = {SIGINT, SIGQUIT};
    for (int signal : {SIGTERM, SIGUSR1, SIGHUP})
      if (!isIgnored(signal))
        signals.push_back(signal);
    return signals;
  }();
  return signals;
}

/// Returns true if this signal was ignored at the start. A shell without job control makes background commands ignore
/// SIGINT and SIGQUIT, so that keys do not end them. The ranks, which also get the signals of keys, keep ignoring them;
/// a signal that `kill` sends to the launcher is passed on to them as SIGTERM.
static bool isOnlyForKeys(int signal) {
  static const bool ignored[] = {isIgnored(SIGINT), isIgnored(SIGQUIT)};
  return (signal == SIGINT && ignored[0]) || (signal == SIGQUIT && ignored[1]);
}

namespace {

/// One run, from its first process to its last. It owns the processes and the shared file; the destructor kills what
/// still runs.
class Run {
public:
  /// `oldFile` is the shared file of the run that this one replaces, or -1.
  Run(const LaunchOptions &options, int oldFile)
      : options(options), processes(options.virtualRanks ? 1 : options.ranks), pids(processes), exits(processes, -1),
        relays(processes), sharedFile(oldFile) {}
  ~Run();

  int run();
  /// Returns true if the run ended because a rank was lost or late, and not because of a signal from outside.
  bool mayStartAgain(int code) const {
    bool goesBack = code == PCRT_NON_FINITE && control->rank(0).goesBack;
    return !interruptedBy && (code == PCRT_PEER_LOST || code == PCRT_TIMEOUT || goesBack);
  }
  /// Returns the shared file, with its arenas, for a run that replaces this one, whose processes have all ended; -1 if
  /// a rank crashed, because it may have overwritten any memory. The ranks check whether the arenas hold a state
  /// (Kept).
  int takeMemory();

private:
  bool start();
  [[noreturn]] void becomeRank(int rank, pid_t launcher);
  void watch();
  void reap();
  void noteFailure(int rank, int status);
  /// Reports that a rank lost another one as the cause of the failure if there is no better explanation.
  void acceptLoss();
  void forwardSignal(int signal);
  /// Records the signal as the cause of the end, before the ranks record their reactions.
  void noteInterruption();
  /// Returns true if this rank answers the signal by saving.
  bool savesOn(int rank, int signal) const;
  void forwardOutput();
  void killAll(int signal);
  int exitCode();

  const LaunchOptions &options;
  int processes; ///< One process per rank, or one for all ranks.
  std::vector<pid_t> pids;
  std::vector<int> exits; ///< Exit code per rank, 128 + n for signal n, -1 while it runs.
  std::vector<LineRelay> relays;
  std::vector<int> cores = coresOfProcess();
  ControlBlock *control = nullptr;
  int sharedFile, signals = -1;
  /// A process id alone is not unique if containers share a network.
  std::string runName = std::to_string(getpid()) + "/" + std::to_string(int64_t(monotonicSeconds() * 1e9));
  int running = 0;
  int interruptedBy = 0; ///< Signal that ended the run from outside.
  double interruptedAt = 0;
  double killAt = 0;       ///< The time at which to kill the remaining ranks; 0: not planned.
  bool crashed = false;    ///< A rank crashed, and may have written anywhere before.
  int firstBadExit = 0;    ///< The first exit code of a rank that is more specific than "peer lost".
  std::string lastMessage; ///< The first end of a rank that explains a failure.
  std::string lostMessage; ///< The first end of a rank that only lost another one.
};

} // namespace

Run::~Run() {
  killAll(SIGKILL);
  if (control)
    unmapControl(control);
  for (int fd : {sharedFile, signals})
    if (fd >= 0)
      close(fd);
}

int Run::run() {
  std::string error = checkExecutable(options.command[0]);
  if (!error.empty()) {
    fprintf(stderr, "pc-run: error: cannot run '%s': %s\n", options.command[0].c_str(), error.c_str());
    return PCRT_USAGE;
  }
  if (!start())
    return PCRT_RESOURCE;
  watch();
  for (LineRelay &relay : relays)
    relay.finish();
  finishPrinting(); // makes room for the cause of a failure, which must not be dropped
  return exitCode();
}

bool Run::start() {
  std::string error;
  if (sharedFile < 0)
    sharedFile = createSharedFile(processes);
  if (sharedFile < 0) {
    fprintf(stderr, "pc-run: error: cannot create shared memory: %s\n", strerror(errno));
    return false;
  }
  control = mapControl(sharedFile, &error);
  if (!control) {
    fprintf(stderr, "pc-run: error: %s\n", error.c_str());
    return false;
  }
  if (!handSecretToRanks()) {
    fprintf(stderr, "pc-run: error: cannot draw a secret for the ranks: %s\n", strerror(errno));
    return false;
  }
  // If the output has no reader, rank 0 ends the run.
  ranksOnBrokenPipe();
  // If the parent process ignored it, the ends of children would not be reported.
  ::signal(SIGCHLD, SIG_DFL);
  // Signals are read from a descriptor, in the same loop as the output.
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  for (int signal : passedOn())
    sigaddset(&set, signal);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);

  fflush(nullptr);
  pid_t launcher = getpid();
  for (int rank = 0; rank < processes; ++rank) {
    if (rank > 0 && !relays[rank].open("[rank " + std::to_string(rank) + "] ")) {
      fprintf(stderr, "pc-run: error: cannot open a pipe for rank %d: %s\n", rank, strerror(errno));
      return false;
    }
    pids[rank] = fork();
    if (pids[rank] == 0)
      becomeRank(rank, launcher);
    if (pids[rank] < 0) {
      fprintf(stderr, "pc-run: error: cannot start rank %d: %s\n", rank, strerror(errno));
      return false;
    }
    ++running;
    if (rank > 0)
      relays[rank].closeWriteEnd();
  }
  return true;
}

void Run::becomeRank(int rank, pid_t launcher) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher)
    _exit(PCRT_PEER_LOST);
  ::signal(SIGPIPE, ranksOnBrokenPipe());
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (rank > 0) {
    int nothing = ::open("/dev/null", O_RDONLY);
    dup2(nothing, STDIN_FILENO);
    dup2(relays[rank].writeEnd(), STDOUT_FILENO);
    dup2(relays[rank].writeEnd(), STDERR_FILENO);
  }
  pinToCores(options.pin ? coresOfRank(cores, rank, processes) : cores);
  fcntl(sharedFile, F_SETFD, 0);
  auto setVariable = [](const char *name, const std::string &value) { setenv(name, value.c_str(), 1); };
  setVariable("PCRT_RANK", std::to_string(rank));
  setVariable("PCRT_SIZE", std::to_string(options.ranks));
  setVariable("PCRT_SHM_FD", std::to_string(sharedFile));
  setVariable("PCRT_RUN", runName);
  if (options.virtualRanks)
    setVariable("PCRT_TRANSPORT", "virtual");
  else if (!getenv("PCRT_THREADS"))
    setVariable("PCRT_THREADS", std::to_string(coresOfRank(cores, rank, options.ranks).size()));
  if (!options.timeout.empty())
    setVariable("PCRT_TIMEOUT_SECONDS", options.timeout);
  std::vector<char *> arguments;
  for (const std::string &argument : options.command)
    arguments.push_back(const_cast<char *>(argument.c_str()));
  arguments.push_back(nullptr);
  execv(fileOf(arguments[0]).c_str(), arguments.data()); // not execvp, which passes other files to a shell
  dprintf(STDERR_FILENO, "pc-run: error: cannot run '%s': %s\n", arguments[0], strerror(errno));
  _exit(PCRT_USAGE);
}

void Run::watch() {
  while (running > 0) {
    std::vector<pollfd> entries{{signals, POLLIN, 0}};
    bool forwards = !printingLagsBehind();
    for (LineRelay &relay : relays)
      if (forwards && relay.readEnd() >= 0)
        entries.push_back({relay.readEnd(), POLLIN, 0});
    double start = monotonicSeconds(), left = killAt ? std::max(0., killAt - start) : HUGE_VAL;
    double wait = forwards ? left : std::min(left, 0.05);
    poll(entries.data(), entries.size(), std::isinf(wait) ? -1 : int(wait * 1000) + 1);
    if (double more = monotonicSeconds() - start - wait; killAt && more > 1)
      killAt += more; // this process was suspended, and so were the ranks
    if (forwards)
      forwardOutput();
    signalfd_siginfo info;
    while (read(signals, &info, sizeof info) == ssize_t(sizeof info))
      if (int signal = int(info.ssi_signo); signal != SIGCHLD && !(isOnlyForKeys(signal) && info.ssi_code == SI_KERNEL))
        forwardSignal(signal);
    reap();
    if (killAt && monotonicSeconds() >= killAt) {
      acceptLoss();
      if (interruptedBy)
        noteInterruption();
      killAll(SIGKILL);
    }
  }
}

void Run::reap() {
  struct Ended {
    int rank, status;
  };
  std::vector<Ended> ended;
  int status;
  for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    int rank = int(std::find(pids.begin(), pids.end(), pid) - pids.begin());
    if (rank == processes)
      continue; // a process of a rank that has ended
    --running;
    pids[rank] = 0;
    exits[rank] = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    ended.push_back({rank, status});
  }
  // If ranks ended at the same time, those that only lost another one are handled last.
  for (bool onlyNoticed : {false, true})
    for (const Ended &one : ended)
      if (exits[one.rank] != 0 && (exits[one.rank] == PCRT_PEER_LOST) == onlyNoticed)
        noteFailure(one.rank, one.status);
}

bool Run::savesOn(int rank, int signal) const { return control->rank(rank).savesOnSignals && isStopSignal(signal); }

void Run::noteFailure(int rank, int status) {
  // The rank has saved and ended, as all ranks do after the same step, no matter which of them got the signal.
  if (!WIFSIGNALED(status) && savesOn(rank, exits[rank] - 128)) {
    interruptedBy = interruptedBy ? interruptedBy : exits[rank] - 128;
    return;
  }
  if (rank == 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE)
    return forwardSignal(SIGPIPE);
  for (int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP})
    crashed |= WIFSIGNALED(status) && WTERMSIG(status) == signal;
  std::string name = "rank " + std::to_string(rank), message;
  pcrt_status meaning = PCRT_PEER_LOST;
  if (WIFSIGNALED(status)) {
    message =
        name + " was killed by signal " + std::to_string(WTERMSIG(status)) + " (" + strsignal(WTERMSIG(status)) + ")";
  } else {
    message = name + " ended with exit code " + std::to_string(exits[rank]);
    if (exits[rank] != PCRT_PEER_LOST) {
      meaning = pcrt_status(exits[rank]);
      firstBadExit = firstBadExit ? firstBadExit : exits[rank];
    }
  }
  // A rank that lost another one may be reaped first, but the other one's exit status has the reason.
  bool isCause = WIFSIGNALED(status) || exits[rank] != PCRT_PEER_LOST;
  std::string &place = isCause ? lastMessage : lostMessage;
  if (place.empty())
    place = message;
  if (const char *doing = control->rank(rank).doing; doing[0])
    message += " in " + std::string(doing);
  if (isCause)
    control->recordFailure(rank, meaning, message);
  // Most ranks notice it by themselves (ShmWatcher). This ends the others.
  if (!killAt)
    killAt = monotonicSeconds() + (interruptedBy ? 3 : 0.9);
}

int Run::takeMemory() {
  int file = sharedFile;
  if (crashed || options.virtualRanks || !reuseSharedFile(file))
    return -1;
  sharedFile = -1;
  return file;
}

void Run::acceptLoss() {
  if (!lastMessage.empty() || lostMessage.empty())
    return;
  lastMessage = control->witness.isThere() ? control->witness.message : lostMessage;
  control->recordFailure(-1, PCRT_PEER_LOST, lastMessage);
}

void Run::forwardSignal(int signal) {
  double now = monotonicSeconds();
  bool saves = true;
  for (int rank = 0; rank < processes; ++rank)
    saves &= savesOn(rank, signal);
  if (!interruptedBy) {
    interruptedBy = signal;
    interruptedAt = now;
    if (!saves)
      killAt = now + 3;
    else if (options.grace > 0)
      killAt = now + options.grace;
    // A second signal, and not the first one sent to both process and group.
  } else if (saves && now - interruptedAt > 1) {
    killAt = now;
  }
  if (!saves || killAt == now)
    noteInterruption();
  killAll(isOnlyForKeys(signal) ? SIGTERM : signal);
}

void Run::noteInterruption() {
  control->recordFailure(-1, PCRT_PEER_LOST, std::string("the run was ended by ") + strsignal(interruptedBy));
}

void Run::forwardOutput() {
  for (LineRelay &relay : relays)
    relay.forward();
}

void Run::killAll(int signal) {
  for (pid_t pid : pids)
    if (pid > 0)
      kill(pid, signal);
}

int Run::exitCode() {
  if (interruptedBy && !(control->failed() && control->failure.rank >= 0)) {
    if (interruptedBy != SIGPIPE)
      fprintf(stderr, "pc-run: ended by signal %d (%s)\n", interruptedBy, strsignal(interruptedBy));
    return 128 + interruptedBy;
  }
  acceptLoss();
  if (lastMessage.empty())
    return 0;
  const FailureRecord &failure = control->failure;
  int code = failure.status;
  // The other ranks only see that a peer is gone. The exit code of that peer has the reason.
  if (code == PCRT_PEER_LOST && firstBadExit)
    code = firstBadExit;
  std::string message = control->failed() ? failure.message : lastMessage;
  // The place at which a rank was lost is known from this rank, or else from a rank that waited for it.
  if (control->failed() && failure.status == PCRT_PEER_LOST && failure.rank >= 0 && control->witness.isThere() &&
      !control->rank(failure.rank).doing[0])
    message += std::string("; ") + control->witness.message;
  fprintf(stderr, "pc-run: error: %s\n", message.c_str());
  return code;
}

/// Runs one program, with up to `options.restarts` restarts. Sets `*lost` if it ended because it lost a rank once more.
static int runWithRestarts(const LaunchOptions &options, bool *lost) {
  int memory = -1;
  for (int again = 1;; ++again) {
    Run run(options, memory);
    int code = run.run();
    bool may = run.mayStartAgain(code);
    if (again > options.restarts || !may) {
      *lost = may && code != PCRT_NON_FINITE;
      return code;
    }
    // After a rollback, the state in memory belongs to a later step.
    memory = code == PCRT_NON_FINITE ? -1 : run.takeMemory();
    fprintf(stderr, "pc-run: restarting the run (%d of %d)\n", again, options.restarts);
  }
}

/// Runs the first program for which `options.ranks` suffice and, if that loses a rank for good, the next one.
static int runLadder(const LaunchOptions &options) {
  std::vector<std::string> programs = options.others;
  programs.insert(programs.begin(), options.command[0]);
  Ladder ladder(programs);
  LaunchOptions one = options;
  const Rung *rung = ladder.firstFor(options.ranks);
  if (!rung)
    fail(PCRT_USAGE, "every program needs more than " + std::to_string(options.ranks) + " ranks; raise -n");
  for (;;) {
    one.command[0] = rung->program;
    one.ranks = rung->ranks;
    bool lost;
    int code = runWithRestarts(one, &lost);
    rung = ladder.firstFor(rung->ranks - 1);
    if (!lost || !rung)
      return code;
    fprintf(stderr, "pc-run: continuing with '%s' on %d rank%s\n", rung->program.c_str(), rung->ranks,
            rung->ranks > 1 ? "s" : "");
  }
}

int pcrt::launch(const LaunchOptions &options) {
  printInBackground();
  bool lost;
  if (options.others.empty())
    return runWithRestarts(options, &lost);
  try {
    return runLadder(options);
  } catch (const Failure &failure) {
    fprintf(stderr, "pc-run: error: %s\n", failure.message.c_str());
    return failure.status;
  }
}
