// A rootless Docker engine: its containers' root is its owner.
#include "support/rootless.h"

namespace carrel::test {
namespace {

class RootlessDocker : public RootlessEngine<DockerEngine::Kind::kRootlessDocker> {};
INSTANTIATE_TEST_SUITE_P(, RootlessDocker, testing::Values(As::kUser),
                         [](const testing::TestParamInfo<As>& one) { return name_of(one.param); });

TEST_P(RootlessDocker, ALongLivedOneIsUsedAsAnyOther) { use_a_long_lived_one(); }
TEST_P(RootlessDocker, ItsProcessesAreTheUsersWithoutACapability) { look_at_its_processes(); }
TEST_P(RootlessDocker, WorkspacesAndMountsAreThoseOfTheHost) { use_files_of_the_host(); }
TEST_P(RootlessDocker, LimitsAreHeldByTheGuestAndToldSo) { exceed_limits(); }
TEST_P(RootlessDocker, NothingIsReachedButWhatIsAllowed) { reach_what_is_allowed_only(); }
TEST_P(RootlessDocker, ItIsOfNoUseToOthers) { is_of_no_use_to_others(); }

// B-1, R14: what the engine was told is what it has, or there is no sandbox.
TEST_P(RootlessDocker, AnEngineThatWeakensAWallIsNoSandbox) {
  EXPECT_EQ(changed("pass").out, "came in\n");
  // Of what it builds it tells what it was asked for.
  const std::string lies =
      "if body or (answer and host and 'State' in answer):\n    lie = body is None\n    ";
  const struct {
    std::string change;
    std::string said;
  } kTable[] = {
      {"if body: host['CapAdd'] = ['SETFCAP', 'SYS_ADMIN']", "HostConfig.CapAdd"},
      {"if body: body['User'] = '1:1'", "Config.User"},
      {"if body: host['NetworkMode'] = 'host'", "HostConfig.NetworkMode"},
      {lies + "host['CapAdd'] = ['SETFCAP'] if lie else ['SETFCAP', 'NET_ADMIN']", "capabilities"},
      {lies + "host['CapDrop'] = ['ALL'] if lie else []", "capabilities"},
      // Another of its ids, which is nobody's of the host.
      {lies + "one = body or answer['Config']\n    one['User'] = '0:0' if lie else '1:1'\n"
              "    host['CapAdd'] = ['SETFCAP'] if lie else []\n"
              "    one['Cmd'] = ['contained-by-owner'] if lie else ['contained']",
       "on this host"},
      {lies + "host['SecurityOpt'] = ['no-new-privileges', 'seccomp=unconfined'] if lie else "
              "['seccomp=unconfined']",
       "new privileges"},
      {lies + "host['CgroupnsMode'] = 'private' if lie else 'host'", "'cgroup'"},
  };
  for (const auto& row : kTable) {
    const Run run = changed(row.change);
    EXPECT_EQ(run.status, 125) << row.change << run.out;
    EXPECT_TRUE(says_one_line(run, row.said)) << row.change << run.err;
  }
}

}  // namespace
}  // namespace carrel::test
