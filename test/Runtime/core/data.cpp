//===- data.cpp - Files of tokens and weights, and the messages about them -===//
// usage: core-data DIRECTORY   (an empty one, for files)
// Prints what is wrong; the exit status says whether anything is.
//===----------------------------------------------------------------------===//
#include "data/Data.h"
#include "Files.h"
#include "base/Npy.h"
#include "base/Safetensors.h"
#include "cpu/Pool.h"

#include <filesystem>
#include <set>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/// The bytes of `values` as numbers of type T.
template <typename T> static std::string numbers(std::initializer_list<int64_t> values) {
  std::string bytes;
  for (int64_t value : values) {
    T number = T(value);
    bytes.append(reinterpret_cast<const char *>(&number), sizeof number);
  }
  return bytes;
}

/// A .npy file, as numpy.save writes it.
static std::string npy(const std::string &dtype, const std::string &shape, const std::string &data, int version = 1,
                       const std::string &order = "False") {
  std::string header = "{'descr': '" + dtype + "', 'fortran_order': " + order + ", 'shape': (" + shape + "), }";
  header += std::string(117 - header.size(), ' ') + "\n";
  std::string length = numbers<uint16_t>({int64_t(header.size())}) + (version > 1 ? std::string(2, '\0') : "");
  return "\x93NUMPY" + std::string{char(version), '\0'} + length + header + data;
}

/// Reads all tokens of a file, and then the first one again.
static std::vector<int32_t> tokensOf(const std::string &spec, int64_t vocabulary = 100000) {
  TokenFile file(spec);
  std::vector<int32_t> tokens(size_t(file.count() + 1));
  file.read(0, file.count() + 1, vocabulary, tokens.data());
  return tokens;
}

/// Tests files of targets, in which -100 does not count.
static void testTargets(const std::string &folder) {
  std::string path = folder + "/targets";
  auto read = [&](const std::string &bytes, int64_t vocabulary, const char *prefix = "") {
    writeFile(path, bytes);
    TokenFile file(prefix + path);
    std::vector<int32_t> targets(size_t(file.count()));
    file.read(0, file.count(), vocabulary, targets.data(), /*areTargets=*/true);
    return targets;
  };
  const std::vector<int32_t> wanted = {5, noTarget, 7};
  auto reads = [&](const std::string &bytes, const char *what, const char *prefix = "") {
    expect(read(bytes, 1000, prefix) == wanted, what);
  };
  auto refused = [&](const std::string &bytes, int64_t vocabulary, const std::string &word, const char *prefix = "") {
    std::string message = failureOf([&] { read(bytes, vocabulary, prefix); });
    expect(message.find(word) != std::string::npos && message.find(path) == 0, "'" + word + "' in: " + message);
  };
  reads(numbers<uint16_t>({5, 65436, 7}), "16 bits");
  reads(numbers<int16_t>({5, -100, 7}), "16 bits, signed");
  reads(numbers<uint32_t>({5, 4294967196, 7}), "32 bits", "u32:");
  reads(npy("<i2", "3,", numbers<int16_t>({5, -100, 7})), ".npy of i2");
  reads(npy("<i4", "3,", numbers<int32_t>({5, -100, 7})), ".npy of i4");
  reads(npy("<i8", "3,", numbers<int64_t>({5, -100, 7})), ".npy of i8");
  reads(npy("|i1", "3,", "\x05\x9c\x07"), ".npy of i1");
  refused(npy("|u1", "3,", "\x05\x9c\x07"), 100, "target 156 at position 1 is not below 100 and is not -100");
  refused(numbers<uint16_t>({5, 65435, 7}), 1000, "target 65435 at position 1 is not below 1000 and is not -100");
  refused(numbers<int32_t>({5, -1, 7}), 1000, "target 4294967295 (-1 if signed) at position 1", "u32:");
  refused(numbers<uint16_t>({5, 65436, 7}), 65437,
          "in 16-bit targets, 65436 stands for -100, but targets below 65437 also contain it");
  expect(read(numbers<uint16_t>({5, 65436, 7}), 65436) == wanted, "the largest vocabulary of 16-bit targets");
}

/// Targets come from the same places as tokens, in every order. The last tokens of a file also belong to a sample.
static void testTargetsOfSamples(const std::string &folder) {
  constexpr int64_t length = 10, vocabulary = 1000;
  auto targetOf = [](int64_t token) { return token % 7 == 0 ? noTarget : int32_t((token + 500) % vocabulary); };
  Options options;
  for (auto [name, count, first] : {std::tuple("a", 60, 0), {"b", 40, 300}}) {
    std::string tokens, targets;
    for (int64_t token = first; token < first + count; ++token) {
      tokens += numbers<uint16_t>({token});
      targets += numbers<uint16_t>({targetOf(token)});
    }
    writeFile(folder + "/tokens-" + name, tokens);
    writeFile(folder + "/targets-" + name, targets);
  }
  options.data = folder + "/tokens-a," + folder + "/tokens-b";
  options.targets = folder + "/targets-?";
  for (bool shuffle : {false, true})
    for (int64_t held : {0, 2}) {
      options.shuffle = shuffle;
      options.validation.every = held;
      TokenData data(options, length, /*training=*/true);
      std::vector<int32_t> tokens(length + 1), targets(length);
      std::set<int32_t> seen;
      const int64_t windows = held ? 5 : 10;
      bool fits = true;
      for (int64_t sample = 0; sample < 3 * windows; ++sample) {
        data.read(sample, vocabulary, vocabulary, tokens.data(), targets.data());
        seen.insert(tokens[0]);
        for (size_t i = 0; i < targets.size(); ++i)
          fits &= targets[i] == targetOf(tokens[i]);
      }
      expect(fits && int64_t(seen.size()) == windows, "targets of samples");
    }
  options = Options();
  options.data = folder + "/tokens-b";
  options.targets = folder + "/targets-b";
  TokenData data(options, 16, /*training=*/true);
  std::vector<int32_t> tokens(17), targets(16);
  data.read(2, vocabulary, vocabulary, tokens.data(), targets.data());
  expect(tokens[7] == 339 && tokens[8] == 300 && targets[7] == 839 && targets[8] == 800, "targets wrap with tokens");
}

static void testTokens(const std::string &folder) {
  using Tokens = std::vector<int32_t>;
  std::string path = folder + "/tokens";
  auto reads = [&](const std::string &bytes, const Tokens &tokens, const std::string &what, const char *prefix = "") {
    writeFile(path, bytes);
    std::string message = failureOf([&] { expect(tokensOf(prefix + path) == tokens, what); });
    expect(message.empty(), what + ": " + message);
  };
  auto refused = [&](const std::string &bytes, const std::string &word, const char *prefix = "") {
    writeFile(path, bytes);
    std::string message = failureOf([&] { tokensOf(prefix + path); });
    expect(message.find(word) != std::string::npos && message.find(path) == 0, "'" + word + "' in: " + message);
  };
  auto bin = [](std::initializer_list<int64_t> words) { return numbers<int32_t>(words) + std::string(1012, '\0'); };
  auto shorts = numbers<uint16_t>;
  // llm.c's files, of both widths.
  reads(bin({20240520, 1, 3}) + shorts({5, 60000, 7}), {5, 60000, 7, 5}, ".bin format, wrapped");
  reads(bin({20240801, 7, 3}) + numbers<uint32_t>({5, 99999, 7}), {5, 99999, 7, 5}, ".bin format of 32 bits");
  refused(bin({20240520, 1, 3}) + shorts({1, 2}), "3 tokens");
  refused(bin({20240801, 7, 3}) + shorts({1, 2, 3}), "3 tokens");
  refused(bin({20240520, 2, 3}) + shorts({1, 2, 3}), "version 2 of the .bin format is not supported, only 1");
  refused(bin({20240801, 1, 3}) + shorts({1, 2, 3}), "version 1 of the .bin format is not supported, only 7");
  refused(bin({20240801, 7, -3}), "-3 tokens");
  // Raw numbers.
  reads(shorts({1, 2, 300}), {1, 2, 300, 1}, "raw tokens");
  reads(shorts({1, 2, 300}), {1, 0, 2, 0, 44, 1, 1}, "bytes as tokens", "text:");
  reads(numbers<uint32_t>({1, 70000, 3}), {1, 70000, 3, 1}, "raw tokens of 32 bits", "u32:");
  refused("", "empty");
  refused("a", "whole number of 16-bit");
  refused("abcdef", "whole number of 32-bit", "u32:");
  refused(shorts({1}), "too short");
  refused(numbers<int32_t>({5, -100, 7}),
          "token 4294967196 (-100 if signed) at position 1 is not in the vocabulary of 100000", "u32:");
  // Wider tokens without a "u32:". The runtime recognizes them only if there are enough.
  auto repeat = [](const std::string &bytes, int times) {
    std::string all;
    while (times-- > 0)
      all += bytes;
    return all;
  };
  std::string ofWider =
      "every other 16-bit number is zero, so this looks like a file of 32-bit numbers; use u32:" + path;
  refused(repeat(numbers<int32_t>({5, 6}), 8), ofWider);
  refused(repeat(numbers<int32_t>({5}), 1 << 19) + shorts({3, 3}), ofWider);
  refused(repeat(numbers<int64_t>({5}), 16), "64-bit numbers");
  refused(repeat(numbers<int64_t>({5}), 16), "64-bit numbers", "u32:");
  refused(repeat(shorts({0, 5 << 8}), 16), "big-endian 32-bit");
  auto readable = [&](const std::string &bytes, const char *what) {
    writeFile(path, bytes);
    expect(failureOf([&] { tokensOf(path); }).empty(), what);
  };
  readable(repeat(numbers<int32_t>({5}), 15), "15 pairs may be anything");
  readable(repeat(numbers<int32_t>({5}), 15) + shorts({5, 1, 5, 0}), "one that is not zero");
  readable(std::string(100, '\0'), "zeros are zeros");
  readable(std::string(1 << 20, '\0') + repeat(numbers<int32_t>({5}), 16), "zeros in the first MiB");
  // NumPy's arrays.
  for (int version : {1, 2, 3}) {
    reads(npy("<u2", "3,", shorts({5, 60000, 7}), version), {5, 60000, 7, 5}, ".npy of u2");
    reads(npy("<i8", "3,", numbers<int64_t>({5, 70000, 7}), version), {5, 70000, 7, 5}, ".npy of i8");
  }
  reads(npy("|u1", "2,", "\x05\xff"), {5, 255, 5}, ".npy of u1");
  reads(npy("|i1", "2,", "\x05\x7f"), {5, 127, 5}, ".npy of i1");
  reads(npy("<i2", "2,", shorts({5, 32767})), {5, 32767, 5}, ".npy of i2");
  reads(npy("<u4", "2,", numbers<uint32_t>({5, 70000})), {5, 70000, 5}, ".npy of u4");
  reads(npy("<i4", "2,", numbers<int32_t>({5, 70000})), {5, 70000, 5}, ".npy of i4");
  reads(npy("<u8", "2,", numbers<uint64_t>({5, 70000})), {5, 70000, 5}, ".npy of u8");
  refused(npy("<i8", "2,", numbers<int64_t>({5, -100})), "token -100 at position 1");
  refused(npy("|i1", "2,", "\x05\xff"), "token -1 at position 1");
  refused(npy("<i8", "2,", numbers<int64_t>({int64_t(1) << 32, 0})), "token 4294967296 at position 0");
  refused(npy("<u8", "2,", numbers<uint64_t>({5, -1})), "token 18446744073709551615 (-1 if signed)");
  refused(npy(">u4", "2,", numbers<uint32_t>({5, 6})), "big-endian ('>u4'); save it after .astype('<u4')");
  refused(npy("<f4", "2,", numbers<uint32_t>({5, 6})), "not contain integers, but '<f4'");
  refused(npy("|b1", "2,", "\x01\x01"), "not contain integers, but '|b1'");
  refused(npy("<u2", "2,", shorts({5, 6}), 1, "True"), "Fortran");
  refused(npy("<u2", "1, 2", shorts({5, 6})), "shape (1, 2) instead of one dim");
  refused(npy("<u2", "", shorts({5})), "shape () instead of one dim");
  refused(npy("<u2", "99999999999999999999,", shorts({5, 6})), "expected at most 8 sizes");
  refused(npy("<u2", "3,", shorts({5, 6})), "3 tokens of 2 bytes, but the file has 4 bytes");
  refused(npy("<u2", "1,", shorts({5, 6})), "1 tokens of 2 bytes, but the file has 4 bytes");
  refused(npy("<u2", "2,", shorts({5, 6}), 4), "version 4");
  refused(npy("<u2", "2,", shorts({5, 6})).substr(0, 20), "longer than the file");
  refused(std::string("\x93NUMPY\x01", 7), "longer than the file");
  // Any bytes after the magic number are refused or read, and never crash the run.
  std::string good = npy("<i4", "20,", repeat(numbers<int32_t>({5}), 20));
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = good;
    for (int change = pick(1, 3); change > 0; --change)
      bytes[size_t(pick(6, int(bytes.size()) - 1))] = "0123456789{}(),:'<>|iuf\0\xff"[pick(0, 24)];
    if (pick(0, 9) == 0)
      bytes.resize(size_t(pick(6, int(bytes.size()))));
    writeFile(path, bytes);
    failureOf([&] { tokensOf(path); });
  }
}

/// Reading a tensor in pieces of any order and size gives its elements.
static void testPieces(const std::string &folder) {
  std::string path = folder + "/pieces", data;
  const int64_t count = 30000;
  std::vector<float> values;
  for (const char *dtype : {"F32", "BF16"}) {
    int64_t width = dtype[0] == 'F' ? 4 : 2;
    data.clear();
    values.clear();
    for (int64_t i = 0; i < count; ++i) {
      float value = float(i % 251) - 100; // has 8 bits, so it is exact in both types
      values.push_back(value);
      uint32_t bits;
      memcpy(&bits, &value, 4);
      data.append(reinterpret_cast<char *>(&bits) + 4 - width, size_t(width));
    }
    writeFile(path, safetensors("{\"w\":{\"dtype\":\"" + std::string(dtype) +
                                    "\",\"shape\":[30000],\"data_offsets\":[0," + std::to_string(count * width) + "]}}",
                                data));
    Safetensors file = Safetensors::open(path);
    FloatReader reader(*file.find("w"));
    std::vector<float> read(count);
    bool good = true;
    for (int round = 0; round < 3000; ++round) {
      int64_t first = round % 2 ? pick(0, count - 1) : round * 10 % count;
      int64_t some = std::min<int64_t>(round % 10 ? pick(0, 300) : pick(0, count), count - first);
      reader.read(first, some, read.data());
      good &= memcmp(read.data(), values.data() + first, size_t(some) * 4) == 0;
    }
    expect(good, std::string("pieces of ") + dtype);
  }
}

/// Tests files that change while they are read, and paths that are not files.
static void testInputFiles(const std::string &folder) {
  std::string path = folder + "/input";
  auto says = [&](const std::string &word, const std::string &message) {
    expect(message.find(word) != std::string::npos && message.find(path) != std::string::npos,
           "'" + word + "' in: " + message);
  };
  std::filesystem::remove_all(path); // of a run before
  writeFile(path, std::string(10000, '\5'));
  TokenFile tokens(path);
  writeFile(path, safetensors("{\"w\":{\"dtype\":\"BF16\",\"shape\":[9000],\"data_offsets\":[0,18000]}}",
                              std::string(18000, '\1')));
  Safetensors weights = Safetensors::open(path);
  // The file is cut within its last page, where a mapping would show zeros.
  std::filesystem::resize_file(path, 17999);
  std::vector<float> values(9000);
  says("was truncated while it was being read",
       failureOf([&] { loadFloats(*weights.find("w"), 0, 9000, values.data()); }));
  says("was truncated while it was being read", failureOf([&] {
         Pool(3).ranges(3, [&](int, int64_t lo, int64_t hi) {
           loadFloats(*weights.find("w"), 3000 * lo, 3000 * (hi - lo), values.data() + 3000 * lo);
         });
       }));
  std::filesystem::resize_file(path, 9999);
  std::vector<int32_t> read(5000);
  says("was truncated while it was being read", failureOf([&] { tokens.read(0, 5000, 70000, read.data()); }));

  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  says("not a regular file but a directory", failureOf([&] { InputFile file(path); }));
  std::filesystem::remove(path);
  mkfifo(path.c_str(), 0600);
  says("not a regular file but a pipe", failureOf([&] { InputFile file(path); }));
  says("not a regular file but a pipe", failureOf([&] { Safetensors::open(path); }));
  says("not a regular file but a pipe", failureOf([&] { TokenFile file("text:" + path); }));
  std::filesystem::remove(path);
  std::filesystem::create_symlink("/dev/zero", path);
  says("not a regular file but a device", failureOf([&] { InputFile file(path); }));
  std::filesystem::remove(path);
  int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{AF_UNIX, {}};
  snprintf(address.sun_path, sizeof address.sun_path, "%s", path.c_str());
  // In a deep folder, the path would be too long for a socket.
  if (bind(listener, reinterpret_cast<sockaddr *>(&address), sizeof address) == 0)
    says("not a regular file but a socket", failureOf([&] { InputFile file(path); }));
  close(listener);
}

/// If samples have fewer targets than tokens, both files wrap at the same sample.
static void testFewerTargets(const std::string &folder) {
  std::string tokens, targets;
  for (int64_t i = 0; i < 40; ++i)
    tokens += numbers<uint16_t>({i});
  for (int64_t i = 0; i < 16; ++i)
    targets += numbers<uint16_t>({100 + i});
  writeFile(folder + "/many", tokens);
  writeFile(folder + "/few", targets);
  Options options;
  options.data = folder + "/many";
  options.targets = folder + "/few";
  for (bool shuffle : {false, true}) {
    options.shuffle = shuffle;
    TokenData data(options, 10, /*training=*/true, 4);
    bool fits = true;
    for (int64_t sample = 0; sample < 9; ++sample) {
      std::vector<int32_t> read(11), of(4);
      data.read(sample, 1000, 1000, read.data(), of.data());
      fits &= of[0] == 100 + read[0] / 10 * 4 && of[3] == of[0] + 3 && (shuffle || read[0] == sample % 4 * 10);
    }
    expect(fits, "samples with fewer targets than tokens");
  }
  std::string why = failureOf([&] { TokenData(options, 10, true, 5); });
  expect(why.find("few has 16 targets, but the number of its tokens in " + folder +
                  "/many is 40, and a sample of 10 has 5 targets") != std::string::npos,
         why);
}

/// Tests headers of arrays of any shape.
static void testArrays(const std::string &folder) {
  std::string path = folder + "/array.npy", floats(4 * 12, '\0');
  auto read = [&](const std::string &bytes) {
    writeFile(path, bytes);
    return readNpy(InputFile(path), "elements");
  };
  auto refused = [&](const std::string &bytes, const std::string &words) {
    std::string why = failureOf([&] { read(bytes); });
    expect(why.find(words) != std::string::npos, "'" + why + "', not '" + words + "'");
  };
  for (int version : {1, 2, 3}) {
    NpyArray array = read(npy("<f4", "2, 3, 2", floats, version));
    expect(array.dims == Dims{2, 3, 2} && array.dtype == "<f4" && array.start % 2 == 0, "an array of three dims");
  }
  expect(read(npy("<f4", "", floats.substr(0, 4))).dims.empty(), "an array of no dims");
  expect(read(npy("<f4", "0, 3", "")).dims == Dims{0, 3}, "an array of no rows");
  refused(npy("<f4", "-2, -6", floats), "has the shape (-2, -6); expected at most 8 sizes, none of them negative");
  refused(npy("<f4", "3; 4", floats), "has the shape (3; 4)");
  refused(npy("<f4", "1, 1, 1, 1, 1, 1, 1, 1, 12", floats), "expected at most 8 sizes");
  refused(npy("<f4", "4294967296, 4294967296, 3", floats), "the header says (4294967296, 4294967296, 3) elements");
  refused(npy("<f4", "4611686018427387904, 4", floats), "elements of 4 bytes, but the file has 48 bytes");
  refused(npy("<f4", "3, 4", floats, 1, "True"), "Fortran order");
  refused(npy("<f4", "3, 4", floats, 1, "None"), "Fortran order");
  refused(npy("<c8", "3, 2", floats), "elements of '<c8'");
  refused(npy("<U4", "3,", floats), "elements of '<U4'");
  refused(npy(">f4", "3, 4", floats), "big-endian");
  refused(npy("<f4", "3, 4", floats.substr(1)), "12 elements of 4 bytes, but the file has 47 bytes");
  refused(npy("<f4", "3, 4", floats).substr(0, 9), "longer than the file");
  std::string huge = npy("<f4", "3, 4", floats, 2);
  huge[10] = 0x40; // a header of more than 4 MiB
  refused(huge, "longer than the file");
  refused(huge + std::string(5 << 20, ' '), "is longer than 1048576");
  // Any bytes after the magic number are refused or read, and never crash the run.
  std::string good = npy("<f4", "2, 3, 2", floats);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = good;
    for (int change = pick(1, 3); change > 0; --change)
      bytes[size_t(pick(6, int(bytes.size()) - 1))] = "0123456789{}(),:'<>|iuf\0\xff"[pick(0, 24)];
    failureOf([&] { read(bytes); });
  }
}

static void testPrintable() {
  auto becomes = [](const std::string &text, const std::string &shown) {
    expect(printable(text) == shown, "'" + printable(text) + "', not '" + shown + "'");
  };
  becomes("tensor 'h.0': fine", "tensor 'h.0': fine");
  becomes("a\x1b[2Jb\r\nc\td\x7f", "a\\x1b[2Jb\\x0d\\x0ac\\x09d\\x7f");
  becomes(std::string("a\0b", 3), "a\\x00b");
  becomes("größe 張量 \U0001f642", "größe 張量 \U0001f642");
  becomes("\xc2\x9b"
          "2J\xc2\xa0",
          "\\xc2\\x9b"
          "2J\xc2\xa0");                      // a control character of 8-bit terminals
  becomes("\xff\x80\xc3", "\\xff\\x80\\xc3"); // bytes that are not UTF-8
  becomes("\xc0\x9b\xe0\x80\x9b\xf0\x80\x80\x9b\xed\xa0\x80",
          "\\xc0\\x9b\\xe0\\x80\\x9b\\xf0\\x80\\x80\\x9b\\xed\\xa0\\x80");
  expect(printable(std::string(1 << 20, 'x')).size() < 5000, "messages have an end");
}

int main(int argc, char **argv) {
  if (argc != 2)
    return 2;
  testTokens(argv[1]);
  testTargets(argv[1]);
  testTargetsOfSamples(argv[1]);
  testFewerTargets(argv[1]);
  testPieces(argv[1]);
  testInputFiles(argv[1]);
  testArrays(argv[1]);
  testPrintable();
  return finishChecks();
}
