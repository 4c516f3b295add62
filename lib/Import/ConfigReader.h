//===- ConfigReader.h - Reads and checks the keys of a config.json --------------------===//
// Every getter reports errors by the key's name and continues. For keys that determine what a model with given weights
// computes, it also records the equivalent values (config_means). A run refuses checkpoints whose config.json has other
// values.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_IMPORT_CONFIGREADER_H
#define PC_LIB_IMPORT_CONFIGREADER_H

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/JSON.h"

namespace pc {

/// The places of a key in a config.json: "rope_parameters.rope_theta" is inside an object. The first place with a value
/// other than null counts.
struct ConfigKey {
  llvm::SmallVector<llvm::StringRef, 4> places;
  ConfigKey(const char *place) : places{place} {}
  ConfigKey(llvm::StringRef place) : places{place} {}
  ConfigKey(std::initializer_list<const char *> list) : places(list.begin(), list.end()) {}
};

/// Whether a key changes the results of a model with given weights, or only how the model is trained, initialized or
/// used.
enum class KeyRole { Computes, Aside };

/// Input: one config.json. State: the keys that were read, and the recorded meanings. After an error getters return a
/// legal value, so that reading continues and reports further errors; `failed` stays set.
class ConfigReader {
public:
  using Emit = llvm::function_ref<mlir::InFlightDiagnostic()>;
  ConfigReader(const llvm::json::Object &object, Emit error) : object(object), error(error) {}

  bool failed = false;

  /// A positive integer below 2^31; without `absent` the key is required.
  int64_t size(ConfigKey key, std::optional<int64_t> absent = std::nullopt, KeyRole role = KeyRole::Computes);
  /// A finite number, and one above zero; without `absent` the key is required.
  double real(ConfigKey key, std::optional<double> absent, KeyRole role = KeyRole::Computes);
  double positive(ConfigKey key, std::optional<double> absent, KeyRole role = KeyRole::Computes);
  bool flag(ConfigKey key, bool absent, KeyRole role = KeyRole::Computes);
  /// A string; `synonyms` are sets of strings that mean the same.
  std::string text(ConfigKey key, llvm::StringRef absent,
                   llvm::ArrayRef<llvm::ArrayRef<llvm::StringRef>> synonyms = {});

  /// Options that change the numbers: only one (`allowed`) is supported.
  void onlyOne(ConfigKey key);
  void onlyFlag(ConfigKey key, bool allowed, KeyRole role = KeyRole::Computes);

  /// The value of a key, or null if it is absent or null.
  const llvm::json::Value *raw(ConfigKey key);
  bool has(ConfigKey key) const { return find(key); }
  /// Whether the key is present, possibly with value null.
  bool isGiven(llvm::StringRef key) const { return object.get(key); }

  /// Records the equivalent values of a key (config_means). `absent` is the value if a config lacks the key. `null` is
  /// the value of a null, if it differs.
  void means(ConfigKey key, std::vector<llvm::json::Value> values, llvm::json::Value absent,
             std::optional<llvm::json::Value> null = std::nullopt);
  /// Records that other weights may have a tensor `copy` that equals `original`.
  void isTied(llvm::StringRef copy, llvm::StringRef original) {
    written.push_back(llvm::json::Object{{"tensor", copy}, {"tied", original}});
  }
  llvm::json::Array takeMeans() { return std::move(written); }

  mlir::InFlightDiagnostic fail() {
    failed = true;
    return error();
  }
  /// The key for messages: the place where it is, or should be, in quotes.
  std::string name(const ConfigKey &key) const;
  static std::string show(const llvm::json::Value &value);

  /// The keys that were not read, sorted: those of the config, and of objects in it if some of their keys were read.
  std::vector<std::string> unused() const;

private:
  const llvm::json::Value *find(const ConfigKey &key) const;
  /// Fails because the key is missing.
  void miss(const ConfigKey &key) { fail() << name(key) << " is missing"; }

  const llvm::json::Object &object;
  Emit error;
  llvm::StringSet<> used;
  llvm::json::Array written;
};

} // namespace pc

#endif
