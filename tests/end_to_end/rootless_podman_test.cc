// A rootless podman: its owner has his own id in its containers.
#include "support/rootless.h"

namespace carrel::test {
namespace {

class RootlessPodman : public RootlessEngine<DockerEngine::Kind::kRootlessPodman> {};
INSTANTIATE_TEST_SUITE_P(, RootlessPodman, testing::Values(As::kUser),
                         [](const testing::TestParamInfo<As>& one) { return name_of(one.param); });

TEST_P(RootlessPodman, ALongLivedOneIsUsedAsAnyOther) { use_a_long_lived_one(); }
TEST_P(RootlessPodman, ItsProcessesAreTheUsersWithoutACapability) { look_at_its_processes(); }
TEST_P(RootlessPodman, WorkspacesAndMountsAreThoseOfTheHost) { use_files_of_the_host(); }
TEST_P(RootlessPodman, LimitsAreHeldByTheGuestAndToldSo) { exceed_limits(); }
TEST_P(RootlessPodman, NothingIsReachedButWhatIsAllowed) { reach_what_is_allowed_only(); }
TEST_P(RootlessPodman, ItIsOfNoUseToOthers) { is_of_no_use_to_others(); }

}  // namespace
}  // namespace carrel::test
