//===- tokenizer-test.cpp - Tokenizers, for tests -------------------------===//
// usage: tokenizer-test encode TOKENIZER    reads texts that end in 0 bytes, prints a line of ids for each
//        tokenizer-test decode TOKENIZER    reads lines of ids; prints for each line the texts of all tokens, pushed
//        one
//                                           by one, in hexadecimal with dots between pushes
//        tokenizer-test categories          prints what utf8proc knows about each character (unicode_tables.py)
//===----------------------------------------------------------------------===//
#include "tokenizer/Tokenizer.h"
#include "tokenizer/Unicode.h"

#include <cstdio>
#include <cstring>
#include <iostream>
#include <sstream>
#include <utf8proc.h>

using namespace pcrt;

static void encode(const Tokenizer &tokenizer) {
  Encoder encoder(tokenizer);
  TokenIds ids;
  for (std::string text; std::getline(std::cin, text, '\0');) {
    ids.clear();
    encoder.encode(text, ids);
    for (uint32_t id : ids)
      printf("%u ", id);
    printf("\n");
  }
}

static void decode(const Tokenizer &tokenizer) {
  for (std::string line; std::getline(std::cin, line);) {
    StreamDecoder decoder(tokenizer, true);
    std::istringstream ids(line);
    auto print = [](const std::string &text) {
      if (invalidUtf8(text) != std::string::npos)
        printf("!");
      for (char c : text)
        printf("%02x", uint8_t(c));
    };
    for (uint32_t id; ids >> id; printf("."))
      print(decoder.push(id));
    print(decoder.finish());
    printf("\n");
  }
}

int main(int argc, char **argv) {
  std::ios::sync_with_stdio(false);
  if (argc == 2 && !strcmp(argv[1], "categories")) {
    for (int c = 0; c < 0x110000; ++c)
      if (c < 0xd800 || c > 0xdfff)
        printf("%x %s %x\n", unsigned(c), utf8proc_category_string(c), unsigned(utf8proc_tolower(c)));
    return 0;
  }
  if (argc != 3)
    return PCRT_USAGE;
  try {
    Tokenizer tokenizer(argv[2]);
    strcmp(argv[1], "encode") ? decode(tokenizer) : encode(tokenizer);
  } catch (const Failure &failure) {
    fprintf(stderr, "error: %s\n", failure.message.c_str());
    return failure.status;
  }
}
