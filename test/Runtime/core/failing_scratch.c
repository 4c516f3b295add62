/* Loaded into a program in front of the C library (LD_PRELOAD): counts the calls that allocate, read and write a file
 * of
 * --scratch, whose path contains FAIL_FILE. Call number FAIL_AT fails with error number FAIL_ERROR or, if that is 0,
 * ends after a part of its bytes. The file FAIL_COUNT gets the number of calls so far. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int isScratch(int fd) {
  const char *name = getenv("FAIL_FILE");
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = name ? readlink(link, path, sizeof path - 1) : -1;
  if (length < 0)
    return 0;
  path[length] = 0;
  return strstr(path, name) != NULL;
}

/* Whether this call is the one that fails. */
static int isCalled(int fd) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  static int calls;
  const char *at = getenv("FAIL_AT"), *count = getenv("FAIL_COUNT");
  if (!isScratch(fd))
    return 0;
  pthread_mutex_lock(&mutex);
  int call = ++calls;
  FILE *file = count ? fopen(count, "w") : NULL;
  if (file) {
    fprintf(file, "%d\n", call);
    fclose(file);
  }
  pthread_mutex_unlock(&mutex);
  return at && call == atoi(at);
}

static int errorOfCall(void) { return atoi(getenv("FAIL_ERROR")); }

/* Direct transfers are of whole blocks, so a short one is made whole, and less is reported. */
static ssize_t partOf(ssize_t done) { return done > 8192 ? 8192 : done > 0 ? 1 : done; }

ssize_t pread(int fd, void *to, size_t bytes, off_t offset) {
  ssize_t (*next)(int, void *, size_t, off_t) = (ssize_t (*)(int, void *, size_t, off_t))dlsym(RTLD_NEXT, "pread");
  if (!isCalled(fd))
    return next(fd, to, bytes, offset);
  errno = errorOfCall();
  return errno ? -1 : partOf(next(fd, to, bytes, offset));
}

ssize_t pwrite(int fd, const void *from, size_t bytes, off_t offset) {
  ssize_t (*next)(int, const void *, size_t, off_t) =
      (ssize_t (*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite");
  if (!isCalled(fd))
    return next(fd, from, bytes, offset);
  errno = errorOfCall();
  return errno ? -1 : partOf(next(fd, from, bytes, offset));
}

ssize_t pread64(int fd, void *to, size_t bytes, off64_t offset) { return pread(fd, to, bytes, offset); }
ssize_t pwrite64(int fd, const void *from, size_t bytes, off64_t offset) { return pwrite(fd, from, bytes, offset); }

int posix_fallocate(int fd, off_t offset, off_t bytes) {
  int (*next)(int, off_t, off_t) = (int (*)(int, off_t, off_t))dlsym(RTLD_NEXT, "posix_fallocate");
  return isCalled(fd) && errorOfCall() ? errorOfCall() : next(fd, offset, bytes);
}
int posix_fallocate64(int fd, off64_t offset, off64_t bytes) { return posix_fallocate(fd, offset, bytes); }
