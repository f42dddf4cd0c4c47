#include "backends/oci/room.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include "backends/oci/porch.h"
#include "kernel/program.h"
#include "sandbox/builder.h"

namespace carrel::oci {

namespace {

constexpr std::array kFolders = {"/usr/local/sbin/", "/usr/local/bin/", "/usr/sbin/",
                                 "/usr/bin/",        "/sbin/",          "/bin/"};
constexpr int kStartMs = 10'000;

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

// Directories of the host that are covered for the runtime: nothing that it needs is below them.
Result<std::vector<std::string>> find_stages(const sandbox::RoomRequest& request) {
  std::vector<std::string> needed;
  for (const sandbox::RoomRequest::Tree& tree : request.trees) {
    needed.push_back(tree.path);
  }
  for (const std::string_view part : {request.plan.shared, request.plan.own}) {
    protocol::PlanReader steps(part);
    for (protocol::MountStep step; steps.next(step);) {
      if (step.kind == protocol::StepKind::kBind || step.kind == protocol::StepKind::kOverlay) {
        needed.emplace_back(step.source);
      }
    }
  }
  std::vector<std::string> stages;
  for (const std::string candidate : {"/mnt", "/media", "/srv", "/opt", "/home", "/var", "/tmp"}) {
    struct stat info{};
    const bool free = std::none_of(needed.begin(), needed.end(), [&](const std::string& path) {
      return (path + "/").starts_with(candidate + "/");
    });
    if (free && ::lstat(candidate.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
      stages.push_back(candidate);
    }
  }
  constexpr std::size_t kNeeded = 2;
  if (stages.size() < kNeeded) {
    return unsupported("there is no directory such as /mnt that a runtime's bundle can cover", {});
  }
  return stages;
}

// A room on its way, with what it takes until the runtime has started the guest.
class Start {
 public:
  Start(const sandbox::RoomRequest& request, const Builder& builder)
      : request_(request), builder_(builder) {}

  Result<sandbox::RoomStarted> run() {
    CARREL_ASSIGN(const std::vector<std::string> stages, find_stages(request_));
    program_.staging = stages[1];
    places_.stage = stages[0];
    place_trees();
    CARREL_TRY(write_request());
    return start();
  }

 private:
  void place_trees() {
    for (const sandbox::RoomRequest::Tree& tree : request_.trees) {
      const bool file = tree.kind == sandbox::RoomRequest::Tree::Kind::kFile;
      const bool gvisor = builder_.dialect == Dialect::kGvisors;
      if (tree.mount < 0 && !gvisor) {  // the guest compares what is there with what is meant
        places_.sources.push_back(tree.path);
      } else if (tree.mount >= 0 && request_.host_id.has_value()) {
        using Kind = kernel::ProgramRequest::PlacedMount::Kind;
        places_.sources.push_back(kernel::place_of_mount(program_, program_.mounts.size()));
        program_.mounts.push_back({tree.mount, file ? Kind::kFile : Kind::kFolder});
      } else {  // only the porch can mount
        places_.sources.push_back(places_.tree(trees_.size()));
        trees_.push_back(tree.mount < 0 ? tree.source : tree.mount);
        porch_.trees.emplace_back(file ? kFile : kFolder);
        porch_.meant.push_back(tree.mount < 0 ? tree.path : std::string());
      }
    }
  }

  Status write_request() {
    CARREL_ASSIGN(Bundle bundle, bundle_for(request_, places_, exists, builder_.dialect));
    porch_.stage = places_.stage;
    porch_.config = std::move(bundle.config);
    porch_.program = std::move(bundle.program);
    porch_.data = std::move(bundle.data);
    porch_.covered = builder_.covered;
    porch_.shared = request_.plan.shared;
    porch_.alike = request_.plan.alike;
    porch_.own = request_.plan.own;
    porch_.cpus = request_.cpus == 0 ? "" : std::to_string(request_.cpus);
    porch_.stays = request_.listener >= 0 ? "stays" : "";
    if (request_.network >= 0 && builder_.dialect == Dialect::kGvisors) {
      porch_.captive = {std::string(request_.captive.routes), std::string(request_.captive.routes6),
                        std::string(request_.captive.rules)};
    }
    porch_.runtime = builder_.command(builder_.runtime, places_, builder_.ways);
    CARREL_ASSIGN(asked_, sandbox::memory_file(encode_porch(porch_)));
    return {};
  }

  // The guest's end of the door, where somebody listens for it.
  Status open_door(UniqueFd& guests) {
    std::array<int, 2> ends{};
    if (request_.listener < 0) {
      return {};
    }
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
      return system_error("make the sandbox's door");
    }
    door_.reset(ends[0]);
    guests.reset(ends[1]);
    return {};
  }

  Result<sandbox::RoomStarted> start() {
    sandbox::RoomStarted room;
    CARREL_ASSIGN(UniqueFd complaints, sandbox::memory_file({}));
    CARREL_TRY(open_door(room.door));
    int ends[2] = {-1, -1};
    if (::pipe2(&ends[0], O_CLOEXEC) != 0) {
      return system_error("make a pipe");
    }
    const UniqueFd told(ends[0]);
    UniqueFd tell(ends[1]);
    program_.path = "/proc/self/exe";
    program_.arguments = {"carrel", "porch"};
    program_.descriptors = {request_.control, request_.image, asked_.get(), tell.get()};
    program_.descriptors.insert(program_.descriptors.end(), trees_.begin(), trees_.end());
    if (door_.valid()) {
      program_.descriptors.insert(program_.descriptors.end(), {request_.listener, door_.get()});
    }
    if (!porch_.captive.empty()) {
      program_.descriptors.push_back(request_.network);
    }
    program_.errors = complaints.get();
    program_.group = request_.group;
    program_.join = request_.join;
    program_.id = request_.host_id;
    CARREL_ASSIGN(const kernel::Program started, kernel::start_program(program_));
    tell.reset();
    door_.reset();
    sandbox::FirstProcess first = sandbox::await_first_process(told.get(), kStartMs);
    room.guest = first.pid;
    room.guest_process = std::move(first.process);
    const bool begun = room.guest_process.valid();
    if (!begun) {
      ::kill(started.pid, SIGKILL);
    }
    while (::waitpid(started.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    if (!begun) {
      const std::string why = sandbox::read_line(complaints.get());
      return unsupported("Failed to create sandbox: " + builder_.runtime.name + ": " +
                             (why.empty() ? std::string("it did not answer") : why),
                         "run 'carrel doctor'");
    }
    room.complaints = std::move(complaints);
    return room;
  }

  const sandbox::RoomRequest& request_;
  const Builder& builder_;
  kernel::ProgramRequest program_;
  Places places_;
  PorchRequest porch_;
  std::vector<int> trees_;
  UniqueFd asked_;
  UniqueFd door_;  // the porter's end
};

}  // namespace

std::optional<Runtime> runtime_named(const std::string& name) {
  for (const char* folder : kFolders) {
    if (std::string path = folder + name; ::access(path.c_str(), X_OK) == 0) {
      return Runtime{name, std::move(path)};
    }
  }
  return std::nullopt;
}

Error not_installed(const std::string& name) {
  return unsupported("the runtime '" + name + "' is not installed",
                     "install the package '" + name + "'");
}

Result<sandbox::RoomStarted> start_room(const sandbox::RoomRequest& request,
                                        const Builder& builder) {
  return Start(request, builder).run();
}

}  // namespace carrel::oci
