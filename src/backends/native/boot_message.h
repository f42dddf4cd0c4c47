#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "backends/native/enforcement.h"
#include "backends/native/groups.h"
#include "backends/native/launch.h"
#include "backends/native/mount_plan.h"
#include "kernel/captive_network.h"

// What a guest is told, in its wire form: see protocol/boot.h.
namespace carrel::native {

std::string encode_plan(const MountPlan& plan);

// Its user where its mounts belong.
struct OuterIds {
  std::uint32_t user = 0;
  std::uint32_t group = 0;
};
std::string encode_boot(const LaunchRequest& request, const SandboxGroups& groups,
                        const EnforcementFacts& facts, const kernel::CaptiveNetwork& network,
                        OuterIds outer);

// The system calls of a guest, as the kernel takes them.
std::string_view guest_filter();

}  // namespace carrel::native
