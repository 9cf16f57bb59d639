#include "formats/safetensors.h"

#include "formats/hostile.h"
#include "support/safetensors_writer.h"

namespace pagefold::testing {
namespace {

using ::testing::HasSubstr;

Bytes filled(size_t n, int value) { return Bytes(n, static_cast<std::byte>(value)); }

SafetensorsWriter one_tensor(const std::string& name, int value = 1) {
  SafetensorsWriter w;
  w.add_tensor(name, TensorType::F16, {2, 3}, filled(12, value));
  return w;
}

void write_index(const std::filesystem::path& folder, std::string_view weight_map) {
  write_bytes(
      folder / "model.safetensors.index.json",
      to_bytes(fmt::format(R"({{"metadata":{{"total_size":24}},"weight_map":{}}})", weight_map)));
}

TEST(Safetensors, ReadsEveryDtype) {
  const std::pair<TensorType, size_t> types[] = {
      {TensorType::F32, 4}, {TensorType::F16, 2},     {TensorType::BF16, 2},
      {TensorType::I8, 1},  {TensorType::U8, 1},      {TensorType::I32, 4},
      {TensorType::I64, 8}, {TensorType::F8_E4M3, 1}, {TensorType::F8_E5M2, 1}};
  SafetensorsWriter w;
  w.add_metadata("format", "pt");
  for (const auto& [type, size] : types) {
    w.add_tensor(std::string(tensor_type_info(type).name), type, {3, 5}, filled(15 * size, 7));
  }
  w.add_tensor("scalar", TensorType::F32, {}, filled(4, 8));
  w.add_tensor("empty", TensorType::F32, {0, 4}, {});
  const Bytes bytes = w.finish();
  const auto set = SafetensorsSet::parse(bytes, "x.safetensors");
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_EQ(set->tensors().size(), std::size(types) + 2);
  for (const auto& [type, size] : types) {
    const TensorInfo* tensor = set->find(tensor_type_info(type).name);
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(tensor->type, type);
    EXPECT_EQ(tensor->shape, (std::vector<int64_t>{3, 5}));
    EXPECT_EQ(Bytes(tensor->data.begin(), tensor->data.end()), filled(15 * size, 7));
    EXPECT_EQ(tensor->file, "x.safetensors");
  }
  EXPECT_EQ(set->find("scalar")->elements(), 1);
  EXPECT_EQ(set->find("scalar")->data[0], std::byte{8});
  EXPECT_EQ(set->find("empty")->elements(), 0);
  EXPECT_EQ(set->find("absent"), nullptr);
}

TEST(Safetensors, ReadsAFileWithoutTensors) {
  const Bytes bytes = raw_safetensors("{}");
  const auto set = SafetensorsSet::parse(bytes, "x.safetensors");
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_TRUE(set->tensors().empty());
}

TEST(Safetensors, OpensASingleFile) {
  const TempFolder folder;
  one_tensor("a").write_to(folder.path() / "model.safetensors");
  one_tensor("other").write_to(folder.path() / "adapter.safetensors");
  const auto set = SafetensorsSet::open(folder.path());
  ASSERT_TRUE(set.ok()) << set.status();
  ASSERT_EQ(set->tensors().size(), 1u);
  const auto data = set->find("a")->data;
  set->drop_pages();
  EXPECT_EQ(Bytes(data.begin(), data.end()), filled(12, 1));
}

TEST(Safetensors, OpensShardsByTheirIndex) {
  const TempFolder folder;
  const auto& dir = folder.path();
  SafetensorsWriter first = one_tensor("a", 1);
  first.add_tensor("not.in.index", TensorType::U8, {1}, filled(1, 9));
  first.write_to(dir / "m-1.safetensors");
  SafetensorsWriter second = one_tensor("b", 2);
  second.add_tensor("a", TensorType::F16, {2, 3}, filled(12, 3));  // a stale copy
  second.write_to(dir / "m-2.safetensors");
  one_tensor("a", 4).write_to(dir / "unused.safetensors");
  write_index(dir, R"({"a":"m-1.safetensors","b":"m-2.safetensors"})");
  const auto set = SafetensorsSet::open(dir);
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_EQ(set->tensors().size(), 3u);
  ASSERT_NE(set->find("a"), nullptr);
  EXPECT_EQ(set->find("a")->data[0], std::byte{1});
  EXPECT_THAT(set->find("a")->file, HasSubstr("m-1.safetensors"));
  ASSERT_NE(set->find("b"), nullptr);
  EXPECT_EQ(set->find("b")->data[0], std::byte{2});
  ASSERT_NE(set->find("not.in.index"), nullptr);
}

TEST(Safetensors, OpensShardsWithoutAnIndex) {
  const TempFolder folder;
  const auto& dir = folder.path();
  one_tensor("a", 1).write_to(dir / "model-00001-of-00002.safetensors");
  one_tensor("b", 2).write_to(dir / "model-00002-of-00002.safetensors");
  const auto set = SafetensorsSet::open(dir);
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_EQ(set->tensors().size(), 2u);
  EXPECT_EQ(set->find("b")->data[0], std::byte{2});
}

TEST(SafetensorsFolder, NamesWhatIsMissing) {
  const TempFolder folder;
  const auto& dir = folder.path();
  const auto open = [&] { return SafetensorsSet::open(dir); };
  expect_refused(open, {dir.string(), "no model.safetensors"});
  expect_refused([&] { return SafetensorsSet::open(dir / "none"); }, {(dir / "none").string()});

  one_tensor("a").write_to(dir / "model-00001-of-00002.safetensors");
  expect_refused(open, {"model-00002-of-00002.safetensors is missing"});

  write_index(dir, R"({"a":"model-00001-of-00002.safetensors","b":"absent.safetensors"})");
  expect_refused(open, {"model.safetensors.index.json", "absent.safetensors", "no such file"});

  write_index(dir, R"({"a":"model-00001-of-00002.safetensors",)"
                   R"("gone":"model-00001-of-00002.safetensors"})");
  expect_refused(open, {"model.safetensors.index.json", "tensor 'gone'",
                        "model-00001-of-00002.safetensors", "not there"});

  one_tensor("gone").write_to(dir / "model-00002-of-00002.safetensors");
  write_index(dir, R"({"gone":"model-00001-of-00002.safetensors",)"
                   R"("a":"model-00002-of-00002.safetensors"})");
  expect_refused(open, {"model.safetensors.index.json", "not there"});
}

TEST(SafetensorsFolder, RefusesOneTensorInTwoFiles) {
  const TempFolder folder;
  one_tensor("a").write_to(folder.path() / "x.safetensors");
  one_tensor("a").write_to(folder.path() / "y.safetensors");
  expect_refused([&] { return SafetensorsSet::open(folder.path()); },
                 {"'a'", "x.safetensors", "y.safetensors"});
}

TEST(SafetensorsFolder, RefusesDamagedIndices) {
  const TempFolder folder;
  const auto& dir = folder.path();
  const auto open = [&] { return SafetensorsSet::open(dir); };
  one_tensor("a").write_to(dir / "m.safetensors");
  std::filesystem::create_directory(dir / "sub");
  one_tensor("a").write_to(dir / "sub" / "m.safetensors");
  for (const char* name : {"../m.safetensors", "sub/m.safetensors", "/etc/passwd", "..", ".", "",
                           "sub\\\\m.safetensors", "m.safetensors\\u0000.x"}) {
    write_index(dir, fmt::format(R"({{"a":"{}"}})", name));
    expect_refused(open, {"index.json", "weight_map", "'a'", "not the name of a file"});
  }
  write_index(dir, R"({"a":"m.safetensors","a":"m.safetensors"})");
  expect_refused(open, {"index.json", "'a' occurs twice"});
  write_index(dir, R"({"a":5})");
  expect_refused(open, {"index.json", "'a' is not a string"});
  write_index(dir, "[]");
  expect_refused(open, {"index.json", "weight_map is not an object"});
  write_index(dir, "{}");
  expect_refused(open, {"index.json", "weight_map is empty"});
  const auto index = dir / "model.safetensors.index.json";
  write_bytes(index, to_bytes(R"({"metadata":{}})"));
  expect_refused(open, {"index.json", "no weight_map"});
  write_bytes(index, to_bytes("{\"weight_map\":"));
  expect_refused(open, {"index.json", "invalid JSON"});
  write_bytes(index, to_bytes(std::string(1000, '[')));
  expect_refused(open, {"index.json", "invalid JSON"});
  write_bytes(index, {});
  expect_refused(open, {"index.json", "invalid JSON"});
}

}  // namespace
}  // namespace pagefold::testing
