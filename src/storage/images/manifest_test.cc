#include "storage/images/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "storage/images/layout.h"
#include "storage/images/oci_json.h"

namespace carrel::storage {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::string digest(char c) { return "sha256:" + std::string(64, c); }

json layer(std::uint64_t size, const std::string& type = "application/vnd.oci.image.layer.v1.tar") {
  return {{"mediaType", type}, {"digest", digest('b')}, {"size", size}};
}

json manifest(const json& layers) {
  return {{"config", {{"digest", digest('a')}}}, {"layers", layers}};
}

json entry(const char* architecture, char c, const char* variant = "") {
  return {{"digest", digest(c)},
          {"platform", {{"os", "linux"}, {"architecture", architecture}, {"variant", variant}}}};
}

TEST(ManifestTest, KindsAreToldApartByWhatTheyHold) {
  EXPECT_EQ(kind_of_document(R"({"manifests": []})"), DocumentKind::kIndex);
  EXPECT_EQ(kind_of_document(R"({"layers": []})"), DocumentKind::kManifest);
  // CVE-2021-41190: a document that is both is read differently by different programs.
  EXPECT_EQ(kind_of_document(R"({"layers": [], "manifests": []})"), DocumentKind::kUnknown);
  EXPECT_EQ(kind_of_document("[]"), DocumentKind::kUnknown);
  EXPECT_EQ(kind_of_document("x"), DocumentKind::kUnknown);
}

TEST(ManifestTest, IndexLeadsToThisHost) {
  const std::string here(host_architecture());
  const auto choose = [](const json& list) {
    return choose_from_index(json{{"manifests", list}}.dump());
  };
  EXPECT_EQ(choose({entry("s390x", '1'), entry(here.c_str(), '2')}).value(), std::string(64, '2'));
  if (here == "amd64") {
    EXPECT_EQ(choose({entry("amd64", '1', "v3"), entry("amd64", '2')}).value(),
              std::string(64, '2'));
  }
  const auto foreign = choose({entry("s390x", '1'), entry("mips", '2'), entry("unknown", '3')});
  ASSERT_FALSE(foreign.ok());
  EXPECT_THAT(foreign.error().message, HasSubstr("is for s390x, mips, this host is " + here));
  EXPECT_FALSE(choose({{{"digest", "sha256:../x"}}}).ok());
  EXPECT_FALSE(choose(json::array()).ok());
  EXPECT_FALSE(choose({"x", 1}).ok());
}

TEST(ManifestTest, LayersAreBounded) {
  const auto good = parse_manifest(manifest({layer(10), layer(20)}).dump(), 30);
  ASSERT_TRUE(good.ok()) << good.error().to_string();
  EXPECT_EQ(good.value().layers.size(), 2U);
  EXPECT_EQ(good.value().layers[1].size, 20U);
  EXPECT_FALSE(parse_manifest(manifest({layer(10), layer(21)}).dump(), 30).ok());
  EXPECT_FALSE(parse_manifest(manifest({layer(UINT64_MAX), layer(10)}).dump(), 30).ok());
  json many = json::array();
  for (std::size_t i = 0; i < kMostImageLayers; ++i) {
    many.push_back(layer(1));
  }
  EXPECT_TRUE(parse_manifest(manifest(many).dump(), 1000).ok());
  many.push_back(layer(1));
  EXPECT_FALSE(parse_manifest(manifest(many).dump(), 1000).ok());
}

TEST(ManifestTest, LayersThatWeCannotUnpackAreRefused) {
  for (const char* type :
       {"", "application/octet-stream", "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
        "application/vnd.oci.image.layer.nondistributable.v1.tar",
        "application/vnd.oci.image.layer.v1.tar+encrypted"}) {
    EXPECT_FALSE(parse_manifest(manifest({layer(1, type)}).dump(), 30).ok()) << type;
  }
  json bad = layer(1);
  bad["size"] = "1";
  EXPECT_FALSE(parse_manifest(manifest({bad}).dump(), 30).ok());
  bad["size"] = -1;
  EXPECT_FALSE(parse_manifest(manifest({bad}).dump(), 30).ok());
  EXPECT_FALSE(parse_manifest(R"({"schemaVersion": 1, "fsLayers": []})", 30).ok());
}

}  // namespace
}  // namespace carrel::storage
