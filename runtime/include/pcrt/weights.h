//===- weights.h - what importer and runtime look for in a checkpoint, alike ----------===//
// Each has a reader of its own; which names a tensor may have, and which tensors must be equal, is said here.
//===------------------------------------------------------------------------------===//
#ifndef PCRT_WEIGHTS_H
#define PCRT_WEIGHTS_H

#include <initializer_list>
#include <string>
#include <utility>

namespace pcrt {

/// What `find` finds of a model's tensor `name`, under the first name that there is: its own; without the first part,
/// or with one, as checkpoints of bare models and of those around them have it; the gamma or beta of a norm in early
/// versions of BERT. `find` gives something that is false where there is none.
template <typename Find> auto findModelTensor(const std::string &name, Find find) {
  std::string early = name;
  for (auto [now, before] : {std::pair<std::string, const char *>("LayerNorm.weight", "LayerNorm.gamma"),
                             std::pair<std::string, const char *>("LayerNorm.bias", "LayerNorm.beta")})
    if (name.ends_with(now))
      early.replace(name.size() - now.size(), now.size(), before);
  auto found = find(name);
  for (const std::string &other : {name.substr(name.find('.') + 1), "transformer." + name, "model." + name, early})
    if (!found)
      found = find(other);
  return found;
}

/// Of tensors that config.json says are one, pairs of a copy and the tensor that a program reads: what is wrong where a
/// checkpoint has both and not `areEqual(*copy, *tensor)`, else nothing. transformers does not tie those.
template <typename Pairs, typename Find, typename Equal>
std::string untiedTensors(const Pairs &ties, Find find, Equal areEqual) {
  for (const auto &[copy, original] : ties) {
    auto a = find(copy), b = findModelTensor(original, find);
    if (a && b && !areEqual(*a, *b))
      return "tensor '" + copy + "' is tied to '" + original + "' by config.json, but has other numbers";
  }
  return "";
}

} // namespace pcrt

#endif // PCRT_WEIGHTS_H
