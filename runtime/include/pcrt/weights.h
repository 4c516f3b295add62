//===- weights.h - What importer and runtime look for in a checkpoint, alike -===//
// Each has a reader of its own; which names a tensor may have, and which tensors must be equal, is said here.
//===----------------------------------------------------------------------===//
#ifndef PCRT_WEIGHTS_H
#define PCRT_WEIGHTS_H

#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace pcrt {

/// What `find` finds of a model's tensor `name`, under the first name that there is: its own; without the first part,
/// or with one, as checkpoints of bare models and of those around them have it; the gamma or beta of a norm in early
/// versions of BERT. `find` gives something that is false where there is none.
template <typename Find> auto findModelTensor(const std::string &name, Find find) {
  std::string early = name;
  for (const auto &[now, before] : {std::pair<std::string, const char *>("LayerNorm.weight", "LayerNorm.gamma"),
                                    std::pair<std::string, const char *>("LayerNorm.bias", "LayerNorm.beta")})
    if (name.ends_with(now))
      early.replace(name.size() - now.size(), now.size(), before);
  auto found = find(name);
  for (const std::string &other : {name.substr(name.find('.') + 1), "transformer." + name, "model." + name, early})
    if (!found)
      found = find(other);
  return found;
}

/// The error if a checkpoint has both tensors of a pair and not `areEqual(*copy, *tensor)`; else empty. A pair is a
/// copy and the tensor that a program reads; config.json says that they are one. transformers does not tie unequal
/// ones.
template <typename Pairs, typename Find, typename Equal>
std::string untiedTensors(const Pairs &ties, Find find, Equal areEqual) {
  for (const auto &[copy, original] : ties) {
    auto a = find(copy), b = findModelTensor(original, find);
    if (a && b && !areEqual(*a, *b))
      return "tensor '" + copy + "' is tied to '" + original + "' by config.json, but has other numbers";
  }
  return "";
}

/// The names that wrappers of PyTorch add to those of a model's tensors, and who does.
struct Wrapper {
  const char *part, *of;
};
constexpr Wrapper wrappers[] = {{"_orig_mod", "torch.compile"},
                                {"module", "DistributedDataParallel or DataParallel"},
                                {"_fsdp_wrapped_module", "FullyShardedDataParallel"},
                                {"_checkpoint_wrapped_module", "activation checkpointing"},
                                {"_forward_module", "Lightning Fabric"}};

/// What to say of a tensor `name` that is missing from a file of tensors `there`: where one has its name but for what a
/// wrapper has added, the cause; else nothing.
template <typename Names> std::string whyMissing(const std::string &name, const Names &there) {
  for (const std::string &other : there) {
    std::string plain = "." + other;
    const Wrapper *outermost = nullptr;
    size_t first = std::string::npos;
    for (const Wrapper &wrapper : wrappers) {
      std::string part = std::string(".") + wrapper.part + ".";
      if (size_t at = ("." + other).find(part); at < first)
        first = at, outermost = &wrapper;
      for (size_t at; (at = plain.find(part)) != std::string::npos;)
        plain.erase(at, part.size() - 1);
    }
    if (outermost && findModelTensor(name, [&](const std::string &one) { return "." + one == plain; }))
      return "; '" + other + "' is there: the weights were saved from what " + outermost->of +
             " makes of a model. Save " + "the model in it (model." + outermost->part + "), or take '" +
             outermost->part + ".' out of the names";
  }
  return "";
}

/// Git LFS leaves such a text in the place of a large file that was not fetched.
inline bool isLfsPointer(std::string_view text) { return text.starts_with("version https://git-lfs.github.com/spec/"); }
constexpr const char *lfsPointerMessage =
    "is a pointer of Git LFS, not the file itself; fetch it with 'git lfs pull', or download the file";

/// What is wrong with a file of JSON or of tensors that begins with `text`: it is empty, or a pointer of Git LFS; else
/// "".
inline std::string whyNoContents(std::string_view text) {
  return text.empty() ? "is empty; copy or download it again" : isLfsPointer(text) ? lfsPointerMessage : "";
}

/// Whether a file is there, be it a link that leads to none: who opens it is told so.
inline bool isThere(const std::string &path) {
  std::error_code error;
  return std::filesystem::exists(std::filesystem::symlink_status(path, error));
}

/// What to say of a `path` that cannot be opened: more than the system's words if it is a link to nothing.
inline std::string whyNotOpened(const std::string &path, const std::string &reason) {
  std::error_code error;
  std::filesystem::path target = std::filesystem::read_symlink(path, error);
  if (error || std::filesystem::exists(path, error))
    return reason;
  return "it is a link to '" + target.string() +
         "', which is not there; copy the file itself (cp -L), or download it again";
}

} // namespace pcrt

#endif // PCRT_WEIGHTS_H
