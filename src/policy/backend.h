#pragma once

#include <optional>
#include <string_view>

namespace carrel::policy {

// What builds the walls around a sandbox.
enum class Backend { kNative, kBubblewrap, kOci };

std::string_view name_of(Backend backend);
std::optional<Backend> backend_named(std::string_view name);

// How its sandboxes are kept apart, and what a person should know about that.
struct Isolation {
  std::string_view kind;  // "namespace"
  std::string_view note;
};
Isolation isolation_of(Backend backend);

}  // namespace carrel::policy
