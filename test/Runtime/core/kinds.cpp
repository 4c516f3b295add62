//===- kinds.cpp - Files that are not tokens, and tokens that look like other files -===//
// usage: core-kinds DIRECTORY   (an empty one, for files)
// Prints what is wrong; the exit status says whether anything is.
//===----------------------------------------------------------------------===//
#include "Files.h"
#include "data/Data.h"

using namespace std::string_literals;

/// Returns the error for opening a file with these bytes; empty if there is none.
static std::string failureOfFile(const std::string &path, const std::string &bytes, const char *prefix = "") {
  writeFile(path, bytes);
  return failureOf([&] { TokenFile file(prefix + path); });
}

static std::string repeat(const std::string &text, int times) {
  std::string all;
  while (times-- > 0)
    all += text;
  return all;
}

/// Random numbers of type T below `most`.
template <typename T> static std::string randomNumbers(int count, int64_t most, int64_t first = 0) {
  std::string bytes;
  for (int i = 0; i < count; ++i) {
    T number = T(first + pick(0, int(most - 1)));
    bytes.append(reinterpret_cast<const char *>(&number), sizeof number);
  }
  return bytes;
}

static std::string bytesOf(int64_t number, int width) {
  return std::string(reinterpret_cast<const char *>(&number), size_t(width));
}

/// Files of other formats are refused, with or without "u32:". With "text:", any file is accepted.
static void testFormats(const std::string &folder) {
  std::string path = folder + "/other", noise = randomNumbers<uint16_t>(1000, 1 << 16);
  auto refused = [&](const std::string &bytes, const std::string &word) {
    for (const char *prefix : {"", "u32:"}) {
      std::string message = failureOfFile(path, bytes, prefix);
      expect(message.find(path + " is ") == 0 && message.find(word) != std::string::npos,
             "'" + word + "' in: " + message);
    }
    expect(failureOfFile(path, bytes, "text:").empty(), "text: takes " + word);
  };
  for (auto [magic, word] : std::initializer_list<std::pair<std::string, const char *>>{
           {"\x1f\x8b\x08\0\x12\x34\x56\x78\x02\x03"s, "gzip archive, not tokens; decompress it"},
           {"\x1f\x8b\x08\x08\0\0\0\0\0\xff"s, "gzip"},
           {"BZh91AY&SY"s, "bzip2"},
           {"\xfd"
            "7zXZ\0"s,
            "xz archive"},
           {"\x28\xb5\x2f\xfd\x24"s, "zstd"},
           {"\x04\x22\x4d\x18"s, "lz4"},
           {"7z\xbc\xaf\x27\x1c"s, "7z"},
           {"Rar!\x1a\x07\x01\0"s, "rar"},
           {std::string(257, 'a') + "ustar\0"s, "tar"},
           {"PK\x03\x04\x14\0"s, "zip archive, such as NumPy's .npz or PyTorch's .pt, not tokens; save"},
           {"PAR1\x15\x04"s, "Parquet"},
           {"ARROW1\0\0"s, "Arrow file"},
           {"\xff\xff\xff\xff\x80\0\0\0\x10\0\0\0"s, "Arrow stream"},
           {"FEA1"s, "Feather"},
           {"Obj\x01"s, "Avro"},
           {"\x89HDF\r\n\x1a\n"s, "HDF5"},
           {"SQLite format 3\0"s, "SQLite"},
           {"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n"s, "PDF"},
           {"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"s, "PNG"},
           {"\xff\xd8\xff\xe0\0\x10JFIF\0"s, "JPEG"},
           {"\xff\xd8\xff\xe1\x12\x34"
            "Exif\0"s,
            "JPEG"},
           {"GIF89a"s, "GIF"},
           {"II*\0"s, "TIFF"},
           {"RIFF\x10\0\0\0WEBPVP8 "s, "RIFF"},
           {"\x7f"
            "ELF\x02\x01\x01\0"s,
            "ELF"},
           {"GGUF\x03\0\0\0"s, "GGUF"},
           {"MMIDIDX\0\0\x01\0\0\0"s, "index of Megatron, not tokens; use the .bin file next to it"},
           {"TNTIDX\0\0"s, "fairseq"},
           {bytesOf(20240326, 4) + bytesOf(3, 4), "model of llm.c"},
           {"\x80\x04\x95\x20\0\0\0\0\0\0\0]\x94("s, "pickle"},
           {"\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20j\xa8P\x19."s, "pickle"},
           {"\x0a\x0e\x0a\x05<unk>\x15\0\0\0\0\x18\x02"s, "SentencePiece"},
       })
    refused(magic + noise, word);
  refused("\x80\x03]q\0(K\x01K\x02"s + noise + "e.", "pickle");
  refused("BM"s + bytesOf(int64_t(noise.size()) + 6, 4) + noise, "BMP");
  std::string header = R"({"w":{"dtype":"F32","shape":[500],"data_offsets":[0,2000]}})";
  refused(bytesOf(int64_t(header.size()), 8) + header + noise, "safetensors");
  // Tests headers that state the type of the numbers.
  expect(failureOfFile(path, "\x93NUMPY\x01\0"s + noise, "u32:").find("leave out u32:") != std::string::npos,
         "u32: and .npy");
}

static void testText(const std::string &folder) {
  std::string path = folder + "/text";
  auto refused = [&](const std::string &bytes, const std::string &word) {
    std::string message = failureOfFile(path, bytes);
    expect(message.find(path + " is ") == 0 && message.find(word) != std::string::npos,
           "'" + word + "' in: " + message);
  };
  refused("A file of text, a few words long, not one token.\n", "text, not tokens; tokenize");
  refused(repeat("To be, or not to be?\r\n", 9999), "or use text:" + path + ", which uses its bytes as tokens");
  refused(repeat("{\"text\": \"one\"}\n", 40), "JSON");
  refused(" [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]", "JSON");
  refused("12,13,14\n15,16,17\n12,13,14\n15,16,17\n", "text");
  refused(repeat("Gr\xc3\xbc\xc3\x9f"
                 "e aus K\xc3\xb6ln. ",
                 5),
          "text");
  refused("\xef\xbb\xbf" + repeat("\xe4\xbd\xa0\xe5\xa5\xbd\xef\xbc\x8c", 12000), "text"); // cut within a character
  refused(repeat("Gr\xfc\xdf"
                 "e aus K\xf6ln.\n",
                 50),
          "text"); // Latin-1
  refused(repeat("A log with some other bytes.\n", 60) + std::string("\0\x01", 2) + repeat("And more.\n", 60), "text");
  refused("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n", "Git LFS pointer");
  std::string wide = "\xff\xfe", big = "\xfe\xff";
  for (char c : repeat("Sixteen bits a character. ", 8))
    wide += {c, '\0'}, big += {'\0', c};
  refused(wide, "text");
  refused(big, "text");
}

/// Tests raw 32-bit tokens without "u32:", some of which do not fit 16 bits, and 16-bit tokens for a vocabulary that
/// needs more bits.
static void testWidths(const std::string &folder) {
  std::string path = folder + "/wide";
  for (int64_t most : {100, 65536, 70000, 128256, 262144, 1 << 20})
    for (int count : {100, 2000})
      for (int round = 0; round < 50; ++round) {
        std::string bytes = randomNumbers<uint32_t>(count, most);
        std::string message = failureOfFile(path, bytes);
        expect(message.find("so this looks like a file of 32-bit numbers; use u32:" + path) != std::string::npos,
               std::to_string(most) + ": " + message);
        expect(failureOfFile(path, bytes, "u32:").empty(), "32-bit numbers as such");
      }
  // These are targets, some of which are -100.
  std::string bytes = randomNumbers<int32_t>(500, 30000);
  for (int i = 0; i < 200; ++i)
    bytes.replace(size_t(pick(0, 499)) * 4, 4, bytesOf(noTarget, 4));
  expect(failureOfFile(path, bytes).find("every other 16-bit number is zero") != std::string::npos, "32-bit targets");
  std::string message = failureOfFile(path, randomNumbers<int64_t>(500, 128256));
  expect(message.find("64-bit numbers; save them as .npy") != std::string::npos, message);

  writeFile(path, randomNumbers<uint16_t>(500, 60000));
  expect(failureOf([&] { TokenFile(path).checkVocabulary(65536); }).empty(), "16 bits hold 65536 tokens");
  expect(failureOf([&] { TokenFile(path).checkVocabulary(65537); }).find("use u32:" + path) != std::string::npos,
         "16 bits do not hold 65537");
  expect(failureOf([&] { TokenFile("u32:" + path).checkVocabulary(65537); }).empty(), "32 bits do");
  expect(failureOf([&] { TokenFile("text:" + path).checkVocabulary(65537); }).empty(), "bytes do");
}

/// Files of tokens must be read even if some of their bytes look like text or like numbers of another width.
static void testTokens(const std::string &folder) {
  std::string path = folder + "/tokens";
  int wrong = 0;
  auto reads = [&](const std::string &bytes, const std::string &what) {
    std::string message = failureOfFile(path, bytes);
    if (!message.empty() && wrong++ < 5)
      expect(false, what + ": " + message);
  };
  for (int round = 0; round < 300; ++round)
    for (int64_t most : {2, 3, 10, 16, 95, 128, 256, 300, 1000, 8192, 30522, 50257, 65536}) {
      int count = round % 100 ? pick(2, 100) : pick(1000, 4000);
      reads(randomNumbers<uint16_t>(count, most), std::to_string(count) + " below " + std::to_string(most));
    }
  for (int round = 0; round < 300; ++round) {
    // The tokens are mostly zeros, codes of pictures above a vocabulary, bytes of text as 16-bit tokens, or a text of
    // few different tokens.
    std::string sparse = randomNumbers<uint16_t>(pick(16, 300), 50000), bytes;
    for (size_t at = 0; at < sparse.size(); at += 2)
      if (pick(0, 19))
        sparse[at] = sparse[at + 1] = 0;
    reads(sparse, "mostly zeros");
    reads(randomNumbers<uint16_t>(pick(16, 300), 8192, 8192), "codes from 8192 on");
    reads(randomNumbers<uint16_t>(pick(16, 300), 128, 0x2000), "codes from 0x2000 on");
    reads(randomNumbers<uint16_t>(pick(256, 300), 96, 0x2020), "codes from 0x2020 on, with spaces");
    for (int i = pick(16, 300); i > 0; --i)
      bytes += {char(pick(' ', '~')), '\0'};
    reads(bytes, "bytes of text as tokens");
    for (int i = pick(32, 300); i > 0; --i) // half of these tokens are two printable bytes
      bytes += pick(0, 1) ? std::string{char(pick(' ', '~')), char(pick(' ', '~'))} : randomNumbers<uint16_t>(1, 50257);
    reads(bytes, "printable pairs");
  }
  for (int64_t constant : {0, 1, 255, 256, 50256, 65535})
    for (int count : {2, 100, 3000})
      reads(repeat(bytesOf(constant, 2), count), "one token");
  std::string counted;
  for (int64_t i = 0; i < 65536; ++i)
    counted += bytesOf(i, 2);
  for (int64_t first : {0, 15, 1000, 0x2020, 0x4141})
    reads(counted.substr(size_t(first) * 2), "in order");
  expect(wrong == 0, std::to_string(wrong) + " files of tokens were refused");
}

int main(int argc, char **argv) {
  if (argc != 2)
    return 2;
  testFormats(argv[1]);
  testText(argv[1]);
  testWidths(argv[1]);
  testTokens(argv[1]);
  return finishChecks();
}
