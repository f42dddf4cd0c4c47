#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

// What a machine boots: a kernel of the host's files, and a first file system that is made for it.
namespace carrel::microvm {

struct BootKernel {
  std::string path;
  std::string release;  // "6.1.0-54-cloud-amd64"
  std::string modules;  // the folder with its modules; empty: there is none
};

inline constexpr std::size_t kLargestKernel = 256U << 20;

// The operator's choice: CARREL_VM_KERNEL; empty: none.
std::string usual_kernel();

// The kernel of that path or, without one, the newest of Debian's for clouds that is installed.
// kUnsupported: there is none, or the file is no kernel.
Result<BootKernel> find_kernel(const std::string& path);

// What a machine has that not every one has.
struct MachineParts {
  // Whether the guest will have clients beside its maker.
  enum class Clients { kNone, kListens } clients = Clients::kNone;
  std::string network;  // of a sandbox that has one: its id
  // What each of its trees is, by their numbers.
  enum class Tree { kFolder, kFile };
  std::vector<Tree> trees;
  // By what its first process reaches the host.
  enum class Line { kPort, kVsock } line = Line::kPort;
};

// The paths of the modules that a machine needs, in the order in which they can be loaded, for
// read_module(). What the kernel has built in is left out. kUnsupported: one is missing or damaged.
Result<std::vector<std::string>> modules_of(const BootKernel& kernel, const MachineParts& parts);

struct ArchiveFile {
  std::string path;  // without a slash at its beginning
  std::string content;
  unsigned mode = 0644;
};
// An archive as the kernel unpacks it into its first file system (cpio, "newc").
std::string make_archive(const std::vector<ArchiveFile>& files);

// What the machine's first process is told: see guest/machine.h.
std::string terms_of(const MachineParts& parts);

// What any machine could have, of which a snapshot has the modules.
MachineParts every_part();

// The whole first file system: the guest's program as "init", the modules and their order. Nothing
// in it belongs to a sandbox but which modules there are.
Result<UniqueFd> make_first_files(const BootKernel& kernel, int program, const MachineParts& parts);

}  // namespace carrel::microvm
