#include "policy/backend.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace carrel::policy {

namespace {

// In the order of Backend.
constexpr std::array<std::string_view, 3> kNames = {"native", "bubblewrap", "oci"};

}  // namespace

std::string_view name_of(Backend backend) { return kNames.at(static_cast<std::size_t>(backend)); }

std::optional<Backend> backend_named(std::string_view name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  return found == kNames.end() ? std::nullopt
                               : std::optional(static_cast<Backend>(found - kNames.begin()));
}

Isolation isolation_of(Backend backend) {
  switch (backend) {
    case Backend::kNative:
    case Backend::kBubblewrap:
    case Backend::kOci:
      break;
  }
  return {"namespace", "namespaces; the host's kernel is shared"};
}

}  // namespace carrel::policy
