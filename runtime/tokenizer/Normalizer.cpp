//===- Normalizer.cpp - Text to normalized text ---------------------------===//
// Reads and runs the normalizers of the package `tokenizers`.
//===----------------------------------------------------------------------===//
#include "tokenizer/Normalizer.h"
#include "tokenizer/PreTokenizer.h"
#include "tokenizer/Regex.h"
#include "tokenizer/Unicode.h"

using namespace pcrt;

namespace {

class Form : public Normalizer {
public:
  explicit Form(NormalForm form) : form(form) {}
  void normalize(std::string &text, bool &) const override { text = normalForm(text, form); }

private:
  NormalForm form;
};

class Prepend : public Normalizer {
public:
  explicit Prepend(std::string prefix) : prefix(std::move(prefix)) {}
  void normalize(std::string &text, bool &) const override {
    if (!text.empty())
      text.insert(0, prefix);
  }

private:
  std::string prefix;
};

class Replace : public Normalizer {
public:
  Replace(Regex regex, std::string content) : regex(std::move(regex)), content(std::move(content)) {}
  void normalize(std::string &text, bool &lostBegin) const override {
    std::string result;
    size_t done = 0;
    regex.forEach(text, [&](size_t begin, size_t end) {
      result.append(text, done, begin - done).append(content);
      // In the package, a text that replaces several characters belongs to the last of them.
      lostBegin |= begin == 0 && (content.empty() ? end > 0 : end > utf8Length(text[0]));
      done = end;
    });
    text = result.append(text, done);
  }

private:
  Regex regex;
  std::string content;
};

/// Passes each character to a function that writes its replacement, or nothing.
class Characters : public Normalizer {
public:
  using Function = std::function<void(std::string &to, CodePoint c)>;
  explicit Characters(Function function) : function(std::move(function)) {}
  void normalize(std::string &text, bool &lostBegin) const override {
    std::string result;
    result.reserve(text.size());
    for (size_t at = 0; at < text.size();) {
      function(result, nextCharacter(text, at));
      lostBegin |= result.empty();
    }
    text = std::move(result);
  }

private:
  Function function;
};

class Strip : public Normalizer {
public:
  Strip(bool left, bool right) : left(left), right(right) {}
  void normalize(std::string &text, bool &lostBegin) const override {
    size_t begin = 0, end = 0;
    for (size_t at = 0; at < text.size();)
      if (!isSpace(nextCharacter(text, at)))
        end = at;
    for (size_t at = 0; left && at < text.size() && isSpace(nextCharacter(text, at));)
      begin = at;
    lostBegin |= begin > 0;
    end = right ? std::max(begin, end) : text.size();
    text = text.substr(begin, end - begin);
  }

private:
  bool left, right;
};

class ByteLevel : public Normalizer {
public:
  void normalize(std::string &text, bool &) const override { text = ByteCharacters::get().characters(text); }
};

void keepUnless(bool (*isRemoved)(CodePoint), std::string &to, CodePoint c) {
  if (!isRemoved(c))
    appendUtf8(to, c);
}

/// Removes control characters, and replaces every space by ' '.
void clean(std::string &to, CodePoint c) {
  if (c == 0 || c == 0xfffd || isControl(c))
    return;
  appendUtf8(to, isSpace(c) ? ' ' : c);
}

/// Writes spaces around ideographs, as BERT defines them.
void separateIdeographs(std::string &to, CodePoint c) {
  bool isIdeograph = (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) || (c >= 0x20000 && c <= 0x2a6df) ||
                     (c >= 0x2a700 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) || (c >= 0xf900 && c <= 0xfaff) ||
                     (c >= 0x2f800 && c <= 0x2fa1f);
  if (isIdeograph)
    to += ' ';
  appendUtf8(to, c);
  if (isIdeograph)
    to += ' ';
}

/// Applies NMT's rules for control characters and spaces.
void nmt(std::string &to, CodePoint c) {
  if ((c >= 1 && c <= 8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f || c == 0x8f || c == 0x9f)
    return;
  bool isSpace = c == 9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 || (c >= 0x200b && c <= 0x200f) ||
                 c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xfeff || c == 0xfffd;
  appendUtf8(to, isSpace ? ' ' : c);
}

void read(Component component, Normalizers &to) {
  auto add = [&](Normalizer *step) { to.steps.emplace_back(step); };
  const std::string &type = component.type();
  static const char *const forms[] = {"NFC", "NFD", "NFKC", "NFKD"};
  for (size_t i = 0; i < std::size(forms); ++i)
    if (type == forms[i]) {
      add(new Form(NormalForm(i)));
      return component.finish();
    }
  if (type == "Sequence") {
    for (Component &one : component.list("normalizers"))
      read(std::move(one), to);
  } else if (type == "Prepend") {
    add(new Prepend(component.text("prepend")));
  } else if (type == "Replace") {
    Regex regex = Regex::read(component, "pattern");
    add(new Replace(std::move(regex), component.text("content")));
  } else if (type == "Lowercase") {
    add(new Characters(appendLower));
  } else if (type == "StripAccents") {
    add(new Characters([](std::string &text, CodePoint c) { keepUnless(isMark, text, c); }));
  } else if (type == "Nmt") {
    add(new Characters(nmt));
  } else if (type == "Strip") {
    bool left = component.flag("strip_left");
    add(new Strip(left, component.flag("strip_right")));
  } else if (type == "ByteLevel") {
    add(new ByteLevel);
  } else if (type == "Precompiled") {
    to.steps.push_back(readPrecompiled(component));
  } else if (type == "BertNormalizer") {
    bool lowers = component.flag("lowercase");
    if (component.flag("clean_text"))
      add(new Characters(clean));
    if (component.flag("handle_chinese_chars"))
      add(new Characters(separateIdeographs));
    if (component.flag("strip_accents", lowers)) {
      add(new Form(NormalForm::D));
      add(new Characters([](std::string &text, CodePoint c) { keepUnless(isNonspacing, text, c); }));
    }
    if (lowers)
      add(new Characters(appendLower));
  } else {
    component.refuse("this normalizer");
  }
  component.finish();
}

} // namespace

Normalizers pcrt::readNormalizer(Component component) {
  Normalizers result;
  read(std::move(component), result);
  return result;
}
