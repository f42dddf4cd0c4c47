#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "protocol/boot.h"

namespace carrel::oci {

// The process between Carrel and a runtime: an ordinary user's, or one of the sandbox's own id. In
// a user and a mount namespace of its own it lays out the bundle in memory, so that nothing of it
// is on a disk or left behind, has the runtime start the guest, and tells the guest's number. Where
// the kernel is gVisor's, a second process of it stays and is the room's first one.
struct PorchRequest {
  std::string stage;  // a directory of the host that it covers with its tmpfs
  std::string config;
  std::vector<std::string> data;
  std::string shared;  // the parts of the plan: what has to be in the root
  std::string alike;
  std::string own;
  std::vector<std::string> runtime;  // its path and arguments
  std::vector<std::string> covered;  // directories of the host that are empty for the runtime
  // What the mounts are that came as descriptors from kTrees on: kFile or kFolder.
  std::vector<std::string> trees;
  // For each of them: of which path of the host a mount is to be made, if the descriptor is not one
  // but only tells what the path has to be; empty: it is one.
  std::vector<std::string> meant;
  // Behind gVisor: where in the root the guest's program is put. Then the guest's stream is its
  // standard input, and it has no other descriptor.
  std::string program;
  std::string cpus;   // how many processors all of it may use; empty: as many as there are
  std::string stays;  // not empty: after the trees come the sockets of its porter
  // Behind gVisor, with a network: the three parts of what makes it a captive one. Then the last
  // descriptor is the socket at which the egress process asks for that network's sockets.
  std::vector<std::string> captive;
};
inline constexpr char kFile[] = "file";
inline constexpr char kFolder[] = "folder";

std::string encode_porch(const PorchRequest& request);
Result<PorchRequest> decode_porch(std::string_view text);

// The porch's descriptors beside the guest's two, which the runtime passes on.
enum PorchDescriptor : int { kControl = 3, kImage = 4, kRequest = 5, kTell = 6, kTrees = 7 };

// All of it, as the whole life of a process; its exit status.
int run_porch();

}  // namespace carrel::oci
