/* version.h - the versions of a tool, a program and its runtime. Compiler, runtime and pc-run share it. */
#ifndef PCRT_VERSION_H
#define PCRT_VERSION_H

#ifdef __cplusplus
extern "C" {
#endif

/** The commit that was built, as git describe names it (cmake/Version.cmake); "unknown" outside of git. */
extern const char pcrt_version[];

/** In a program's object file: the compiler that made it, "VERSION, LLVM VERSION". Null in a hand-written program. */
extern const char pc_compiler[] __attribute__((weak));

/** In an executable of pc-compile: its certificate, JSON (docs/what-is-proved.md). Null in other programs. */
extern const char pc_certificate[] __attribute__((weak));

#ifdef __cplusplus
}
#endif
#endif
