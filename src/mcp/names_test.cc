#include "mcp/names.h"

#include <gtest/gtest.h>

namespace carrel::mcp {
namespace {

TEST(McpNames, TableOfR212) {
  EXPECT_EQ(exposed_name("files", "read"), "mcp_files_read");
  EXPECT_EQ(exposed_name("my server", "read.file"), "mcp_my_server_read_file");
  EXPECT_EQ(exposed_name("a__b", "c---d"), "mcp_a_b_c---d");
  EXPECT_EQ(exposed_name("_a_", "_b_"), "mcp_a_b");
  EXPECT_EQ(exposed_name("a", "!!!"), "mcp_a");
  EXPECT_EQ(exposed_name("", ""), "mcp");
  EXPECT_EQ(exposed_name("s", "caf\xc3\xa9 x"), "mcp_s_caf_x");
  EXPECT_EQ(exposed_name("s", std::string(100, 'x')), "mcp_s_" + std::string(58, 'x'));
}

TEST(McpNames, DifferentToolsCanHaveOneName) {
  EXPECT_EQ(exposed_name("s", "a.b"), exposed_name("s", "a_b"));
  EXPECT_EQ(exposed_name("s_a", "b"), exposed_name("s", "a_b"));
  EXPECT_EQ(exposed_name("s", std::string(80, 'x')), exposed_name("s", std::string(90, 'x')));
}

}  // namespace
}  // namespace carrel::mcp
