//===- ConfigText.cpp - The text of config.json ---------------------------===//
// Finds the values of the keys in the text itself and replaces only those characters. The text has been parsed as JSON
// before, so the walk needs no checks.
//===----------------------------------------------------------------------===//
#include "checkpoint/ConfigText.h"
#include "base/Program.h"

#include <vector>

using namespace pcrt;

namespace {

/// Collects edits of one JSON text, which is a valid object, and applies them at the end. Positions are bytes of the
/// original text. One editor is used once.
class Editor {
public:
  Editor(const std::string &text, const std::string &dtype) : text(text), value(Json(dtype).dump()) {}

  std::string edited() {
    size_t begin = skipSpace(0);
    if (!visit(begin))
      insert(begin);
    std::string result = text;
    for (auto edit = edits.rbegin(); edit != edits.rend(); ++edit)
      result.replace(edit->begin, edit->end - edit->begin, edit->with);
    return result;
  }

private:
  /// A replacement of the bytes [begin, end) of the text.
  struct Edit {
    size_t begin, end;
    std::string with;
  };

  size_t skipSpace(size_t at) const { return text.find_first_not_of(" \t\r\n", at); }

  /// Returns the position after the string that begins at `at`. afterValue does the same for a value of any kind.
  size_t afterString(size_t at) const {
    while (text[++at] != '"')
      if (text[at] == '\\')
        ++at;
    return at + 1;
  }
  size_t afterValue(size_t at) const {
    int depth = 0;
    do {
      if (text[at] == '"') {
        at = afterString(at);
        continue;
      }
      bool opens = text[at] == '{' || text[at] == '[', closes = text[at] == '}' || text[at] == ']';
      depth += opens - closes;
      at = opens || closes ? at + 1 : text.find_first_of(depth ? "\"{}[]" : ",]} \t\r\n", at);
    } while (depth && at < text.size());
    return std::min(at, text.size());
  }

  /// Collects the edits of the object that begins at `at`. Returns whether it has a "dtype".
  bool visit(size_t at) {
    bool found = false;
    for (at = skipSpace(at + 1); text[at] != '}';) {
      size_t end = afterString(at);
      std::string key = Json::parse(text.begin() + at, text.begin() + end);
      at = skipSpace(skipSpace(end) + 1); // after the colon
      end = afterValue(at);
      if (key == "dtype" || key == "torch_dtype")
        edits.push_back({at, end, value});
      else if (key == "text_config" && text[at] == '{')
        visit(at);
      found |= key == "dtype";
      at = skipSpace(end);
      if (text[at] == ',')
        at = skipSpace(at + 1);
    }
    return found;
  }

  /// Makes "dtype" the first key of the object that begins at `at`. The key gets its own line if the current first key
  /// has one.
  void insert(size_t at) {
    size_t next = skipSpace(at + 1);
    std::string space = text.substr(at + 1, next - at - 1);
    edits.insert(edits.begin(), {at + 1, at + 1,
                                 space + "\"dtype\": " + value +
                                     (text[next] == '}' ? ""
                                      : space.empty()   ? ", "
                                                        : ",")});
  }

  const std::string &text;
  const std::string value;
  std::vector<Edit> edits; ///< In the order of the text.
};

} // namespace

std::string pcrt::configWithDtype(const std::string &config, const std::string &dtype) {
  return Json::parse(config, nullptr, /*allow_exceptions=*/false).is_object() ? Editor(config, dtype).edited() : config;
}
