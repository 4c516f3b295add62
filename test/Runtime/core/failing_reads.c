/* Loaded into a program in front of the C library (LD_PRELOAD): from read number FAIL_AFTER of the file FAIL_FILE on,
 * its disk fails; or with FAIL_SHRINK=1 the file loses its last byte before that read; later ones wait for that. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int isThatFile(int fd) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  const char *name = getenv("FAIL_FILE");
  if (!name || length < (ssize_t)strlen(name))
    return 0;
  path[length] = 0;
  return strcmp(path + length - strlen(name), name) == 0;
}

ssize_t pread(int fd, void *to, size_t bytes, off_t offset) {
  static atomic_int reads, shrunk;
  int after = isThatFile(fd) ? ++reads - atoi(getenv("FAIL_AFTER")) : 0;
  if (after > 0 && !getenv("FAIL_SHRINK")) {
    errno = EIO;
    return -1;
  }
  if (after == 1) {
    struct stat info;
    if (fstat(fd, &info) != 0 || truncate(getenv("FAIL_FILE"), info.st_size - 1) != 0)
      abort();
    shrunk = 1;
  }
  while (after > 1 && !shrunk)
    sched_yield();
  ssize_t (*next)(int, void *, size_t, off_t) = (ssize_t (*)(int, void *, size_t, off_t))dlsym(RTLD_NEXT, "pread");
  return next(fd, to, bytes, offset);
}

ssize_t pread64(int fd, void *to, size_t bytes, off64_t offset) { return pread(fd, to, bytes, offset); }
