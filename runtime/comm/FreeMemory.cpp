//===- FreeMemory.cpp - The memory that arenas may still use --------------===//
// Walks from the process's control group up to the root of its hierarchy and finds the least memory that any limit
// leaves (Linux: Documentation/admin-guide/cgroup-v1/memory.rst and cgroup-v2.rst).
//===----------------------------------------------------------------------===//
#include "comm/FreeMemory.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>
#include <unistd.h>

using namespace pcrt;

/// Calls `line` with each line of a file, without its end; returns false if there is no such file.
template <typename F> static bool readLines(const std::string &path, F &&line) {
  FILE *file = fopen(path.c_str(), "re");
  if (!file)
    return false;
  char text[4096];
  while (fgets(text, sizeof text, file)) {
    text[strcspn(text, "\n")] = 0;
    line(text);
  }
  fclose(file);
  return true;
}

/// The number at the beginning of a file; nullopt if there is no file or no number ("max").
static std::optional<double> numberIn(const std::string &path) {
  std::optional<double> number;
  readLines(path, [&](const char *line) {
    double value;
    if (!number && sscanf(line, "%lf", &value) == 1)
      number = value;
  });
  return number;
}

/// The names of the files of one version of control groups.
struct LimitFiles {
  const char *limit, *usage, *droppable; ///< `droppable` begins lines of memory.stat about memory that can be dropped.
};
static constexpr LimitFiles version1{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_"};
static constexpr LimitFiles version2{"memory.max", "memory.current", ""};

/// Lowers `free` to the memory that the control group in `folder` still allows, if that is less.
static void applyLimit(FreeMemory &free, const std::string &folder, const LimitFiles &files) {
  std::optional<double> limit = numberIn(folder + files.limit), usage = numberIn(folder + files.usage);
  if (!limit || !usage)
    return;
  double droppable = 0;
  readLines(folder + "memory.stat", [&](const char *line) {
    size_t prefix = strlen(files.droppable);
    double value;
    if (strncmp(line, files.droppable, prefix) == 0 && (sscanf(line + prefix, "active_file %lf", &value) == 1 ||
                                                        sscanf(line + prefix, "inactive_file %lf", &value) == 1))
      droppable += value;
  });
  double left = std::max(*limit - std::max(*usage - droppable, 0.0), 0.0);
  if (left < free.available)
    free = {left, *limit, 1};
}

/// Applies the limits of the group at `path` of the hierarchy that is mounted at `mount`, and of its parents. In a
/// container the path may be that of the machine, and only the mount's own files are visible.
static void applyLimits(FreeMemory &free, const std::string &mount, std::string path, const LimitFiles &files) {
  for (;;) {
    while (!path.empty() && path.back() == '/')
      path.pop_back();
    applyLimit(free, mount + path + "/", files);
    if (path.empty())
      return;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

FreeMemory pcrt::freeMemory(const std::string &root) {
  FreeMemory free;
  free.total = free.available = double(sysconf(_SC_PHYS_PAGES)) * double(sysconf(_SC_PAGESIZE));
  readLines(root + "/proc/meminfo", [&](const char *line) {
    double kib;
    if (sscanf(line, "MemTotal: %lf kB", &kib) == 1)
      free.total = kib * 1024;
    if (sscanf(line, "MemAvailable: %lf kB", &kib) == 1)
      free.available = kib * 1024;
  });
  // "4:memory:/user.slice" (version 1), "0::/user.slice" (version 2)
  readLines(root + "/proc/self/cgroup", [&](const char *line) {
    const char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : nullptr;
    if (!path)
      return;
    std::string names = "," + std::string(controllers + 1, path) + ",";
    if (names == ",,")
      applyLimits(free, root + "/sys/fs/cgroup", path + 1, version2);
    else if (names.find(",memory,") != std::string::npos)
      applyLimits(free, root + "/sys/fs/cgroup/memory", path + 1, version1);
  });
  return free;
}

std::string pcrt::lackOfMemory(const std::vector<MemoryWish> &wishes, int rank) {
  for (const MemoryWish &first : wishes) {
    double wanted = 0;
    FreeMemory free = first.free;
    for (const MemoryWish &wish : wishes) {
      if (strncmp(wish.machine, first.machine, sizeof wish.machine) != 0)
        continue;
      wanted += wish.bytes;
      if (wish.free.available < free.available)
        free = wish.free;
    }
    if (wanted <= free.available)
      continue;
    bool here = strncmp(wishes[rank].machine, first.machine, sizeof first.machine) == 0;
    char text[512];
    snprintf(text, sizeof text,
             "the arenas of the ranks on %s need %.2f GiB, but only %.2f GiB are available of %s %.2f GiB; end other "
             "programs, or use more microbatches, --recompute, a plan that splits more, or more machines",
             here ? "this machine" : (std::string("machine ") + first.machine).c_str(), wanted / (1 << 30),
             free.available / (1 << 30), free.isLimited ? "its container's limit of" : "its", free.total / (1 << 30));
    return text;
  }
  return "";
}
