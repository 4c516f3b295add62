/* Loaded into a program in front of the C library (LD_PRELOAD): writes to files whose path contains FAIL_FILE fail with
 * error number FAIL_ERROR (with FAIL_FROM, from that write on), and fsync takes SLOW_SYNC seconds. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static int fails(int fd) {
  static atomic_int writes;
  const char *name = getenv("FAIL_FILE"), *from = getenv("FAIL_FROM");
  char link[64], path[4096];
  if (!name)
    return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0)
    return 0;
  path[length] = 0;
  if (!strstr(path, name) || ++writes < (from ? atoi(from) : 0))
    return 0;
  errno = atoi(getenv("FAIL_ERROR"));
  return 1;
}

ssize_t write(int fd, const void *from, size_t bytes) {
  ssize_t (*next)(int, const void *, size_t) = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
  return fails(fd) ? -1 : next(fd, from, bytes);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
  ssize_t (*next)(int, const struct iovec *, int) =
      (ssize_t (*)(int, const struct iovec *, int))dlsym(RTLD_NEXT, "writev");
  return fails(fd) ? -1 : next(fd, parts, count);
}

ssize_t pwrite(int fd, const void *from, size_t bytes, off_t offset) {
  ssize_t (*next)(int, const void *, size_t, off_t) =
      (ssize_t (*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite");
  return fails(fd) ? -1 : next(fd, from, bytes, offset);
}

ssize_t pwrite64(int fd, const void *from, size_t bytes, off64_t offset) { return pwrite(fd, from, bytes, offset); }

int fsync(int fd) {
  int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
  if (getenv("SLOW_SYNC")) {
    struct timespec time = {atoi(getenv("SLOW_SYNC")), 0};
    while (nanosleep(&time, &time) != 0)
      ;
  }
  return next(fd);
}

int fdatasync(int fd) { return fsync(fd); }
