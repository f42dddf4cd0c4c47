#include "guest/services.h"

#include <stdlib.h>
#include <string.h>

#include "guest/command.h"
#include "guest/loopback.h"
#include "guest/processes.h"
#include "guest/runtime.h"

namespace carrel::guest {

namespace {

using protocol::EndKind;
using protocol::ServiceState;

constexpr std::uint64_t kFirstPauseUs = 100'000;
constexpr std::uint64_t kLongestPauseUs = 10'000'000;
constexpr std::uint64_t kGoodLifeUs =
    10'000'000;  // after this long the next pause is the first again
constexpr std::uint64_t kFirstLookUs = 10'000;
constexpr std::uint64_t kLongestLookUs = 250'000;

char* copy_of(std::string_view text) {
  char* copy = static_cast<char*>(malloc(text.size() + 1));
  if (copy != nullptr) {
    memcpy(copy, text.data(), text.size());
    copy[text.size()] = '\0';
  }
  return copy;
}

Command* find(Guest& guest, std::uint64_t id) {
  for (Command& command : guest.commands) {
    if (command.state != CommandState::kFree && command.id == id) {
      return &command;
    }
  }
  return nullptr;
}

std::uint32_t index_of(const Guest& guest, const Command& command) {
  return static_cast<std::uint32_t>(&command - guest.commands.data());
}

void entitle(Command& command, const Service& service, std::string_view what) {
  Text<sizeof command.title> title;
  title.add(what).add(service.name);
  memcpy(command.title, title.c_str(), sizeof command.title);
}

// Starts a command for a service; its number, or 0 when there is no room for it.
std::uint64_t start(Guest& guest, const Service& service, std::string_view payload,
                    std::string_view what) {
  protocol::Start wanted;
  const std::uint32_t at = take_command(guest);
  if (at == kNone || !protocol::parse_start(payload, wanted)) {
    return 0;
  }
  Command& command = guest.commands[at];
  const std::uint64_t id = command.id;
  command.kind = wanted.kind;
  command.flags = wanted.flags;
  command.timeout_us = wanted.timeout_ms * 1000;
  command.service = true;
  entitle(command, service, what);
  start_exec(guest, at, wanted, payload);
  return id;
}

// Nobody needs the one before the last any more: its place is for others.
void forget(Guest& guest, std::uint64_t id) {
  if (Command* command = find(guest, id);
      command != nullptr && command->state == CommandState::kFinished && command->client == kNone) {
    free_command(guest, index_of(guest, *command));
  }
}

void begin(Guest& guest, Service& service, std::uint64_t now) {
  forget(guest, service.earlier);
  const std::uint64_t id = start(guest, service, {service.program, service.program_size}, "");
  if (id == 0) {
    service.next_us = now + kLongestLookUs;
    return;
  }
  if (Command* command = find(guest, id); command != nullptr) {
    command->deadline_us = 0;
  }
  service.earlier = service.command;
  service.command = id;
  service.runs = true;
  service.state = ServiceState::kStarting;
  service.began_us = now;
  service.next_us = now + kFirstLookUs;
  ++service.starts;
}

void on_end(Service& service, const Command* command, std::uint64_t now) {
  service.runs = false;
  service.state = ServiceState::kWaiting;
  service.ended = true;
  service.status = 255;
  if (command != nullptr) {
    const protocol::Exit& end = command->end;
    service.status = end.kind == EndKind::kNotStarted ? 127U
                     : end.signal != 0                ? 128U + end.signal
                                                      : end.code;
    // Its minder stays as long as something is left below it.
    if (command->minder > 1 && command->report >= 0) {
      end_descendants(command->minder, 0, 0);
    }
  }
  if (service.pause_us == 0 || now - service.began_us >= kGoodLifeUs) {
    service.pause_us = kFirstPauseUs;
  } else if (service.pause_us < kLongestPauseUs) {
    service.pause_us =
        service.pause_us * 2 < kLongestPauseUs ? service.pause_us * 2 : kLongestPauseUs;
  }
  service.next_us = now + service.pause_us;
}

void note_ready(Service& service, std::uint64_t now) {
  service.state = ServiceState::kReady;
  service.ready_us = now - service.began_us;
}

// Looks again after a part of the time that it has taken already.
void look_later(Service& service, std::uint64_t now) {
  const std::uint64_t part = (now - service.began_us) / 8;
  service.next_us = now + (part < kFirstLookUs     ? kFirstLookUs
                           : part > kLongestLookUs ? kLongestLookUs
                                                   : part);
}

void look_by_command(Guest& guest, Service& service, std::uint64_t now) {
  if (service.probing == 0) {
    if (now >= service.next_us) {
      service.probing =
          start(guest, service, {service.probe, service.probe_size}, "whether it is ready: ");
      look_later(service, now);
    }
    return;
  }
  const Command* command = find(guest, service.probing);
  if (command != nullptr && command->state != CommandState::kFinished) {
    return;
  }
  const bool ready =
      command != nullptr && command->end.kind == EndKind::kExited && command->end.code == 0;
  if (command != nullptr) {
    free_command(guest, index_of(guest, *command));
  }
  service.probing = 0;
  look_later(service, now);
  if (ready) {
    note_ready(service, now);
  }
}

void look_whether_ready(Guest& guest, Service& service, const Command& command, std::uint64_t now) {
  if (service.probe != nullptr) {
    look_by_command(guest, service, now);
  } else if (service.port == 0) {
    if (command.program != 0) {
      note_ready(service, now);
    }
  } else if (now >= service.next_us) {
    if (is_listening(service.port)) {
      note_ready(service, now);
    } else {
      look_later(service, now);
    }
  }
}

bool at_rest(const Guest& guest) {
  return guest.service_count == 0 || guest.freezer != kNone || guest.shutdown_deadline_us != 0;
}

}  // namespace

bool add_service(Guest& guest, std::string_view payload) {
  protocol::Service wanted;
  if (guest.one_shot() || guest.released || guest.service_count == protocol::kMaxServices ||
      !protocol::parse_service(payload, wanted)) {
    return false;
  }
  Service& service = guest.services[guest.service_count];
  memcpy(service.name, wanted.name.data(), wanted.name.size());
  service.port = wanted.port;
  service.program = copy_of(wanted.program);
  service.program_size = wanted.program.size();
  if (!wanted.probe.empty()) {
    service.probe = copy_of(wanted.probe);
    service.probe_size = wanted.probe.size();
  }
  if (service.program == nullptr || (!wanted.probe.empty() && service.probe == nullptr)) {
    return false;
  }
  ++guest.service_count;
  return true;
}

void tend_services(Guest& guest, std::uint64_t now) {
  if (at_rest(guest) || !guest.released) {
    return;
  }
  for (std::uint32_t i = 0; i < guest.service_count; ++i) {
    Service& service = guest.services[i];
    if (service.runs) {
      const Command* command = find(guest, service.command);
      if (command == nullptr || command->state != CommandState::kRunning) {
        on_end(service, command, now);
      } else if (service.state == ServiceState::kStarting) {
        look_whether_ready(guest, service, *command, now);
      }
    }
    if (!service.runs && now >= service.next_us) {
      begin(guest, service, now);
    }
  }
}

std::uint64_t service_deadline(const Guest& guest) {
  if (at_rest(guest) || !guest.released) {
    return 0;
  }
  std::uint64_t at = 0;
  for (std::uint32_t i = 0; i < guest.service_count; ++i) {
    const Service& service = guest.services[i];
    const bool looks = service.state == ServiceState::kStarting && service.probing == 0 &&
                       (service.port != 0 || service.probe != nullptr);
    if ((!service.runs || looks) && (at == 0 || service.next_us < at)) {
      at = service.next_us == 0 ? 1 : service.next_us;
    }
  }
  return at;
}

bool tell_services(Guest& guest, std::uint32_t client, std::uint32_t channel) {
  for (std::uint32_t i = 0; i < guest.service_count; ++i) {
    const Service& service = guest.services[i];
    protocol::ServiceRow row;
    row.name = service.name;
    row.state = service.starts == 0 ? ServiceState::kWaiting : service.state;
    row.starts = service.starts;
    row.command = service.command;
    row.ended = service.ended ? 1 : 0;
    row.status = service.status;
    row.ready_ms = service.ready_us / 1000;
    unsigned char buffer[128];
    protocol::Writer writer(buffer);
    protocol::write_service_row(writer, row);
    guest.clients[client].send(channel, protocol::FrameType::kServiceRow,
                               {reinterpret_cast<const char*>(buffer), writer.size()});
  }
  return guest.clients[client].send(channel, protocol::FrameType::kListEnd, {});
}

}  // namespace carrel::guest
