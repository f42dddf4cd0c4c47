#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace carrel::microvm {

// The process between Carrel and a virtual machine: an ordinary user's, or one of the sandbox's own
// id. It makes namespaces of its own with an empty root, in which there is only what the VMM reads,
// and three or four processes in them, all without a capability and under a filter of system calls:
//  - the porter, first of their PID namespace: with it everything ends. It listens at the box's
//    socket and carries connections over the machine's line; to the host it is the sandbox;
//  - the VMM;
//  - the librarian, which shows files of the host to the machine as a block device, read-only;
//  - the clerk, where there are trees that the machine is given.
// Of a machine that goes on from a snapshot there is a spare VMM until it has begun.
struct HallRequest {
  std::string stage;                 // a directory of the host that is covered
  std::vector<std::string> vmm;      // its path and arguments
  std::vector<std::string> needed;   // what the VMM reads: paths of the host's files and folders
  std::vector<std::string> shown;    // what the machine sees, at the same paths
  std::vector<std::string> folders;  // empty folders in its root
  std::vector<std::string> trees;    // kReadOnlyTree, kWritableTree: descriptors from kTrees on
  // Where the host has each of them; empty: its descriptor is a mount of its own already.
  std::vector<std::string> sources;
  // What is hidden in them: the number of a tree, a colon, and a path from its top.
  std::vector<std::string> hidden;
  std::string terms;    // what the machine's first process is told: see guest/machine.h
  std::string listens;  // not empty: after the trees comes the socket of the box
  std::string network;  // the same of the socket for the egress process
  std::string boot_ms;  // how long the machine may take to begin
  std::string probes;   // not empty: nobody talks to it; it has to end by itself
  // kSavesSnapshot, kGoesOn: after all others comes the file of a snapshot. Empty: it boots.
  std::string snapshot;
  std::vector<std::string> spare;  // kGoesOn: the VMM that boots instead if that does not work
  std::string files;               // not empty: the VMM is supplied by files, see Supply
  std::string settings;            // what is in its file of settings; empty: it has none
};
// The machine has no sandbox. It is saved when it waits for its first words, and ended.
inline constexpr char kSavesSnapshot[] = "saves";
inline constexpr char kGoesOn[] = "goes on";
// What is said then among what went wrong.
inline constexpr char kNotRestored[] = "its snapshot could not be used, so the machine was booted";
inline constexpr char kReadOnlyTree[] = "read-only";
inline constexpr char kWritableTree[] = "writable";

std::string encode_hall(const HallRequest& request);
Result<HallRequest> decode_hall(std::string_view text);

// Its descriptors.
enum HallDescriptor : int {
  kRequest = 3,
  kTell = 4,    // where the porter's number is told
  kStream = 5,  // the maker's, as far as the porter
  kKernel = 6,  // files that the VMM loads
  kFirstFiles = 7,
  kTrees = 8,
};

// Where the VMM finds things in its root, and which descriptors it has.
inline constexpr char kKernelPlace[] = "/kernel";
inline constexpr char kFirstFilesPlace[] = "/first";
inline constexpr char kSettingsPlace[] = "/settings";
inline constexpr int kLineOfVmm = 3;
inline constexpr int kBlocksOfVmm = 4;
inline constexpr int kSnapshotOfVmm = 5;  // kGoesOn: what it reads; kSavesSnapshot: its monitor
// Supplied by files: the block device; and a socket, which the VMM makes for connections into the
// machine, of which there are none. When the machine connects to a port of its host, the VMM
// connects to the socket at that path with "_" and the port's number behind it.
inline constexpr char kDrivePlace[] = "/drive";
inline constexpr char kLineFolder[] = "/line";
inline constexpr char kLinePlace[] = "/line/vsock";

// All of it, as the whole life of a process; its exit status.
int run_hall();

}  // namespace carrel::microvm
