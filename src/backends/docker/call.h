#pragma once

#include <sys/types.h>

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "backends/docker/container.h"
#include "backends/docker/door.h"
#include "backends/docker/engine.h"
#include "base/result.h"
#include "base/unique_fd.h"

// The first words between whoever starts a container and what runs in it.
namespace carrel::docker {

// Its first process calls, or the container ends without.
Result<Door::Caller> await_call(const Engine& engine, const std::string& container,
                                const Door& door);

// The container's first process, as the engine tells; 0: there is none.
int first_process_of(const nlohmann::json& found);

// Whether the engine has both processes in the groups of that container.
bool are_together(pid_t one, pid_t other, const std::string& container);

// What a guest cannot see by itself: whether a namespace of the container is the host's.
// podman's containers have the host's control groups where these are of version 1; the guest makes
// a namespace of its own before anything of the workload runs.
// Where ids are the engine's, users are its own, too.
Status check_apart(int process, EngineKind engine, Ids ids);

// The container's first process names the guest that it made, by a descriptor, or says why not.
Result<UniqueFd> receive_guest(int stream);

// The number of a process by its descriptor, as this process counts; 0: it has ended.
pid_t pid_of(int process);

}  // namespace carrel::docker
