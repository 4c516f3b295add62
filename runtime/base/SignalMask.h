//===- SignalMask.h - Threads that take no signals ------------------------===//
// The program's own threads handle signals; threads of the runtime and of libraries must not.
//===----------------------------------------------------------------------===//
#ifndef PCRT_BASE_SIGNALMASK_H
#define PCRT_BASE_SIGNALMASK_H

#include <csignal>
#include <initializer_list>

namespace pcrt {

/// Masks all signals from outside in the calling thread during the lifetime of this object. Threads that the calling
/// thread starts inherit the mask. The destructor restores the old mask. Signals of faults stay open, because the
/// kernel kills a process whose thread faults with its signal masked, even if there is a handler.
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
