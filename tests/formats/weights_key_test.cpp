#include "formats/weights_key.h"

#include <gtest/gtest.h>

#include <cstring>

namespace pagefold {
namespace {

struct Tensors {
  std::vector<std::byte> small = std::vector<std::byte>(640),
                         large = std::vector<std::byte>(1 << 20);
  std::vector<TensorInfo> list() const {
    return {{"b.large", TensorType::F16, {512, 1024}, large, "x.gguf"},
            {"a.small", TensorType::F32, {160}, small, "x.gguf"}};
  }
};

TEST(WeightsKey, NamesTheWeightsAndNothingElse) {
  Tensors t;
  for (size_t i = 0; i < t.large.size(); ++i) t.large[i] = static_cast<std::byte>(i * 7 >> 3);
  const std::string key = weights_key(t.list());
  EXPECT_EQ(key.size(), 16u);
  EXPECT_EQ(key.find_first_not_of("0123456789abcdef"), std::string::npos);

  // Not the file, nor the order in it.
  auto list = t.list();
  std::swap(list[0], list[1]);
  for (TensorInfo& i : list) i.file = "other";
  EXPECT_EQ(weights_key(list), key);

  const auto differs = [&](const char* what, auto change) {
    auto other = t.list();
    change(other);
    EXPECT_NE(weights_key(other), key) << what;
  };
  differs("name", [](auto& l) { l[0].name = "c.large"; });
  differs("type", [](auto& l) { l[0].type = TensorType::BF16; });
  differs("shape", [](auto& l) { l[0].shape = {1024, 512}; });
  differs("missing", [](auto& l) { l.pop_back(); });
  differs("names run together", [](auto& l) { l[0].name = "b.larg", l[1].name = "ea.small"; });
  for (const size_t at : {size_t{0}, size_t{4095}, t.large.size() - 1}) {
    Tensors u = t;
    u.large[at] ^= std::byte{1};
    EXPECT_NE(weights_key(u.list()), key) << at;
  }
  for (size_t at = 0; at < t.small.size(); at += 71) {
    Tensors u = t;
    u.small[at] ^= std::byte{1};
    EXPECT_NE(weights_key(u.list()), key) << at;
  }
}

}  // namespace
}  // namespace pagefold
