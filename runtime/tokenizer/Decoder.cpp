//===- Decoder.cpp - Tokens to text ---------------------------------------===//
// After Fuse or ByteLevel the whole text is one token, which later steps get in several parts. A later step that needs
// whole tokens is therefore refused.
//===----------------------------------------------------------------------===//
#include "tokenizer/Decoder.h"
#include "tokenizer/PreTokenizer.h"
#include "tokenizer/Regex.h"
#include "tokenizer/Unicode.h"

#include <algorithm>

using namespace pcrt;

namespace {

void replaceAll(std::string &text, std::string_view from, std::string_view to) {
  for (size_t at = 0; !from.empty() && (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

/// A step that rewrites each token by its text and its number.
class EachToken : public DecoderStep {
public:
  using Function = std::function<void(std::string &text, size_t index)>;
  explicit EachToken(Function function) : function(std::move(function)) {}
  void push(std::string_view text, bool) override {
    std::string result(text);
    function(result, index++);
    next->push(result, true);
  }

private:
  Function function;
  size_t index = 0;
};

/// Tokens of byte characters become bytes, and invalid UTF-8 becomes U+FFFD.
class Bytes : public DecoderStep {
public:
  void push(std::string_view text, bool) override {
    std::optional<std::string> bytes = ByteCharacters::get().bytes(text);
    pending += bytes ? *bytes : text;
    emit(false);
  }
  void finish() override {
    emit(true);
    next->finish();
  }

private:
  void emit(bool last) {
    std::string text;
    pending.erase(0, appendLossy(text, pending, last));
    if (text.empty())
      return;
    next->push(text, begins);
    begins = false;
  }

  std::string pending;
  bool begins = true;
};

/// Tokens <0x00> to <0xFF> become bytes. A run of them is passed on when it ends: as text if it is UTF-8, otherwise as
/// one U+FFFD per byte.
class ByteFallback : public DecoderStep {
public:
  void push(std::string_view text, bool) override {
    auto digit = [](char c) {
      return isdigit(uint8_t(c)) ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
    };
    if (text.size() == 6 && text.substr(0, 3) == "<0x" && text[5] == '>' && digit(text[3]) >= 0 &&
        digit(text[4]) >= 0) {
      run += char(digit(text[3]) << 4 | digit(text[4]));
      return;
    }
    endRun();
    next->push(text, true);
  }
  void finish() override {
    endRun();
    next->finish();
  }

private:
  void endRun() {
    bool isValid = invalidUtf8(run) == std::string::npos;
    if (isValid && !run.empty())
      next->push(run, true);
    for (size_t i = 0; !isValid && i < run.size(); ++i)
      next->push("\xef\xbf\xbd", true);
    run.clear();
  }

  std::string run;
};

/// Joins all tokens to one token.
class Fuse : public DecoderStep {
public:
  void push(std::string_view text, bool) override {
    next->push(text, begins);
    begins = false;
  }

private:
  bool begins = true;
};

/// Removes at most `most` characters at the beginning of each token.
class StripBegin : public DecoderStep {
public:
  StripBegin(std::string content, size_t most) : content(std::move(content)), most(most) {}
  void push(std::string_view text, bool beginsToken) override {
    if (beginsToken)
      left = most;
    while (left > 0 && !text.empty()) {
      bool fits = text.substr(0, content.size()) == content;
      left = fits ? left - 1 : 0;
      if (fits)
        text.remove_prefix(content.size());
    }
    next->push(text, beginsToken);
  }

private:
  std::string content;
  size_t most, left = 0;
};

/// The suffix that ends words becomes a space, except in the last token.
class WordEnds : public DecoderStep {
public:
  explicit WordEnds(std::string suffix) : suffix(std::move(suffix)) {}
  void push(std::string_view text, bool) override {
    pass(" ");
    held = text;
  }
  void finish() override {
    pass("");
    next->finish();
  }

private:
  void pass(std::string_view replacement) {
    if (!held)
      return;
    replaceAll(*held, suffix, replacement);
    next->push(*held, true);
  }

  std::string suffix;
  std::optional<std::string> held;
};

/// Undoes BERT's spaces before punctuation and in English contractions.
void cleanUp(std::string &text) {
  static constexpr const char *rules[][2] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                                             {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                                             {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (auto &rule : rules)
    replaceAll(text, rule[0], rule[1]);
}

EachToken::Function readWordPiece(Component &component) {
  std::string prefix = component.text("prefix");
  bool cleans = component.flag("cleanup");
  return [prefix, cleans](std::string &text, size_t index) {
    if (index > 0 && text.compare(0, prefix.size(), prefix) == 0)
      text.erase(0, prefix.size());
    else if (index > 0)
      text.insert(0, " ");
    if (cleans)
      cleanUp(text);
  };
}

EachToken::Function readMetaspace(Component &component) {
  std::string replacement = component.character("replacement");
  bool hasScheme = component.json("prepend_scheme"), prepends = component.flag("add_prefix_space", true);
  std::string scheme = component.text("prepend_scheme", "always");
  if (scheme != "always" && scheme != "first" && scheme != "never")
    component.refuse("the prepend_scheme '" + printable(scheme) + "'");
  if (!prepends && hasScheme && scheme != "never")
    component.malformed("add_prefix_space does not match prepend_scheme");
  component.ignore("split"), component.ignore("str_rep");
  bool drops = prepends && scheme != "never"; // whether the first token loses its marks
  return [replacement, drops](std::string &text, size_t index) {
    replaceAll(text, replacement, index == 0 && drops ? "" : " ");
  };
}

EachToken::Function readReplace(Component &component) {
  Regex regex = Regex::read(component, "pattern");
  std::string content = component.text("content");
  return [regex, content](std::string &text, size_t) {
    std::string result;
    size_t done = 0;
    regex.forEach(text, [&](size_t begin, size_t end) {
      result.append(text, done, begin - done).append(content);
      done = end;
    });
    text = result.append(text, done);
  };
}

EachToken::Function readStripEnd(std::string content, size_t most) {
  return [content, most](std::string &text, size_t) {
    for (size_t i = 0; i < most && text.size() >= content.size() &&
                       text.compare(text.size() - content.size(), content.size(), content) == 0;
         ++i)
      text.resize(text.size() - content.size());
  };
}

void read(Component component, DecoderSteps &to, bool &isFused) {
  const std::string &type = component.type();
  auto each = [&](EachToken::Function function) {
    to.push_back([function] { return std::make_unique<EachToken>(function); });
  };
  if (isFused && type != "Strip" && type != "Fuse" && type != "Sequence")
    component.refuse("this decoder after Fuse or ByteLevel");
  if (type == "Sequence") {
    for (Component &one : component.list("decoders"))
      read(std::move(one), to, isFused);
  } else if (type == "ByteLevel") {
    for (const char *key : {"add_prefix_space", "trim_offsets", "use_regex"})
      component.ignore(key);
    to.push_back([] { return std::make_unique<Bytes>(); });
    isFused = true;
  } else if (type == "ByteFallback") {
    to.push_back([] { return std::make_unique<ByteFallback>(); });
  } else if (type == "Fuse") {
    to.push_back([] { return std::make_unique<Fuse>(); });
    isFused = true;
  } else if (type == "Replace") {
    each(readReplace(component));
  } else if (type == "Metaspace") {
    each(readMetaspace(component));
  } else if (type == "WordPiece") {
    each(readWordPiece(component));
  } else if (type == "BPEDecoder") {
    std::string suffix = component.text("suffix");
    to.push_back([suffix] { return std::make_unique<WordEnds>(suffix); });
  } else if (type == "Strip") {
    std::string content = component.character("content");
    auto start = size_t(component.number("start")), stop = size_t(component.number("stop"));
    if (start > 0)
      to.push_back([content, start] { return std::make_unique<StripBegin>(content, start); });
    if (stop > 0 && (isFused || start > 0))
      component.refuse("\"stop\" after Fuse or ByteLevel, or with \"start\"");
    if (stop > 0)
      each(readStripEnd(content, stop));
  } else {
    component.refuse("this decoder");
  }
  component.finish();
}

} // namespace

DecoderSteps pcrt::readDecoder(const nlohmann::json &json, const std::string &where) {
  DecoderSteps steps;
  bool isFused = false;
  if (json.is_null())
    steps.push_back([] {
      return std::make_unique<EachToken>([](std::string &text, size_t index) { text.insert(0, index ? " " : ""); });
    });
  else
    read(Component(json, where), steps, isFused);
  if (steps.empty())
    steps.push_back([] { return std::make_unique<Fuse>(); });
  return steps;
}
