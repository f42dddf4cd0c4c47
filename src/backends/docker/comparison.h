#pragma once

#include <nlohmann/json_fwd.hpp>

#include "base/result.h"

// What an engine has, beside what it was asked for.
namespace carrel::docker {

// podman hides parts of /proc unless it is asked for this; it does not tell that it was.
inline constexpr char kUnmasked[] = "unmask=ALL";

// What podman has, in the words in which Docker would tell it. What it tells in others is taken for
// what was asked only where the mounts, the guest or the host see the same for themselves.
nlohmann::json in_dockers_words(const nlohmann::json& asked, nlohmann::json found);

// Whether what the engine has is what it was asked for, and nothing more. kUnsupported names the
// first setting that differs.
Status compare(const nlohmann::json& asked, const nlohmann::json& found);

}  // namespace carrel::docker
