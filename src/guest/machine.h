#pragma once

#include <cstdint>
#include <string_view>

#include "guest/failure.h"
#include "protocol/outward.h"

// The first process of a machine of its own: root there, and nobody of the sandbox's. It loads the
// kernel's modules, mounts the root that the host shows as a block device, starts the guest in
// namespaces as on a host, and carries the connections to it over the machine's line, a serial port
// or a vsock. The machine ends with the guest.
namespace carrel::guest {

// The kernel's command line ends with it: what comes after "--" is the first process's.
inline constexpr char kMachineWord[] = "machine";
// A second one, where there is no serial port: the line is a connection to the host.
inline constexpr char kVsockWord[] = "vsock";
inline constexpr std::uint32_t kMachineCid = 3;      // the machine's number among those of its host
inline constexpr std::uint32_t kMachinePort = 1024;  // of the host, to which it connects
// A second one tells the first process that it was woken, and has the line by that number; the
// other one that not all modules could be loaded.
inline constexpr char kAwakeWord[] = "awake";
inline constexpr char kUnpreparedWord[] = "unprepared";
inline constexpr int kMachineLine = 5;

// What the host puts into the first file system, beside this program as "init".
inline constexpr char kMachineModules[] = "/modules";  // a line for each, in their order
// What the host says about the sandbox, in lines of these words. The first one: whether the guest
// has clients beside its maker.
inline constexpr char kTermListens[] = "listens";
inline constexpr char kTermOnce[] = "once";
// Then, where the sandbox has a network, its id.
inline constexpr char kTermNetwork[] = "network ";
// Then what each tree is that comes with a plan, in their order.
inline constexpr char kTermFolder[] = "folder";
inline constexpr char kTermFile[] = "file";

// `second` is the word after the first one; empty: there is none.
int run_machine(std::string_view second);

// The whole machine ends, and with it whoever runs it.
[[noreturn]] void power_off();

// Waits until the host wakes the machine, and begins anew then, with all that has to be this
// machine's own. Nothing that belongs to a sandbox is read before.
enum class Prepared { kYes, kNo };
[[noreturn]] void await_words(int line, Prepared prepared);

// Whether this guest is the one of a machine, which its first process tells by this name.
inline constexpr char kMachineGuest[] = "carrel-machine-guest";
inline bool in_machine = false;

// How often the machine's kernel has ended a process because there was no memory any more.
std::uint64_t count_kills(int vmstat);

// A tree of the host's: a file system whose requests go to the host.
struct SharedTree {
  enum class Kind { kFolder, kFile } kind = Kind::kFolder;
  int mount = -1;
  int connection = -1;  // where its requests come out and its answers go in
};
// Makes it, and a process that carries messages between the kernel and the connection.
bool share_tree(SharedTree& tree, Failure& failure);

// Starts a process that takes connections in the sandbox's captive network, and says when it has
// begun to; where what it takes comes out, or -1.
int start_switchboard(std::string_view id, Failure& failure);
struct HandedOver {
  char label[protocol::kOutwardSize];
  int fd = -1;  // -1: it has begun, and there is no label
};
// False: there is nothing at the moment.
bool take_outward(int switchboard, HandedOver& taken);

// Loads each module that is named. A module that the kernel has already is fine.
bool load_modules(Failure& failure);

}  // namespace carrel::guest
