#include "backends/docker/images.h"

#include <gtest/gtest.h>

#include <vector>

namespace carrel::docker {
namespace {

TEST(DockerImages, ProgressComesInPiecesAndIsTold) {
  std::vector<ImageProgress> told;
  const ImageListener listener = [&](const ImageProgress& one) { told.push_back(one); };
  PullNews news(listener);
  EXPECT_TRUE(news.take("{\"status\":\"Downloading\",\"progressDetail\":{\"curr").ok());
  EXPECT_TRUE(told.empty());
  EXPECT_TRUE(news.take("ent\":5,\"total\":9}}\r\n{\"status\":\"Done\"}\n").ok());
  ASSERT_EQ(told.size(), 2U);
  EXPECT_EQ(told[0].step, "Downloading");
  EXPECT_EQ(told[0].done, 5U);
  EXPECT_EQ(told[0].whole, 9U);
  EXPECT_EQ(news.error(), "");
}

TEST(DockerImages, AnErrorAmongTheLinesIsKeptAndIsPrintable) {
  const ImageListener none;
  PullNews news(none);
  EXPECT_TRUE(news.take("{\"error\":\"no \\u001bspace\"}\nnot json\n[]\n").ok());
  EXPECT_EQ(news.error(), "no  space");
}

TEST(DockerImages, ALineWithoutAnEndIsRefused) {
  const ImageListener none;
  PullNews news(none);
  EXPECT_FALSE(news.take(std::string(100'000, 'x')).ok());
}

}  // namespace
}  // namespace carrel::docker
