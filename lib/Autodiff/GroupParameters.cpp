//===- GroupParameters.cpp - Freezes parameters and puts them into groups ------------------===//
// Input: a model program, and globs with settings. Result: parameters that are frozen or have a group. Every glob must
// match a parameter, and a parameter may have only one group. So a misspelt name is an error, instead of training with
// other settings.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_GROUPPARAMETERS
#include "pc/Autodiff/Passes.h"

#include "Settings.h"
#include "pc/Autodiff/Optimizers.h"
#include "pc/IR/Groups.h"
#include "pc/IR/NameGlobs.h"

#include "llvm/ADT/StringExtras.h"
#include <cmath>

using namespace mlir;
using namespace pc;

namespace {

struct Group {
  NameGlobs globs;
  NamedAttrList settings;
};

/// Reads the entries of the options, assigns each parameter to frozen parameters and to a group, and refuses entries
/// that fit no parameter.
struct GroupParameters : pc::impl::GroupParametersBase<GroupParameters> {
  using GroupParametersBase::GroupParametersBase;

  /// Reads all flags first, so that an error in a flag is reported before errors at parameters. Then freezes and groups
  /// every parameter, and refuses globs that fit no parameter.
  void runOnOperation() override {
    SmallVector<Group, 0> all;
    SmallVector<NameGlobs, 0> frozen;
    SmallVector<StringRef> words;
    llvm::SplitString(groups, words);
    for (StringRef entry : words)
      if (failed(readGroup(entry, all.emplace_back())))
        return signalPassFailure();
    words.clear();
    llvm::SplitString(freeze, words);
    for (StringRef entry : words)
      if (failed(readGlobs("--freeze", entry, frozen.emplace_back())))
        return signalPassFailure();
    if (!decay.empty() && decay != "matrices")
      return fail("--decay=" + decay + ": expected matrices");

    WalkResult walked = getOperation().walk([&](ParameterOp parameter) -> WalkResult {
      for (NameGlobs &globs : frozen) {
        FailureOr<bool> fits = globs.fits(parameter);
        if (failed(fits))
          return WalkResult::interrupt();
        if (*fits)
          parameter.setFrozen(true);
      }
      return putIntoGroup(parameter, all);
    });
    if (walked.wasInterrupted())
      return signalPassFailure();
    auto requireUsed = [&](StringRef flag, const NameGlobs &globs) {
      if (failed(globs.requireUsed(getOperation(), flag)))
        signalPassFailure();
    };
    for (const NameGlobs &globs : frozen)
      requireUsed("--freeze", globs);
    bool anyTrained = false;
    getOperation().walk([&](ParameterOp parameter) { anyTrained |= !parameter.getFrozen(); });
    if (!frozen.empty() && !anyTrained)
      fail("--freeze: every parameter is frozen, so there is nothing to train");
    for (const Group &group : all)
      requireUsed("--group", group.globs);
  }

private:
  void fail(const Twine &why) {
    getOperation().emitError() << why;
    signalPassFailure();
  }

  LogicalResult readGlobs(const Twine &flag, StringRef text, NameGlobs &globs) {
    std::string why;
    FailureOr<NameGlobs> read = NameGlobs::parse(text, why);
    if (failed(read))
      return getOperation().emitError() << flag << "=" << text << " " << why;
    globs = std::move(*read);
    return success();
  }

  /// Divides "GLOB:lr=0.1x,sparsity=2:4" at the last colon that no digit follows.
  static std::pair<StringRef, StringRef> globsAndSettings(StringRef entry) {
    for (size_t at = entry.rfind(':'); at != StringRef::npos; at = entry.rfind(':', at))
      if (at + 1 == entry.size() || !llvm::isDigit(entry[at + 1]))
        return {entry.take_front(at), entry.drop_front(at + 1)};
    return {entry, ""};
  }

  /// Reads `0.5` or `2:4`, and checks the settings that depend on it. Returns the error, or an empty string.
  static std::string readSparsity(StringRef text, Group &group, Builder &builder) {
    auto [kept, among] = text.split(':');
    int64_t few, many;
    double share;
    if (among.empty()) {
      if (text.getAsDouble(share) || !(share > 0 && share < 1))
        return "needs a share of zeros above 0 and below 1, or a pattern such as 2:4";
      group.settings.set("sparsity", builder.getF64FloatAttr(share));
      return "";
    }
    if (kept.getAsInteger(10, few) || among.getAsInteger(10, many) || few < 1 || few >= many || many > 32)
      return "needs a pattern such as 2:4, of at most 32 elements";
    group.settings.set("kept", builder.getF64FloatAttr(static_cast<double>(few)));
    group.settings.set("among", builder.getF64FloatAttr(static_cast<double>(many)));
    return "";
  }

  /// Checks the steps at which masks are chosen. Returns the error, or an empty string.
  static std::string checkChoices(DictionaryAttr all) {
    double every = settingOf(all, "every", 1), until = settingOf(all, "until", 0);
    if ((all.get("every") || all.get("until")) && !all.get("sparsity") && !all.get("among"))
      return "'every' and 'until' need sparsity";
    if (every < 1 || every != std::floor(every) || until != std::floor(until) || until > 1e7)
      return "'every' and 'until' need whole numbers of steps, and 'every' at least 1";
    if (all.get("sparsity") && until / every > 64)
      return "masks would be chosen more than 64 times; use a larger 'every'";
    return "";
  }

  /// Reads "GLOB:lr=0.1x,decay=0".
  LogicalResult readGroup(StringRef entry, Group &group) {
    auto [globs, settings] = globsAndSettings(entry);
    if (failed(readGlobs("--group", globs, group.globs)))
      return failure();
    auto refuse = [&](const Twine &why) { return getOperation().emitError() << "--group=" << entry << ": " << why; };
    Builder builder(&getContext());
    SmallVector<StringRef> parts;
    settings.split(parts, ',');
    for (StringRef part : parts) {
      auto [name, text] = settingIn(part);
      if (name == "optimizer" && !group.settings.get(name)) {
        group.settings.set(name, builder.getStringAttr(text));
        continue;
      }
      if (name == "sparsity") {
        if (group.settings.get(name) || group.settings.get("among"))
          return refuse("'sparsity' occurs twice");
        if (std::string why = readSparsity(text, group, builder); !why.empty())
          return refuse("'" + part + "' " + why);
        continue;
      }
      // A number that ends with `x` is a factor of the run's setting, and is stored under another key than the setting
      // itself.
      bool isFactor = text.consume_back("x"), isRate = name == "lr";
      double number;
      std::string key = name.str() + (isFactor ? "_factor" : "");
      if (isRate && !isFactor)
        return refuse("the learning rate of a group is a factor of --lr; write lr=0.1x");
      if (!llvm::is_contained(groupSettings, key) || key == "kept" || key == "among")
        return refuse("'" + part +
                      "' is not a setting; expected lr=0.1x, decay=0, decay=0.5x, beta1, beta2, eps, optimizer, "
                      "sparsity, every or until");
      if (text.getAsDouble(number) || !(number >= 0) || std::isinf(number))
        return refuse("'" + part + "' needs a number of at least 0");
      if (StringRef(key).starts_with("beta") && number >= 1)
        return refuse("'" + part + "' needs a number below 1");
      if (group.settings.get(key))
        return refuse("'" + name + "' occurs twice");
      group.settings.set(key, builder.getF64FloatAttr(number));
    }
    if (group.settings.get("decay") && group.settings.get("decay_factor"))
      return refuse("'decay' occurs twice");
    if (std::string why = checkChoices(group.settings.getDictionary(&getContext())); !why.empty())
      return refuse(why);
    group.settings.set("name", builder.getStringAttr(globs));
    return success();
  }

  /// A parameter that two groups match is an error.
  LogicalResult putIntoGroup(ParameterOp parameter, MutableArrayRef<Group> all) {
    Group *own = nullptr;
    for (Group &group : all) {
      FailureOr<bool> fits = group.globs.fits(parameter);
      if (failed(fits))
        return failure();
      if (!*fits)
        continue;
      if (own)
        return parameter.emitError() << "--group: '" << parameter.getName() << "' belongs to two groups, '"
                                     << own->globs.text() << "' and '" << group.globs.text() << "'";
      if (parameter.getFrozen())
        return parameter.emitError() << "--group=" << group.globs.text() << ": '" << parameter.getName()
                                     << "' is frozen, so the optimizer does not update it";
      own = &group;
    }
    NamedAttrList settings = own ? own->settings : NamedAttrList();
    Builder builder(&getContext());
    if (decay == "matrices" && !parameter.getFrozen() && !isDecayed(parameter) && !settings.get("decay") &&
        !settings.get("decay_factor")) {
      settings.set("decay", builder.getF64FloatAttr(0));
      if (!own)
        settings.set("name", builder.getStringAttr("no decay"));
    }
    if (!settings.empty())
      parameter.setGroupAttr(settings.getDictionary(&getContext()));
    return success();
  }

  /// Returns true if the parameter is a matrix, or a stack of matrices, but not the table of an embedding.
  static bool isDecayed(ParameterOp parameter) {
    ArrayRef<int64_t> shape = partsOf(parameter)[0].source.getShape();
    return shape.size() >= 2 && !isTable(parameter);
  }
};

} // namespace
