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

// `outer_id` is its user where its mounts belong.
std::string encode_boot(const LaunchRequest& request, const SandboxGroups& groups,
                        const EnforcementFacts& facts, const kernel::CaptiveNetwork& network,
                        std::uint32_t outer_id);

// The system calls of a guest, as the kernel takes them.
std::string_view guest_filter();

}  // namespace carrel::native
