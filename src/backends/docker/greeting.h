#pragma once

#include <string>

#include "backends/docker/engine.h"
#include "base/result.h"
#include "protocol/greeting.h"
#include "sandbox/walls.h"

// The first words over the line of a container that nothing else leads to.
namespace carrel::docker {

// What its first process says when it begins. kUnsupported: the container ended without, or what
// came is something else; kTimeout; or what the engine says.
Result<protocol::Greeting> await_greeting(const Engine& engine, const std::string& container,
                                          int line);

// What is known here about the kernel that it is on.
Result<sandbox::SeenKernel> judge_kernel(const protocol::Greeting& greeting);

// What that process is told about the sandbox: see guest/contained.h. kUnsupported: a path that
// cannot be told.
Result<std::string> contained_terms(const sandbox::RoomRequest& request,
                                    const sandbox::SeenKernel& seen);
Status send_terms(int line, const std::string& terms);

}  // namespace carrel::docker
