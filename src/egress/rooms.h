#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "base/result.h"
#include "egress/loop.h"
#include "egress/registration.h"
#include "egress/room.h"
#include "storage/home.h"

namespace carrel::egress {

// The sandboxes that this process serves, by their registrations. One whose guest cannot be reached
// now is tried again until it is served or gone.
class Rooms {
 public:
  Rooms(storage::Home& home, Service& service) : home_(&home), service_(&service) {}

  // Begins to serve those that an earlier process served, all at once.
  void adopt();
  // Serves a sandbox as its registration says; one that is served already gets its new policy.
  Task<Status> attach(std::string id);
  // The same, but one that is served is left alone.
  Task<Status> ensure(std::string id);
  // The same for one that is new, with its sockets and a descriptor of its guest's process.
  Task<Status> begin(std::string id, UniqueFd guest, RoomSockets sockets);
  // Tries until it is served, or there is no such sandbox.
  void serve_later(const std::string& id) { spawn(keep_trying(id)); }
  // Null: it is not served.
  [[nodiscard]] std::shared_ptr<Room> find(const std::string& id) const;
  // Whether there is nobody to serve, and since when.
  [[nodiscard]] bool idle() const { return rooms_.empty() && trying_.empty(); }
  [[nodiscard]] Deadline last_used() const { return last_used_; }

 private:
  Task<Status> attach_alone(std::string id);
  // How the end of a guest is seen: its connection ends, its process is ready to be waited for, or
  // the porter of its machine says no more.
  enum class GuestLink { kConnection, kPidfd, kPorter };

  Task<Status> open(Registration registration);
  Task<Status> open_machine(Registration registration);
  Task<Status> serve(Registration registration, GuestLink link, std::shared_ptr<Watched> guest,
                     RoomSockets sockets);
  Status give_authority(Room& room);
  Task<void> keep_trying(std::string id);
  Task<void> watch(std::shared_ptr<Room> room, GuestLink link, std::shared_ptr<Watched> guest,
                   Registration registration);
  Task<void> clear_away(std::string id);

  storage::Home* home_;
  Service* service_;
  std::map<std::string, std::shared_ptr<Room>> rooms_;
  std::set<std::string> attaching_;
  std::set<std::string> trying_;
  Deadline last_used_ = Clock::now();
};

}  // namespace carrel::egress
