//===- Bpe.cpp - Byte-pair encoding ---------------------------------------===//
// At first each character (or byte) of a word is a symbol. Then neighbours merge, one pair at a time: the pair whose
// merge has the smallest rank and, among equal ranks, the leftmost pair (Sennrich et al., arXiv 1508.07909).
//===----------------------------------------------------------------------===//
#include "tokenizer/FlatMap.h"
#include "tokenizer/Model.h"
#include "tokenizer/PreTokenizer.h"
#include "tokenizer/Unicode.h"

#include <algorithm>

using namespace pcrt;

namespace {

constexpr uint32_t none = UINT32_MAX;

struct Merge {
  uint32_t rank = none, id = none;
};

/// A part of a word that is one token so far. Its id is `none` after it was merged into the part on its left.
struct Symbol {
  uint32_t id, previous, next;
};

/// A merge that was possible when it was found. Another merge may have used its symbols since.
struct Candidate {
  uint32_t rank, at, id;
  bool operator<(const Candidate &other) const { // a heap has its largest element at the top
    return rank != other.rank ? rank > other.rank : at > other.at;
  }
};

class Bpe : public Model {
public:
  Bpe(Component &component, bool &bytes) : where(component.name()) {
    tokens.read(component, "vocab");
    readOptions(component);
    bytes = readsBytes = bytes && prefix.empty() && suffix.empty() && !fallsBack;
    readMerges(component);
    findBytes();
    findMark();
  }

  void encode(std::string_view word, TokenIds &to) const override {
    if (ignoresMerges)
      if (std::optional<uint32_t> whole = readsBytes ? wordOfBytes(word) : tokens.id(word)) {
        to.push_back(*whole);
        return;
      }
    static thread_local std::vector<Symbol> symbols;
    symbols.clear();
    begin(word, symbols);
    if (symbols.empty())
      return;
    for (uint32_t i = 0; i < symbols.size(); ++i)
      symbols[i].previous = i - 1, symbols[i].next = i + 1;
    symbols.back().next = none;
    merge(symbols);
    for (uint32_t i = 0; i != none; i = symbols[i].next)
      to.push_back(symbols[i].id);
  }

private:
  void readOptions(Component &component) {
    if (const Component::Json *dropout = component.json("dropout"); dropout && *dropout != 0.0)
      component.refuse("\"dropout\"");
    prefix = component.text("continuing_subword_prefix", "");
    suffix = component.text("end_of_word_suffix", "");
    fallsBack = component.flag("byte_fallback", false);
    fusesUnknown = component.flag("fuse_unk", false);
    ignoresMerges = component.flag("ignore_merges", false);
    if (component.json("unk_token")) {
      std::string text = component.text("unk_token");
      std::optional<uint32_t> id = tokens.id(text);
      if (!id)
        component.malformed("the unk_token '" + printable(text) + "' is not in the vocabulary");
      unknown = *id;
    }
  }

  void readMerges(Component &component) {
    const Component::Json *list = component.json("merges");
    if (!list || !list->is_array())
      component.malformed("\"merges\" is not a list");
    merges = FlatMap<Merge>(list->size());
    uint32_t rank = 0;
    for (const Component::Json &entry : *list) {
      std::string left, right;
      if (entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_string()) {
        left = entry[0], right = entry[1];
      } else if (entry.is_string()) {
        const auto &text = entry.get_ref<const std::string &>();
        if (text.compare(0, 8, "#version") == 0)
          continue;
        size_t space = text.find(' ');
        if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
          component.malformed("merge " + std::to_string(rank) + ", '" + printable(text) + "', is not two tokens");
        left = text.substr(0, space), right = text.substr(space + 1);
      } else {
        component.malformed("merge " + std::to_string(rank) + " is not two tokens");
      }
      std::string both = left + (right.compare(0, prefix.size(), prefix) == 0 ? right.substr(prefix.size()) : right);
      std::optional<uint32_t> first = tokens.id(left), second = tokens.id(right), result = tokens.id(both);
      if (!first || !second || !result)
        component.malformed("merge " + std::to_string(rank) + ": '" +
                            printable(!first    ? left
                                      : !second ? right
                                                : both) +
                            "' is not in the vocabulary");
      merges(*first, *second) = {rank++, *result};
    }
  }

  /// Finds the token of each byte: the character that stands for the byte, or <0x00> to <0xFF>.
  void findBytes() {
    for (unsigned byte = 0; byte < 256; ++byte) {
      char name[8];
      snprintf(name, sizeof name, "<0x%02X>", byte);
      ofByte[byte] = tokens.id(readsBytes ? ByteCharacters::get().ofByte[byte] : name).value_or(none);
    }
  }

  /// Sets `cutMark` if a word may be cut before each run of SentencePiece's mark for spaces. It may if no token has the
  /// mark after another character.
  void findMark() {
    static const std::string space = "\xe2\x96\x81";
    if (readsBytes || ignoresMerges || !prefix.empty() || !suffix.empty() || !tokens.id(space))
      return;
    for (uint32_t id = 0; id < tokens.end(); ++id)
      if (const std::string *text = tokens.text(id)) {
        size_t last = text->rfind(space), run = 0;
        while (text->compare(run, space.size(), space) == 0)
          run += space.size();
        if (last != std::string::npos && last >= run)
          return;
      }
    cutMark = space;
  }

  std::optional<uint32_t> wordOfBytes(std::string_view word) const {
    std::string text;
    for (char byte : word)
      text += ByteCharacters::get().ofByte[uint8_t(byte)];
    return tokens.id(text);
  }

  /// Appends the symbols that a word has before any merge.
  void begin(std::string_view word, std::vector<Symbol> &symbols) const {
    bool pending = false; // an unknown token has begun, and later characters may join it
    auto put = [&](uint32_t id) { symbols.push_back({id, 0, 0}); };
    std::string text;
    for (size_t at = 0, length; at < word.size(); at += length) {
      length = readsBytes ? 1 : utf8Length(word[at]);
      std::optional<uint32_t> id;
      if (readsBytes) {
        if (uint32_t found = ofByte[uint8_t(word[at])]; found != none)
          id = found;
      } else {
        text = word.substr(at, length);
        if (at > 0)
          text.insert(0, prefix);
        if (at + length == word.size())
          text += suffix;
        id = tokens.id(text);
      }
      if (id) {
        if (pending)
          put(unknown);
        pending = false;
        put(*id);
      } else if (fallsBack &&
                 std::all_of(text.begin(), text.end(), [&](char c) { return ofByte[uint8_t(c)] != none; })) {
        for (char c : text) // like the package, this writes a pending unknown token after these tokens
          put(ofByte[uint8_t(c)]);
      } else if (unknown != none) {
        if (pending && !fusesUnknown)
          put(unknown);
        pending = true;
      }
    }
    if (pending)
      put(unknown);
  }

  void merge(std::vector<Symbol> &symbols) const {
    static thread_local std::vector<Candidate> heap;
    heap.clear();
    auto candidate = [&](uint32_t at) -> Candidate {
      uint32_t next = symbols[at].next;
      const Merge *found = next == none ? nullptr : merges.get(symbols[at].id, symbols[next].id);
      return found ? Candidate{found->rank, at, found->id} : Candidate{none, at, none};
    };
    for (uint32_t i = 0; i + 1 < symbols.size(); ++i)
      if (Candidate one = candidate(i); one.id != none)
        heap.push_back(one);
    std::make_heap(heap.begin(), heap.end());
    while (!heap.empty()) {
      std::pop_heap(heap.begin(), heap.end());
      Candidate top = heap.back();
      heap.pop_back();
      Symbol &left = symbols[top.at];
      if (left.id == none || candidate(top.at).id != top.id)
        continue; // one of the two symbols has been merged since
      Symbol &right = symbols[left.next];
      left.id = top.id, left.next = right.next, right.id = none;
      if (left.next != none)
        symbols[left.next].previous = top.at;
      for (uint32_t at : {left.previous, top.at})
        if (at != none)
          if (Candidate one = candidate(at); one.id != none) {
            heap.push_back(one);
            std::push_heap(heap.begin(), heap.end());
          }
    }
  }

  std::string where, prefix, suffix;
  bool readsBytes = false, fallsBack = false, fusesUnknown = false, ignoresMerges = false;
  uint32_t unknown = none;
  std::array<uint32_t, 256> ofByte;
  FlatMap<Merge> merges;
};

} // namespace

std::unique_ptr<Model> pcrt::readBpe(Component &component, bool &bytes) {
  return std::make_unique<Bpe>(component, bytes);
}
