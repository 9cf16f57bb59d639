#include "formats/gguf.h"

#include <cmath>
#include <limits>

#include "formats/hostile.h"
#include "support/quantize.h"

namespace pagefold::testing {
namespace {

using ::testing::HasSubstr;

Bytes floats(int n) {
  std::vector<float> values;
  for (int i = 0; i < n; ++i) values.push_back(static_cast<float>(i) * 0.5f - 3.0f);
  return quantize(TensorType::F32, values);
}

TEST(Gguf, ReadsEveryKindOfValue) {
  GgufWriter w;
  w.add("b", true);
  w.add("u8", uint8_t{255});
  w.add("i8", int8_t{-128});
  w.add("u16", uint16_t{65535});
  w.add("i16", int16_t{-32768});
  w.add("u32", uint32_t{4294967295u});
  w.add("i32", std::numeric_limits<int32_t>::min());
  w.add("u64", std::numeric_limits<uint64_t>::max());
  w.add("i64", std::numeric_limits<int64_t>::min());
  w.add("f32", 0.1f);
  w.add("f64", 0.1);
  w.add("s", "llama");
  w.add("empty", "");
  w.add("as", std::vector<std::string>{"a", "", "\xff\x01"});
  w.add("ab", std::vector<bool>{true, false, true});
  w.add("au8", std::vector<uint8_t>{1, 255});
  w.add("ai8", std::vector<int8_t>{-1, 127});
  w.add("au16", std::vector<uint16_t>{65535});
  w.add("ai16", std::vector<int16_t>{-32768});
  w.add("au32", std::vector<uint32_t>{7, 8, 9});
  w.add("ai32", std::vector<int32_t>{-7});
  w.add("au64", std::vector<uint64_t>{uint64_t{1} << 63});
  w.add("ai64", std::vector<int64_t>{-(int64_t{1} << 62)});
  w.add("af32", std::vector<float>{0.25f, -1.0f});
  w.add("af64", std::vector<double>{1e300});
  w.add("none", std::vector<float>{});
  const Bytes bytes = w.finish();
  const auto file = GgufFile::parse(bytes, "x.gguf");
  ASSERT_TRUE(file.ok()) << file.status();
  const auto expect = [&](std::string_view key, const GgufValue& value) {
    ASSERT_NE(file->get(key), nullptr) << key;
    EXPECT_EQ(*file->get(key), value) << key;
  };
  expect("b", true);
  expect("u8", uint64_t{255});
  expect("i8", int64_t{-128});
  expect("u16", uint64_t{65535});
  expect("i16", int64_t{-32768});
  expect("u32", uint64_t{4294967295u});
  expect("i32", int64_t{-2147483648});
  expect("u64", std::numeric_limits<uint64_t>::max());
  expect("i64", std::numeric_limits<int64_t>::min());
  expect("f32", static_cast<double>(0.1f));
  expect("f64", 0.1);
  expect("s", std::string("llama"));
  expect("empty", std::string());
  expect("as", std::vector<std::string>{"a", "", "\xff\x01"});
  expect("ab", std::vector<bool>{true, false, true});
  expect("au8", std::vector<uint64_t>{1, 255});
  expect("ai8", std::vector<int64_t>{-1, 127});
  expect("au16", std::vector<uint64_t>{65535});
  expect("ai16", std::vector<int64_t>{-32768});
  expect("au32", std::vector<uint64_t>{7, 8, 9});
  expect("ai32", std::vector<int64_t>{-7});
  expect("au64", std::vector<uint64_t>{uint64_t{1} << 63});
  expect("ai64", std::vector<int64_t>{-(int64_t{1} << 62)});
  expect("af32", std::vector<double>{0.25, -1.0});
  expect("af64", std::vector<double>{1e300});
  expect("none", std::vector<double>{});
  EXPECT_EQ(file->metadata().size(), 26u);
  EXPECT_EQ(file->get("absent"), nullptr);
}

TEST(Gguf, ReadsTensorsOfEveryType) {
  const TensorType types[] = {
      TensorType::F32,  TensorType::F16,  TensorType::BF16, TensorType::Q4_0,
      TensorType::Q4_1, TensorType::Q5_0, TensorType::Q5_1, TensorType::Q8_0,
      TensorType::Q2_K, TensorType::Q3_K, TensorType::Q4_K, TensorType::Q5_K,
      TensorType::Q6_K, TensorType::I8,   TensorType::I32,  TensorType::I64};
  GgufWriter w;
  for (const TensorType type : types) {
    const TensorTypeInfo& info = tensor_type_info(type);
    const auto bytes = static_cast<size_t>(3 * 512 / info.block_elements * info.block_bytes);
    w.add_tensor(info.name, type, {3, 512}, Bytes(bytes, std::byte{static_cast<uint8_t>(type)}));
  }
  const Bytes bytes = w.finish();
  const auto file = GgufFile::parse(bytes, "x.gguf");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->tensors().size(), std::size(types));
  for (const TensorType type : types) {
    const TensorInfo* tensor = file->find(tensor_type_info(type).name);
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(tensor->type, type);
    EXPECT_EQ(tensor->shape, (std::vector<int64_t>{3, 512}));
    EXPECT_EQ(tensor->elements(), 3 * 512);
    EXPECT_EQ(tensor->file, "x.gguf");
    const TensorTypeInfo& info = tensor_type_info(type);
    EXPECT_EQ(tensor->data.size(),
              static_cast<size_t>(3 * 512 / info.block_elements * info.block_bytes));
    for (const std::byte b : tensor->data) ASSERT_EQ(b, std::byte{static_cast<uint8_t>(type)});
  }
  EXPECT_EQ(file->find("absent"), nullptr);
}

TEST(Gguf, ReversesTheShapeAndHonoursAlignment) {
  for (const uint32_t alignment : {1u, 8u, 32u, 64u, 4096u}) {
    GgufWriter w(2);
    w.set_alignment(alignment);
    w.add_tensor("one", TensorType::F32, {5}, floats(5));
    w.add_tensor("four", TensorType::F32, {2, 3, 1, 4}, floats(24));
    const Bytes bytes = w.finish();
    const auto file = GgufFile::parse(bytes, "x.gguf");
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->version(), 2u);
    const TensorInfo* four = file->find("four");
    ASSERT_NE(four, nullptr);
    EXPECT_EQ(four->shape, (std::vector<int64_t>{2, 3, 1, 4}));
    EXPECT_EQ(Bytes(four->data.begin(), four->data.end()), floats(24));
    EXPECT_EQ((four->data.data() - bytes.data()) % alignment, 0);
  }
}

TEST(Gguf, TypedLookUps) {
  GgufWriter w;
  w.add("i", int32_t{-5});
  w.add("u", uint64_t{1} << 63);
  w.add("f", 1.5f);
  w.add("b", false);
  w.add("s", "text");
  const Bytes bytes = w.finish();
  const auto file = GgufFile::parse(bytes, "dir/x.gguf");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(*file->get_int("i", 9), -5);
  EXPECT_EQ(*file->get_int("absent", 9), 9);
  EXPECT_EQ(*file->get_float("f", 9.0), 1.5);
  EXPECT_EQ(*file->get_float("i", 9.0), -5.0);
  EXPECT_EQ(*file->get_float("absent", 9.0), 9.0);
  EXPECT_EQ(*file->get_bool("b", true), false);
  EXPECT_EQ(*file->get_bool("absent", true), true);
  EXPECT_EQ(*file->get_string("s", "x"), "text");
  EXPECT_EQ(*file->get_string("absent", "x"), "x");
  for (const Status& s :
       {file->get_int("u", 0).status(), file->get_int("f", 0).status(),
        file->get_int("b", 0).status(), file->get_float("s", 0).status(),
        file->get_bool("i", false).status(), file->get_string("i", "").status()}) {
    ASSERT_FALSE(s.ok());
    EXPECT_THAT(message_of(s), HasSubstr("dir/x.gguf: metadata key '"));
    EXPECT_THAT(message_of(s), HasSubstr("expected"));
  }
}

TEST(Gguf, Displays) {
  EXPECT_EQ(to_display(true), "true");
  EXPECT_EQ(to_display(int64_t{-3}), "-3");
  EXPECT_EQ(to_display(static_cast<double>(1e-5f)), "1e-05");
  EXPECT_EQ(to_display(0.1), "0.1");
  EXPECT_EQ(to_display(1e300), "1e+300");
  EXPECT_EQ(to_display(std::nan("")), "nan");
  EXPECT_EQ(to_display(std::string("a\n\x01")), "\"a\\n\\x01\"");
  EXPECT_EQ(to_display(std::vector<uint64_t>{1, 2}), "[1, 2] (2 elements)");
  EXPECT_EQ(to_display(std::vector<bool>{true}), "[true] (1 elements)");
  // Never half a character: three bytes each, cut after the one that crosses the limit.
  EXPECT_EQ(to_display(std::string("\u4e2d\u6587\u5b57"), 3), "\"\u4e2d\"... (9 bytes)");
  EXPECT_LT(to_display(std::vector<uint64_t>(100000, 7)).size(), 160u);
  EXPECT_LT(to_display(std::vector<std::string>(1000, std::string(1000, 'x'))).size(), 300u);
}

TEST(Gguf, OpensAFileAndReleasesItsPages) {
  const TempFolder folder;
  GgufWriter w;
  w.add_tensor("t", TensorType::F32, {64, 64}, floats(64 * 64));
  w.write_to(folder.path() / "m.gguf");
  const auto file = GgufFile::open(folder.path() / "m.gguf");
  ASSERT_TRUE(file.ok()) << file.status();
  const auto data = file->find("t")->data;
  file->drop_pages();
  drop_mapped(data);
  EXPECT_EQ(Bytes(data.begin(), data.end()), floats(64 * 64));
  const auto absent = GgufFile::open(folder.path() / "no.gguf");
  ASSERT_FALSE(absent.ok());
  EXPECT_THAT(message_of(absent.status()), HasSubstr("no.gguf: no such file"));
}

// Splits two tensors over `count` named parts; `change` may damage part i (0-based) first.
template <class Change>
void write_parts(const std::filesystem::path& folder, int count, Change change) {
  for (int i = 0; i < count; ++i) {
    GgufWriter w;
    if (i == 0) w.add("general.architecture", "llama");
    if (change(i, w)) {
      w.add("split.no", static_cast<uint16_t>(i));
      w.add("split.count", static_cast<uint16_t>(count));
    }
    w.add("split.tensors.count", int32_t{count});
    w.add_tensor("t" + std::to_string(i), TensorType::F32, {i + 1}, floats(i + 1));
    w.write_to(folder / fmt::format("m-{:05}-of-{:05}.gguf", i + 1, count));
  }
}
constexpr auto kAsItShouldBe = [](int, GgufWriter&) { return true; };

TEST(GgufSplit, JoinsThePartsFromAnyOfThem) {
  const TempFolder folder;
  write_parts(folder.path(), 3, kAsItShouldBe);
  for (const char* name : {"m-00001-of-00003.gguf", "m-00003-of-00003.gguf"}) {
    const auto file = GgufFile::open(folder.path() / name);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->tensors().size(), 3u);
    EXPECT_EQ(*file->get_string("general.architecture", ""), "llama");
    EXPECT_THAT(file->name(), HasSubstr("m-00001-of-00003.gguf"));
    const TensorInfo* last = file->find("t2");
    ASSERT_NE(last, nullptr);
    EXPECT_EQ(Bytes(last->data.begin(), last->data.end()), floats(3));
    EXPECT_THAT(last->file, HasSubstr("m-00003-of-00003.gguf"));
  }
}

TEST(GgufSplit, NamesAMissingPart) {
  const TempFolder folder;
  write_parts(folder.path(), 3, kAsItShouldBe);
  std::filesystem::remove(folder.path() / "m-00002-of-00003.gguf");
  expect_refused([&] { return GgufFile::open(folder.path() / "m-00001-of-00003.gguf"); },
                 {"part 2 of 3", "m-00002-of-00003.gguf", "no such file"});
}

TEST(GgufSplit, ChecksWhatThePartsSay) {
  const TempFolder folder;
  const auto first = folder.path() / "m-00001-of-00003.gguf";
  const auto open = [&] { return GgufFile::open(first); };
  write_parts(folder.path(), 3, [](int i, GgufWriter& w) {
    if (i != 1) return true;
    w.add("split.no", uint16_t{2});
    w.add("split.count", uint16_t{3});
    return false;
  });
  expect_refused(open, {"m-00002-of-00003.gguf", "'split.no' is 2", "says 1"});
  write_parts(folder.path(), 3, [](int i, GgufWriter& w) {
    if (i != 2) return true;
    w.add("split.no", uint16_t{2});
    w.add("split.count", uint16_t{4});
    return false;
  });
  expect_refused(open, {"m-00003-of-00003.gguf", "'split.count' is 4", "says 3"});
  write_parts(folder.path(), 3, [](int i, GgufWriter& w) {
    if (i == 2) w.add_tensor("t0", TensorType::F32, {1}, floats(1));
    return true;
  });
  expect_refused(open, {"'split.tensors.count' is 3", "hold 4 tensors"});
  write_parts(folder.path(), 3, [](int, GgufWriter&) { return false; });
  expect_refused(open, {"'split.count' is 1"});
  write_parts(folder.path(), 3, kAsItShouldBe);
  std::filesystem::rename(first, folder.path() / "renamed.gguf");
  expect_refused([&] { return GgufFile::open(folder.path() / "renamed.gguf"); },
                 {"renamed.gguf", "split in 3", "-00001-of-00003.gguf"});
}

TEST(GgufSplit, RefusesOneTensorInTwoParts) {
  const TempFolder folder;
  for (int i = 0; i < 2; ++i) {
    GgufWriter w;
    w.add("split.no", static_cast<uint16_t>(i));
    w.add("split.count", uint16_t{2});
    w.add_tensor("same", TensorType::F32, {1}, floats(1));
    w.write_to(folder.path() / fmt::format("m-0000{}-of-00002.gguf", i + 1));
  }
  expect_refused([&] { return GgufFile::open(folder.path() / "m-00001-of-00002.gguf"); },
                 {"'same'", "m-00001-of-00002.gguf", "m-00002-of-00002.gguf"});
}

}  // namespace
}  // namespace pagefold::testing
