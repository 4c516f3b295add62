//===- Search.h - The placement solver on the contest's graphs ------------===//
#ifndef PC_BENCH_IOPDDL_SEARCH_H
#define PC_BENCH_IOPDDL_SEARCH_H

#include "Graph.h"

namespace iopddl {

struct Effort {
  unsigned rounds = 2000;         ///< assignments of parts of the graph that are solved exactly
  double seconds = 0;             ///< 0: only rounds end the search, and so every machine finds the same
  size_t table = size_t(1) << 20; ///< entries of a table, at most
};

struct Found {
  std::optional<Choice> choice; ///< within the limit; none: none was found
  __int128 cost = 0;            ///< of it
  __int128 bound = 0;           ///< no choice within the limit has less
  bool isExact = false;         ///< whether the solver answered for the graph as a whole, without the limit
  unsigned rounds = 0;
};

/// Without a limit that matters the exact answer, if tables suffice for it. With a limit moments have prices for what
/// is used, which rise where it is exceeded: the least of costs and prices is a bound (H. Everett's multipliers), and
/// parts of the graph are assigned anew, exactly, while the rest is held.
Found search(const Graph &graph, const Effort &effort);

} // namespace iopddl

#endif
