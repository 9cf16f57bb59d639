#include "base/json.h"

#include <gtest/gtest.h>

namespace pagefold {
namespace {

TEST(Json, ParsesAndKeepsKeyOrder) {
  auto r = parse_json(R"({"b":1,"a":[true,null,"x",2.5,18446744073709551615]})");
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_EQ(dump_json(*r), R"({"b":1,"a":[true,null,"x",2.5,18446744073709551615]})");
}

TEST(Json, RefusesDepthBeforeRecursing) {
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  EXPECT_FALSE(parse_json(deep).ok());
  EXPECT_TRUE(parse_json(std::string(64, '[') + std::string(64, ']'), 64).ok());
  EXPECT_FALSE(parse_json(std::string(65, '[') + std::string(65, ']'), 64).ok());
}

TEST(Json, RefusesWhatIsNotJson) {
  for (const char* text : {"", "{:", "{\"a\":}", "[1,]", "nul", "\"\xff\xfe\"", "{} {}"}) {
    EXPECT_FALSE(parse_json(text).ok()) << text;
  }
}

TEST(Json, FaultsSayWhere) {
  const auto says = [](const char* text) { return message_of(parse_json(text).status()); };
  EXPECT_NE(says(R"({"a": 1 "b": 2})").find("at byte 9 of 15"), std::string::npos)
      << says(R"({"a": 1 "b": 2})");
  EXPECT_NE(says(R"({"a": NaN})").find("at byte 7 of 10: JSON knows no NaN"), std::string::npos);
  EXPECT_NE(says(R"({"a b": [1, tru]})").find("at byte 13 of 17"), std::string::npos);
  EXPECT_NE(says(R"([1, -Infinity])").find("infinite"), std::string::npos);
  EXPECT_EQ(says(R"({"Nancy": "informal"})"), "");
  EXPECT_EQ(says(R"({"nan": 1,})").find("NaN"), std::string::npos);
  EXPECT_NE(says("[nan]").find("NaN"), std::string::npos);
  EXPECT_NE(says("\"\xff\"").find("UTF-8"), std::string::npos);
}

TEST(Json, IntegersBeyond64BitsAreNamedByTheirByte) {
  const std::string range =
      ": this number must be an integer from -9223372036854775808 to 18446744073709551615";
  const auto says = [](const char* text) { return message_of(parse_json(text).status()); };
  EXPECT_EQ(says(R"({"n": 18446744073709551616})"), "invalid JSON at byte 7 of 27" + range);
  EXPECT_EQ(says("[1.5e3, -9223372036854775809]"), "invalid JSON at byte 9 of 29" + range);
  EXPECT_EQ(says(R"({"a\\\"99999999999999999999": [1, 99999999999999999999]})"),
            "invalid JSON at byte 35 of 56" + range);
  EXPECT_EQ(says("[-9223372036854775808, 18446744073709551615]"), "");
}

TEST(Json, DumpNeverThrows) {
  EXPECT_EQ(dump_json(Json("a\xff")), "\"a\xEF\xBF\xBD\"");
  std::string out;
  append_json_string(out, "\"\n\x01\xff");
  EXPECT_EQ(out, "\"\\\"\\n\\u0001\xEF\xBF\xBD\"");
}

}  // namespace
}  // namespace pagefold
