#include "storage/images/reference.h"

#include <gtest/gtest.h>

namespace carrel::storage {
namespace {

const std::string kHex(64, 'a');

TEST(ReferenceTest, ShortNamesAreDockerHubs) {
  const struct {
    std::string text;
    std::string full;
    std::string name;
  } kTable[] = {
      {"debian", "docker.io/library/debian:latest", "debian:latest"},
      {"debian:12", "docker.io/library/debian:12", "debian:12"},
      {"team/tool", "docker.io/team/tool:latest", "team/tool:latest"},
      {"docker.io/debian:12", "docker.io/library/debian:12", "debian:12"},
      {"docker.io/library/debian:12", "docker.io/library/debian:12", "debian:12"},
      {"index.docker.io/a/b", "docker.io/a/b:latest", "a/b:latest"},
      {"ghcr.io/a/b-c/d__e.f:v1", "ghcr.io/a/b-c/d__e.f:v1", "ghcr.io/a/b-c/d__e.f:v1"},
      {"localhost/x", "localhost/x:latest", "localhost/x:latest"},
      {"x:1..2", "docker.io/library/x:1..2", "x:1..2"},
      {"localhost:5000/x:y", "localhost:5000/x:y", "localhost:5000/x:y"},
      {"x@sha256:" + kHex, "docker.io/library/x@sha256:" + kHex, "x:sha256-aaaaaaaaaaaa"},
      {"x:1@sha256:" + kHex, "docker.io/library/x:1@sha256:" + kHex, "x:1"},
  };
  for (const auto& row : kTable) {
    const auto reference = parse_reference(row.text);
    ASSERT_TRUE(reference.ok()) << row.text;
    EXPECT_EQ(to_string(reference.value()), row.full);
    EXPECT_EQ(short_name(reference.value()), row.name);
  }
}

// C13
TEST(ReferenceTest, TricksAreRefused) {
  for (const std::string& text : {std::string(),
                                  std::string("../../x:latest"),
                                  std::string("a/../b"),
                                  std::string("/x"),
                                  std::string("x/"),
                                  std::string("a//b"),
                                  std::string("X"),
                                  std::string("x:"),
                                  std::string("x:.."),
                                  std::string(177, 'x'),  // in full it would be too long
                                  std::string("x:a/b"),
                                  std::string("x:a b"),
                                  std::string("x:a%2fb"),
                                  std::string("-x"),
                                  std::string("x?y"),
                                  std::string("x#y"),
                                  std::string("x\ny"),
                                  std::string("x:y:z"),
                                  std::string("user@host/x"),
                                  std::string("https://h/x"),
                                  std::string("h:99999999/x"),
                                  std::string("h:/x"),
                                  std::string(".h/x"),
                                  std::string("h../x"),
                                  std::string("[::1]/x"),
                                  std::string("a._b"),
                                  std::string("a_-b"),
                                  std::string("x@"),
                                  std::string("x@sha256:"),
                                  "x@sha512:" + kHex,
                                  "x@sha256:" + kHex + "a",
                                  "x@sha256:" + std::string(64, 'A'),
                                  "x@sha256:" + kHex + "@sha256:" + kHex,
                                  std::string(300, 'x'),
                                  "x:" + std::string(129, 'y'),
                                  std::string("x\0y", 3)}) {
    EXPECT_FALSE(parse_reference(text).ok()) << text;
  }
}

}  // namespace
}  // namespace carrel::storage
