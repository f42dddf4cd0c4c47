#include "storage/images/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/sha256.h"
#include "storage/images/images_test_support.h"

namespace carrel::storage {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

#if defined(__x86_64__)
constexpr const char* kOwn = "amd64";
constexpr const char* kOther = "arm64";
#else
constexpr const char* kOwn = "arm64";
constexpr const char* kOther = "amd64";
#endif

class LayoutTest : public testing::Test {
 protected:
  std::string blob(const std::string& text) {
    const std::string digest = sha256(text);
    scratch_.write("l/blobs/sha256/" + digest, text);
    return digest;
  }
  static json descriptor(const std::string& digest) { return {{"digest", "sha256:" + digest}}; }
  std::string config(const std::string& architecture = kOwn) {
    return json{{"architecture", architecture},
                {"os", "linux"},
                {"config",
                 {{"Env", json::array({"A=b"})},
                  {"WorkingDir", "/app"},
                  {"Entrypoint", json::array({"/init"})},
                  {"Cmd", json::array({"x"})}}},
                {"rootfs", {{"diff_ids", json::array({"sha256:" + sha256("layer")})}}}}
        .dump();
  }
  std::string manifest(const std::string& architecture = kOwn) {
    return blob(json{{"config", descriptor(blob(config(architecture)))},
                     {"layers", json::array({descriptor(blob("layer"))})}}
                    .dump());
  }
  void index(const json& manifests) {
    scratch_.write("l/oci-layout", "{\"imageLayoutVersion\":\"1.0.0\"}");
    scratch_.write("l/index.json", json{{"manifests", manifests}}.dump());
  }
  Result<std::vector<FoundImage>> read() {
    const UniqueFd directory = scratch_.directory("l");
    return read_layout(directory.get());
  }
  void refused(const std::string& text) {
    auto found = read();
    ASSERT_FALSE(found.ok()) << text;
    EXPECT_THAT(found.error().to_string(), HasSubstr(text));
  }
  Scratch scratch_;
};

TEST_F(LayoutTest, OrdinaryDirectoryIsNone) {
  scratch_.write("l/manifest.json", "[1, 2]");
  EXPECT_TRUE(read().value().empty());
  scratch_.write("l/manifest.json", "{}");
  EXPECT_TRUE(read().value().empty());
}

TEST_F(LayoutTest, OciImageIsRead) {
  const std::string digest = manifest();
  json entry = descriptor(digest);
  entry["annotations"]["io.containerd.image.name"] = "docker.io/library/tool:1";
  entry["annotations"]["org.opencontainers.image.ref.name"] = "../../x:latest";
  index(json::array({entry}));
  auto found = read();
  ASSERT_TRUE(found.ok()) << found.error().to_string();
  ASSERT_EQ(found.value().size(), 1U);
  const FoundImage& image = found.value()[0];
  EXPECT_THAT(image.names, ElementsAre("tool:1"));  // the other one is no name
  EXPECT_EQ(image.digest, digest);
  ASSERT_EQ(image.layers.size(), 1U);
  EXPECT_EQ(image.layers[0].digest, sha256("layer"));
  EXPECT_THAT(image.config.environment, ElementsAre("A=b"));
  EXPECT_EQ(image.config.workdir, "/app");
  EXPECT_THAT(image.config.entrypoint, ElementsAre("/init"));
}

TEST_F(LayoutTest, ImageForThisHostIsChosen) {
  json own = descriptor(manifest());
  own["platform"] = {{"architecture", kOwn}, {"os", "linux"}};
  json other = descriptor(manifest(kOther));
  other["platform"] = {{"architecture", kOther}, {"os", "linux"}};
  json proof = descriptor(std::string(64, '0'));
  proof["platform"] = {{"architecture", "unknown"}, {"os", "unknown"}};
  index(json::array({descriptor(blob(json{{"manifests", {other, proof, own}}}.dump()))}));
  auto found = read();
  ASSERT_TRUE(found.ok()) << found.error().to_string();
  EXPECT_EQ(found.value().size(), 1U);
  index(json::array({other}));
  refused("the image is for " + std::string(kOther));
}

TEST_F(LayoutTest, DigestsAreChecked) {
  const std::string digest = manifest();
  index(json::array({descriptor(digest)}));
  scratch_.write("l/blobs/sha256/" + digest, "{}");
  refused("does not have the digest");
  manifest();
  scratch_.write("l/blobs/sha256/" + sha256(config()), config() + " ");
  refused("does not have the digest");
}

TEST_F(LayoutTest, HostileIndexesAreRefused) {
  for (const json& wrong :
       {json(3), json("x"), json::array({1}),
        json::array({{{"digest", "sha256:../../../etc/passwd"}}}),
        json::array({{{"digest", "md5:00"}}}), json::array({{{"digest", 7}}})}) {
    index(wrong);
    EXPECT_FALSE(read().ok()) << wrong;
  }
  scratch_.write("l/index.json", "not json");
  EXPECT_FALSE(read().ok());
  // Indexes in indexes, without an end.
  std::string inner = manifest();
  for (int i = 0; i < 10; ++i) {
    inner = blob(json{{"manifests", json::array({descriptor(inner)})}}.dump());
  }
  index(json::array({descriptor(inner)}));
  EXPECT_FALSE(read().ok());
  json layers = json::array();
  for (int i = 0; i < 1000; ++i) {
    layers.push_back(descriptor(std::string(64, 'a')));
  }
  index(json::array(
      {descriptor(blob(json{{"config", descriptor(blob(config()))}, {"layers", layers}}.dump()))}));
  refused("more than 256 layers");
}

TEST_F(LayoutTest, LinksAreNotFollowed) {
  const std::string digest = manifest();
  const std::string path = "l/blobs/sha256/" + digest;
  std::filesystem::rename(scratch_ / path, scratch_ / "elsewhere");
  std::filesystem::create_symlink(scratch_ / "elsewhere", scratch_ / path);
  index(json::array({descriptor(digest)}));
  EXPECT_FALSE(read().ok());
}

// It is an OCI layout as well, and its own list counts.
TEST_F(LayoutTest, DockerArchiveOfTodayIsRead) {
  index(json::array({descriptor(manifest())}));
  const std::string blobs = "blobs/sha256/";
  const json entry = {{"Config", blobs + blob(config())},
                      {"RepoTags", json::array({"tool:2"})},
                      {"Layers", json::array({blobs + blob("layer")})}};
  scratch_.write("l/manifest.json", json::array({entry}).dump());
  auto found = read();
  ASSERT_TRUE(found.ok()) << found.error().to_string();
  ASSERT_EQ(found.value().size(), 1U);
  EXPECT_THAT(found.value()[0].names, ElementsAre("tool:2"));
  EXPECT_EQ(found.value()[0].layers[0].path, blobs + sha256("layer"));
  EXPECT_EQ(found.value()[0].layers[0].digest, sha256("layer"));
  scratch_.write("l/" + blobs + sha256(config()), "{}");
  refused("does not have the digest");
}

TEST_F(LayoutTest, DockerArchiveIsRead) {
  const std::string text = config();
  scratch_.write("l/" + sha256(text) + ".json", text);
  scratch_.write("l/abc/layer.tar", "layer");
  const json entry = {{"Config", sha256(text) + ".json"},
                      {"RepoTags", {"tool:1", "host", "../x"}},
                      {"Layers", json::array({"abc/layer.tar"})}};
  scratch_.write("l/manifest.json", json::array({entry}).dump());
  auto found = read();
  ASSERT_TRUE(found.ok()) << found.error().to_string();
  EXPECT_THAT(found.value()[0].names, ElementsAre("tool:1"));
  EXPECT_EQ(found.value()[0].layers[0].digest, sha256("layer"));
  EXPECT_EQ(found.value()[0].layers[0].path, "abc/layer.tar");
  json fewer = entry;
  fewer["Layers"] = json::array();
  scratch_.write("l/manifest.json", json::array({fewer}).dump());
  refused("same layers");
  json outside = entry;
  outside["Config"] = "../secret";
  scratch_.write("l/manifest.json", json::array({outside}).dump());
  refused("leaves the tree");
  scratch_.write("l/" + sha256(text) + ".json", text + " ");
  scratch_.write("l/manifest.json", json::array({entry}).dump());
  refused("does not have the digest");
}

}  // namespace
}  // namespace carrel::storage
