// The process that makes a machine only to save it.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

#include "backends/microvm/hall.h"
#include "backends/microvm/snapshots.h"
#include "base/files.h"
#include "kernel/program.h"
#include "sandbox/builder.h"

namespace carrel::microvm {

namespace {

// As root: one that no other process has, who could look at this one and change what it writes. It
// is among the ids of sandboxes, of whose ranges each uses the first only.
constexpr std::uint32_t kMakersId = 0x70000002;
constexpr std::size_t kLargestRequest = 1U << 20;
constexpr int kPolite = 5;                       // whoever waits for a machine comes first
constexpr rlim_t kLargestSnapshot = 1ULL << 30;  // of any file that is written

enum MakerDescriptor : int { kMakerRequest = 3, kMakerKernel = 4, kMakerFirstFiles = 5 };

struct MakerRequest {
  std::string home;
  std::string name;
  std::string about;
  std::string group;  // empty: none
  std::string hall;
};

std::string encode(const MakerRequest& request) {
  std::string text;
  for (const std::string* part : {&request.home, &request.name, &request.about, &request.group}) {
    text.append(part->c_str(), part->size() + 1);
  }
  return text + request.hall;
}

MakerRequest decode(std::string_view text) {
  MakerRequest request;
  for (std::string* part : {&request.home, &request.name, &request.about, &request.group}) {
    const std::size_t end = std::min(text.find('\0'), text.size());
    *part = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  request.hall = text;
  return request;
}

int await(pid_t child) {
  int status = 1;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) {
      return 1;
    }
  }
  return status;
}

// CRITICAL: in the jail of every machine, not as root, and as nobody else.
Status make(const MakerRequest& request, const UniqueFd& file) {
  const rlimit most{kLargestSnapshot, kLargestSnapshot};
  if (::setrlimit(RLIMIT_FSIZE, &most) != 0) {
    return system_error("limit the size of a snapshot");
  }
  (void)!::nice(kPolite);
  CARREL_ASSIGN(const UniqueFd asked, sandbox::memory_file(request.hall));
  CARREL_ASSIGN(const UniqueFd nothing, sandbox::memory_file({}));
  CARREL_ASSIGN(const UniqueFd complaints, sandbox::memory_file({}));
  kernel::ProgramRequest program;
  program.path = "/proc/self/exe";
  program.arguments = {"carrel", "hall"};
  program.descriptors = {asked.get(),  nothing.get(),    nothing.get(),
                         kMakerKernel, kMakerFirstFiles, file.get()};
  program.errors = complaints.get();
  if (::geteuid() == 0) {
    program.id = kMakersId;
    if (!request.group.empty()) {
      program.further_group = static_cast<std::uint32_t>(std::stoul(request.group));
    }
  }
  CARREL_ASSIGN(const kernel::Program hall, kernel::start_program(program));
  if (await(hall.pid) == 0) {
    return {};
  }
  return Error{Code::kUnavailable,
               0,
               "the virtual machine could not be saved: " + sandbox::read_line(complaints.get()),
               {}};
}

Status make_and_keep() {
  CARREL_ASSIGN(const std::string text, read_file_at(AT_FDCWD, "/proc/self/fd/3", kLargestRequest));
  const MakerRequest request = decode(text);
  CARREL_ASSIGN(const Snapshots snapshots, Snapshots::open(request.home));
  snapshots.sweep();
  CARREL_ASSIGN(const UniqueFd file, snapshots.begin(request.name));
  Status made = make(request, file);
  if (made.ok()) {
    made = snapshots.publish(request.name, file, request.about);
  }
  if (!made.ok()) {
    snapshots.give_up(request.name, made.error().to_string());
  }
  snapshots.sweep();
  return made;
}

}  // namespace

Status begin_saving(const Saving& saving, const Shape& shape) {
  HallRequest hall;
  hall.stage = "/tmp";
  hall.vmm = shape.saved_by->arguments;
  hall.needed = shape.saved_by->needed;
  hall.boot_ms = std::to_string(2 * saving.boot.count());
  hall.snapshot = kSavesSnapshot;
  CARREL_ASSIGN(const UniqueFd asked,
                sandbox::memory_file(
                    encode({saving.home, Snapshots::name_of(shape), Snapshots::about(shape),
                            shape.group.has_value() ? std::to_string(*shape.group) : std::string(),
                            encode_hall(hall)})));
  kernel::ProgramRequest program;
  program.path = "/proc/self/exe";
  program.arguments = {"carrel", "hall", "save"};
  program.descriptors = {asked.get(), saving.kernel_image, saving.first_files};
  CARREL_ASSIGN(const kernel::Program maker, kernel::start_program(program));
  (void)await(maker.pid);  // it leaves a child behind, at once
  return {};
}

int run_maker() {
  const pid_t child = ::fork();
  if (child != 0) {
    return child > 0 ? 0 : 1;
  }
  ::setsid();
  return make_and_keep().ok() ? 0 : 1;
}

}  // namespace carrel::microvm
