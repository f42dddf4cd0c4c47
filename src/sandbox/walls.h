#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "policy/backend.h"
#include "policy/spec.h"
#include "protocol/boot.h"
#include "sandbox/guest_stream.h"

namespace carrel::sandbox {

// A room that somebody else builds: what the guest has to find in it. The guest compares what is
// there with the same plan, so that a wall that was left out is no sandbox.
struct RoomRequest {
  std::string hostname;
  std::uint32_t uid = 0;  // inside
  std::uint32_t gid = 0;
  protocol::Plan plan;
  // For each tree of the plan, in their order.
  struct Tree {
    enum class Kind { kFolder, kFile };
    std::string path;  // where the host has it
    Kind kind = Kind::kFolder;
    policy::MountMode mode = policy::MountMode::kReadOnly;
    int mount = -1;                   // as root: the detached mount that it has to be instead
    int source = -1;                  // otherwise: what the path has to be
    std::vector<std::string> hidden;  // what the plan covers in it: paths from its top
  };
  std::vector<Tree> trees;
  std::string image_folder;  // that the image is; empty: the host's own files
  std::string_view filter;   // of system calls, which the guest is under from its first one on

  std::string runtime;  // which of several builders; empty: any
  std::string engine;   // where a builder is that is no program of this host's; empty: as usual

  // For builders that keep records of their own: whose sandbox it is and what it may use.
  std::string id;
  std::string installation;
  std::string folder;  // of the installation, for what is needed until the guest runs
  std::string home;    // the same, for what is kept
  policy::Limits limits;

  int control = -1;  // the guest's end of its stream; its descriptor 3
  int image = -1;    // the guest's program
  // Where the guest cannot listen itself: the bound socket that somebody listens on for it, or -1.
  int listener = -1;
  // Where a sandbox with a kernel of its own has a network: the bound socket at which the egress
  // process asks for the connections of a machine, or for the sockets of gVisor's network; or -1.
  int network = -1;
  protocol::Captive captive;  // gVisor: what makes its network a captive one before anything runs
  std::uint32_t cpus = 0;     // how many processors all of it may use; zero: a group sees to that

  // The control groups that all of it is in: a v2 directory, unless that is -1, and files to which
  // "0" is written.
  int group = -1;
  std::vector<int> join;
  std::optional<std::uint32_t> host_id;  // as root: whose processes they are on the host
};

// How a machine began, or tries to.
struct Origin {
  std::string from;  // "boot" or "snapshot"; empty: it is no machine
  std::string note;  // what was wrong with a snapshot that there was; empty: nothing
  std::string home;  // whose snapshot it goes on from, and its name; empty: it does not
  std::string snapshot;
};

// What the first process of a container that is said to be in a machine told about its kernel,
// before anything of the sandbox's was there. It is compared with the host's.
struct SeenKernel {
  enum class Whose { kHosts, kAnothers };
  Whose whose = Whose::kHosts;
  int landlock_abi = 0;
};

// A guest in such a room, which has executed its program or is about to.
struct RoomStarted {
  pid_t child = 0;  // of this process; it ends when the guest has ended. 0: nobody's
  UniqueFd door;    // where somebody listens for the guest: its end of what connections come by
  pid_t guest = 0;  // as the host counts
  UniqueFd guest_process;
  UniqueFd complaints;  // a file with what the builder said about what went wrong
  UniqueFd stream;      // to the guest, where descriptors do not survive the start
  Origin origin;
  std::optional<SeenKernel> seen;
};

// Waits until the guest of a furnished room has compared it with the plan.
Status await_room(GuestStream& stream, int timeout_ms);

// The argument that tells a guest that its room is built already.
inline constexpr char kFurnished[] = "furnished";
inline constexpr char kFurnishedByGvisor[] = "gvisor";

// What building takes in the sandbox's control groups, beyond what the sandbox may have.
struct Building {
  std::uint64_t memory_bytes = 0;
  std::uint32_t processes = 0;
};

// By name, for each limit; empty: nobody, and why.
struct LimitHolders {
  std::string memory;
  std::string cpu;
  std::string pids;
  std::string why_not;
};

// Who loads the filter of system calls and sees to the user that the sandbox has inside: the
// builder, or the guest, which begins as the root of its user namespace then, without a capability.
enum class Lock { kBuilders, kGuests };

// Whose system calls are used inside. gVisor's kernel gives no descriptor to the host, has no
// Landlock and no control groups, and all of the room is one process tree on the host.
// kMachines: Linux in a virtual machine, whose first process stands for the host there. Nothing but
// bytes goes in and out.
enum class Kernel { kHosts, kGvisors, kMachines };

// Walls that another program builds. One object serves all threads.
class Walls {
 public:
  virtual ~Walls() = default;

  // What it is, with its version: "bubblewrap 0.8.0". kUnsupported: it cannot be used here, and
  // why.
  virtual Result<std::string> describe(const policy::Spec& spec) const = 0;
  // What is known to be wrong with a builder of that version; empty: nothing.
  [[nodiscard]] virtual std::string warning(const policy::Spec& spec) const;
  // kUnsupported: what the spec asks for and these walls do not have.
  virtual Status check(const policy::Spec& spec) const = 0;
  virtual Result<RoomStarted> start(const RoomRequest& request) const = 0;
  // How many processes beside the guest are in its control groups as long as it lives.
  [[nodiscard]] virtual std::uint32_t own_processes() const = 0;
  // The same of its memory, and how many tasks of the host there are for each one inside.
  [[nodiscard]] virtual std::uint64_t own_memory() const { return 0; }
  [[nodiscard]] virtual std::uint32_t tasks_for_each() const { return 1; }
  [[nodiscard]] virtual Kernel kernel() const { return Kernel::kHosts; }
  [[nodiscard]] virtual Building building() const { return {}; }
  [[nodiscard]] virtual Lock lock() const { return Lock::kBuilders; }
  // kGuest: they are walls around an empty place. The guest that start() returns waits there for
  // its plan as one without walls does, with all the rest of the request still to be told.
  [[nodiscard]] virtual policy::Furnisher furnisher() const { return policy::Furnisher::kBuilder; }
  // How long a guest may take until it can say anything.
  [[nodiscard]] virtual std::chrono::milliseconds patience() const {
    return std::chrono::milliseconds(30'000);
  }
  // Who holds the limits of a request where the caller has no control groups.
  [[nodiscard]] virtual LimitHolders limit_holders(const policy::Spec& spec) const;
  // Once the guest is there: how it really began, by what the builder said. A snapshot that did not
  // work is gone then.
  virtual void settle_origin(int complaints, Origin& origin) const;
  // Removes what a caller that died in the middle of a start left in the folder of an installation
  // and at the builder.
  virtual void sweep(const std::string& folder, const std::string& installation) const;
};

// The limits of control groups that such walls are in: while they are built, and afterwards.
policy::Limits limits_while_building(const Walls& walls, policy::Limits limits);
policy::Limits limits_behind(const Walls& walls, policy::Limits limits);

inline bool are_gvisors(const Walls* walls) {
  return walls != nullptr && walls->kernel() == Kernel::kGvisors;
}

inline bool are_machines(const Walls* walls) {
  return walls != nullptr && walls->kernel() == Kernel::kMachines;
}
// Everything of such a sandbox is one process tree on the host, and no descriptor leads into it.
inline bool have_own_kernel(const Walls* walls) {
  return walls != nullptr && walls->kernel() != Kernel::kHosts;
}

// All of such a sandbox is in a container, and its processes are the engine's.
inline bool are_engines(const Walls* walls, policy::Backend backend) {
  return have_own_kernel(walls) && backend == policy::Backend::kDocker;
}

// Null: the guest builds its room itself.
using FindWalls = const Walls* (*)(policy::Backend backend, std::string_view runtime);
inline const Walls* find_no_walls(policy::Backend, std::string_view) { return nullptr; }

}  // namespace carrel::sandbox
