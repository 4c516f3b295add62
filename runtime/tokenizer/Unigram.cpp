//===- Unigram.cpp - The most likely tokens of a word ---------------------===//
// The score of a token is the logarithm of its probability. A word becomes the tokens with the largest sum of scores,
// which are found from left to right (Viterbi; Kudo, arXiv 1804.10959). If sums are equal, the one that was found first
// is used.
//===----------------------------------------------------------------------===//
#include "tokenizer/FlatMap.h"
#include "tokenizer/Model.h"
#include "tokenizer/Unicode.h"

#include <algorithm>
#include <cmath>

using namespace pcrt;

namespace {

constexpr uint32_t none = UINT32_MAX;

class Unigram : public Model {
public:
  explicit Unigram(Component &component) : where(component.name()) {
    fallsBack = component.flag("byte_fallback", false);
    const Component::Json *list = component.json("vocab");
    if (!list || !list->is_array() || list->empty())
      component.malformed("\"vocab\" is not a list of tokens");
    if (component.json("unk_id"))
      unknown = uint32_t(component.number("unk_id"));
    if (unknown != none && unknown >= list->size())
      component.malformed("unk_id " + std::to_string(unknown) + " is not in the vocabulary of " +
                          std::to_string(list->size()));
    size_t bytes = 0;
    for (const Component::Json &entry : *list) {
      if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number() ||
          !std::isfinite(entry[1].get<double>()))
        component.malformed("token " + std::to_string(scores.size()) + " is not a string with a number");
      tokens.add(component, entry[0], uint32_t(scores.size()));
      scores.push_back(entry[1]);
      bytes += entry[0].get_ref<const std::string &>().size();
    }
    worst = *std::min_element(scores.begin(), scores.end());
    trie = FlatMap<uint32_t>(bytes);
    ends.assign(1, none);
    for (uint32_t id = 0; id < scores.size(); ++id)
      insert(*tokens.text(id), id);
  }

  void encode(std::string_view word, TokenIds &to) const override {
    static thread_local std::vector<Best> best;
    findPath(word, best);
    static thread_local std::vector<std::pair<size_t, size_t>> pieces; // the begin and end of each, in reverse order
    pieces.clear();
    bool wasUnknown = false;
    for (size_t end = word.size(); end > 0; end = best[end].begin) {
      bool isUnknown = best[end].id == unknown; // adjacent unknown tokens become one piece
      if (isUnknown && wasUnknown)
        pieces.back().first = best[end].begin;
      else
        pieces.push_back({best[end].begin, end});
      wasUnknown = isUnknown;
    }
    for (size_t i = pieces.size(); i-- > 0;)
      addPiece(word.substr(pieces[i].first, pieces[i].second - pieces[i].first), to);
  }

private:
  /// The best tokens of a word up to some byte: the sum of their scores, and the last token.
  struct Best {
    double score = 0;
    size_t begin = SIZE_MAX;
    uint32_t id = none;
  };

  void insert(const std::string &text, uint32_t id) {
    uint32_t node = 0;
    for (char c : text) {
      uint32_t &next = trie(node, uint8_t(c));
      if (!next) {
        next = uint32_t(ends.size());
        ends.push_back(none);
      }
      node = next;
    }
    ends[node] = id;
  }

  void findPath(std::string_view word, std::vector<Best> &best) const {
    best.assign(word.size() + 1, {});
    for (size_t begin = 0, length; begin < word.size(); begin += length) {
      length = utf8Length(word[begin]);
      double sum = best[begin].score;
      auto offer = [&](size_t end, double score, uint32_t id) {
        if (best[end].begin == SIZE_MAX || sum + score > best[end].score)
          best[end] = {sum + score, begin, id};
      };
      bool hasSingle = false;
      uint32_t node = 0;
      for (size_t end = begin + 1; end <= word.size(); ++end) {
        const uint32_t *next = trie.get(node, uint8_t(word[end - 1]));
        if (!next)
          break;
        node = *next;
        if (ends[node] == none)
          continue;
        offer(end, scores[ends[node]], ends[node]);
        hasSingle |= end - begin == length;
      }
      constexpr double penalty = 10;
      if (hasSingle)
        continue;
      if (unknown == none)
        failUnknown(word.substr(begin, length));
      offer(begin + length, worst - penalty, unknown);
    }
  }

  void addPiece(std::string_view piece, TokenIds &to) const {
    if (std::optional<uint32_t> id = tokens.id(piece)) {
      to.push_back(*id);
      return;
    }
    size_t first = to.size();
    for (size_t i = 0; fallsBack && i < piece.size(); ++i) {
      char name[8];
      snprintf(name, sizeof name, "<0x%02X>", uint8_t(piece[i]));
      std::optional<uint32_t> id = tokens.id(name);
      if (!id) {
        to.resize(first);
        break;
      }
      to.push_back(*id);
    }
    if (to.size() > first)
      return;
    if (unknown == none)
      failUnknown(piece);
    to.push_back(unknown);
  }

  [[noreturn]] void failUnknown(std::string_view text) const {
    fail(PCRT_BAD_DATA,
         where + ": the vocabulary does not have '" + printable(std::string(text)) + "', and there is no unk_id");
  }

  std::string where;
  bool fallsBack = false;
  uint32_t unknown = none;
  std::vector<double> scores;
  double worst = 0;
  FlatMap<uint32_t> trie;     ///< Maps a node and a byte to the next node, which is never the root, 0.
  std::vector<uint32_t> ends; ///< The token that ends at each node.
};

} // namespace

std::unique_ptr<Model> pcrt::readUnigram(Component &component) { return std::make_unique<Unigram>(component); }
