//===- unit.cpp - The parts of the runtime core, one by one ---------------===//
// usage: core-unit DIRECTORY   (an empty one, for files)
// Prints what is wrong; the exit status says whether anything is.
//===----------------------------------------------------------------------===//
#include "Files.h"
#include "base/SafetensorsWriter.h"
#include "base/Types.h"
#include "checkpoint/ConfigText.h"
#include "cpu/Gemm.h"
#include "cpu/PlainGemm.h"
#include "data/Init.h"
#include "data/Options.h"
#include "metrics/Stragglers.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>

using namespace pcrt;

//===----------------------------------------------------------------------===//

static void testPhilox() {
  using Four = std::array<uint32_t, 4>;
  // Known answers of Random123.
  expect(philox({0, 0, 0, 0}, {0, 0}) == Four{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}, "philox of zeros");
  expect(philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}) == Four{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
         "philox of ones");
  expect(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
             Four{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1},
         "philox of pi");
  double sum = 0, squares = 0;
  const int n = 200000;
  for (int i = 0; i < n; ++i) {
    double value = normalAt(5, 3, i);
    sum += value;
    squares += value * value;
  }
  expect(std::fabs(sum / n) < 0.01 && std::fabs(squares / n - 1) < 0.01, "mean and variance of the normal values");
  expect(normalAt(5, 3, 0) != normalAt(5, 4, 0) && normalAt(5, 3, 0) != normalAt(6, 3, 0), "seed and key count");
}

/// Tests the curve of learning rates, which rises to --lr and falls to --min-lr.
static void testRates() {
  Options options;
  options.lr = 2, options.steps = 12;
  expect(options.rateAt(0) == 2 && options.rateAt(11) == 2, "a constant rate");
  options.lrWarmup = 4, options.minLr = 1;
  expect(options.rateAt(0) == 0.5 && options.rateAt(3) == 2 && options.rateAt(9) == 2, "warm-up");
  options.lrDecay = "linear";
  expect(options.rateAt(4) == 2 && options.rateAt(8) == 1.5 && options.rateAt(12) == 1, "linear decay");
  options.lrDecay = "cosine";
  expect(options.rateAt(4) == 2 && std::fabs(options.rateAt(8) - 1.5) < 1e-12 && options.rateAt(12) == 1,
         "cosine decay");
  options.lrDecay = "wsd", options.lrStable = 8;
  expect(options.rateAt(4) == 2 && options.rateAt(8) == 2 && options.rateAt(10) == 1.5 && options.rateAt(20) == 1,
         "a stable rate that decays at the end");
  options.lrStable.reset(), options.lrSteps = 40;
  expect(options.rateAt(36) == 2 && options.rateAt(38) == 1.5, "the last tenth");
  options.lrDecay = "inverse-sqrt";
  expect(options.rateAt(3) == 2 && options.rateAt(8) == 2 * std::sqrt(4 / 9.0) && options.rateAt(99) == 1,
         "inverse square root after a warm-up, at least the smallest rate");
  options.lrWarmup = 0;
  expect(std::fabs(options.rateAt(29999) - 1) < 1e-12, "inverse square root without a warm-up");
}

/// Tests that the type of the weights is written to config.json, and no other character changes.
static void testConfigText() {
  auto becomes = [](const std::string &text, const std::string &wanted) {
    std::string found = configWithDtype(text, "float32");
    expect(found == wanted, text + " becomes " + found);
  };
  becomes("{}", R"({"dtype": "float32"})");
  becomes("{ \n}\n", "{ \n\"dtype\": \"float32\" \n}\n");
  becomes(R"({"b":1})", R"({"dtype": "float32", "b":1})");
  becomes("{\n  \"b\": 7.0\n}\n", "{\n  \"dtype\": \"float32\",\n  \"b\": 7.0\n}\n");
  // Numbers, escapes and the order of keys do not change.
  std::string kept =
      R"("z": [7.0, 1e6, 1E-05, -0.0, 0.10, 123456789012345678901234567890], "a": {"dtype": "no", "x": "\"dtype\": 1"},)"
      R"( "\u00e9\n\\": "\u00e9é", "n": [[{"torch_dtype": null}]], "u": {"text_config": {"dtype": 1}})";
  becomes("{" + kept + "}", "{\"dtype\": \"float32\", " + kept + "}");
  becomes("{" + kept + R"(, "dtype": "bfloat16", "torch_dtype" :null})",
          "{" + kept + R"(, "dtype": "float32", "torch_dtype" :"float32"})");
  // The key may contain escapes, the value may be an object or a list, and the key may occur several times.
  becomes(R"({"\u0064type":true})", R"({"\u0064type":"float32"})");
  becomes(R"({"torch_dtype":{"":"float16","a":[1,"}"]},"b":2})",
          R"({"dtype": "float32", "torch_dtype":"float32","b":2})");
  becomes(R"({"dtype":"a","dtype":12})", R"({"dtype":"float32","dtype":"float32"})");
  becomes(R"({"text_config":{"torch_dtype":"x","text_config":{}},"dtype":"x"})",
          R"({"text_config":{"torch_dtype":"float32","text_config":{}},"dtype":"float32"})");
  for (const char *none : {"", "null", "[{\"dtype\": 1}]", "{\"dtype\": 1", "{\"dtype\"}", "7"})
    becomes(none, none);
}

/// Over all ranks, the owners' pieces cover every element of a box once, and agree with the plain index arithmetic.
static void testPieces() {
  for (int round = 0; round < 300; ++round) {
    Mesh mesh{{"a", "b"}, {pick(1, 3), pick(1, 3)}};
    int rank = pick(1, 4);
    Dims shape, valid;
    Layout layout(rank);
    bool used[2] = {};
    for (int dim = 0; dim < rank; ++dim) {
      int64_t blocks = 1;
      for (int axis = 0; axis < 2; ++axis)
        if (!used[axis] && pick(0, 2) == 0) {
          used[axis] = true;
          layout[dim].push_back(axis);
          blocks *= mesh.sizes[axis];
        }
      shape.push_back(blocks * pick(1, 4));
      valid.push_back(std::max<int64_t>(1, shape.back() - pick(0, 2)));
    }
    // The box holds the value's elements as one or two dims of a larger tensor.
    int64_t elements = product(valid), rows = elements % 2 == 0 ? 2 : 1;
    Box box{{rows + pick(0, 2), elements / rows + pick(0, 2)}, {0, 0}, {rows, elements / rows}};
    for (int dim = 0; dim < 2; ++dim)
      box.start[dim] = pick(0, int(box.shape[dim] - box.size[dim]));
    std::vector<int> seen(product(box.shape), 0);
    for (int r = 0; r < mesh.ranks(); ++r) {
      Block block = blockOf(mesh, shape, layout, r);
      bool owner = holderOf(mesh, layout, r).index == 0;
      forEachPiece(valid, block, box, [&](int64_t blockOffset, int64_t tensorOffset, int64_t count) {
        for (int64_t i = 0; i < count; ++i) {
          seen[tensorOffset + i] += owner;
          // Element of the block -> element of the value -> element of the box.
          int64_t rest = blockOffset + i, flat = 0;
          int64_t index[4];
          for (int dim = rank - 1; dim >= 0; --dim) {
            index[dim] = rest % block.size[dim] + block.start[dim];
            rest /= block.size[dim];
          }
          for (int dim = 0; dim < rank; ++dim)
            flat = flat * valid[dim] + index[dim];
          int64_t at = (flat / box.size[1] + box.start[0]) * box.shape[1] + flat % box.size[1] + box.start[1];
          if (at != tensorOffset + i)
            expect(false, "a piece lies at " + std::to_string(tensorOffset + i) + ", not " + std::to_string(at));
        }
      });
    }
    expect(std::accumulate(seen.begin(), seen.end(), int64_t(0)) == elements &&
               *std::max_element(seen.begin(), seen.end()) == 1,
           "owners cover the box once");
  }
}

//===----------------------------------------------------------------------===//

/// Compares a random product, with one layout of the operands, with the plain loop.
static void testGemm(int threads) {
  Pool pool(threads);
  for (int round = 0; round < 250; ++round) {
    pcrt_gemm_desc d{};
    auto extent = [&](int most) { return pick(0, 5) == 0 ? 1 : pick(1, most); };
    d.name = "test";
    d.batch = pick(0, 2) ? 1 : pick(1, 5);
    d.m = pick(0, 3) == 0 ? pick(1, 10) : extent(90);
    d.n = extent(90);
    d.k = pick(0, 12) == 0 ? 0 : extent(70);
    if (int one = pick(0, 40); one < 3) // more than a block of WidenedMatmul.cpp
      (one == 0 ? d.m : one == 1 ? d.n : d.k) += one == 0 ? 2048 : 1024;
    int32_t dtype = pick(0, 3) == 0 ? PCRT_BF16 : PCRT_F32;
    d.a_dtype = d.b_dtype = dtype;
    d.c_dtype = pick(0, 1) ? PCRT_F32 : dtype;
    d.accumulate = pick(0, 1);
    d.epilogue = pick(0, 2) == 0 ? PCRT_EPILOGUE_BIAS : PCRT_EPILOGUE_NONE;
    int64_t elements[3];
    // Strides of a rows x columns matrix per batch entry: plain or transposed, padded rows, batch outside or inside.
    auto lay = [&](int64_t rows, int64_t columns, int64_t &batchStride, int64_t &rowStride, int64_t &columnStride,
                   int64_t &size) {
      bool transpose = pick(0, 1), inside = pick(0, 3) == 0;
      int64_t inner = std::max<int64_t>(transpose ? rows : columns, 1);
      int64_t outer = std::max<int64_t>(transpose ? columns : rows, 1), pitch = inner + pick(0, 3);
      batchStride = inside ? pitch : pitch * outer;
      int64_t step = inside ? pitch * d.batch : pitch;
      rowStride = transpose ? 1 : step;
      columnStride = transpose ? step : 1;
      size = pitch * outer * d.batch;
    };
    lay(d.m, d.k, d.a_batch_stride, d.a_m_stride, d.a_k_stride, elements[0]);
    lay(d.k, d.n, d.b_batch_stride, d.b_k_stride, d.b_n_stride, elements[1]);
    lay(d.m, d.n, d.c_batch_stride, d.c_m_stride, d.c_n_stride, elements[2]);
    auto random = [&](int64_t count, int32_t type) {
      std::vector<char> bytes(count * elementBytes(type));
      for (int64_t i = 0; i < count; ++i) {
        float value = float(int(randomBits() % 2001) - 1000) / 1000;
        if (type == PCRT_BF16)
          reinterpret_cast<uint16_t *>(bytes.data())[i] = floatToBf16(value);
        else
          reinterpret_cast<float *>(bytes.data())[i] = value;
      }
      return bytes;
    };
    auto a = random(elements[0], d.a_dtype), b = random(elements[1], d.b_dtype), c = random(elements[2], d.c_dtype);
    auto bias = random(d.n, PCRT_F32);
    auto want = c;
    const float *biasAt = d.epilogue ? reinterpret_cast<const float *>(bias.data()) : nullptr;
    plainGemm(d, a.data(), b.data(), want.data(), biasAt);
    expect(!checkGemm(d), "checkGemm");
    const bool native = pick(0, 1);
    Gemms gemms(pool, &d, 1, native, /*rowsAlike=*/pick(0, 1));
    const char *error = nullptr;
    expect(gemms.run(0, a.data(), b.data(), c.data(), biasAt, nullptr, &error), error ? error : "run");
    double worst = 0;
    for (int64_t i = 0; i < elements[2]; ++i) {
      auto at = [&](const std::vector<char> &of) {
        return d.c_dtype == PCRT_BF16 ? bf16ToFloat(reinterpret_cast<const uint16_t *>(of.data())[i])
                                      : reinterpret_cast<const float *>(of.data())[i];
      };
      double difference = std::fabs(double(at(c)) - at(want));
      worst = std::max(worst, std::isfinite(difference) ? difference : 1e9);
    }
    expect(worst <= (d.c_dtype == PCRT_F32 ? 1e-4
                     : d.k > 1024          ? 0.5
                                           : 0.15),
           "product " + std::to_string(d.batch) + "x" + std::to_string(d.m) + "x" + std::to_string(d.n) + "x" +
               std::to_string(d.k) + " strides a " + std::to_string(d.a_m_stride) + "," + std::to_string(d.a_k_stride) +
               " b " + std::to_string(d.b_k_stride) + "," + std::to_string(d.b_n_stride) + " c " +
               std::to_string(d.c_m_stride) + "," + std::to_string(d.c_n_stride) + " is off by " +
               std::to_string(worst));
    if (native && dtype == PCRT_BF16 && !__builtin_cpu_supports("avx512bf16"))
      continue; // there is only a plain loop
    expect(d.k == 0 || d.c_n_stride != 1 || gemms.plainParts() == 0, "oneDNN multiplies");
  }
}

/// In a product with equal rows of a and c, all rows of the result are equal, for any number of rows.
static void testRowsAlike(int threads) {
  Pool pool(threads);
  for (int64_t m = 1; m <= 40; ++m) {
    pcrt_gemm_desc d{};
    d.name = "test", d.batch = 1, d.m = m, d.n = pick(1, 70), d.k = pick(1, 90);
    d.a_dtype = d.b_dtype = d.c_dtype = pick(0, 3) ? PCRT_F32 : PCRT_BF16;
    d.a_m_stride = d.k, d.a_k_stride = d.c_n_stride = 1, d.c_m_stride = d.n;
    const bool transposed = pick(0, 1);
    d.b_k_stride = transposed ? 1 : d.n, d.b_n_stride = transposed ? d.k : 1;
    d.accumulate = pick(0, 1);
    auto rows = [&](int64_t count, int64_t width) { // as numbers of both dtypes
      std::vector<uint16_t> bytes(size_t(count * width * 2));
      for (int64_t i = 0; i < width; ++i) {
        uint16_t number = floatToBf16(float(int(randomBits() % 2001) - 1000) / 1000);
        for (int64_t row = 0; row < count; ++row)
          if (int64_t at = row * width + i; d.a_dtype == PCRT_BF16)
            bytes[size_t(at)] = number;
          else
            bytes[size_t(2 * at)] = 0, bytes[size_t(2 * at + 1)] = number;
      }
      return bytes;
    };
    auto a = rows(m, d.k), b = rows(1, d.k * d.n), c = rows(m, d.n);
    Gemms gemms(pool, &d, 1, /*nativeBf16=*/false, /*rowsAlike=*/true);
    const char *error = nullptr;
    expect(gemms.run(0, a.data(), b.data(), c.data(), nullptr, nullptr, &error), error ? error : "run");
    const auto *at = reinterpret_cast<const char *>(c.data());
    const int64_t width = d.n * elementBytes(d.c_dtype);
    for (int64_t row = 1; row < m; ++row)
      expect(!memcmp(at, at + row * width, size_t(width)), "row " + std::to_string(row) + " of " + std::to_string(m) +
                                                               "x" + std::to_string(d.n) + "x" + std::to_string(d.k) +
                                                               " has the bits of row 0");
  }
}

static void testPool() {
  cpu_set_t before, after;
  sched_getaffinity(0, sizeof before, &before);
  {
    Pool pool(CPU_COUNT(&before));
  } // each of its threads, including this one, is pinned to a core
  sched_getaffinity(0, sizeof after, &after);
  expect(CPU_EQUAL(&before, &after), "the owner of a pool has its cores again");
  for (int threads : {1, 2, 3, 5}) {
    Pool pool(threads);
    for (int64_t items : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> seen(items);
      pool.ranges(items, [&](int, int64_t lo, int64_t hi) {
        for (int64_t i = lo; i < hi; ++i)
          ++seen[i];
      });
      bool once = true;
      for (auto &count : seen)
        once &= count == 1;
      expect(once, "every item once");
    }
  }
}

/// The caller gets the exception that a thread of the pool throws.
static void testPoolThrows() {
  for (int threads : {1, 3}) {
    Pool pool(threads);
    for (int64_t bad : {0, 1, 2}) {
      std::atomic<int> done = 0;
      std::string message = failureOf([&] {
        pool.onAll([&](int thread) {
          if (thread == bad % threads)
            fail(PCRT_BAD_DATA, "thread " + std::to_string(thread));
          ++done;
        });
      });
      expect(message == "thread " + std::to_string(bad % threads) && done == threads - 1, "thrown: " + message);
    }
    int all = 0;
    pool.ranges(1, [&](int, int64_t, int64_t) { ++all; });
    expect(all == 1, "a pool goes on");
  }
}

//===----------------------------------------------------------------------===//

/// Reads all of a file that opens.
static void readEverything(const std::string &path) {
  Safetensors file = Safetensors::open(path);
  for (auto &[name, tensor] : file.tensors())
    if (isFloatDtype(tensor.dtype)) {
      std::vector<float> values(product(tensor.shape));
      loadFloats(tensor, 0, int64_t(values.size()), values.data());
    }
}

static void testSafetensors(const std::string &folder) {
  std::string path = folder + "/t.safetensors";
  auto refused = [&](const std::string &bytes, const char *word) {
    writeFile(path, bytes);
    std::string message = failureOf([&] { readEverything(path); });
    expect(message.find(word) != std::string::npos, std::string("'") + word + "' in the refusal: " + message);
  };
  auto tensor = [](const char *dtype, const char *shape, const char *offsets) {
    return std::string("{\"w\":{\"dtype\":\"") + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets +
           "}}";
  };
  std::string data(64, 'x');
  refused("", "empty");
  refused("abc", "too short");
  refused(std::string(8, '\xff') + "{}", "header length");
  refused(safetensors("{]", ""), "not JSON");
  refused(safetensors("[]", ""), "JSON object");
  refused(safetensors(std::string(100000, '['), ""), "header");
  refused(safetensors("{\"w\":5}", ""), "'w'");
  refused(safetensors(tensor("F31", "[2]", "[0,8]"), data), "unknown dtype");
  refused(safetensors(tensor("F32", "[2]", "[0,12]"), data), "does not fit");
  refused(safetensors(tensor("F32", "[-2]", "[0,8]"), data), "shape");
  refused(safetensors(tensor("F32", "[2.5]", "[0,8]"), data), "shape");
  refused(safetensors(tensor("F32", "[2]", "[8,0]"), data), "data_offsets");
  refused(safetensors(tensor("F32", "[2]", "[-8,0]"), data), "data_offsets");
  refused(safetensors(tensor("F32", "[40]", "[0,160]"), data), "data_offsets");
  refused(safetensors(tensor("F32", "[9223372036854775807,4]", "[0,16]"), data), "does not fit");
  refused(safetensors(tensor("F32", "[99999999999999999999]", "[0,16]"), data), "shape");
  refused(safetensors("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                      "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}",
                      data),
          "overlap");
  refused(safetensors("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                      "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]}}",
                      data),
          "twice");
  refused(safetensors("{\"__metadata__\":{\"x\":1}}", ""), "metadata");

  // Reading many tensors takes time linear in their number.
  std::string many = "{";
  for (int i = 0; i < 100000; ++i)
    many += (i ? ",\"layer." : "\"layer.") + std::to_string(i) +
            "\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[" + std::to_string(4 * i) + "," +
            std::to_string(4 * i + 4) + "]}";
  writeFile(path, safetensors(many + "}", std::string(400000, '\0')));
  clock_t start = clock();
  expect(Safetensors::open(path).find("layer.99999"), "100000 tensors");
  double seconds = double(clock() - start) / CLOCKS_PER_SEC;
  // Took 0.3 s when this test was written.
  expect(seconds < 5, "a header of 100000 tensors takes " + std::to_string(seconds) + " s");

  // Every float dtype is read as f32, here 1.5 and -2.
  auto reads = [&](const char *dtype, const void *bytes, int64_t size) {
    std::string offsets = "[0," + std::to_string(size) + "]";
    writeFile(path, safetensors(tensor(dtype, "[2]", offsets.c_str()), std::string((const char *)bytes, size)));
    Safetensors file = Safetensors::open(path);
    float values[2];
    loadFloats(*file.find("w"), 0, 2, values);
    expect(values[0] == 1.5f && values[1] == -2.0f, std::string("values of ") + dtype);
  };
  float f32[] = {1.5f, -2.0f};
  double f64[] = {1.5, -2.0};
  uint16_t f16[] = {0x3e00, 0xc000}, bf16[] = {0x3fc0, 0xc000};
  reads("F32", f32, 8);
  reads("F64", f64, 16);
  reads("F16", f16, 4);
  reads("BF16", bf16, 4);

  // The reader reads what the writer wrote.
  SafetensorsWriter writer(path);
  writer.add("b", {2, 3});
  writer.add("a", {});
  writer.addMetadata("step", "7");
  writer.create();
  float values[] = {1, 2, 3, 4, 5, 6};
  Block whole{{0, 0}, {2, 3}};
  expect(writer.write(writer.placeOf("b"), {2, 3}, whole, Box::whole({2, 3}), PCRT_F32, values) == PCRT_OK, "write");
  writer.close();
  Safetensors back = Safetensors::open(path);
  float read[6] = {};
  loadFloats(*back.find("b"), 0, 6, read);
  expect(!memcmp(read, values, sizeof read) && back.metadata().at("step") == "7", "written and read back");
  expect(back.findModelTensor("transformer.b") && back.findModelTensor("model.b") && !back.findModelTensor("x.y.b"),
         "names with another prefix");

  // The directory has an index of shards.
  std::string model = folder + "/model";
  std::filesystem::create_directories(model);
  std::string one(4, '\0');
  writeFile(model + "/1.safetensors",
            safetensors("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", one));
  writeFile(model + "/2.safetensors",
            safetensors("{\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", one));
  auto index = [&](const char *text) { writeFile(model + "/model.safetensors.index.json", text); };
  auto refusedModel = [&](const char *word) {
    std::string message = failureOf([&] { Safetensors::open(model); });
    expect(message.find(word) != std::string::npos, std::string("'") + word + "' in: " + message);
  };
  std::filesystem::remove(model + "/model.safetensors.index.json");
  refusedModel("neither");
  index("{\"weight_map\": {\"a\": \"1.safetensors\", \"b\": \"2.safetensors\"}}");
  {
    Safetensors shards = Safetensors::open(model);
    expect(shards.find("a") && shards.find("b"), "tensors of two shards");
  }
  index("{\"weight_map\": {\"a\": \"1.safetensors\", \"b\": \"3.safetensors\"}}");
  refusedModel("3.safetensors");
  index("{\"weight_map\": {\"a\": \"../1.safetensors\"}}");
  refusedModel("not in any file of this directory");
  index("{\"weight_map\": 5}");
  refusedModel("weight_map");
  index("{");
  refusedModel("not valid JSON");
  writeFile(model + "/2.safetensors",
            safetensors("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", one));
  index("{\"weight_map\": {\"a\": \"1.safetensors\", \"b\": \"2.safetensors\"}}");
  refusedModel("as well");

  // bf16 memory is written as f32, rounded as it was.
  {
    SafetensorsWriter narrow(folder + "/n.safetensors");
    narrow.add("n", {3000});
    narrow.create();
    std::vector<uint16_t> brain(3000);
    for (int i = 0; i < 3000; ++i)
      brain[i] = floatToBf16(float(i) / 7);
    expect(narrow.write(narrow.placeOf("n"), {3000}, {{0}, {3000}}, Box::whole({3000}), PCRT_BF16, brain.data()) ==
               PCRT_OK,
           "write bf16");
    narrow.close();
    Safetensors wide = Safetensors::open(folder + "/n.safetensors");
    std::vector<float> values(3000);
    loadFloats(*wide.find("n"), 0, 3000, values.data());
    bool equal = true;
    for (int i = 0; i < 3000; ++i)
      equal &= values[i] == bf16ToFloat(brain[i]) && std::fabs(values[i] - float(i) / 7) <= float(i) / 7 / 256;
    expect(equal, "bf16 written as f32");
  }

  // Several ranks write large tensors. Whole pages are written in another way than the rest, and no rank writes
  // another's bytes.
  for (int round = 0; round < 12; ++round) {
    std::mt19937 draw(round);
    int64_t rows = 1 + draw() % 40, columns = 1 + draw() % 90000;
    Dims shape{rows, columns};
    std::vector<float> values(size_t(rows * columns));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = float(draw());
    std::string large = folder + "/large.safetensors";
    std::vector<std::unique_ptr<SafetensorsWriter>> ranks;
    for (int rank = 0; rank < 3; ++rank) {
      SafetensorsWriter &own = *ranks.emplace_back(std::make_unique<SafetensorsWriter>(large));
      own.add("a", {1 + round % 7});
      own.add("m", shape);
      own.add("z", {5});
      if (rank == 0)
        own.create();
      else
        own.open();
    }
    bool byRows = round % 2;
    for (int rank : {2, 0, 1}) {
      Block block{{0, 0}, shape};
      int64_t &start = block.start[byRows ? 0 : 1], &size = block.size[byRows ? 0 : 1];
      start = size * rank / 3;
      size = size * (rank + 1) / 3 - start;
      std::vector<float> own;
      for (int64_t row = 0; row < block.size[0]; ++row)
        for (int64_t column = 0; column < block.size[1]; ++column)
          own.push_back(values[size_t((row + block.start[0]) * columns + column + block.start[1])]);
      expect(own.empty() || ranks[rank]->write(ranks[rank]->placeOf("m"), shape, block, Box::whole(shape), PCRT_F32,
                                               own.data()) == PCRT_OK,
             "write a part");
    }
    for (auto &rank : ranks)
      rank->close();
    Safetensors read = Safetensors::open(large);
    std::vector<float> there(values.size()), last(5, 1);
    loadFloats(*read.find("m"), 0, rows * columns, there.data());
    loadFloats(*read.find("z"), 0, 5, last.data());
    expect(there == values && last == std::vector<float>(5), "large tensors, round " + std::to_string(round));
  }

  // Any bytes are refused or read, and never crash the run.
  std::string good;
  {
    std::ifstream stream(path, std::ios::binary);
    good.assign(std::istreambuf_iterator<char>(stream), {});
  }
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = good;
    for (int change = pick(1, 3); change > 0; --change)
      bytes[pick(0, int(bytes.size()) - 1)] = "0123456789{}[]\":,-eF\0\xff"[pick(0, 21)];
    if (pick(0, 9) == 0)
      bytes.resize(pick(0, int(bytes.size())));
    writeFile(path, bytes);
    failureOf([&] { readEverything(path); });
  }
}

static void testStragglers() {
  std::vector<std::vector<double>> worked(4, std::vector<double>(50, 1.0));
  const std::vector<int> all = {0, 1, 2, 3};
  expect(!findStraggler(worked, all), "ranks that take equally long");
  for (double &seconds : worked[2])
    seconds = 1.5;
  std::optional<Straggler> slow = findStraggler(worked, all);
  expect(slow && slow->rank == 2 && slow->steps == 50 && slow->factor == 1.5, "a slow rank");
  expect(!findStraggler(worked, {0, 1, 3}), "a slow rank of another stage");
  for (int step = 0; step < 11; ++step)
    worked[0][step] = 2;
  expect(!findStraggler(worked, all), "a rank that is the last in less than 80 % of the steps");
  for (double &seconds : worked[2])
    seconds = 1.05;
  expect(!findStraggler(worked, {1, 2}), "a rank that is slower by little");
}

/// Computes a tensor's sum by its definition, element by element.
static TensorSum plainSum(const std::vector<float> &values) {
  TensorSum sum;
  for (size_t i = 0; i < values.size(); ++i)
    sum.add(int64_t(i), &values[i], 1);
  return sum;
}

/// Two threads write stretches of a file as f32 and as bf16. Stretches begin anywhere, are longer or shorter than the
/// buffer, and some are neighbours. The file and the sums must be the same as without streams.
static void testFileStream(const std::string &folder) {
  std::string path = folder + "/stretches.safetensors";
  constexpr int64_t count = 5'000'001;
  SafetensorsWriter writer(path);
  writer.add("a", {7});
  writer.add("b", {count});
  writer.create();
  std::vector<float> values(count);
  std::vector<uint16_t> brain(count);
  for (int64_t i = 0; i < count; ++i) {
    brain[i] = floatToBf16(float(i * 7919 % 100003) / 13);
    values[i] = bf16ToFloat(brain[i]);
  }
  const std::vector<int64_t> bounds = {0, 3, 1500, 1'300'000, 1'300'768, 1'301'536, 3'000'000, 4'999'999, count};
  TensorSum sums[2];
  bool good[2] = {true, true};
  auto some = [&](int lane) {
    FileStream &stream = writer.stream(lane);
    for (size_t i = 0; i + 1 < bounds.size(); ++i) {
      bool isWide = i % 3 != 1;
      if ((i / 3) % 2 == size_t(lane))
        good[lane] &= stream.write(writer.placeOf("b") + 4 * bounds[i],
                                   isWide ? static_cast<void *>(&values[bounds[i]]) : &brain[bounds[i]],
                                   isWide ? PCRT_F32 : PCRT_BF16, bounds[i + 1] - bounds[i], &sums[lane], bounds[i]);
    }
    good[lane] &= stream.flush();
  };
  writer.stream(1);
  std::thread other(some, 1);
  some(0);
  other.join();
  writer.sync();
  writer.close();
  std::vector<float> back(count);
  loadFloats(*Safetensors::open(path).find("b"), 0, count, back.data());
  expect(good[0] && good[1] && back == values, "stretches written by two threads");
  TensorSum all = plainSum(values);
  expect((sums[0] += sums[1]) == all, "their sums");
  std::filesystem::remove(path);
}

int main(int argc, char **argv) {
  if (argc != 2)
    return 2;
  testPhilox();
  testRates();
  testConfigText();
  testStragglers();
  testPieces();
  testPool();
  testPoolThrows();
  testGemm(1);
  testGemm(3);
  testRowsAlike(1);
  testRowsAlike(3);
  testSafetensors(argv[1]);
  testFileStream(argv[1]);
  return finishChecks();
}
