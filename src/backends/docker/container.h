#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "sandbox/walls.h"

namespace carrel::docker {

// Where the container has the guest's program.
inline constexpr char kProgram[] = "/carrel/guest";
inline constexpr char kInstallationLabel[] = "carrel.installation";
inline constexpr char kSandboxLabel[] = "carrel.sandbox";

// What is not in the request itself.
struct ContainerTerms {
  std::string image;
  std::string runtime;
  std::string program;  // files of the host
  std::string door;
  std::uint32_t user = 0;
  std::uint32_t group = 0;
  std::vector<std::string> security;  // of the engine: "name=apparmor" and the like
  unsigned cpus = 0;                  // of the host; zero: nobody told
};

using Exists = bool (*)(const std::string& path);

// What an engine is asked to create: a container without a capability, a network or a way to gain
// privileges, with a root that cannot be written to. Of the host it sees what the plan's steps
// name, at the same paths, so that the guest in it finds what it builds its room of. kUnsupported:
// a path that a container cannot have.
Result<nlohmann::json> container_for(const sandbox::RoomRequest& request,
                                     const ContainerTerms& terms, Exists exists);

// Whether what the engine has is what it was asked for, and nothing more. kUnsupported names the
// first setting that differs.
Status compare(const nlohmann::json& asked, const nlohmann::json& found);

}  // namespace carrel::docker
