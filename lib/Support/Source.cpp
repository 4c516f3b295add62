//===- Source.cpp - Files that a user names, and IR in them ------------------------------===//
// The recursion and the memory of MLIR's parser depend on the text, so a bad file could overflow the stack or exhaust
// memory. Scan reads the text first, in one pass, and refuses text that would crash the parser, with line and column.
// It also finds the locations in the text, to which readSource adds the line in this file.
//===-----------------------------------------------------------------------------===//
#include "pc/Support/Source.h"
#include "pc/Support/Diagnostics.h"

#include "mlir/IR/AttrTypeSubElements.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

using Buffer = std::unique_ptr<llvm::MemoryBuffer>;

static Buffer take(llvm::ErrorOr<Buffer> buffer, std::string &error) {
  if (buffer)
    return std::move(*buffer);
  error = buffer.getError().message();
  return nullptr;
}

/// If `terminated` is true, the bytes end with a zero, so a file that ends at a page boundary is copied instead of
/// mapped.
static Buffer read(StringRef path, bool terminated, std::string &error) {
  llvm::sys::fs::file_status status;
  if (std::error_code code = llvm::sys::fs::status(path, status))
    error = code.message();
  else if (is_directory(status))
    error = "it is a directory";
  else if (!is_regular_file(status))
    error = "it is a FIFO, a socket or a device, not a regular file";
  else
    return take(llvm::MemoryBuffer::getFile(path, /*IsText=*/false, terminated), error);
  return nullptr;
}

Buffer pc::readFile(StringRef path, std::string &error) { return read(path, /*terminated=*/false, error); }

namespace {

/// Limits that no real program reaches. Within them, a stack of 8 MiB is enough for MLIR's parser, even with the larger
/// frames of a sanitizer.
constexpr int maxDepth = 256;
constexpr uint64_t maxDigits = 1000, maxWidth = 1024, maxAffine = 4096, maxExpanded = 1 << 20;

/// The place where a statement begins.
struct Place {
  size_t offset = StringRef::npos, line = 1, column = 1;
};

/// "loc(...)" of an op or a block argument, and the op's text.
struct Located {
  size_t begin = 0, end = 0;
  Place op;
};

/// Reads text like MLIR's lexer, in one pass, and stops at the first place that could crash the parser. The parser
/// reports other syntax errors.
class Scan {
public:
  static constexpr size_t npos = StringRef::npos;
  explicit Scan(StringRef text) : text(text) {}

  /// Returns true if the parser may see the text.
  bool run() {
    if (text.starts_with("ML\xefR")) // bytecode
      return true;
    while (at < text.size() && why.empty())
      token();
    return why.empty();
  }

  std::string why;
  size_t where = 0; ///< offset
  std::vector<Located> located;
  llvm::StringMap<StringRef> locations; ///< alias -> the text after "loc(" in its definition

private:
  /// An alias of an attribute or a type: its depth and size when expanded.
  struct Alias {
    int depth = 0;
    uint64_t size = 0;
  };

  char peek(size_t ahead = 0) const { return at + ahead < text.size() ? text[at + ahead] : '\0'; }
  static bool isWord(char c) { return llvm::isAlnum(c) || c == '_' || c == '$' || c == '.'; }
  static bool isControl(char c) {
    return (static_cast<unsigned char>(c) < 0x20 && !llvm::is_contained({'\n', '\r', '\t', '\0'}, c)) || c == 0x7f;
  }

  void refuse(size_t offset, const Twine &reason) {
    if (!why.empty())
      return;
    where = offset;
    why = reason.str();
  }

  StringRef take(llvm::function_ref<bool(char)> holds) {
    size_t start = at;
    while (at < text.size() && holds(text[at]))
      ++at;
    return text.slice(start, at);
  }

  /// Reads the next token. The scan implements only as much of the syntax as it needs to find depth, size and ends.
  void token() {
    char c = peek();
    if (isControl(c))
      return refuse(at, "a control character (" + pc::escaped(StringRef(&c, 1)) + "), which is not allowed in IR");
    if (c == '\n')
      return line();
    if (c == ' ' || c == '\t' || c == '\r' || c == '\0') {
      ++at;
      return;
    }
    if (c == '/' && peek(1) == '/')
      return comment();
    if (statement.offset == npos) // the first word of its line; a line that begins with "}" continues with an op
      statement = c == '}' && !opened.empty() ? opened.back() : Place{at, lines, at - lineBegin + 1};
    count(1, depth);
    if (c == '"')
      return string();
    if (llvm::isDigit(c))
      return number();
    if (llvm::isAlpha(c) || c == '_')
      return word();
    if (c == '%' || c == '@' || c == '^' || c == '#' || c == '!')
      return sigil(c);
    punctuation(c);
  }

  void comment() {
    size_t start = at;
    StringRef rest = take([](char c) { return c != '\n'; });
    if (const char *bad = llvm::find_if(rest, isControl); bad != rest.end())
      refuse(start + (bad - rest.begin()), "a control character in a comment");
  }

  /// A string literal, in which brackets do not count.
  void string() {
    size_t start = at++;
    for (char c = peek(); at < text.size() && c != '"' && c != '\n'; c = peek()) {
      if (isControl(c))
        return refuse(at, "a control character in a string; write it as \\" + llvm::toHex(StringRef(&c, 1)));
      at += c == '\\' ? 2 : 1;
    }
    ++at;
    // A resource begins with the alignment of its bytes.
    if (inMetadata && text.substr(start + 1).starts_with("0x00000000"))
      refuse(start, "a resource with an alignment of 0");
  }

  /// A number, or the dims of a shape and the text after them. Its length is limited.
  void number() {
    size_t start = at;
    size_t digits = take(llvm::isDigit).size();
    if (digits <= maxDigits && peek() == 'x') { // hexadecimal digits, or the dims of a shape
      ++at;
      if (digits == 1 && text[start] == '0' && llvm::isHexDigit(peek()))
        digits = text.substr(at).take_while(llvm::isHexDigit).size();
      else if (llvm::isAlpha(peek()))
        word();
    }
    if (digits > maxDigits)
      refuse(start, "a number of " + Twine(digits) + " digits");
  }

  /// A keyword, an op's name or a type; the width of integers is limited.
  void word() {
    size_t start = at;
    StringRef name = take(isWord);
    if (start && llvm::is_contained({']', '?', '*'}, text[start - 1]))
      name.consume_front("x"); // between dims and the type of elements
    StringRef digits = name;
    if ((digits.consume_front("i") || digits.consume_front("si") || digits.consume_front("ui")) && digits.size() > 3 &&
        llvm::all_of(digits, llvm::isDigit)) {
      uint64_t width;
      if (digits.getAsInteger(10, width) || width > maxWidth)
        refuse(start, "an integer type of more than " + Twine(maxWidth) + " bits");
    }
    if ((name == "affine_map" || name == "affine_set") && affine == npos)
      affine = start, affineDepth = depth;
    if (name == "loc" && peek() == '(' && location == npos)
      location = start, locationDepth = depth;
  }

  /// Handles the end of "loc(...)".
  void locate() {
    if (!defined.empty())
      locations[defined] = text.slice(location + 4, at - 1);
    else if (!opened.empty() || !text.substr(statement.offset).starts_with("module"))
      located.push_back({location, at, statement});
    location = npos;
  }

  /// A name that begins with %, #, ! or another such sign.
  void sigil(char c) {
    size_t start = at++;
    StringRef name = take([](char x) { return isWord(x) || x == '-'; });
    if (c == '%') {
      value = name;
      return;
    }
    if (c == '#' && inMetadata && name == "-" && peek() == '}') {
      inMetadata = false;
      return;
    }
    if (StringRef digits = name.take_while(llvm::isDigit); c == '#' && !digits.empty())
      return resultNumber(start, digits);
    if ((c == '#' || c == '!') && peek() != '<' && !name.contains('.'))
      alias(start, text.slice(start, at));
  }

  /// For each name, the parser keeps a list that is as long as the largest result number. Since each result has a type
  /// in the text, a correct program has fewer results than bytes.
  void resultNumber(size_t start, StringRef digits) {
    uint64_t number, &known = results[value];
    if (digits.getAsInteger(10, number) || number >= text.size())
      return refuse(start, "'%" + value + "' would have more results than this file has bytes");
    if (number + 1 <= known)
      return;
    places += number + 1 - known;
    known = number + 1;
    if (places > text.size() + 4096)
      refuse(start, "the result numbers up to here need more results than this file has bytes");
  }

  /// The definition or a use of an alias.
  void alias(size_t start, StringRef name) {
    StringRef rest = text.substr(at).ltrim(" \t");
    if (depth == 0 && rest.starts_with("=")) {
      endDefinition();
      defined = name;
      definition = Alias();
      return;
    }
    // The parser expands an alias at every use, so its depth and size count each time.
    if (auto it = aliases.find(name); it != aliases.end()) {
      count(it->second.size, depth + it->second.depth);
      checkDepth(start, depth + it->second.depth);
    }
  }

  /// Adds to the size of the alias that is currently defined, if there is one.
  void count(uint64_t size, int deep) {
    if (defined.empty())
      return;
    definition.size = llvm::SaturatingAdd(definition.size, size);
    definition.depth = std::max(definition.depth, deep);
    if (definition.size > maxExpanded)
      refuse(at, "the alias '" + defined + "' stands for more than " + Twine(maxExpanded) + " words");
  }

  /// The definition of an alias ends at the end of its line, unless the line's last token or the next line's first one
  /// shows that it continues.
  void line() {
    ++at;
    ++lines;
    lineBegin = at;
    statement = Place();
    if (defined.empty() || depth > 0 || definition.size < 2)
      return;
    // An alias definition may continue in the next line after these tokens.
    StringRef before = text.take_front(at).rtrim();
    if (before.ends_with("->") || before.ends_with(":") || before.ends_with("="))
      return;
    size_t next = at;
    while (next < text.size() && (llvm::isSpace(text[next]) || text.substr(next).starts_with("//")))
      next = text[next] == '/' ? std::min(text.find('\n', next), text.size()) : next + 1;
    if (next < text.size() && StringRef("(<[{-:").contains(text[next]))
      at = next;
    else
      endDefinition();
  }

  void endDefinition() {
    if (!defined.empty())
      aliases[defined] = definition;
    defined = "";
  }

  /// Brackets, whose depth is limited, and all other characters.
  void punctuation(char c) {
    size_t start = at++;
    if (c == '-' && peek() == '>') {
      ++at;
    } else if (c == '{' && peek() == '-' && peek(1) == '#') {
      inMetadata = true;
      ++depth;
      at += 2;
    } else if (StringRef("([{<").contains(c)) {
      ++depth;
      count(0, depth);
      checkDepth(start, depth);
      if (c == '{')
        opened.push_back(statement);
    } else if (StringRef(")]}").contains(c) || (c == '>' && peek() != '=')) {
      depth = std::max(depth - 1, 0);
      if (c == '}' && !opened.empty())
        opened.pop_back();
      if (location != npos && c == ')' && depth == locationDepth)
        locate();
    }
    if (affine == npos)
      return;
    if (at - affine > maxAffine)
      refuse(affine, "an affine expression of more than " + Twine(maxAffine) + " characters");
    if (depth <= affineDepth && c == '>')
      affine = npos;
  }

  void checkDepth(size_t offset, int deep) {
    if (deep > maxDepth)
      refuse(offset, "more than " + Twine(maxDepth) + " levels of brackets");
  }

  StringRef text;
  size_t at = 0, lines = 1, lineBegin = 0;
  Place statement;           ///< the start of the current statement
  std::vector<Place> opened; ///< for each enclosing "{", the statement to which it belongs
  size_t location = npos;    ///< where "loc(" begins
  int depth = 0, affineDepth = 0, locationDepth = 0;
  size_t affine = npos; ///< where the current affine expression begins; npos: none
  bool inMetadata = false;
  StringRef value, defined; ///< the last `%name`; the alias that is being defined
  Alias definition;
  llvm::StringMap<Alias> aliases;
  llvm::StringMap<uint64_t> results; ///< keyed by the name of a value
  uint64_t places = 0;
};

} // namespace

/// Returns true if all chunks of the text may be parsed; prints an error if not.
static bool mayBeParsed(StringRef path, StringRef text, StringRef splitMarker) {
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = splitMarker.empty() ? StringRef::npos : text.find(splitMarker, begin);
    Scan scan(text.slice(begin, end));
    if (!scan.run()) {
      StringRef before = text.take_front(begin + scan.where);
      size_t line = before.count('\n') + 1, column = before.size() - (before.rfind('\n') + 1) + 1;
      pc::errs() << pc::escaped(path) << ":" << line << ":" << column << ": error: " << scan.why << "\n";
      return false;
    }
    if (end == StringRef::npos)
      break;
    begin = end + splitMarker.size();
  }
  return true;
}

/// The text with a location for each op, which has the content of its "loc(...)" (names of the model's modules) and the
/// op's line in this file.
static Buffer withLines(Buffer buffer) {
  Scan scan(buffer->getBuffer());
  if (!scan.run() || scan.located.empty())
    return buffer;
  std::string file, text, places;
  llvm::raw_string_ostream fileOs(file), os(text), placesOs(places);
  llvm::printEscapedString(buffer->getBufferIdentifier(), fileOs);
  size_t from = 0, number = 0;
  for (const Located &one : scan.located) {
    StringRef alias = buffer->getBuffer().slice(one.begin + 4, one.end - 1), says = alias;
    if (auto it = scan.locations.find(alias); it != scan.locations.end())
      says = it->second;
    std::string line = ("\"" + file + "\":" + Twine(one.op.line) + ":" + Twine(one.op.column)).str();
    os << buffer->getBuffer().slice(from, one.begin) << "loc(#line" << number << ")";
    placesOs << "#line" << number++ << " = loc(";
    StringRef name = says.take_front(says.find('"', 1) + 1), rest = says.drop_front(name.size());
    if (says.starts_with("\"") && !rest.starts_with(":")) // a name; a position after it refers to another file
      placesOs << name << "(" << line << "))\n";
    else if (says.starts_with("\"") || says == "unknown" || says == "?")
      placesOs << line << ")\n";
    else
      placesOs << "fused[" << line << ", " << alias << "])\n";
    from = one.end;
  }
  os << buffer->getBuffer().substr(from) << "\n" << places;
  return llvm::MemoryBuffer::getMemBufferCopy(text, buffer->getBufferIdentifier());
}

/// Fused locations contain each name once.
void pc::dropLines(Operation *op) {
  AttrTypeReplacer names;
  auto name = [](Location loc) -> Location {
    auto named = dyn_cast<NameLoc>(loc);
    return named ? NameLoc::get(named.getName()) : loc;
  };
  names.addReplacement([&](NameLoc loc) -> Attribute { return name(loc); });
  names.addReplacement([&](FusedLoc loc) -> std::optional<std::pair<Attribute, WalkResult>> { // each name once
    return std::pair(
        Attribute(FusedLoc::get(llvm::map_to_vector(loc.getLocations(), name), loc.getMetadata(), loc.getContext())),
        WalkResult::skip());
  });
  names.recursivelyReplaceElementsIn(op, /*replaceAttrs=*/false, /*replaceLocs=*/true);
}

/// Locations become spaces, so that all other positions in the text stay the same.
std::string pc::withoutLocations(StringRef text) {
  Scan scan(text);
  std::string result = text.str();
  if (scan.run())
    for (const Located &one : scan.located)
      std::fill(result.begin() + one.begin, result.begin() + one.end, ' ');
  return result;
}

/// Reading, scanning and adding lines are separate steps, so that the scan sees the text as it is in the file.
Buffer pc::readSource(StringRef path, StringRef splitMarker) {
  std::string error;
  Buffer buffer = path == "-" ? take(llvm::MemoryBuffer::getSTDIN(), error) : read(path, /*terminated=*/true, error);
  if (!buffer) {
    errs() << escaped(path) << ": error: cannot be read: " << error << "\n";
    return nullptr;
  }
  if (!mayBeParsed(buffer->getBufferIdentifier(), buffer->getBuffer(), splitMarker))
    return nullptr;
  return splitMarker.empty() ? withLines(std::move(buffer)) : std::move(buffer);
}

OwningOpRef<ModuleOp> pc::parseProgram(StringRef path, llvm::SourceMgr &sources, MLIRContext *context) {
  Buffer buffer = readSource(path);
  if (!buffer)
    return {};
  sources.AddNewSourceBuffer(std::move(buffer), llvm::SMLoc());
  return parseSourceFile<ModuleOp>(sources, context);
}
