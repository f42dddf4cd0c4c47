#include "backends/native/guest_process.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "backends/native/id_ranges.h"
#include "backends/native/launch_child.h"
#include "base/files.h"
#include "base/unix_socket.h"
#include "guest/image.h"
#include "protocol/boot.h"

namespace carrel::native {

namespace {

Error clone_error(int reason) {
  std::string hint = "run 'carrel doctor'";
  if (reason == EPERM || reason == EACCES) {
    hint = "this host does not let you make user namespaces: run 'carrel doctor'";
  } else if (reason == ENOSPC || reason == EUSERS) {
    hint = "a limit of /proc/sys/user/max_*_namespaces is reached: run 'carrel doctor'";
  }
  return Error{Code::kUnsupported, reason, "Failed to create sandbox: cannot make its namespaces",
               hint};
}

// "Go" for the child: its ids are mapped, and this is the program that it becomes.
Status send_image(int socket, int image) {
  char byte = 'g';
  iovec data{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  auto* header = reinterpret_cast<cmsghdr*>(control.data());
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &image, sizeof image);
  if (::sendmsg(socket, &message, MSG_NOSIGNAL) != 1) {
    return system_error("start the sandbox's first process");
  }
  return {};
}

Error child_error(const ChildFailure& failure) {
  const char* step = "execute the guest";
  switch (failure.step) {
    case ChildStep::kPriority:
      step = "give up the real-time priority";
      break;
    case ChildStep::kMaps:
      step = "map its user id";
      break;
    case ChildStep::kIdentity:
      step = "take the sandbox's user id";
      break;
    case ChildStep::kDescriptors:
      step = "prepare the guest's descriptors";
      break;
    case ChildStep::kExecute:
      break;
  }
  return Error{Code::kUnsupported, failure.error_number,
               std::string("Failed to create sandbox: cannot ") + step, "run 'carrel doctor'"};
}

bool is_real_time() {
  const int policy = static_cast<int>(::syscall(SYS_sched_getscheduler, 0)) & ~SCHED_RESET_ON_FORK;
  return policy == SCHED_FIFO || policy == SCHED_RR || policy == SCHED_DEADLINE;
}

unsigned long long namespaces_of(Role role) {
  // A nursery makes the others for each of its children.
  return role == Role::kNursery
             ? CLONE_NEWUSER | CLONE_NEWNS
             : CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS;
}

}  // namespace

// What the child uses of its parent's memory.
struct ChildMemory {
  std::string uid_map;
  std::string gid_map;
  ChildPlan plan;
  ChildStack stack;
};

Status send_frame(int socket, protocol::FrameType type, std::string_view payload,
                  const std::vector<int>& descriptors) {
  std::array<unsigned char, protocol::kHeaderSize> head{};
  protocol::write_header({static_cast<std::uint32_t>(payload.size()), 0, type}, head);
  // All at once: whoever waits for it is woken once.
  std::string frame(reinterpret_cast<const char*>(head.data()), head.size());
  frame += payload;
  const ssize_t sent = send_with(socket, frame, descriptors, MSG_NOSIGNAL);
  if (sent <= 0) {
    return system_error("talk to the sandbox's guest");
  }
  return write_all(socket, std::string_view(frame).substr(static_cast<std::size_t>(sent)));
}

GuestProcess::GuestProcess() : memory_(std::make_unique<ChildMemory>()) {}

GuestProcess::GuestProcess(GuestProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)),
      adopted_(other.adopted_),
      pidfd_(std::move(other.pidfd_)),
      stream_(std::move(other.stream_)),
      report_(std::move(other.report_)),
      memory_(std::move(other.memory_)) {}

GuestProcess GuestProcess::adopt(pid_t pid, UniqueFd pidfd, UniqueFd stream) {
  GuestProcess process;
  process.memory_.reset();
  process.pid_ = pid;
  process.adopted_ = true;
  process.pidfd_ = std::move(pidfd);
  process.stream_ = std::move(stream);
  return process;
}

GuestProcess::~GuestProcess() {
  if (adopted_) {  // its number may be another process's
    if (pidfd_.valid()) {
      ::syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, 0);
    }
  } else if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

std::vector<int> numbers_of(const std::vector<UniqueFd>& descriptors) {
  std::vector<int> numbers;
  for (const UniqueFd& descriptor : descriptors) {
    numbers.push_back(descriptor.get());
  }
  return numbers;
}

Result<GuestProcess> GuestProcess::clone(Role role, int into) {
  GuestProcess process;
  std::array<int, 2> stream{};
  std::array<int, 2> report{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, stream.data()) != 0) {
    return system_error("make the sandbox's stream");
  }
  process.stream_.reset(stream[0]);
  UniqueFd guest_end(stream[1]);
  if (::pipe2(report.data(), O_CLOEXEC) != 0) {
    return system_error("make the sandbox's stream");
  }
  process.report_.reset(report[0]);
  UniqueFd report_write(report[1]);
  ChildMemory& memory = *process.memory_;
  ChildPlan& plan = memory.plan;
  plan.control = guest_end.get();
  plan.report = report_write.get();
  plan.drop_groups = ::geteuid() == 0;
  plan.id = kInnerId;
  if (::geteuid() != 0) {
    plan.uid_map = memory.uid_map = id_map(::geteuid());
    plan.gid_map = memory.gid_map = id_map(::getegid());
  } else if (role == Role::kNursery) {
    plan.id = kNurseryId;
    plan.changes_ids = true;
  }
  plan.real_time = is_real_time();
  CloneRequest request;
  request.flags = namespaces_of(role) | CLONE_CLEAR_SIGHAND;
  request.cgroup = into;
  const Cloned cloned = clone_guest(request, plan, memory.stack);
  if (cloned.pid < 0) {
    return clone_error(-cloned.pid);
  }
  process.pid_ = cloned.pid;
  process.pidfd_.reset(cloned.pidfd);
  // CRITICAL: it still waits for its program. Later, what it had forked would stay outside.
  if (into >= 0 && !cloned.in_group) {
    CARREL_TRY(write_value_at(into, "cgroup.procs", std::to_string(process.pid_)));
  }
  return process;
}

Status GuestProcess::map_ids(const std::string& map) const {
  const std::string process = "/proc/" + std::to_string(pid_);
  CARREL_ASSIGN(UniqueFd directory, open_at(AT_FDCWD, process, O_PATH | O_DIRECTORY));
  CARREL_TRY(write_value_at(directory.get(), "gid_map", map));
  return write_value_at(directory.get(), "uid_map", map);
}

Status GuestProcess::execute() const {
  CARREL_ASSIGN(UniqueFd image, guest::open_image());
  return send_image(stream_.get(), image.get());
}

Status GuestProcess::send(protocol::FrameType type, std::string_view payload,
                          const std::vector<int>& descriptors) const {
  return send_frame(stream_.get(), type, payload, descriptors);
}

Status GuestProcess::await(protocol::FrameType type, int longest_ms) const {
  pollfd wait{stream_.get(), POLLIN, 0};
  if (::poll(&wait, 1, longest_ms) != 1) {
    return Error{Code::kTimeout, 0, "the first process of a sandbox does not answer", {}};
  }
  std::array<unsigned char, protocol::kHeaderSize> head{};
  protocol::FrameHeader header;
  constexpr std::size_t kLargest = 64;
  if (::recv(stream_.get(), head.data(), head.size(), MSG_WAITALL) ==
          static_cast<ssize_t>(head.size()) &&
      protocol::parse_header(head, kLargest, header) && header.type == type) {
    std::string payload(header.size, '\0');
    if (::recv(stream_.get(), payload.data(), payload.size(), MSG_WAITALL) ==
        static_cast<ssize_t>(payload.size())) {
      return {};
    }
  }
  return Error{Code::kUnavailable, 0, "the first process of a sandbox could not go on", {}};
}

Status GuestProcess::settle(Status so_far) {
  if (adopted_) {
    return so_far;
  }
  if (!so_far.ok()) {
    stream_.reset();  // a child that still waits gives up
  }
  constexpr int kExecuteMs = 10'000;
  pollfd executed{report_.get(), POLLIN, 0};
  if (::poll(&executed, 1, kExecuteMs) == 0) {  // somebody on the host stopped it
    return Error{Code::kTimeout, 0, "Failed to create sandbox: its first process hangs", {}};
  }
  ChildFailure failure{};
  ssize_t told;
  do {
    told = ::read(report_.get(), &failure, sizeof failure);
  } while (told < 0 && errno == EINTR);
  return told == static_cast<ssize_t>(sizeof failure) ? Status(child_error(failure))
                                                      : std::move(so_far);
}

GuestProcess::Taken GuestProcess::take() {
  const pid_t pid = std::exchange(pid_, 0);
  return {pid, adopted_ ? 0 : pid, std::move(pidfd_), std::move(stream_)};
}

}  // namespace carrel::native
