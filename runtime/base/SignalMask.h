//===- SignalMask.h - threads that take no signals ------------------------===//
#ifndef PCRT_BASE_SIGNALMASK_H
#define PCRT_BASE_SIGNALMASK_H

#include <csignal>
#include <initializer_list>

namespace pcrt {

/// Threads begun while one lives inherit a mask without signals from outside: handlers run on the program's own
/// threads. Faults of their own stay open: the kernel ends a process that masks those, handler or not, and threads
/// begun by ours, of any library, inherit the mask.
class SignalsMasked {
public:
  SignalsMasked() {
    sigset_t masked;
    sigfillset(&masked);
    for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT})
      sigdelset(&masked, fault);
    pthread_sigmask(SIG_SETMASK, &masked, &before);
  }
  ~SignalsMasked() { pthread_sigmask(SIG_SETMASK, &before, nullptr); }
  SignalsMasked(const SignalsMasked &) = delete;
  SignalsMasked &operator=(const SignalsMasked &) = delete;

private:
  sigset_t before;
};

} // namespace pcrt

#endif // PCRT_BASE_SIGNALMASK_H
