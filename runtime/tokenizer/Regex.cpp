//===- Regex.cpp - The patterns of tokenizers -----------------------------===//
// Oniguruma (doc/RE, syntax ONIG_SYNTAX_ONIGURUMA) and PCRE2 differ in \s, \d, \w, \h, \v, \b, nested classes, ^ and $,
// possessive intervals, options, and in the version of Unicode. The differences that published tokenizers need are
// translated.
//===----------------------------------------------------------------------===//
#include "tokenizer/Regex.h"
#include "tokenizer/Unicode.h"

#include <cstring>
#include <pcre2.h>

using namespace pcrt;

namespace {

/// Unicode's White_Space, for use inside a class. \s of PCRE2 10.42 also matches U+180E.
constexpr const char spaces[] = "\\t-\\r\\x{85}\\p{Z}";

/// Translates one pattern.
class Translation {
public:
  Translation(const Component &owner, const std::string &pattern) : owner(owner), in(pattern) {}

  std::string run() {
    for (; at < in.size(); ++at) {
      if (in[at] == '\\')
        escape(false);
      else if (in[at] == '[')
        characterClass();
      else if (in[at] == '(')
        group();
      else if (in[at] == '{')
        interval();
      else
        out += in[at];
    }
    return out;
  }

private:
  [[noreturn]] void refuse(const std::string &what) const {
    owner.refuse(what + " in the pattern '" + printable(in) + "'");
  }
  bool has(const char *text) const { return in.compare(at, strlen(text), text) == 0; }

  /// Translates an escape whose backslash is at `at`, and moves `at` to its last character.
  void escape(bool inClass) {
    if (++at == in.size())
      refuse("a backslash at the end");
    char c = in[at];
    if (c == 's') {
      out += inClass ? spaces : std::string("[") + spaces + "]";
    } else if (c == 'S' && !inClass) {
      out += std::string("[^") + spaces + "]";
    } else if (c == 'd') {
      out += "\\p{Nd}";
    } else if (c == 'p' || c == 'P') {
      property();
    } else if (c == 'u') {
      hexadecimal(4);
    } else if (c == 'x' && at + 1 < in.size() && in[at + 1] == '{') {
      out += "\\x";
    } else if (strchr("tnrfae", c) || (!inClass && strchr("AzZ", c)) || (uint8_t(c) < 0x80 && ispunct(uint8_t(c)))) {
      (out += '\\') += c;
    } else {
      refuse(std::string("\\") + c + (inClass ? " in a class" : ""));
    }
  }

  void hexadecimal(size_t digits) {
    std::string code = in.substr(at + 1, digits);
    if (code.size() != digits || code.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos)
      refuse("\\u without four digits");
    out += "\\x{" + code + "}";
    at += digits;
  }

  void property() {
    size_t end = in.find('}', at);
    if (at + 1 >= in.size() || in[at + 1] != '{' || end == std::string::npos)
      refuse("a property without braces");
    std::string name = in.substr(at + 2, end - at - 2);
    bool negated = (in[at] == 'P') != (!name.empty() && name[0] == '^');
    if (!name.empty() && name[0] == '^')
      name.erase(0, 1);
    static const char *const categories =
        " L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp ";
    if (name == "Han")
      name = "sc:Han";
    else if (name.empty() || !strstr(categories, (" " + name + " ").c_str()))
      refuse("the property '" + printable(name) + "'");
    out += (negated ? "\\P{" : "\\p{") + name + "}";
    at = end;
  }

  /// Translates a class. A class inside it is a part of the union, so its brackets are left out.
  void characterClass() {
    size_t depth = 0;
    for (; at < in.size(); ++at) {
      if (has("[:") || (depth && has("[^")))
        refuse(std::string("'") + in[at] + in[at + 1] + "' in a class");
      if (has("&&"))
        refuse("'&&'");
      if (in[at] == '[') {
        if (!depth++)
          out += has("[^") ? (++at, "[^") : "[";
        if (at + 1 < in.size() && in[at + 1] == ']')
          refuse("']' at the beginning of a class");
      } else if (in[at] == ']') {
        if (!--depth) {
          out += ']';
          return;
        }
      } else if (in[at] == '\\') {
        escape(true);
      } else {
        out += in[at];
      }
    }
    refuse("a class without end");
  }

  void group() {
    if (has("(*"))
      refuse("'(*'");
    for (const char *known : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:"})
      if (has(known)) {
        if (!strcmp(known, "(?i:"))
          checkFolding(in.substr(at, in.find(')', at) - at));
        out += known;
        at += strlen(known) - 1;
        return;
      }
    if (at == 0 && has("(?i)"))
      checkFolding(in);
    else if (has("(?"))
      refuse("'" + printable(in.substr(at, 3)) + "'");
    out += '(';
  }

  /// If case is ignored, Oniguruma also matches several characters of a pattern with one, such as ss with U+00DF. PCRE2
  /// does not.
  void checkFolding(std::string text) const {
    for (char &c : text)
      c = char(tolower(c));
    for (const char *pair : {"ss", "st", "ff", "fi", "fl"})
      if (text.find(pair) != std::string::npos)
        refuse("'" + std::string(pair) + "' without case");
  }

  void interval() {
    size_t end = in.find('}', at);
    std::string body = end == std::string::npos ? "" : in.substr(at + 1, end - at - 1);
    if (body.empty() || body[0] == ',' || body.find_first_not_of("0123456789,") != std::string::npos)
      refuse("'{' without a number");
    char after = end + 1 < in.size() ? in[end + 1] : 0;
    if (after == '+' || after == '?')
      refuse(std::string("'}") + after + "'");
    out.append(in, at, end + 1 - at);
    at = end;
  }

  const Component &owner;
  const std::string &in;
  std::string out;
  size_t at = 0;
};

/// The buffers that a thread needs to match.
struct Matcher {
  pcre2_match_data *data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context *context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack *stack = pcre2_jit_stack_create(1 << 15, 1 << 24, nullptr);

  Matcher() {
    if (!data || !context)
      fail(PCRT_RESOURCE, "there is no memory for a regular expression");
    if (stack)
      pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~Matcher() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
};

} // namespace

std::string pcrt::translatePattern(const Component &owner, const std::string &pattern) {
  return Translation(owner, pattern).run();
}

Regex::Regex(const Component &owner, std::string pattern, bool isLiteral)
    : place(owner.name()), original(std::move(pattern)), isLiteral(isLiteral) {
  constexpr size_t longest = 1 << 16;
  if (original.empty() || original.size() > longest)
    owner.malformed("a pattern is " + std::string(original.empty() ? "empty" : "longer than 65536 bytes"));
  if (isLiteral)
    return;
  std::string translated = translatePattern(owner, original);
  int error;
  PCRE2_SIZE at;
  pcre2_compile_context *context = pcre2_compile_context_create(nullptr);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context, 100);
  pcre2_code *compiled =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NO_AUTO_CAPTURE, &error, &at, context);
  pcre2_compile_context_free(context);
  if (!compiled) {
    char why[256] = "";
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR *>(why), sizeof why);
    owner.malformed("the pattern '" + printable(original) + "' is wrong: " + why);
  }
  code.reset(compiled, [](void *one) { pcre2_code_free(static_cast<pcre2_code *>(one)); });
  hasJit = pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE) == 0;
}

Regex Regex::read(Component &owner, const char *key) {
  const Component::Json *value = owner.json(key);
  if (value && value->is_object() && value->size() == 1 && value->begin()->is_string() &&
      (value->contains("String") || value->contains("Regex")))
    return Regex(owner, value->begin()->get<std::string>(), value->contains("String"));
  owner.malformed(std::string("\"") + key + R"(" is neither {"String": TEXT} nor {"Regex": TEXT})");
}

bool Regex::next(std::string_view text, size_t from, size_t &begin, size_t &end) const {
  static thread_local Matcher matcher;
  auto *compiled = static_cast<const pcre2_code *>(code.get());
  auto match = [&](auto *function) {
    return function(compiled, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from, PCRE2_NO_UTF_CHECK,
                    matcher.data, matcher.context);
  };
  int result = hasJit ? match(pcre2_jit_match) : match(pcre2_match);
  if (result == PCRE2_ERROR_NOMATCH)
    return false;
  if (result < 0)
    fail(PCRT_BAD_INPUT, place + ": the pattern '" + printable(original) +
                             "' needs too many steps or too much memory " + "for a text of " +
                             std::to_string(text.size()) + " bytes");
  const PCRE2_SIZE *offsets = pcre2_get_ovector_pointer(matcher.data);
  begin = offsets[0], end = offsets[1];
  return true;
}

void Regex::forEachLiteral(std::string_view text, const Found &found) const {
  for (size_t at = 0; (at = text.find(original, at)) != std::string_view::npos; at += original.size())
    found(at, at + original.size());
}

void Regex::forEach(std::string_view given, const Found &found) const {
  if (isLiteral)
    return forEachLiteral(given, found);
  std::string older;
  std::string_view text = given;
  if (hasNewer(given)) {
    older = given;
    replaceNewer(older);
    text = older;
  }
  size_t begin, end, last = std::string_view::npos;
  for (size_t from = 0; from <= text.size() && next(text, from, begin, end);) {
    if (begin == end && last == end) {
      from += from < text.size() ? utf8Length(text[from]) : 1;
      continue;
    }
    from = last = end;
    found(begin, end);
  }
}
