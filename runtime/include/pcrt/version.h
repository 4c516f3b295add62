/* version.h - which versions a tool, a program and its runtime are of. Compiler, runtime and pc-run share it. */
#ifndef PCRT_VERSION_H
#define PCRT_VERSION_H

#ifdef __cplusplus
extern "C" {
#endif

/** The commit that was built, as git describe names it (cmake/Version.cmake); "unknown" outside of git. */
extern const char pcrt_version[];

/** In a program's object file: what compiled it, "VERSION, LLVM VERSION". Null in a program that was written by hand.
 */
extern const char pc_compiler[] __attribute__((weak));

/** In an executable of pc-compile: its certificate, JSON (docs/what-is-proved.md). Null in other programs. */
extern const char pc_certificate[] __attribute__((weak));

#ifdef __cplusplus
}
#endif
#endif
