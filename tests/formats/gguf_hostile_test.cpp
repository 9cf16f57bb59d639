// Damaged and hostile GGUF files: fault D26 and every check of the reader.
#include <gtest/gtest.h>

#include "formats/gguf.h"
#include "formats/hostile.h"

namespace pagefold::testing {
namespace {

constexpr uint64_t kTwo63 = uint64_t{1} << 63;

void refused(const Bytes& bytes, std::vector<std::string> words) {
  words.emplace_back("bad.gguf");
  expect_refused([&] { return GgufFile::parse(bytes, "bad.gguf"); }, words);
}
void refused(const GgufWriter& w, std::vector<std::string> words) {
  refused(w.finish(), std::move(words));
}

TEST(GgufHostile, OnlyTheMagic) {
  const TempFolder folder;
  write_bytes(folder.path() / "bad.gguf", to_bytes("GGUF"));
  expect_refused([&] { return GgufFile::open(folder.path() / "bad.gguf"); },
                 {"bad.gguf", "version"});
}

// The 36-byte file: a header that promises one key, whose name's length is huge.
TEST(GgufHostile, ThirtySixBytes) {
  Bytes bytes = to_bytes("GGUF");
  append_raw(bytes, uint32_t{3});
  append_raw(bytes, uint64_t{0});
  append_raw(bytes, uint64_t{1});
  append_raw(bytes, uint64_t{0xffffffffffffffff});
  append_raw(bytes, uint32_t{0});
  ASSERT_EQ(bytes.size(), 36u);
  refused(bytes, {"key count 1"});  // a key takes 14 bytes at least
  bytes.insert(bytes.end(), 2, std::byte{0});
  refused(bytes, {"name of metadata key 0", "18446744073709551615 bytes", "only 6 more"});
}

TEST(GgufHostile, StringOfTwoTo63) {
  GgufWriter w;
  Bytes body;
  append_raw(body, kTwo63);
  append_text(body, "abc");
  w.add_raw("general.name", 8, body);
  refused(w, {"metadata key 'general.name'", "9223372036854775808 bytes", "only 3 more"});
}

TEST(GgufHostile, CountsBeyondTheFile) {
  GgufWriter w;
  w.add("k", true);
  w.force_counts(uint64_t{1} << 60, 1);
  refused(w, {"tensor count 1152921504606846976"});
  w.force_counts(0, uint64_t{1} << 60);
  refused(w, {"key count 1152921504606846976"});
  w.force_counts(0, 2);
  refused(w.finish(), {"key count 2"});
}

TEST(GgufHostile, DimsThatOverflow) {
  const std::vector<std::vector<uint64_t>> shapes = {
      {(uint64_t{1} << 42) + 1, uint64_t{1} << 22},
      {uint64_t{1} << 32, uint64_t{1} << 32},
      {uint64_t{1} << 62, 4},
      {uint64_t{1} << 16, uint64_t{1} << 16, uint64_t{1} << 16, uint64_t{1} << 16}};
  for (const auto& dims : shapes) {
    GgufWriter w;
    w.add_raw_tensor("weight", 0, dims, 0, Bytes(64));
    refused(w, {"tensor 'weight'", "2^63 - 1 elements"});
  }
  GgufWriter bytes;  // the elements fit, their bytes do not
  bytes.add_raw_tensor("weight", 0, {uint64_t{1} << 62}, 0, Bytes(64));
  refused(bytes, {"tensor 'weight'", "2^63 - 1 bytes"});
  GgufWriter large;
  large.add_raw_tensor("weight", 0, {uint64_t{1} << 40}, 0, Bytes(64));
  refused(large, {"tensor 'weight'", "4398046511104 bytes at offset 0", "has 64 bytes"});
  GgufWriter one;
  one.add_raw_tensor("weight", 0, {kTwo63}, 0, Bytes(64));
  refused(one, {"tensor 'weight'", "dim 0 is 9223372036854775808"});
}

TEST(GgufHostile, DimsOutOfRange) {
  GgufWriter zero;
  zero.add_raw_tensor("weight", 0, {4, 0}, 0, Bytes(64));
  refused(zero, {"tensor 'weight'", "dim 1 is zero"});
  GgufWriter none;
  none.add_raw_tensor("weight", 0, {}, 0, Bytes(64));
  refused(none, {"tensor 'weight'", "0 dims"});
  GgufWriter five;
  five.add_raw_tensor("weight", 0, {1, 1, 1, 1, 1}, 0, Bytes(64));
  refused(five, {"tensor 'weight'", "5 dims"});
}

TEST(GgufHostile, RowsThatAreNotWholeBlocks) {
  GgufWriter w;  // 64 elements are two blocks, but a row is a block and a half
  w.add_raw_tensor("weight", 2, {16, 4}, 0, Bytes(36));
  refused(w, {"tensor 'weight'", "rows of 16", "Q4_0", "32"});
  GgufWriter k;
  k.add_raw_tensor("weight", 12, {32, 8}, 0, Bytes(144));
  refused(k, {"tensor 'weight'", "rows of 32", "Q4_K", "256"});
}

TEST(GgufHostile, TypesItDoesNotHave) {
  GgufWriter known;
  known.add_raw_tensor("weight", 16, {256}, 0, Bytes(66));
  refused(known, {"tensor 'weight'", "type 16 (IQ2_XXS)"});
  GgufWriter gone;
  gone.add_raw_tensor("weight", 4, {256}, 0, Bytes(66));
  refused(gone, {"tensor 'weight'", "type 4 is unknown"});
  GgufWriter large;
  large.add_raw_tensor("weight", 0xffffffff, {256}, 0, Bytes(66));
  refused(large, {"tensor 'weight'", "type 4294967295 is unknown"});
}

TEST(GgufHostile, DataOutOfPlace) {
  GgufWriter outside;
  outside.add_raw_tensor("weight", 0, {4}, 32, Bytes(16));
  refused(outside, {"tensor 'weight'", "offset 32"});
  GgufWriter beyond;
  beyond.add_raw_tensor("weight", 0, {4}, ~uint64_t{31}, Bytes(16));
  refused(beyond, {"tensor 'weight'", "offset 18446744073709551584"});
  GgufWriter crooked;
  crooked.add_raw_tensor("weight", 0, {4}, 4, Bytes(64));
  refused(crooked, {"tensor 'weight'", "offset 4", "alignment 32"});
  GgufWriter overlap;
  overlap.add_raw_tensor("b", 0, {16}, 32, Bytes(64));
  overlap.add_raw_tensor("a", 0, {16}, 0, Bytes(64));
  refused(overlap, {"tensors 'a' and 'b' overlap"});
  GgufWriter same;
  same.add_raw_tensor("b", 0, {8}, 0, Bytes(32));
  same.add_raw_tensor("a", 0, {8}, 0, Bytes(32));
  refused(same, {"overlap"});
}

TEST(GgufHostile, DuplicateNames) {
  GgufWriter tensors;
  tensors.add_tensor("weight", TensorType::F32, {8}, Bytes(32));
  tensors.add_tensor("weight", TensorType::F32, {8}, Bytes(32));
  refused(tensors, {"tensor 'weight' occurs twice"});
  GgufWriter keys;
  keys.add("a.b", 1.0f);
  keys.add("a.b", 1.0f);
  refused(keys, {"metadata key 'a.b' occurs twice"});
  GgufWriter empty;
  empty.add("", 1.0f);
  refused(empty, {"metadata key 0 has a name of 0 bytes"});
  GgufWriter unnamed;
  unnamed.add_tensor("", TensorType::F32, {8}, Bytes(32));
  refused(unnamed, {"tensor 0 has an empty name"});
}

TEST(GgufHostile, Alignment) {
  for (const uint32_t alignment : {0u, 3u, 33u, 0xffffffffu}) {
    GgufWriter w;
    w.set_alignment(alignment, false);
    w.add_tensor("weight", TensorType::F32, {8}, Bytes(32));
    refused(w, {"'general.alignment'", "power of two"});
  }
  GgufWriter large;
  large.set_alignment(0x80000000u, false);
  large.add_tensor("weight", TensorType::F32, {8}, Bytes(32));
  refused(large, {"tensor 'weight'", "has 0 bytes"});
  GgufWriter text;
  text.add("general.alignment", "32");
  refused(text, {"'general.alignment'", "expected a count"});
}

TEST(GgufHostile, Arrays) {
  const auto array = [](uint32_t type, uint64_t count, size_t bytes) {
    Bytes body;
    append_raw(body, type);
    append_raw(body, count);
    body.resize(body.size() + bytes);
    GgufWriter w;
    w.add_raw("list", 9, body);
    return w.finish();
  };
  refused(array(9, 1, 64), {"metadata key 'list'", "array of arrays"});
  refused(array(13, 1, 64), {"metadata key 'list'", "element type 13"});
  refused(array(4, kTwo63, 64), {"metadata key 'list'", "9223372036854775808 elements", "64 more"});
  refused(array(4, 17, 64), {"metadata key 'list'", "17 elements"});
  refused(array(8, 9, 64), {"metadata key 'list'", "9 elements"});
  refused(array(0, (uint64_t{1} << 22) + 1, size_t{5} << 20),
          {"metadata key 'list'", "more than 4194304 elements"});
}

TEST(GgufHostile, Values) {
  GgufWriter type;
  type.add_raw("k", 13, Bytes(16));
  refused(type, {"metadata key 'k'", "value type 13"});
  GgufWriter flag;
  flag.add_raw("k", 7, Bytes(1, std::byte{2}));
  refused(flag, {"metadata key 'k'", "bool of value 2"});
}

TEST(GgufHostile, NamesAreMadeFitForMessages) {
  GgufWriter w;
  w.add_raw_tensor(std::string("a\n'\x1b[31m") + std::string(5000, 'x'), 99, {1}, 0, Bytes(32));
  const Bytes bytes = w.finish();
  const std::string message = message_of(GgufFile::parse(bytes, "bad.gguf").status());
  EXPECT_THAT(message, ::testing::HasSubstr("'a\\x0a\\x27\\x1b[31mxxx"));
  EXPECT_LT(message.size(), 200u);
}

TEST(GgufHostile, OtherKindsOfFile) {
  refused(Bytes{}, {"not a GGUF file"});
  refused(to_bytes("GGU"), {"not a GGUF file", "3 bytes"});
  refused(to_bytes("ggml, or anything else"), {"not a GGUF file", "magic"});
  refused(GgufWriter(0), {"version 0"});
  refused(GgufWriter(1), {"version 1"});
  refused(GgufWriter(4), {"version 4"});
  refused(GgufWriter(0x03000000), {"big-endian", "version 3"});
}

TEST(GgufHostile, EveryCutAndEveryChangedByte) {
  GgufWriter w;
  w.add("general.architecture", "llama");
  w.add("llama.block_count", uint32_t{2});
  w.add("tokens", std::vector<std::string>{"a", "bc"});
  w.add("scores", std::vector<float>{0.5f, 1.0f});
  w.add("flags", std::vector<bool>{true, false});
  w.set_alignment(16);
  w.add_tensor("a.weight", TensorType::Q4_0, {2, 32}, Bytes(36, std::byte{1}));
  w.add_tensor("b.weight", TensorType::F32, {4}, Bytes(16, std::byte{2}));
  const Bytes bytes = w.finish();
  ASSERT_TRUE(GgufFile::parse(bytes, "small.file").ok());
  expect_robust(bytes, [](const Bytes& b) { return GgufFile::parse(b, "small.file"); });
}

}  // namespace
}  // namespace pagefold::testing
