#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kernel/cgroup.h"
#include "policy/spec.h"
#include "storage/home.h"

// Where root's one-shot sandboxes come one after the other, each leaves its control groups to the
// next: to make and to remove them takes a tenth of what a sandbox takes. A place goes with a range
// of user ids. Whoever has the range has the groups, and nobody else touches them: see
// docs/decisions/0023.
namespace carrel::native {

// A range with a place for a one-shot; nothing when all of them are taken, or for an ordinary user.
std::optional<std::uint32_t> claim_place(storage::Home& home, const std::string& id);

// The name of a place's groups.
std::string place_name(std::uint32_t range);
bool is_place_name(std::string_view name);

// Whether the next sandbox may have the groups. Whatever was done in them is over.
bool may_stay(const kernel::Cgroup& group, const policy::Limits& limits);

// To be called before the range is given back: groups stay, and somebody has to remove them at
// last.
void note_place(const storage::Home& home);

// Removes the groups of places that nobody is in.
void sweep_places(storage::Home& home);
// Only where somebody said that there are some.
void sweep_noted_places(storage::Home& home);

}  // namespace carrel::native
