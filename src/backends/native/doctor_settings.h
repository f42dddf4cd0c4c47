#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backends/native/doctor_facts.h"

namespace carrel::native {

// What the host says about itself, read and not tried.
KernelSettings read_kernel_settings();
Surroundings look_around();
// Of these, with `uid` given, only what a login and a logout have to do with.
void look_at_login(Surroundings& around);
// Fills in what /proc/cgroups says about the controllers.
void read_controllers(GroupFacts& groups);

// The parts that are pure functions over text.

// From /proc/self/status: the filter and the capabilities.
void parse_status(std::string_view status, Surroundings& around);
// From /proc/self/mountinfo: the root, /proc and what covers it.
void parse_mounts(std::string_view mountinfo, Surroundings& around);
// From /proc/cgroups: one controller.
void parse_controller(std::string_view cgroups, std::string_view name, LimitFacts& limit);
// Whether a uid_map has `id` on its inner side.
bool map_has_id(std::string_view map, std::uint32_t id);
// The name of `uid` in the text of /etc/passwd; empty if it is not there.
std::string user_name(std::string_view passwd, std::uint32_t uid);
// KillUserProcesses= of logind's files, the later over the earlier. Its own file shows the default
// in a comment; where nobody says anything it is yes.
bool logind_kills(const std::vector<std::string>& files);

}  // namespace carrel::native
