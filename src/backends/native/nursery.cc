#include "backends/native/nursery.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "backends/native/circumstances.h"
#include "backends/native/guest_process.h"
#include "backends/native/id_ranges.h"
#include "base/files.h"
#include "base/unix_socket.h"
#include "protocol/boot.h"

namespace carrel::native {

namespace {

constexpr int kAnswerMs = 5000;
constexpr char kSocketName[] = "nursery";

template <typename Message, typename Write>
std::string encode(const Message& message, std::size_t size, Write write) {
  std::string payload(size + 64, '\0');
  protocol::Writer writer({reinterpret_cast<unsigned char*>(payload.data()), payload.size()});
  write(writer, message);
  payload.resize(writer.size());
  return payload;
}

// What has to be the same, beside the plan, for a process from a nursery to be like one's own;
// nothing where that cannot be told.
std::optional<std::string> terms_of(const MountPlan& plan) {
  auto here = circumstances();
  if (plan.nursing != MountPlan::Nursing::kPossible || !here.has_value()) {
    return std::nullopt;
  }
  return plan.sources + *here;
}

std::string kind_of(const MountPlan& plan, const std::string& terms) {
  return plan.shared + plan.alike + terms;
}

// The new process, whose stream this is, or why there is none.
Result<LentProcess> receive_spawned(UniqueFd stream) {
  std::array<char, protocol::kHeaderSize + protocol::kSpawnedSize> bytes{};
  pollfd wait{stream.get(), POLLIN, 0};
  if (::poll(&wait, 1, kAnswerMs) != 1) {
    return Error{Code::kTimeout, 0, "the nursery does not answer", {}};
  }
  std::vector<UniqueFd> descriptors;
  const ssize_t n = receive_with(stream.get(), bytes, descriptors, MSG_WAITALL);
  protocol::FrameHeader header;
  protocol::Spawned spawned;
  const auto* head = reinterpret_cast<const unsigned char*>(bytes.data());
  if (n != static_cast<ssize_t>(bytes.size()) ||
      !protocol::parse_header(
          std::span<const unsigned char, protocol::kHeaderSize>(head, protocol::kHeaderSize),
          protocol::kSpawnedSize, header) ||
      header.type != protocol::FrameType::kSpawned ||
      !protocol::parse_spawned({bytes.data() + protocol::kHeaderSize, protocol::kSpawnedSize},
                               spawned)) {
    return Error{Code::kGone, 0, "the nursery ended", {}};
  }
  if (spawned.error != 0 || descriptors.empty()) {
    return Error{
        Code::kUnavailable, static_cast<int>(spawned.error), "the nursery made no process", {}};
  }
  LentProcess process;
  process.pidfd = std::move(descriptors.front());
  process.stream = std::move(stream);
  descriptors.erase(descriptors.begin());
  process.network = {std::move(descriptors), spawned.present};
  return process;
}

std::size_t size_of(const protocol::Captive& captive) {
  return captive.routes.size() + captive.routes6.size() + captive.rules.size();
}

Result<Loan> send_request(int socket, const Wanted& wanted, const std::string& terms) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return system_error("make the sandbox's stream");
  }
  Loan loan{UniqueFd(ends[0])};
  UniqueFd guest_end(ends[1]);
  protocol::Spawn spawn;
  spawn.shared = wanted.plan.shared;
  spawn.alike = wanted.plan.alike;
  spawn.terms = terms;
  spawn.own = wanted.plan.own;
  if (wanted.id_range.has_value()) {
    spawn.uid = spawn.gid = id_in_nursery(*wanted.id_range);
  }
  spawn.captive = wanted.captive;
  std::vector<int> descriptors = {guest_end.get()};
  if (wanted.into >= 0) {
    descriptors.push_back(wanted.into);
  }
  const std::string payload = encode(spawn,
                                     spawn.shared.size() + spawn.alike.size() + spawn.terms.size() +
                                         spawn.own.size() + size_of(spawn.captive),
                                     protocol::write_spawn);
  CARREL_TRY(send_frame(socket, protocol::FrameType::kSpawn, payload, descriptors));
  return loan;
}

}  // namespace

Result<LentProcess> Loan::take() { return receive_spawned(std::move(stream_)); }

Result<Nursery> Nursery::start(const MountPlan& plan, UniqueFd listener) {
  const auto terms = terms_of(plan);
  if (!terms.has_value()) {
    return Error{Code::kUnsupported, 0, "no nursery can be had for this kind of sandbox", {}};
  }
  CARREL_ASSIGN(GuestProcess process, GuestProcess::clone(Role::kNursery, -1));
  auto tell = [&]() -> Status {
    if (::geteuid() == 0) {
      CARREL_TRY(process.map_ids(nursery_id_map()));
    }
    CARREL_TRY(process.execute());
    const kernel::CaptiveNetwork captive = kernel::captive_network();
    const protocol::Nursery nursery{plan.staging, plan.shared, plan.alike, *terms,
                                    messages_of(captive)};
    const std::string payload =
        encode(nursery,
               plan.staging.size() + plan.shared.size() + plan.alike.size() + terms->size() +
                   size_of(nursery.captive),
               protocol::write_nursery);
    std::vector<int> descriptors;
    if (listener.valid()) {
      descriptors.push_back(listener.get());
    }
    return process.send(protocol::FrameType::kNursery, payload, descriptors);
  };
  CARREL_TRY(process.settle(tell()));
  GuestProcess::Taken taken = process.take();
  Nursery nursery;
  nursery.pid_ = taken.child;
  nursery.pidfd_ = std::move(taken.pidfd);
  nursery.stream_ = std::move(taken.stream);
  nursery.kind_ = kind_of(plan, *terms);
  return nursery;
}

Nursery::Nursery(Nursery&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)),
      pidfd_(std::move(other.pidfd_)),
      stream_(std::move(other.stream_)),
      kind_(std::move(other.kind_)) {}

Nursery::~Nursery() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

bool Nursery::fits(const MountPlan& plan) const {
  const auto terms = terms_of(plan);
  return terms.has_value() && kind_of(plan, *terms) == kind_;
}

Result<Loan> Nursery::ask(const Wanted& wanted, const std::string& terms) {
  return send_request(stream_.get(), wanted, terms);
}

std::optional<Loan> OwnNursery::ask(const Wanted& wanted) {
  const auto terms = terms_of(wanted.plan);
  if (!terms.has_value()) {
    return std::nullopt;
  }
  std::string kind = kind_of(wanted.plan, *terms);
  const std::lock_guard lock(mutex_);
  if (!nursery_.has_value() || nursery_->kind() != kind) {
    if (kind != last_kind_) {
      last_kind_ = std::move(kind);
      return std::nullopt;
    }
    last_kind_.clear();
    auto started = Nursery::start(wanted.plan, UniqueFd());
    if (!started.ok()) {
      return std::nullopt;
    }
    nursery_.emplace(std::move(started.value()));
  }
  auto loan = nursery_->ask(wanted, *terms);
  if (!loan.ok()) {
    nursery_.reset();
    return std::nullopt;
  }
  return std::move(loan.value());
}

bool KeepersNursery::is_there() {
  auto run = open_at(home_->directory(), "run", O_PATH | O_DIRECTORY);
  socket_.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!run.ok() || !socket_.valid()) {
    return false;
  }
  const sockaddr_un address = socket_address(run.value().get(), kSocketName);
  missed_ =
      ::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0;
  return !missed_;
}

std::optional<Loan> KeepersNursery::ask(const Wanted& wanted) {
  const auto terms = terms_of(wanted.plan);
  if (!terms.has_value()) {
    return std::nullopt;
  }
  auto loan = send_request(socket_.get(), wanted, *terms);
  socket_.reset();
  if (!loan.ok()) {
    return std::nullopt;
  }
  return std::move(loan.value());
}

void unlink_nursery(int run) { ::unlinkat(run, kSocketName, 0); }

Result<UniqueFd> listen_for_nursery(int run) {
  unlink_nursery(run);
  UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const sockaddr_un address = socket_address(run, kSocketName);
  if (!listener.valid() ||
      ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener.get(), 128) != 0) {
    return system_error("bind the nursery's socket");
  }
  return listener;
}

}  // namespace carrel::native
