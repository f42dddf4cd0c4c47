// An agent whose state has no room any more: what it reported is stored, what it could not store is
// not reported, and it goes on when there is room again.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "remains.h"
#include "small_disk.h"
#include "trees.h"

namespace carrel::test {
namespace {

using nlohmann::json;
using testing::AnyOf;
using testing::HasSubstr;

constexpr char kFlow[] = "name = \"full\"\nprompts = [\"one\", \"two\", \"three\"]\n";
constexpr char kScript[] = R"(
[[turns]]
[[turns.replies]]
calls = [{name = "exec", arguments = {command = "head -c 60000 /dev/urandom > /workspace/one"}}]
[[turns.replies]]
text = "First."
[[turns]]
[[turns.replies]]
calls = [{name = "exec", arguments = {command = "head -c 60000 /dev/urandom > /workspace/two"}}]
[[turns.replies]]
text = "Second."
[[turns]]
[[turns.replies]]
calls = [{name = "exec", arguments = {command = "ls /workspace"}}]
[[turns.replies]]
text = "Third."
)";

class FlowDisk : public SmallDisk {
 protected:
  Run play() const {
    return carrel({"agent", "run", "--script", file("script.toml", kScript), "--file",
                   file("flow.toml", kFlow)});
  }
};
CARREL_AS_BOTH(FlowDisk);

// K03
TEST_P(FlowDisk, WhatIsReportedIsStoredAndTheRestIsAnError) {
  const Run probe = bash("true", {"--workspace", "probe"});
  if (probe.status != 0 && as_root()) {
    GTEST_SKIP() << "no workspace on this small file system: " << probe.err;
  }
  ASSERT_EQ(probe.status, 0) << probe.err;
  for (const std::size_t room : {std::size_t{0}, std::size_t{40} << 10, std::size_t{120} << 10,
                                 std::size_t{240} << 10, std::size_t{360} << 10}) {
    fill(room);
    const Run full = play();
    if (full.status != 0) {
      EXPECT_THAT(full.err, AnyOf(HasSubstr("full"), HasSubstr("No space left"))) << room;
    }
    empty();
    const Run again = play();
    EXPECT_EQ(again.status, 0) << room << again.err;
    EXPECT_THAT(again.out, testing::EndsWith("First.\nSecond.\nThird.\n")) << room;
    for (const char* turn : {"default", "default_2", "default_3"}) {
      const std::string finished = std::string("turn ") + turn + " finished in";
      if (full.err.find(finished) != std::string::npos) {
        EXPECT_THAT(again.err, testing::ContainsRegex(finished + " [0-9.]+ m?s \\(cached\\)"))
            << room << ": " << turn << " was reported and is not there";
      }
    }
    EXPECT_EQ(bash("ls /workspace", {"--workspace", "agent-full"}).out, "one\ntwo\n") << room;
    EXPECT_EQ(lasting_wrong_with_workspaces(GetParam()), "") << room;
    EXPECT_EQ(carrel({"flow", "rm", "full"}).status, 0) << room;
    EXPECT_EQ(carrel({"workspace", "ls"}).out.find("agent-full"), std::string::npos) << room;
  }
}

}  // namespace
}  // namespace carrel::test
