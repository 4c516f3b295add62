//===- Flags.cpp - The flags of a tool that runs other tools --------------===//
#include "Flags.h"
#include "base/Failure.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <set>
#include <sstream>
#include <toml++/toml.h>

using pcrt::fail;

/// Adds the flags at the start of a line of a help text. Returns the name of the last one.
static std::string addFlagsOfLine(FlagKinds &kinds, Owner owner, const std::string &line, size_t begin) {
  // The flags end at the description, which follows two spaces or " - ".
  size_t end = std::min(line.find("  ", begin), line.find(" - ", begin));
  std::istringstream words(line.substr(begin, end == std::string::npos ? end : end - begin));
  std::string name;
  for (std::string word; words >> word;) {
    if (word[0] != '-') { // a value of the flag in front of it
      if (auto known = kinds.find(name); known != kinds.end() && known->second.owner == owner)
        known->second.needsValue = true;
      continue;
    }
    size_t value = word.find_first_of("[=");
    name = word.substr(0, value);
    kinds.try_emplace(name, FlagKind{owner, value != std::string::npos && word[value] == '='});
  }
  return name;
}

void addFlags(FlagKinds &kinds, Owner owner, const std::string &help) {
  std::istringstream lines(help);
  std::string described;
  for (std::string line; std::getline(lines, line);) {
    constexpr size_t begin = 2; // flags begin in this column, and continued descriptions further right
    if (line.find_first_not_of(' ') == begin && line[begin] == '-')
      described = addFlagsOfLine(kinds, owner, line, begin);
    if (line.find("may be repeated") != std::string::npos && kinds.count(described))
      kinds.at(described).isRepeated = true;
  }
}

const std::string *Request::valueOf(const std::string &name) const {
  auto flag = std::find_if(flags.rbegin(), flags.rend(), [&](const Flag &each) { return each.name == name; });
  return flag == flags.rend() ? nullptr : &flag->value;
}

void Request::remove(const std::string &name) {
  std::erase_if(flags, [&](const Flag &flag) { return flag.name == name; });
}

void Request::set(const std::string &name, const std::string &value) {
  remove(name);
  flags.push_back({name, value, true});
}

std::vector<std::string> Request::wordsOf(const FlagKinds &kinds, Owner owner) const {
  std::vector<std::string> words;
  for (const Flag &flag : flags) {
    if (kinds.at(flag.name).owner != owner)
      continue;
    bool joined = flag.hasValue && owner <= Owner::Compile; // LLVM's tools need this form if the value is optional
    words.push_back(joined ? flag.name + "=" + flag.value : flag.name);
    if (flag.hasValue && !joined)
      words.push_back(flag.value);
  }
  return words;
}

/// Throws unless some tool has this flag.
static const FlagKind &kindOf(const FlagKinds &kinds, const std::string &name, const std::string &where) {
  auto known = kinds.find(name);
  if (known == kinds.end())
    fail(PCRT_USAGE, where + "unknown flag '" + name + "', which this tool and the commands that it runs do not have");
  return known->second;
}

Request readCommandLine(const FlagKinds &kinds, int argc, char **argv) {
  Request request;
  auto isFlag = [](const char *word) { return word[0] == '-' && word[1] && !std::isdigit(word[1]) && word[1] != '.'; };
  for (int at = 1; at < argc; ++at) {
    if (!isFlag(argv[at])) {
      if (!request.model.empty())
        fail(PCRT_USAGE, "there are two models, '" + request.model + "' and '" + argv[at] +
                             "'; if one is the value of a flag, join them by '='");
      request.model = argv[at];
      continue;
    }
    Flag flag{argv[at], "", false};
    if (size_t equal = flag.name.find('='); equal != std::string::npos) {
      flag = {flag.name.substr(0, equal), flag.name.substr(equal + 1), true};
    } else if (kindOf(kinds, flag.name, "").needsValue) {
      if (at + 1 == argc)
        fail(PCRT_USAGE, flag.name + " needs a value");
      flag = {flag.name, argv[++at], true};
    }
    kindOf(kinds, flag.name, "");
    request.flags.push_back(std::move(flag));
  }
  return request;
}

/// The text of a TOML value that a flag takes.
static std::string textOf(const toml::node &node, const std::string &where) {
  if (auto text = node.value<std::string>(); text && node.is_string())
    return *text;
  if (!node.is_integer() && !node.is_floating_point())
    fail(PCRT_USAGE, where + "a flag takes a string, a number, true or a list of them");
  char digits[64];
  std::to_chars_result end = node.is_integer() ? std::to_chars(digits, std::end(digits), *node.value<int64_t>())
                                               : std::to_chars(digits, std::end(digits), *node.value<double>());
  return {digits, end.ptr};
}

Request readConfig(const FlagKinds &kinds, const std::string &path) {
  Request request;
  toml::table table;
  try {
    table = toml::parse_file(path);
  } catch (const toml::parse_error &error) {
    std::string line = error.source().begin ? ":" + std::to_string(error.source().begin.line) : "";
    fail(PCRT_USAGE, path + line + ": " + std::string(error.description()));
  }
  for (auto &&[key, node] : table) {
    std::string where = path + ":" + std::to_string(node.source().begin.line) + ": ";
    std::string name = (key.length() == 1 ? "-" : "--") + std::string(key.str());
    if (name == "--model") {
      request.model = textOf(node, where);
      continue;
    }
    if (name == "--config")
      fail(PCRT_USAGE, where + "a file of flags cannot name another one");
    const FlagKind &kind = kindOf(kinds, name, where);
    if (auto isOn = node.value<bool>(); isOn && node.is_boolean()) {
      if (kind.needsValue)
        fail(PCRT_USAGE, where + name + " needs a value, not true or false");
      if (*isOn)
        request.flags.push_back({name, "", false});
    } else if (const toml::array *list = node.as_array()) {
      if (!kind.isRepeated)
        fail(PCRT_USAGE, where + "'" + std::string(key.str()) + "' is a list, but " + name + " takes one value");
      for (const toml::node &each : *list)
        request.flags.push_back({name, textOf(each, where), true});
    } else {
      request.flags.push_back({name, textOf(node, where), true});
    }
  }
  return request;
}

void addMissing(Request &request, const Request &other) {
  if (request.model.empty())
    request.model = other.model;
  std::set<std::string> given;
  for (const Flag &flag : request.flags)
    given.insert(flag.name);
  for (const Flag &flag : other.flags)
    if (!given.count(flag.name))
      request.flags.push_back(flag);
}

std::string writtenAsConfig(const FlagKinds &kinds, const Request &request) {
  toml::table table{{"model", request.model}};
  for (const Flag &flag : request.flags) {
    std::string key = flag.name.substr(flag.name.find_first_not_of('-'));
    toml::node *known = table.get(key);
    if (!flag.hasValue)
      table.insert_or_assign(key, true);
    else if (!known || !kinds.at(flag.name).isRepeated)
      table.insert_or_assign(key, flag.value); // the last value counts
    else if (toml::array *list = known->as_array())
      list->push_back(flag.value);
    else
      table.insert_or_assign(key, toml::array{textOf(*known, ""), flag.value});
  }
  std::ostringstream os;
  os << table << "\n";
  return os.str();
}
