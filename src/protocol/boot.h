#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "protocol/message.h"
#include "protocol/wire.h"

// What a fresh guest is told before anything else: first how to build its root, and while it does
// that, how to lock itself in and what every command inherits. It comes from the host, which the
// guest trusts; it is parsed as strictly as everything else so that a mistake is an error and not a
// weaker sandbox.
namespace carrel::protocol {

inline constexpr std::size_t kMaxSteps = 40'000;   // each thing that is hidden in a tree is one
inline constexpr std::size_t kMaxPlan = 3U << 20;  // the source text of `carrel code` is in it
inline constexpr std::size_t kMaxFilter = 32U << 10;
inline constexpr std::size_t kMaxNetlink = 16U << 10;
inline constexpr std::size_t kMaxTmpfs = 4;
inline constexpr std::size_t kMaxJoin = 12;  // as many as there are kinds of control groups
inline constexpr std::size_t kMaxBootDescriptors = 1 + 2 * kMaxJoin;  // and the listener
inline constexpr std::size_t kMaxTrees = 32;                          // that come with a plan
inline constexpr std::size_t kMaxDescriptors = 32;                    // of one message
static_assert(kMaxBootDescriptors <= kMaxDescriptors && kMaxTrees <= kMaxDescriptors);
inline constexpr std::size_t kIdSize = 36;  // a sandbox id is a UUID in text form

// Whose clocks a sandbox has: not every kernel has time namespaces.
enum class Clocks : std::uint32_t { kHosts = 0, kOwn = 1 };

enum class StepKind : std::uint8_t {
  kDirectory = 1,     // make `path` with `mode`
  kLink = 2,          // make `path` a symbolic link to `source`
  kFile = 3,          // make `path` with `mode` and the content `source`
  kTmpfs = 4,         // a new tmpfs, kept in `slot`, of `size` bytes and `count` inodes
  kSubdirectory = 5,  // make `source` with `mode` inside the tmpfs in `slot`
  kAttach = 6,        // mount directory `source` of the tmpfs in `slot` at `path`
  kBind = 7,          // mount the host's `source` at `path`
  kDevice = 8,        // bind the host's device node `source`, checked to be `size` (its number)
  kProc = 9,          // a new proc at `path`
  kDevpts = 10,       // a new devpts at `path`
  kMask = 11,         // hide `path`, if it exists, behind `source`, a directory or (kStepIsFile) a
                      // file of the root that is empty, and the same for all masks;
                      // kStepOptional: unless nobody in the sandbox could open it anyway
  kReadOnly = 12,     // make what is at `path` read-only
  kOverlay = 13,      // the host's directory `source` or, where that is empty, what is mounted at
                      // `path` already, under a throw-away upper from `slot`, at `path`
  kSealRoot = 14,     // make the root itself read-only
  kReplace = 15,      // cover the file at `path` with one that holds `source`
  kTree = 16,  // mount the tree that came as descriptor `slot` of the plan at `path`, with all
               // that is mounted in it. It is a detached mount or, where `source` is given, what
               // the host's path `source` has to be: a guest can copy the mounts of its own
               // namespace only, so it opens that path and compares
  kMountPoint = 17,  // make `path`, a directory or (kStepIsFile) an empty file, if it is missing
};

enum StepFlags : std::uint32_t {
  kStepReadOnly = 1U << 0,
  kStepNoExec = 1U << 1,
  kStepOptional = 1U << 2,  // a missing source is fine; kMask: so is one that only root can open
  kStepIsFile = 1U << 3,    // the mount point is a file
  kStepAllFlags = 15U,
};

struct MountStep {
  StepKind kind = StepKind::kDirectory;
  std::uint32_t flags = 0;
  std::uint32_t mode = 0;
  std::uint8_t slot = 0;
  std::uint64_t size = 0;
  std::uint64_t count = 0;
  std::string_view path;
  std::string_view source;
};

void write_step(Writer& writer, const MountStep& step);
// Reads the next step; false at the end, and when the plan is malformed (see Reader::ok).
bool parse_step(Reader& plan, MountStep& step);

// The root is made of three parts: what all sandboxes of one kind have together, which is never
// written to; what each of them has for itself, but all alike; and what is a sandbox's own.
struct Plan {
  std::string_view staging;  // an existing host directory to build the root on
  std::string_view shared;   // MountSteps
  std::string_view alike;
  std::string_view own;
};

void write_plan(Writer& writer, const Plan& plan);
bool parse_plan(std::string_view payload, Plan& plan);

// A guest that waits for its sandbox builds a root ahead, by a whole plan. Then it is told the rest
// of the one that it is to have, which begins with the same steps: of a tmpfs that is there another
// size, of a file that was replaced another text, and steps that come after all others. Or it is
// told a whole plan, and begins anew. The payload of kRest is steps.

// The rest of the own part `wanted` after `built`; false where it is not what was built and more.
// Room for all of `wanted` is enough.
bool write_rest(std::string_view built, std::string_view wanted, Writer& rest);

// Netlink messages that make a network a captive one (kernel/captive_network.h); empty: it stays as
// it is. Those for IPv6 are left out where the kernel has no IPv6.
struct Captive {
  std::string_view routes;
  std::string_view routes6;
  std::string_view rules;

  [[nodiscard]] bool empty() const { return rules.empty(); }
  bool operator==(const Captive&) const = default;
};

// A guest that is told this builds only the shared part, and then forks the first processes of
// sandboxes into copies of it.
struct Nursery {
  std::string_view staging;
  std::string_view shared;
  std::string_view alike;
  std::string_view terms;  // for whom; only ever compared
  Captive captive;         // of its sandboxes that have a way out
};

void write_nursery(Writer& writer, const Nursery& nursery);
bool parse_nursery(std::string_view payload, Nursery& nursery);

// One of them, for whoever expects these parts. With it comes the guest's end of its stream,
// and perhaps the v2 control group that it is to be born in.
struct Spawn {
  std::string_view shared;
  std::string_view alike;
  std::string_view terms;
  std::string_view own;
  std::uint32_t uid = 0;  // in the nursery's user namespace; zero: the nursery's own
  std::uint32_t gid = 0;
  Captive captive;  // what its network will be made to be
};

inline constexpr std::size_t kMaxTerms = 32U << 10;
inline constexpr std::size_t kMaxSpawnDescriptors = 2;

// The answer. With it comes a descriptor of the process; and, where its network is a captive one
// that was made ahead, those of that network's sockets that are `present`, as in kNetworkSockets.
struct Spawned {
  std::uint32_t error = 0;  // an errno; zero: it was made
  std::uint32_t present = 0;
};

inline constexpr std::size_t kSpawnedSize = 8;
inline constexpr std::size_t kMaxSpawnedDescriptors = 1 + kNetworkSockets;

void write_spawned(Writer& writer, const Spawned& spawned);
bool parse_spawned(std::string_view payload, Spawned& spawned);

void write_spawn(Writer& writer, const Spawn& spawn);
bool parse_spawn(std::string_view payload, Spawn& spawn);

// The steps of a plan, one after the other, and no more than kMaxSteps.
class PlanReader {
 public:
  explicit PlanReader(std::string_view plan)
      : reader_({reinterpret_cast<const unsigned char*>(plan.data()), plan.size()}) {}
  // False at the end, and when the plan is malformed or too long: see ok().
  bool next(MountStep& step);
  [[nodiscard]] bool ok() const { return reader_.ok(); }

 private:
  Reader reader_;
  std::size_t count_ = 0;
};

enum BootFlags : std::uint32_t {
  kBootOneShot = 1U << 0,   // the sandbox ends with its first command, and with its stream
  kBootListener = 1U << 1,  // the first passed descriptor is the socket to listen on
  kBootLandlock = 1U << 2,
  kBootWritableRoot = 1U << 3,
  kBootMovesLater = 1U << 4,  // the guest was born in the workload's v2 group; see below
  kBootLocksIn = 1U << 5,     // a furnished room: the lock is left to the guest
  kBootDoor = 1U << 6,        // the first passed descriptor brings connections, one with each byte
  kBootGvisor = 1U << 7,      // the kernel is gVisor's, which has its own ways
  kBootAway = 1U << 8,        // whoever asks is not on this kernel: no descriptor can go out
  kBootAllFlags = 511U,
};

struct Boot {
  std::string_view id;
  std::uint32_t flags = 0;
  // Then the cgroup files to which the guest itself writes "0", and those to which the workload's
  // first process does. With kBootMovesLater the last of both are the v2 ones: the workload's first
  // process inherits its group, and the guest is moved to its own while it serves, because to write
  // there takes as long as the kernel needs to hear from every processor.
  std::uint32_t own_join_descriptors = 0;
  std::uint32_t join_descriptors = 0;
  std::string_view hostname;
  std::uint32_t uid = 0;  // inside
  std::uint32_t gid = 0;
  std::uint32_t outer_uid = 0;  // in the user namespace that the mounts belong to
  std::uint32_t outer_gid = 0;
  std::uint32_t processes = 0;           // RLIMIT_NPROC
  std::uint32_t open_files = 0;          // RLIMIT_NOFILE
  std::uint64_t file_bytes = 0;          // RLIMIT_FSIZE
  std::uint64_t memory_watch_bytes = 0;  // the guest itself watches memory; zero: a cgroup does
  std::uint64_t disk_watch_bytes = 0;    // and the size of the workspace; zero: it has one
  std::uint32_t cpus = 0;                // how many processors it may use; zero: all
  std::uint64_t lease_ms = 0;            // the sandbox ends by itself after this; zero: never
  std::string_view workdir;
  StringList environment;
  StringList writable;            // the paths below which a command may write
  std::string_view guest_filter;  // sock_filter arrays
  std::string_view workload_filter;
  Captive captive;  // empty: nothing may leave the sandbox
};

void write_boot(Writer& writer, const Boot& boot);
bool parse_boot(std::string_view payload, Boot& boot);

// A guest that waits for its sandbox may be told the boot message ahead, too (kBootAhead, with its
// descriptors). It moves into the root that it has built and locks itself in, answers kReady, and
// can be no other from then on. Then come kRest, with nothing but texts of files that were
// replaced, and kBoot without descriptors, which is to have the same lock.

// Whether two messages agree in everything that the lock is made of. The rest comes to bear when
// the first command does: the limits of a process, the environment, the workload's filter.
bool has_same_lock(const Boot& one, const Boot& other);
// Whether they agree in everything that the first process of the workload is made of.
bool has_same_workload(const Boot& one, const Boot& other);

}  // namespace carrel::protocol
