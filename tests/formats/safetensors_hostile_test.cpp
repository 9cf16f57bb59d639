// Damaged and hostile safetensors files: every check of the reader.
#include "formats/hostile.h"
#include "formats/safetensors.h"
#include "support/safetensors_writer.h"

namespace pagefold::testing {
namespace {

void refused_header(const Bytes& bytes, std::vector<std::string> words) {
  words.emplace_back("bad.safetensors");
  expect_refused([&] { return SafetensorsSet::parse(bytes, "bad.safetensors"); }, words);
}
// One tensor "w" of these fields over `data` bytes.
void entry_refused(std::string_view fields, size_t data, std::vector<std::string> words) {
  words.emplace_back("tensor 'w'");
  refused_header(raw_safetensors(fmt::format(R"({{"w":{{{}}}}})", fields), Bytes(data)), words);
}

TEST(SafetensorsHostile, HeaderLength) {
  refused_header({}, {"not a safetensors file", "0 bytes"});
  refused_header(Bytes(7), {"7 bytes"});
  Bytes bytes;
  append_raw(bytes, ~uint64_t{0});
  append_text(bytes, "{}");
  refused_header(bytes, {"header length 18446744073709551615", "only 2 more"});
  bytes.clear();
  append_raw(bytes, uint64_t{3});
  append_text(bytes, "{}");
  refused_header(bytes, {"header length 3", "only 2 more"});
  refused_header(raw_safetensors(""), {"does not begin with '{'"});
  refused_header(raw_safetensors(" {}"), {"does not begin with '{'"});
  std::string large = "{}";
  large.resize((size_t{16} << 20) + 1, ' ');
  refused_header(raw_safetensors(large), {"header length 16777217", "limit"});
}

TEST(SafetensorsHostile, Json) {
  refused_header(raw_safetensors("{\"a\""), {"header", "invalid JSON"});
  refused_header(raw_safetensors("{}{}"), {"header", "invalid JSON"});
  refused_header(raw_safetensors("{" + std::string(100000, '[')), {"header", "invalid JSON"});
  refused_header(raw_safetensors("{\"a\":" + std::string(1000, '[') + std::string(1000, ']') + "}"),
                 {"header", "invalid JSON"});
  refused_header(raw_safetensors("{\"\xff\":1}"), {"header", "invalid JSON"});
  refused_header(raw_safetensors(R"({"w":1})"), {"tensor 'w'", "not an object"});
  refused_header(
      raw_safetensors(R"({"":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})", Bytes(1)),
      {"empty name"});
  refused_header(raw_safetensors(R"({"__metadata__":[]})"), {"__metadata__", "not an object"});
  refused_header(raw_safetensors(R"({"__metadata__":{"a":1}})"),
                 {"__metadata__", "'a' is not a string"});
  refused_header(raw_safetensors(R"({"__metadata__":{},"__metadata__":{}})"),
                 {"__metadata__ occurs twice"});
}

TEST(SafetensorsHostile, Fields) {
  entry_refused(R"("shape":[1],"data_offsets":[0,1])", 1, {"missing"});
  entry_refused(R"("dtype":"U8","data_offsets":[0,1])", 1, {"missing"});
  entry_refused(R"("dtype":"U8","shape":[1])", 1, {"missing"});
  entry_refused(R"("dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1])", 1,
                {"field 'dtype'", "twice"});
  entry_refused(R"("dtype":"U8","shape":[1],"data_offsets":[0,1],"x":0)", 1, {"field 'x'"});
  entry_refused(R"("dtype":8,"shape":[1],"data_offsets":[0,1])", 1, {"dtype is not a string"});
  for (const char* dtype : {"F64", "BOOL", "U16", "F4", "F8_E8M0", "Q4_0", "f32", ""}) {
    entry_refused(fmt::format(R"("dtype":"{}","shape":[1],"data_offsets":[0,1])", dtype), 1,
                  {fmt::format("dtype '{}' is not supported", dtype)});
  }
}

TEST(SafetensorsHostile, Shapes) {
  for (const char* shape : {"[-1]", "[1.5]", "[\"1\"]", "[9223372036854775808]", "[null]"}) {
    entry_refused(fmt::format(R"("dtype":"U8","shape":{},"data_offsets":[0,1])", shape), 1,
                  {"dim 0 of shape"});
  }
  entry_refused(R"("dtype":"U8","shape":1,"data_offsets":[0,1])", 1, {"shape is not an array"});
  entry_refused(R"("dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1])", 1,
                {"more than 8 dims"});
  entry_refused(R"("dtype":"U8","shape":[4398046511105,4194304],"data_offsets":[0,1])", 1,
                {"2^63 - 1 elements"});
  entry_refused(R"("dtype":"U8","shape":[0,4398046511105,4194304],"data_offsets":[0,0])", 0,
                {"2^63 - 1 elements"});
  entry_refused(R"("dtype":"I64","shape":[4611686018427387904],"data_offsets":[0,1])", 1,
                {"2^63 - 1 bytes"});
}

TEST(SafetensorsHostile, Offsets) {
  for (const char* offsets :
       {"[0]", "[0,1,2]", "[]", "0", "[1,0]", "[-1,0]", "[0,\"1\"]", "[0,1.0]", "{}"}) {
    entry_refused(fmt::format(R"("dtype":"U8","shape":[1],"data_offsets":{})", offsets), 1,
                  {"data_offsets is not"});
  }
  entry_refused(R"("dtype":"F32","shape":[2],"data_offsets":[0,7])", 7, {"span 7", "need 8"});
  entry_refused(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])", 7, {"end at 8", "7 bytes"});
  entry_refused(
      R"("dtype":"U8","shape":[2],"data_offsets":[18446744073709551613,18446744073709551615])", 2,
      {"begin at 18446744073709551613"});
  entry_refused(R"("dtype":"U8","shape":[1],"data_offsets":[1,2])", 2, {"begin at 1"});
  const auto two = [](int begin, int end) {
    return fmt::format(R"({{"a":{{"dtype":"U8","shape":[4],"data_offsets":[0,4]}},)"
                       R"("b":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}}}})",
                       end - begin, begin, end);
  };
  refused_header(raw_safetensors(two(2, 6), Bytes(6)), {"tensor 'b'", "begin at 2", "ends at 4"});
  refused_header(raw_safetensors(two(0, 4), Bytes(4)), {"begin at 0", "ends at 4"});
  refused_header(raw_safetensors(two(5, 9), Bytes(9)), {"tensor 'b'", "begin at 5"});
  refused_header(raw_safetensors(two(4, 8), Bytes(9)), {"cover 8 bytes", "has 9"});
}

TEST(SafetensorsHostile, DuplicateNames) {
  refused_header(raw_safetensors(R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                 R"("w":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                                 Bytes(2)),
                 {"tensor 'w' occurs twice"});
}

// Many small entries: no step may be quadratic.
TEST(SafetensorsHostile, ManyEntries) {
  std::string header = "{";
  for (int i = 0; i < 50000; ++i) {
    header += fmt::format(R"({}"t{}":{{"dtype":"U8","shape":[],"data_offsets":[{},{}]}})",
                          i ? "," : "", i, i, i + 1);
  }
  refused_header(raw_safetensors(header + "}", Bytes(49999)), {"tensor 't49999'", "end at 50000"});
}

TEST(SafetensorsHostile, EveryCutAndEveryChangedByte) {
  SafetensorsWriter w;
  w.add_metadata("format", "pt");
  w.add_tensor("a", TensorType::F16, {2, 3}, Bytes(12, std::byte{1}));
  w.add_tensor("b", TensorType::I64, {2}, Bytes(16, std::byte{2}));
  const Bytes bytes = w.finish();
  ASSERT_TRUE(SafetensorsSet::parse(bytes, "small.file").ok());
  expect_robust(bytes, [](const Bytes& b) { return SafetensorsSet::parse(b, "small.file"); });
}

}  // namespace
}  // namespace pagefold::testing
