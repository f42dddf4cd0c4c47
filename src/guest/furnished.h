#pragma once

#include <cstdint>
#include <span>

#include "guest/failure.h"
#include "guest/gvisor.h"
#include "guest/root.h"
#include "protocol/boot.h"

// A room that another program built: the guest builds nothing and makes sure that everything is as
// it would have built it itself.
namespace carrel::guest {

// Whether this process has no other capabilities than these.
bool has_only(std::uint64_t capabilities);
// Whether there is no interface but the loopback one.
bool has_only_loopback();

// Lets go of what it was started with, except of the stream of its maker.
bool drop_inheritance(Failure& failure);

// Each step of the plan as a fact. `trees` are the descriptors that came with it.
bool check_room(const protocol::Plan& plan, Kernel kernel, std::span<int> trees, BuiltRoot& built,
                Failure& failure);

// The hostname, the network; keyrings are left behind as far as that is allowed.
bool check_identity(const protocol::Boot& boot, Failure& failure);

// That it is the first process, has no capability but what it locks itself in with, and can gain
// none.
bool check_privileges(const protocol::Boot& boot, Failure& failure);

// That it has the sandbox's user and is under a filter of system calls. Afterwards it is
// undumpable.
bool check_lock(const protocol::Boot& boot, Failure& failure);

}  // namespace carrel::guest
