/*===- host_image.h - device kernels compiled for this machine -------------------------------===
 * The ABI between a host image (a shared object that pc-compile writes for tests from the same LLVM IR as the PTX) and
 * the stand-in's kernel library, which runs the threads of a block as fibers. Nothing here reaches a real device.
 *===------------------------------------------------------------------------------------------===*/
#ifndef PCRT_HOST_IMAGE_H
#define PCRT_HOST_IMAGE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PCRT_HOST_IMAGE_VERSION 1

/* The running thread as generated code reads it, through the thread-local pointer pc_thread. */
typedef struct pcrt_host_thread {
  uint32_t tid[3], ntid[3], ctaid[3], nctaid[3];
  uint32_t lane, dynamic_bytes;
  uint8_t *shared; /* of the block; static variables first, the launch's own bytes last */
} pcrt_host_thread;

enum pcrt_site_kind {
  PCRT_SITE_LOAD = 0,
  PCRT_SITE_STORE = 1,
  PCRT_SITE_ATOMIC = 2,
  PCRT_SITE_BARRIER = 3, /* of the block */
  PCRT_SITE_WARP = 4,    /* shuffles, votes, mma: all lanes named by a mask meet */
  PCRT_SITE_SYNCWARP = 5,
  PCRT_SITE_COPY = 6, /* start of an asynchronous copy */
  PCRT_SITE_WAIT = 7  /* wait for asynchronous copies or products; fence of either */
};

/* A place in a kernel, for reports. */
typedef struct pcrt_host_site {
  int32_t kind;
  const char *kernel;
  const char *text; /* "load #12 at model.mlir:7:3" */
} pcrt_host_site;

/* The bytes of a block's shared memory that hold a variable; bytes between ranges belong to no variable. */
typedef struct pcrt_host_range {
  uint32_t offset, bytes;
} pcrt_host_range;

typedef struct pcrt_host_kernel {
  const char *name;
  void (*entry)(void **params);   /* one thread; params as cuLaunchKernel takes them */
  void (*checked)(void **params); /* the same with a call of pc_access before every access */
  uint32_t synchronizes;          /* 0: no thread ever waits for another */
  uint32_t shared_bytes;          /* static, by a device's count */
  uint32_t shared_extent;         /* static, as laid out here (with gaps); the launch's own bytes begin here */
  uint32_t num_shared;
  const pcrt_host_range *shared;
  uint32_t block[3]; /* threads of a block that the kernel states; 0: not stated */
  int32_t exact;     /* 1: exactly `block`; 0: at most their product */
  uint32_t num_params;
  const uint32_t *param_bytes;
} pcrt_host_kernel;

/* Exported by an image as `pc_standin_module`. */
typedef struct pcrt_host_module {
  uint32_t version, num_kernels;
  const pcrt_host_kernel *kernels;
  uint32_t num_sites;
  const pcrt_host_site *sites;
} pcrt_host_module;

/* Kinds of pc_shuffle. */
enum pcrt_shuffle { PCRT_SHUFFLE_BFLY = 0, PCRT_SHUFFLE_UP = 1, PCRT_SHUFFLE_DOWN = 2, PCRT_SHUFFLE_IDX = 3 };

/* Bits of the kind of pc_access; the binary logarithm of the alignment is in bits 8 and up. */
enum pcrt_access { PCRT_ACCESS_READ = 1, PCRT_ACCESS_WRITE = 2, PCRT_ACCESS_ATOMIC = 4, PCRT_ACCESS_VALUE = 8 };

/* Bits of the flags of pc_wgmma: it adds to its sums, A is in registers, A or B has rows of the dim that is not summed.
 */
enum pcrt_wgmma {
  PCRT_WGMMA_ADDS = 1,
  PCRT_WGMMA_REGISTERS = 2,
  PCRT_WGMMA_A_TRANSPOSED = 4,
  PCRT_WGMMA_B_TRANSPOSED = 8
};

#ifdef __cplusplus
}
#endif
#endif
