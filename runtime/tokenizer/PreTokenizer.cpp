//===- PreTokenizer.cpp - Text to words -----------------------------------===//
// A step cuts each word at the matches of a pattern or of a class of characters. Its behavior says whether matches are
// removed, become words, or are joined with a neighbour.
//===----------------------------------------------------------------------===//
#include "tokenizer/PreTokenizer.h"
#include "tokenizer/Unicode.h"

#include <algorithm>

using namespace pcrt;

namespace {

enum class Behavior { Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous };

/// The part [begin, end) of a word, and whether it matches.
struct Part {
  size_t begin, end;
  bool isMatch;
};

Behavior readBehavior(Component &component, const char *otherwise) {
  std::string name = component.text("behavior", otherwise);
  static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
  for (size_t i = 0; i < std::size(names); ++i)
    if (name == names[i])
      return Behavior(i);
  component.refuse("the behavior '" + printable(name) + "'");
}

/// Joins the parts of a word according to the behavior, and appends the words.
void appendParts(const Word &word, std::vector<Part> &parts, Behavior behavior, std::vector<Word> &to) {
  bool isBackward = behavior == Behavior::MergedWithNext, matched = false;
  if (isBackward)
    std::reverse(parts.begin(), parts.end());
  size_t joined = 0; // the number of finished parts, which are the first ones
  for (const Part &part : parts) {
    bool joins = behavior == Behavior::Contiguous                         ? part.isMatch == matched
                 : isBackward || behavior == Behavior::MergedWithPrevious ? part.isMatch && !matched
                                                                          : false;
    matched = part.isMatch;
    if (behavior == Behavior::Removed && part.isMatch)
      continue;
    if (joins && joined)
      (isBackward ? parts[joined - 1].begin : parts[joined - 1].end) = isBackward ? part.begin : part.end;
    else
      parts[joined++] = part;
  }
  parts.resize(joined);
  if (isBackward)
    std::reverse(parts.begin(), parts.end());
  for (const Part &part : parts)
    if (part.end > part.begin)
      to.push_back({word.text.substr(part.begin, part.end - part.begin), word.isFirst && part.begin == 0});
}

/// Cuts words at matches.
class Cut : public PreTokenizer {
public:
  Cut(Behavior behavior, bool invert) : behavior(behavior), invert(invert) {}

  void split(Words &words) const override {
    words.next.clear();
    std::vector<Part> parts;
    for (const Word &word : words.words) {
      parts.clear();
      size_t end = 0;
      forEach(word.text, [&](size_t begin, size_t last) {
        if (begin > end)
          parts.push_back({end, begin, invert});
        parts.push_back({begin, last, !invert});
        end = last;
      });
      if (end < word.text.size())
        parts.push_back({end, word.text.size(), invert});
      appendParts(word, parts, behavior, words.next);
    }
    std::swap(words.words, words.next);
  }

protected:
  virtual void forEach(std::string_view text, const Regex::Found &found) const = 0;

private:
  Behavior behavior;
  bool invert;
};

class CutAtPattern : public Cut {
public:
  CutAtPattern(Regex regex, Behavior behavior, bool invert) : Cut(behavior, invert), regex(std::move(regex)) {}

protected:
  void forEach(std::string_view text, const Regex::Found &found) const override { regex.forEach(text, found); }

private:
  Regex regex;
};

/// Cuts words at single characters of a class.
class CutAtCharacters : public Cut {
public:
  using Class = std::function<bool(CodePoint)>;
  CutAtCharacters(Class matches, Behavior behavior) : Cut(behavior, false), matches(std::move(matches)) {}

protected:
  void forEach(std::string_view text, const Regex::Found &found) const override {
    for (size_t at = 0; at < text.size();) {
      size_t begin = at;
      if (matches(nextCharacter(text, at)))
        found(begin, at);
    }
  }

private:
  Class matches;
};

/// Implements Whitespace, whose words are the matches of \w+|[^\w\s]+.
class WordsAndOthers : public PreTokenizer {
public:
  void split(Words &words) const override {
    words.next.clear();
    for (const Word &word : words.words)
      for (size_t at = 0, begin = 0, kind = 0; begin < word.text.size(); begin = at) {
        for (at = begin; at < word.text.size();) {
          size_t next = at;
          CodePoint c = nextCharacter(word.text, next);
          size_t now = isSpace(c) ? 0 : isWord(c) ? 1 : 2;
          if (at > begin && now != kind)
            break;
          kind = now, at = next;
        }
        if (kind)
          words.next.push_back({word.text.substr(begin, at - begin), word.isFirst && begin == 0});
      }
    std::swap(words.words, words.next);
  }
};

/// Cuts words into pieces with a fixed number of characters.
class FixedLength : public PreTokenizer {
public:
  explicit FixedLength(size_t length) : length(length) {}

  void split(Words &words) const override {
    words.next.clear();
    for (const Word &word : words.words)
      for (size_t begin = 0, at = 0; begin < word.text.size(); begin = at) {
        for (size_t i = 0; i < length && at < word.text.size(); ++i)
          at += utf8Length(word.text[at]);
        words.next.push_back({word.text.substr(begin, at - begin), word.isFirst && begin == 0});
      }
    std::swap(words.words, words.next);
  }

private:
  size_t length;
};

/// Puts a space before words that have none.
class SpaceBefore : public PreTokenizer {
public:
  void split(Words &words) const override {
    for (Word &word : words.words)
      if (word.text[0] != ' ')
        word.text = words.keep(" " + std::string(word.text));
  }
};

/// Writes bytes as characters.
class BytesAsCharacters : public PreTokenizer {
public:
  void split(Words &words) const override {
    for (Word &word : words.words)
      word.text = words.keep(ByteCharacters::get().characters(word.text));
  }
};

/// Replaces each space by U+2581, which is SentencePiece's mark.
class Metaspace : public PreTokenizer {
public:
  explicit Metaspace(Component &component) : replacement(component.character("replacement")) {
    scheme = component.text("prepend_scheme", "always");
    if (scheme != "always" && scheme != "first" && scheme != "never")
      component.refuse("the prepend_scheme '" + printable(scheme) + "'");
    if (!component.flag("add_prefix_space", true)) {
      if (scheme != "never" && component.json("prepend_scheme"))
        component.malformed("add_prefix_space does not match prepend_scheme");
      scheme = "never";
    }
    cuts = component.flag("split", true);
    component.ignore("str_rep");
  }

  void split(Words &words) const override {
    words.next.clear();
    for (const Word &word : words.words) {
      std::string text;
      for (char c : word.text)
        c == ' ' ? text += replacement : text += c;
      if ((scheme == "always" || (scheme == "first" && word.isFirst)) &&
          text.compare(0, replacement.size(), replacement))
        text.insert(0, replacement);
      std::string_view kept = words.keep(std::move(text));
      size_t begin = 0;
      for (size_t at = kept.find(replacement, 1); cuts && at != kept.npos; at = kept.find(replacement, at + 1)) {
        words.next.push_back({kept.substr(begin, at - begin), word.isFirst && begin == 0});
        begin = at;
      }
      words.next.push_back({kept.substr(begin), word.isFirst && begin == 0});
    }
    std::swap(words.words, words.next);
  }

private:
  std::string replacement, scheme;
  bool cuts;
};

constexpr const char gpt2Pattern[] = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

void read(Component component, PreTokenizers &to) {
  auto add = [&](PreTokenizer *step) { to.steps.emplace_back(step); };
  auto cut = [&](CutAtCharacters::Class matches, Behavior behavior) {
    add(new CutAtCharacters(std::move(matches), behavior));
  };
  const std::string &type = component.type();
  to.endsInBytes = false;
  if (type == "Sequence") {
    for (Component &one : component.list("pretokenizers"))
      read(std::move(one), to);
  } else if (type == "ByteLevel") {
    if (component.flag("add_prefix_space"))
      add(new SpaceBefore);
    if (component.flag("use_regex", true))
      add(new CutAtPattern(Regex(component, gpt2Pattern, false), Behavior::Isolated, false));
    add(new BytesAsCharacters);
    component.ignore("trim_offsets");
    to.endsInBytes = true;
  } else if (type == "Split") {
    Regex regex = Regex::read(component, "pattern");
    Behavior behavior = readBehavior(component, "");
    add(new CutAtPattern(std::move(regex), behavior, component.flag("invert")));
  } else if (type == "Digits") {
    cut(isNumeric, component.flag("individual_digits") ? Behavior::Isolated : Behavior::Contiguous);
  } else if (type == "Metaspace") {
    add(new Metaspace(component));
  } else if (type == "Whitespace") {
    add(new WordsAndOthers);
  } else if (type == "WhitespaceSplit") {
    cut(isSpace, Behavior::Removed);
  } else if (type == "BertPreTokenizer") {
    cut(isSpace, Behavior::Removed);
    cut(isPunctuation, Behavior::Isolated);
  } else if (type == "Punctuation") {
    cut(isPunctuation, readBehavior(component, "Isolated"));
  } else if (type == "CharDelimiterSplit") {
    size_t at = 0;
    CodePoint delimiter = nextCharacter(component.character("delimiter"), at);
    cut([delimiter](CodePoint c) { return c == delimiter; }, Behavior::Removed);
  } else if (type == "FixedLength") {
    int64_t length = component.number("length", 5);
    if (length == 0)
      component.malformed("\"length\" is 0");
    add(new FixedLength(size_t(length)));
  } else {
    component.refuse("this pre-tokenizer");
  }
  component.finish();
}

} // namespace

ByteCharacters::ByteCharacters() {
  byteOf.fill(-1);
  CodePoint extra = 256;
  for (int byte = 0; byte < 256; ++byte) {
    bool isPrinted = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    CodePoint c = isPrinted ? CodePoint(byte) : extra++;
    appendUtf8(ofByte[size_t(byte)], c);
    byteOf[c] = byte;
  }
}

const ByteCharacters &ByteCharacters::get() {
  static const ByteCharacters characters;
  return characters;
}

std::optional<std::string> ByteCharacters::bytes(std::string_view text) const {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    CodePoint c = nextCharacter(text, at);
    if (c >= byteOf.size() || byteOf[c] < 0)
      return std::nullopt;
    result += char(byteOf[c]);
  }
  return result;
}

std::string ByteCharacters::characters(std::string_view bytes) const {
  std::string result;
  for (char byte : bytes)
    result += ofByte[uint8_t(byte)];
  return result;
}

PreTokenizers pcrt::readPreTokenizer(Component component) {
  PreTokenizers result;
  read(std::move(component), result);
  return result;
}
