#include "egress/rooms.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "egress/flow.h"
#include "egress/guest_sockets.h"
#include "egress/io.h"
#include "egress/self_test.h"
#include "egress/trust.h"

namespace carrel::egress {

namespace {

constexpr std::chrono::milliseconds kFirstPause{20};
constexpr std::chrono::milliseconds kLongestPause{2000};
constexpr std::chrono::seconds kOwnersTurn{2};
constexpr std::chrono::milliseconds kAfterwards{5};

}  // namespace

std::shared_ptr<Room> Rooms::find(const std::string& id) const {
  const auto found = rooms_.find(id);
  return found != rooms_.end() && !found->second->closed() ? found->second : nullptr;
}

void Rooms::adopt() {
  for (const std::string& id : registered_ids(*home_)) {
    spawn(keep_trying(id));
  }
}

Task<void> Rooms::keep_trying(std::string id) {
  if (!trying_.insert(id).second) {
    co_return;
  }
  auto pause = kFirstPause;
  for (;;) {
    const Status served = co_await ensure(id);
    if (served.ok()) {
      break;
    }
    const auto registration = read_registration(*home_, id);
    if (!registration.ok() && registration.error().code == Code::kNotFound) {
      break;
    }
    if (registration.ok() && !is_alive(registration.value())) {
      remove_registration(*home_, id);
      break;
    }
    co_await service_->loop.sleep(in(pause));
    pause = std::min(2 * pause, kLongestPause);
  }
  trying_.erase(id);
  last_used_ = Clock::now();
}

Task<Status> Rooms::attach(std::string id) {
  // A guest gives its sockets once: whoever comes second finds them taken.
  while (attaching_.contains(id)) {
    co_await service_->loop.sleep(in(std::chrono::milliseconds(1)));
  }
  attaching_.insert(id);
  const Status attached = co_await attach_alone(id);
  attaching_.erase(id);
  co_return attached;
}

Task<Status> Rooms::ensure(std::string id) {
  while (attaching_.contains(id)) {
    co_await service_->loop.sleep(in(std::chrono::milliseconds(1)));
  }
  if (find(id) != nullptr) {
    co_return Status();
  }
  const Status attached = co_await attach(id);
  co_return attached;
}

Task<Status> Rooms::attach_alone(std::string id) {
  auto registration = read_registration(*home_, id);
  if (!registration.ok()) {
    co_return registration.error();
  }
  if (const std::shared_ptr<Room> room = find(id)) {
    room->set_policy(std::move(registration->policy));
    co_return Status();
  }
  if (registration->way == Registration::Way::kPorter) {
    const Status met = co_await open_machine(std::move(registration.value()));
    co_return met;
  }
  const Status opened = co_await open(std::move(registration.value()));
  co_return opened;
}

Task<Status> Rooms::open_machine(Registration registration) {
  auto connection = connect_porter(*home_, registration);
  if (!connection.ok()) {
    co_return connection.error();
  }
  ::fcntl(connection->get(), F_SETFL, O_NONBLOCK);
  auto porter = std::make_shared<Watched>(service_->loop, std::move(connection.value()));
  const Status there = co_await await_machine(*porter);
  if (!there.ok()) {
    co_return there;
  }
  RoomSockets none;
  const Status served =
      co_await serve(std::move(registration), GuestLink::kPorter, porter, std::move(none));
  co_return served;
}

Task<Status> Rooms::open(Registration registration) {
  const std::string id = registration.id;
  auto connection = registration.way == Registration::Way::kPorch
                        ? connect_porter(*home_, registration)
                        : connect_guest(*home_, registration);
  if (!connection.ok()) {
    co_return connection.error();
  }
  ::fcntl(connection->get(), F_SETFL, O_NONBLOCK);
  auto guest = std::make_shared<Watched>(service_->loop, std::move(connection.value()));
  Result<RoomSockets> sockets = co_await take_sockets(*guest, id);
  if (!sockets.ok()) {
    co_return sockets.error();
  }
  const Status served = co_await serve(std::move(registration), GuestLink::kConnection, guest,
                                       std::move(sockets.value()));
  co_return served;
}

Task<Status> Rooms::begin(std::string id, UniqueFd guest, RoomSockets sockets) {
  auto registration = read_registration(*home_, id);
  if (!registration.ok()) {
    co_return registration.error();
  }
  while (attaching_.contains(id)) {
    co_await service_->loop.sleep(in(std::chrono::milliseconds(1)));
  }
  if (const std::shared_ptr<Room> before = find(id)) {  // of an attempt to make it that failed
    before->close();
  }
  attaching_.insert(id);
  auto process = std::make_shared<Watched>(service_->loop, std::move(guest));
  const Status served = co_await serve(std::move(registration.value()), GuestLink::kPidfd, process,
                                       std::move(sockets));
  attaching_.erase(id);
  co_return served;
}

Task<Status> Rooms::serve(Registration registration, GuestLink link, std::shared_ptr<Watched> guest,
                          RoomSockets sockets) {
  const std::string id = registration.id;
  auto directory = find_registration(*home_, id);
  if (!directory.ok()) {
    co_return directory.error();
  }
  auto names = SyntheticNames::open(directory->get());
  if (!names.ok()) {
    co_return names.error();
  }
  auto usage = KeptUsage::open(directory->get());
  if (!usage.ok()) {
    co_return usage.error();
  }
  auto room = std::make_shared<Room>(*service_, id, registration.policy, std::move(names.value()),
                                     std::move(usage.value()));
  if (has_trust(*home_, id)) {
    const Status trusted = give_authority(*room);
    if (!trusted.ok()) {
      co_return trusted;
    }
  }
  Probes probes{std::move(sockets[protocol::kDatagramProbe]),
                std::move(sockets[protocol::kStreamProbe])};
  room->open(std::move(sockets));
  // CRITICAL: no command runs in a sandbox whose network does not hold. Out of a machine there is
  // no other way than through the porter: what is not handed over here goes nowhere.
  if (room->is_new() && link == GuestLink::kPorter) {
    room->settle();
  } else if (room->is_new()) {
    const Tried tried = link == GuestLink::kPidfd ? Tried::kConnections : Tried::kNothing;
    const Status proven = co_await prove(*room, std::move(probes), tried);
    if (!proven.ok()) {
      room->close();
      co_return proven;
    }
    room->settle();
  }
  rooms_[id] = room;
  spawn(watch(room, link, guest, std::move(registration)));
  co_return Status();
}

// The certificate is in its place before anybody is served.
Status Rooms::give_authority(Room& room) {
  CARREL_ASSIGN(std::unique_ptr<TlsAuthority> authority, TlsAuthority::make());
  CARREL_ASSIGN(const std::string certificate, authority->certificate());
  CARREL_TRY(write_trust(*home_, room.id(), certificate));
  room.set_authority(std::move(authority));
  return {};
}

// CRITICAL: a socket that is held keeps a network alive that nobody is in.
Task<void> Rooms::watch(std::shared_ptr<Room> room, GuestLink link, std::shared_ptr<Watched> guest,
                        Registration registration) {
  if (link == GuestLink::kPidfd) {
    co_await guest->readable();
    // Whoever made it has the processors first, unless somebody else waits for the end.
    if (room->live() == 0) {
      co_await service_->loop.sleep(in(kAfterwards));
    }
  } else if (link == GuestLink::kPorter) {
    co_await take_flows(room, guest);
  } else {
    std::array<std::uint8_t, 256> ignored;
    std::ptrdiff_t n = 1;
    while (n > 0) {
      n = co_await read_some(*guest, ignored);
    }
  }
  room->close();
  if (const auto found = rooms_.find(room->id()); found != rooms_.end() && found->second == room) {
    rooms_.erase(found);
  }
  last_used_ = Clock::now();
  if (is_alive(registration)) {
    spawn(keep_trying(room->id()));
  } else if (registration.kind == Registration::Kind::kOneShot) {
    spawn(clear_away(room->id()));
  }
}

// Whoever made a one-shot sandbox removes its registration, if he lives.
Task<void> Rooms::clear_away(std::string id) {
  co_await service_->loop.sleep(in(kOwnersTurn));
  remove_registration(*home_, id);
}

}  // namespace carrel::egress
