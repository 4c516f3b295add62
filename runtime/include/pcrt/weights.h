//===- weights.h - The names of tensors in checkpoints --------------------===//
// Importer and runtime have separate readers. For both, this file defines which names a tensor may have, which tensors
// must be equal, and which files are broken.
//===----------------------------------------------------------------------===//
#ifndef PCRT_WEIGHTS_H
#define PCRT_WEIGHTS_H

#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace pcrt {

/// What the names of an adapter's tensors begin with in PEFT's files. A module's name and ".lora_A.weight" follow.
constexpr const char *adapterPrefix = "base_model.model.";

/// The result of `find` for a model's tensor `name`, under the first name that exists. Checkpoints of a bare model and
/// of a model with a head differ in the first part of names. So names are tried as they are, without the first part,
/// and with one more. Early versions of BERT call the parameters of a norm gamma and beta. `find` returns a value that
/// converts to false if there is no such tensor.
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

/// The error if a checkpoint has both tensors of a pair and not `areEqual(*copy, *tensor)`; otherwise empty. A pair is
/// a copy and the tensor that a program reads; config.json says that they are tied. transformers does not tie unequal
/// ones.
template <typename Pairs, typename Find, typename Equal>
std::string untiedTensors(const Pairs &ties, Find find, Equal areEqual) {
  for (const auto &[copy, original] : ties) {
    auto a = find(copy), b = findModelTensor(original, find);
    if (a && b && !areEqual(*a, *b))
      return "tensor '" + copy + "' is tied to '" + original +
             "' by config.json, but has different values; copy one of the two to the other";
  }
  return "";
}

/// The parts that wrappers of PyTorch add to the names of a model's tensors, and the wrappers.
struct Wrapper {
  const char *part, *of;
};
constexpr Wrapper wrappers[] = {{"_orig_mod", "torch.compile"},
                                {"module", "DistributedDataParallel or DataParallel"},
                                {"_fsdp_wrapped_module", "FullyShardedDataParallel"},
                                {"_checkpoint_wrapped_module", "activation checkpointing"},
                                {"_forward_module", "Lightning Fabric"}};

/// A hint for the message that tensor `name` is missing from a file of tensors `there`. If a tensor has its name except
/// for a part that a wrapper has added, the hint is the cause; otherwise it is empty.
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
      return "; '" + other + "' exists: the weights were saved from a wrapper that " + outermost->of +
             " puts around a model. Save " + "the inner model (model." + outermost->part + "), or remove '" +
             outermost->part + ".' from the tensor names";
  }
  return "";
}

/// Whether a file is the text that Git LFS leaves in place of a large file that was not fetched.
inline bool isLfsPointer(std::string_view text) { return text.starts_with("version https://git-lfs.github.com/spec/"); }
constexpr const char *lfsPointerMessage =
    "is a Git LFS pointer instead of the file itself; fetch it with 'git lfs pull', or download the file";

/// The message if a file of JSON or of tensors that begins with `text` is empty or a pointer of Git LFS; otherwise "".
inline std::string whyNoContents(std::string_view text) {
  return text.empty() ? "is empty; copy or download it again" : isLfsPointer(text) ? lfsPointerMessage : "";
}

/// Whether there is a file or a link, even a dangling one, for which opening gives a better message.
inline bool isThere(const std::string &path) {
  std::error_code error;
  return std::filesystem::exists(std::filesystem::symlink_status(path, error));
}

/// The message for a `path` that cannot be opened: `reason`, or a better one if it is a dangling link.
inline std::string whyNotOpened(const std::string &path, const std::string &reason) {
  std::error_code error;
  std::filesystem::path target = std::filesystem::read_symlink(path, error);
  if (error || std::filesystem::exists(path, error))
    return reason;
  return "it is a symbolic link to '" + target.string() +
         "', which does not exist; copy the file itself (cp -L), or download it again";
}

} // namespace pcrt

#endif // PCRT_WEIGHTS_H
