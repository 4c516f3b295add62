//===- streams.cpp - Text of answers, however it is cut -------------------===//
// usage: generate-streams DIRECTORY INPUTS   (INPUTS has tokenizers)
// The parts of a stream, joined, equal the text of the whole up to the first stop string.
//===----------------------------------------------------------------------===//
#include "../../Checks.h"
#include "generate/Answers.h"
#include "tokenizer/Unicode.h"

#include <random>

using namespace pcrt;

using Random = std::mt19937;
static int draw(Random &random, int least, int most) { return std::uniform_int_distribution<int>(least, most)(random); }

/// The text before the stop string that ends first, found byte by byte. `stopped` is set if there is one.
static std::string cutAt(const std::string &text, const std::vector<std::string> &stops, bool &stopped) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string &stop : stops)
      if (std::string_view(text).substr(0, end).ends_with(stop))
        longest = std::max(longest, stop.size());
    if (longest) {
      stopped = true;
      return text.substr(0, end - longest);
    }
  }
  return text;
}

/// A text of few different characters of one to four bytes, so that stop strings overlap.
static std::string randomText(Random &random, int length) {
  static const char *characters[] = {"a", "b", "\xc3\xa9", "\xc3\xaa", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
  int kinds = draw(random, 1, 6);
  std::string text;
  for (int i = 0; i < length; ++i)
    text += characters[draw(random, 0, kinds - 1)];
  return text;
}

static std::vector<std::string> randomStops(Random &random) {
  std::vector<std::string> stops;
  for (int count = draw(random, 0, 3); count > 0; --count)
    stops.push_back(randomText(random, draw(random, 1, 5)));
  return stops;
}

/// Tests texts that are cut into single bytes, into two parts at every byte, and into random parts.
static void testStops() {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    Random random(seed);
    std::string text = randomText(random, draw(random, 0, 30));
    std::vector<std::string> stops = randomStops(random);
    size_t longest = 4;
    for (const std::string &stop : stops)
      longest = std::max(longest, stop.size());
    bool stopped = false;
    std::string wanted = cutAt(text, stops, stopped);
    auto check = [&](auto lengthAt) {
      StopStrings stream(stops);
      std::string joined, part;
      bool good = true;
      for (size_t at = 0; at < text.size(); at += part.size()) {
        part = text.substr(at, lengthAt(at));
        std::string certain = stream.push(part);
        good &= invalidUtf8(certain) == std::string::npos;
        joined += certain;
        // The stream holds back only text that may belong to a stop string.
        good &= stream.found() || joined.size() + longest > at + part.size();
      }
      std::string rest = stream.finish();
      good &= invalidUtf8(rest) == std::string::npos && stream.finish().empty();
      if (!expect(good && joined + rest == wanted && stream.found() == stopped, "a text is cut at its stop string"))
        fprintf(stderr, "seed %u: '%s'\n", seed, text.c_str());
    };
    check([](size_t) { return 1; });
    check([&](size_t) { return draw(random, 1, 7); });
    for (size_t cut = 1; cut < text.size(); ++cut)
      check([&](size_t at) { return at < cut ? cut - at : text.size(); });
  }
}

/// Tests tokens of real tokenizers, with every decoder: parts of characters, byte tokens, and spaces that depend on a
/// later token.
static void testTokens(const std::string &path) {
  Tokenizer tokenizer(path);
  for (unsigned seed = 0; seed < 500; ++seed) {
    Random random(seed);
    std::vector<int32_t> tokens(size_t(draw(random, 1, 60)));
    for (int32_t &token : tokens)
      token = draw(random, 0, int(tokenizer.end())); // also a token that does not exist
    StreamDecoder whole(tokenizer, true);
    std::string text;
    for (int32_t token : tokens)
      text += whole.push(uint32_t(token));
    text += whole.finish();
    TextRequest request;
    request.hasLogprobs = true;
    if (draw(random, 0, 1) && !text.empty()) { // a stop string that is in the text
      std::vector<std::string> characters;
      for (size_t at = 0; at < text.size(); at += characters.back().size())
        characters.push_back(text.substr(at, utf8Length(text[at])));
      std::string stop;
      for (int i = draw(random, 0, int(characters.size()) - 1), n = draw(random, 1, 4); n > 0; --n)
        if (i < int(characters.size()))
          stop += characters[size_t(i++)];
      request.stops.push_back(stop);
    }
    bool stopped = false, ended = false;
    std::string wanted = cutAt(text, request.stops, stopped), joined, pieces;
    TextAnswer answer(request, &tokenizer);
    for (size_t i = 0; i < tokens.size() && !answer.isComplete(); ++i) {
      bool isLast = i + 1 == tokens.size();
      answer.push({.token = tokens[i], .logprob = -1, .reason = isLast ? FinishReason::Length : FinishReason::None});
      if (!answer.hasNext())
        continue;
      nlohmann::json next = answer.nextChoice();
      joined += next["text"].get<std::string>();
      CHECK(invalidUtf8(next["text"].get<std::string>()) == std::string::npos);
      for (const nlohmann::json &piece : next["logprobs"]["tokens"])
        pieces += piece.get<std::string>();
      CHECK(next["finish_reason"].is_null() != answer.isComplete());
      ended = answer.isComplete();
    }
    CHECK(ended && !answer.hasNext());
    nlohmann::json choice = answer.choice();
    CHECK(joined == wanted && answer.text() == wanted && choice["text"] == wanted && pieces == wanted);
    CHECK(choice["finish_reason"] == (stopped ? "stop" : "length"));
    CHECK(choice["token_ids"].size() == choice["logprobs"]["tokens"].size());
  }
}

int main(int, char **argv) {
  testStops();
  for (const char *name : {"llama2", "llama3", "bert", "unigram"})
    testTokens(std::string(argv[2]) + "/" + name + ".json");
  return finishChecks();
}
