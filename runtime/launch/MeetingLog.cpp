//===- MeetingLog.cpp - The log of a meeting ------------------------------===//
// Reading checks every line. A round that occurs again replaces the earlier one and all later ones, because members
// began again from there.
//===----------------------------------------------------------------------===//
#include "launch/MeetingLog.h"
#include "base/Failure.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <unistd.h>
#include <utility>

using namespace pcrt;
using Json = nlohmann::ordered_json;

static bool isRound(const Json &line) {
  auto isNumber = [](const Json &object, const char *key) {
    return object.is_object() && object.contains(key) && object[key].is_number_integer();
  };
  if (!isNumber(line, "round") || !line.contains("members") || !line["members"].is_object())
    return false;
  return std::all_of(line["members"].begin(), line["members"].end(),
                     [&](const Json &share) { return isNumber(share, "steps") && isNumber(share, "first"); });
}

LoggedRounds LoggedRounds::read(const std::string &path) {
  LoggedRounds all;
  std::ifstream file(path);
  if (!file)
    fail(PCRT_BAD_DATA, withErrno("cannot read " + path));
  for (std::string line; std::getline(file, line);) {
    Json entry = Json::parse(line, nullptr, false);
    if (!isRound(entry))
      fail(PCRT_BAD_DATA, path + " is not a log of pc-meet: " + printable(line.substr(0, 80)));
    auto round = entry["round"].get<int64_t>();
    if (!all.rounds.empty() && round > all.rounds.rbegin()->first + 1)
      fail(PCRT_BAD_DATA, path + ": round " + std::to_string(all.rounds.rbegin()->first + 1) + " is missing");
    all.rounds.erase(all.rounds.lower_bound(round), all.rounds.end()); // lost, and made again
    for (auto &[name, share] : entry["members"].items())
      all.rounds[round][name] = {share.at("steps").get<int64_t>(), share.at("first").get<int64_t>()};
  }
  if (all.rounds.empty())
    fail(PCRT_BAD_DATA, path + " contains no rounds");
  return all;
}

MeetingLog::~MeetingLog() {
  if (fd >= 0)
    close(fd);
}

void MeetingLog::open(const std::string &path) {
  this->path = path;
  fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0)
    fail(PCRT_RESOURCE, withErrno("cannot write " + path));
}

void MeetingLog::append(const std::string &line) {
  if (fd < 0)
    return;
  off_t end = lseek(fd, 0, SEEK_END);
  errno = ENOSPC; // a line was written only in part
  if (::write(fd, line.data(), line.size()) == ssize_t(line.size()) && (fdatasync(fd) == 0 || errno == EINVAL))
    return;
  std::string why = withErrno("cannot write " + path);
  [[maybe_unused]] bool cut = end >= 0 && ftruncate(fd, end) == 0;
  if (!std::exchange(warned, true))
    fprintf(stderr, "pc-meet: warning: %s; the server continues, but its rounds cannot be repeated from this log\n",
            why.c_str());
}
