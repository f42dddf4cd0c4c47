#pragma once

#include <optional>
#include <string_view>

namespace carrel::policy {

// What builds the walls around a sandbox.
enum class Backend { kNative, kBubblewrap, kOci, kDocker, kMicrovm };

std::string_view name_of(Backend backend);
std::optional<Backend> backend_named(std::string_view name);

// Who builds the room inside these walls: its guest, or whoever builds the walls.
enum class Furnisher { kGuest, kBuilder };
Furnisher furnisher_of(Backend backend);

// How strongly sandboxes are kept apart from the host's kernel, from the weakest on.
enum class Strength { kNamespace, kGvisor, kVm };
std::string_view name_of(Strength strength);
std::optional<Strength> strength_named(std::string_view name);

// What the walls of a backend are, which its runtime can decide, and what a person should know
// about that.
struct Isolation {
  Strength strength = Strength::kNamespace;
  std::string_view kind;  // the strength's name
  std::string_view note;
};
Isolation isolation_of(Backend backend, std::string_view runtime);

// Whether it has several builders, of which a runtime names one.
bool has_runtimes(Backend backend);

}  // namespace carrel::policy
