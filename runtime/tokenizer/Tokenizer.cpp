//===- Tokenizer.cpp - Text to tokens and back ----------------------------===//
// The steps and their order are those of the package `tokenizers`. Added tokens are cut out of the text, and the rest
// is normalized. Then added tokens are also cut out of the normalized text, and the rest is cut into words. The model
// encodes each word.
//===----------------------------------------------------------------------===//
#include "tokenizer/Tokenizer.h"
#include "tokenizer/Unicode.h"

#include <cstring>
#include <filesystem>

using namespace pcrt;
using Json = nlohmann::json;

//===----------------------------------------------------------------------===//
// Reading tokenizer.json
//===----------------------------------------------------------------------===//

void Vocabulary::add(const Component &owner, const std::string &text, uint32_t id) {
  constexpr uint32_t most = 1 << 24;
  if (id >= most)
    owner.malformed("token '" + printable(text) + "' has id " + std::to_string(id) + ", above the limit of 2^24");
  if (id >= texts.size())
    texts.resize(size_t(id) + 1);
  if (texts[id] && *texts[id] != text)
    owner.malformed("tokens '" + printable(*texts[id]) + "' and '" + printable(text) + "' both have id " +
                    std::to_string(id));
  texts[id] = text;
  ids[text] = id;
}

void Vocabulary::read(Component &component, const char *key) {
  const Json *object = component.json(key);
  if (!object || !object->is_object())
    component.malformed(std::string("\"") + key + "\" is not an object of tokens");
  for (auto &[text, id] : object->items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > UINT32_MAX)
      component.malformed("token '" + printable(text) + "' has no id");
    add(component, text, id.get<uint32_t>());
  }
}

std::unique_ptr<Model> pcrt::readModel(Component component, bool &bytes) {
  // Old files do not give the type; only BPE has merges.
  std::string type = component.type().empty() && component.json("merges") ? "BPE" : component.type();
  std::unique_ptr<Model> model;
  bool isBpe = type == "BPE";
  bytes = bytes && isBpe;
  if (isBpe)
    model = readBpe(component, bytes);
  else if (type == "WordPiece" || type == "WordLevel")
    model = readWordPiece(component);
  else if (type == "Unigram")
    model = readUnigram(component);
  else
    component.refuse("this model");
  component.finish();
  return model;
}

Tokenizer::Tokenizer(const std::string &path) {
  std::error_code error;
  bool isDirectory = std::filesystem::is_directory(path, error);
  file = isDirectory ? path + "/tokenizer.json" : path;
  if (isDirectory && !std::filesystem::exists(file, error))
    fail(PCRT_BAD_DATA, path + " has no tokenizer.json; in Python, transformers writes one: " +
                            "AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)");
  Json json = parseTokenizerJson(file);
  Component all(json, file);
  std::string version = all.text("version", "1.0");
  if (version != "1.0")
    all.refuse("version '" + printable(version) + "'");
  all.ignore("truncation"), all.ignore("padding");
  if (const Json *normalizer = all.json("normalizer"))
    normalizers = readNormalizer(Component(*normalizer, file + ": normalizer"));
  if (const Json *preTokenizer = all.json("pre_tokenizer"))
    preTokenizers = readPreTokenizer(Component(*preTokenizer, file + ": pre_tokenizer"));
  const Json *model = all.json("model");
  bool bytes = preTokenizers.endsInBytes;
  this->model = readModel(Component(model ? *model : Json(), file + ": model"), bytes);
  if (bytes)
    preTokenizers.steps.pop_back();
  const Json *decoder = all.json("decoder"), *added = all.json("added_tokens");
  decoders = readDecoder(decoder ? *decoder : Json(), file + ": decoder");
  if (added)
    readAddedTokens(*added);
  if (const Json *post = all.json("post_processor"))
    readPostProcessor(Component(*post, file + ": post_processor"));
  all.finish();
}

void Tokenizer::readAddedTokens(const Json &list) {
  if (!list.is_array())
    fail(PCRT_BAD_DATA, file + ": \"added_tokens\" is not a list");
  auto next = uint32_t(model->vocabulary().count());
  for (const Json &entry : list) {
    Component component(entry, file + ": added_tokens");
    AddedToken token;
    token.content = component.text("content");
    token.id = uint32_t(component.number("id"));
    token.isSpecial = component.flag("special");
    token.isNormalized = component.flag("normalized");
    token.isSingleWord = component.flag("single_word");
    token.strips[0] = component.flag("lstrip"), token.strips[1] = component.flag("rstrip");
    component.finish();
    if (token.content.empty())
      continue; // the package ignores it, too
    // The package numbers tokens that the model does not have itself, and ignores the number in the file.
    std::optional<uint32_t> known = id(token.content);
    uint32_t expected = known ? *known : next++;
    if (token.id != expected)
      component.malformed("token '" + printable(token.content) + "' has id " + std::to_string(token.id) +
                          ", but the package tokenizers gives it " + std::to_string(expected));
    std::string text = token.content;
    bool lost = false;
    if (token.isNormalized)
      normalizers.run(text, lost);
    if (text.empty())
      component.malformed("token '" + printable(token.content) + "' is empty once it is normalized");
    addedTexts[token.id] = text;
    addedIds[token.content] = token.id;
    addedEnd = std::max(addedEnd, token.id + 1);
    if (token.isSpecial)
      specials.insert(token.content);
    (token.isNormalized ? inNormalized : inText).add(text, token);
  }
}

/// Reads the id of a pair ["text", id], as in BERT's and RoBERTa's templates.
static uint32_t idOfPair(Component &component, const char *key) {
  const Json *pair = component.json(key);
  if (!pair || !pair->is_array() || pair->size() != 2 || !(*pair)[1].is_number_unsigned())
    component.malformed(std::string("\"") + key + "\" is not a token with its id");
  return (*pair)[1].get<uint32_t>();
}

void Tokenizer::readPostProcessor(Component component) {
  const std::string &type = component.type();
  if (type == "Sequence") {
    for (Component &one : component.list("processors"))
      readPostProcessor(std::move(one));
  } else if (type == "ByteLevel") {
    for (const char *key : {"add_prefix_space", "trim_offsets", "use_regex"})
      component.ignore(key); // it moves offsets only
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    prefix.insert(prefix.begin(), idOfPair(component, "cls"));
    suffix.push_back(idOfPair(component, "sep"));
    component.ignore("trim_offsets"), component.ignore("add_prefix_space");
  } else if (type == "TemplateProcessing") {
    const Json *single = component.json("single"), *tokens = component.json("special_tokens");
    component.ignore("pair");
    if (!single || !single->is_array())
      component.malformed("\"single\" is not a list");
    TokenIds before, after;
    int texts = 0;
    for (const Json &piece : *single) {
      const Json *special = nullptr;
      if (piece.is_object() && piece.contains("SpecialToken") && tokens && tokens->is_object()) {
        const Json &token = piece["SpecialToken"];
        if (token.is_object() && token.contains("id") && token["id"].is_string())
          if (auto found = tokens->find(token["id"].get<std::string>()); found != tokens->end() && found->is_object())
            special = found->contains("ids") ? &(*found)["ids"] : nullptr;
      }
      if (special && special->is_array())
        for (const Json &id : *special) {
          if (!id.is_number_unsigned() || id.get<uint64_t>() > UINT32_MAX)
            component.malformed("a special token has no id");
          (texts ? after : before).push_back(id.get<uint32_t>());
        }
      else if (piece.is_object() && piece.contains("Sequence") && piece["Sequence"].is_object() &&
               piece["Sequence"].value("id", Json()) == "A")
        ++texts;
      else
        component.malformed("a piece of \"single\" is neither the text A nor one of \"special_tokens\"");
    }
    if (texts != 1)
      component.refuse("a template that has the text " + std::to_string(texts) + " times");
    prefix.insert(prefix.begin(), before.begin(), before.end());
    suffix.insert(suffix.end(), after.begin(), after.end());
  } else {
    component.refuse("this post-processor");
  }
  component.finish();
}

std::optional<uint32_t> Tokenizer::id(const std::string &text) const {
  auto found = addedIds.find(text);
  return found != addedIds.end() ? found->second : model->vocabulary().id(text);
}

const std::string *Tokenizer::text(uint32_t id) const {
  auto found = addedTexts.find(id);
  return found != addedTexts.end() ? &found->second : model->vocabulary().text(id);
}

//===----------------------------------------------------------------------===//
// Text to tokens
//===----------------------------------------------------------------------===//

Encoder::Encoder(const Tokenizer &tokenizer) : tokenizer(tokenizer), kept(1 << 15) {}

void Encoder::encode(std::string_view text, TokenIds &to) {
  if (size_t at = invalidUtf8(text); at != std::string_view::npos)
    fail(PCRT_BAD_DATA, "the text is not UTF-8: byte " + std::to_string(at) + " is 0x" +
                            "0123456789abcdef"[uint8_t(text[at]) >> 4] + "0123456789abcdef"[text[at] & 15]);
  parts.clear();
  tokenizer.inText.cut(text, parts);
  for (const AddedTokens::Part &part : parts)
    if (part.token)
      to.push_back(part.token->id);
    else
      encodePart(part.text, part.text.data() == text.data(), to);
}

void Encoder::encodePart(std::string_view text, bool isFirst, TokenIds &to) {
  bool lostBegin = false;
  if (!tokenizer.normalizers.steps.empty()) {
    normalized = text;
    tokenizer.normalizers.run(normalized, lostBegin);
    text = normalized;
  }
  inNormalized.clear();
  tokenizer.inNormalized.cut(text, inNormalized);
  for (const AddedTokens::Part &part : inNormalized)
    if (part.token)
      to.push_back(part.token->id);
    else
      encodeWords(part.text, isFirst && !lostBegin && part.text.data() == text.data(), to);
}

void Encoder::encodeWords(std::string_view text, bool isFirst, TokenIds &to) {
  words.clear();
  words.words.push_back({text, isFirst});
  for (const auto &step : tokenizer.preTokenizers.steps)
    step->split(words);
  for (const Word &word : words.words)
    encodeWord(word.text, to);
}

/// Hashes bytes by multiplication (like FNV-1a, but eight bytes at a time).
static uint64_t hashOf(std::string_view text) {
  uint64_t hash = text.size() * 0x9e3779b97f4a7c15, block;
  size_t at = 0;
  for (; at + sizeof block <= text.size(); at += sizeof block) {
    memcpy(&block, text.data() + at, sizeof block);
    hash = (hash ^ block) * 0x9fb21c651e98df25;
    hash ^= hash >> 29;
  }
  block = 0;
  memcpy(&block, text.data() + at, text.size() - at);
  hash = (hash ^ block) * 0x9fb21c651e98df25;
  return hash ^ hash >> 32;
}

void Encoder::encodeWord(std::string_view word, TokenIds &to) {
  const std::string &mark = tokenizer.model->mark();
  if (word.size() > sizeof Kept::word && !mark.empty())
    for (size_t at = word.find(mark); at != word.npos; at = word.find(mark, at)) {
      if (at > 0) {
        encodePiece(word.substr(0, at), to);
        word.remove_prefix(at);
        at = 0;
      }
      while (word.compare(at, mark.size(), mark) == 0)
        at += mark.size();
    }
  encodePiece(word, to);
}

void Encoder::encodePiece(std::string_view word, TokenIds &to) {
  if (word.size() > sizeof Kept::word)
    return tokenizer.model->encode(word, to);
  uint64_t hash = hashOf(word);
  Kept &place = kept[hash & (kept.size() - 1)];
  if (place.hash == hash && place.length == word.size() && memcmp(place.word, word.data(), word.size()) == 0) {
    to.insert(to.end(), place.ids, place.ids + place.count);
    return;
  }
  size_t first = to.size();
  tokenizer.model->encode(word, to);
  if (to.size() - first > std::size(place.ids))
    return;
  place.hash = hash, place.length = uint8_t(word.size()), place.count = uint8_t(to.size() - first);
  memcpy(place.word, word.data(), word.size());
  std::copy(to.begin() + long(first), to.end(), place.ids);
}

//===----------------------------------------------------------------------===//
// Tokens to text
//===----------------------------------------------------------------------===//

class StreamDecoder::Output : public DecoderStep {
public:
  void push(std::string_view one, bool) override { text += one; }
  void finish() override {}
  std::string text;
};

StreamDecoder::StreamDecoder(const Tokenizer &tokenizer, bool skipsSpecial)
    : tokenizer(tokenizer), skipsSpecial(skipsSpecial), output(std::make_unique<Output>()) {
  for (const auto &make : tokenizer.decoders)
    steps.push_back(make());
  for (size_t i = 0; i < steps.size(); ++i) // there is at least one
    steps[i]->next = i + 1 < steps.size() ? steps[i + 1].get() : output.get();
}

StreamDecoder::~StreamDecoder() = default;

std::string StreamDecoder::push(uint32_t id) {
  const std::string *text = tokenizer.text(id);
  if (text && !(skipsSpecial && tokenizer.specials.count(*text)))
    steps[0]->push(*text, true);
  return std::exchange(output->text, "");
}

std::string StreamDecoder::finish() {
  steps[0]->finish();
  return std::exchange(output->text, "");
}
