#include "guest/requests.h"

#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "guest/captive_requests.h"
#include "guest/command.h"
#include "guest/disk.h"
#include "guest/port.h"
#include "guest/runtime.h"
#include "guest/services.h"
#include "guest/shell.h"
#include "guest/standstill.h"

namespace carrel::guest {

namespace {

using protocol::FrameHeader;
using protocol::FrameType;
using protocol::Refusal;

std::uint32_t find(Guest& guest, std::uint32_t client, std::uint32_t channel) {
  for (std::uint32_t i = 0; i < kMaxCommands; ++i) {
    const Command& command = guest.commands[i];
    if (command.state != CommandState::kFree && command.client == client &&
        command.channel == channel) {
      return i;
    }
  }
  for (const Watcher& watcher : guest.watchers) {
    if (watcher.client == client && watcher.channel == channel) {
      return watcher.command;
    }
  }
  return kNone;
}

bool greet(Guest& guest, std::uint32_t index, std::uint32_t channel, protocol::Reader& reader) {
  std::uint32_t version = reader.u32();
  std::string_view id = reader.text(protocol::kIdSize);
  if (!reader.finished() || version != protocol::kVersion || id != guest.boot.id) {
    return false;
  }
  guest.clients[index].set_greeted();
  unsigned char buffer[64];
  protocol::Writer writer(buffer);
  writer.u32(protocol::kVersion);
  writer.bytes(guest.boot.id);
  return guest.clients[index].send(channel, FrameType::kWelcome,
                                   {reinterpret_cast<const char*>(buffer), writer.size()});
}

void entitle(Command& command, const protocol::Start& start) {
  std::string_view text =
      start.kind == protocol::StartKind::kShell ? start.text : start.arguments.data;
  constexpr std::size_t kMost = sizeof command.title - 1;
  std::size_t size = text.size() < kMost ? text.size() : kMost;
  for (std::size_t i = 0; i < size; ++i) {
    command.title[i] = text[i] == '\0' ? ' ' : text[i];
  }
}

bool tell_standstill(Guest& guest, std::uint32_t index, std::uint32_t channel, int result) {
  unsigned char buffer[4];
  protocol::Writer writer(buffer);
  writer.u32(static_cast<std::uint32_t>(-result));
  return guest.clients[index].send(channel, FrameType::kFrozen,
                                   {reinterpret_cast<const char*>(buffer), writer.size()});
}

bool tell_disk(Guest& guest, std::uint32_t index, std::uint32_t channel) {
  const DiskUse use = look_at_disk(guest, now_us());
  unsigned char buffer[16];
  protocol::Writer writer(buffer);
  writer.u64(use.used);
  writer.u64(use.most);
  return guest.clients[index].send(channel, FrameType::kDiskUse,
                                   {reinterpret_cast<const char*>(buffer), writer.size()});
}

// Whoever asks for the answer keeps his processor from the shell: if this process is there too, it
// goes to another, to which the shell follows it.
void leave_processor(int processor) {
  cpu_set_t all;
  if (processor < 0 || sched_getcpu() != processor || sched_getaffinity(0, sizeof all, &all) != 0) {
    return;
  }
  cpu_set_t others = all;
  CPU_CLR(static_cast<unsigned>(processor), &others);
  if (CPU_COUNT(&others) > 0 && sched_setaffinity(0, sizeof others, &others) == 0) {
    sched_setaffinity(0, sizeof all, &all);
  }
}

bool start(Guest& guest, std::uint32_t index, std::uint32_t channel, std::string_view payload) {
  protocol::Start start;
  if (!protocol::parse_start(payload, start) || find(guest, index, channel) != kNone ||
      start.kind == protocol::StartKind::kRelays) {
    return false;
  }
  if (start.kind == protocol::StartKind::kFiles && !may_have_worker(guest, index)) {
    return false;
  }
  if (guest.freezer == kPaused) {
    refuse(guest, index, channel, Refusal::kPaused, 0, "the sandbox is paused");
    return true;
  }
  std::uint32_t at = take_command(guest);
  if (at == kNone) {
    refuse(guest, index, channel, Refusal::kTooMany, 0, "too many commands are running");
    return true;
  }
  Command& command = guest.commands[at];
  command.kind = start.kind;
  command.flags = start.flags;
  command.client = index;
  command.channel = channel;
  command.timeout_us = start.timeout_ms * 1000;
  entitle(command, start);
  if (start.kind == protocol::StartKind::kExec) {
    start_exec(guest, at, start, payload);
    return true;
  }
  if (start.kind == protocol::StartKind::kFiles) {
    start_files(guest, at, payload);
    return true;
  }
  leave_processor(start.caller - 1);
  Refusal refusal = Refusal::kInternal;
  int error_number = 0;
  if (!start_in_shell(guest, at, start, refusal, error_number)) {
    free_command(guest, at);
    refuse(guest, index, channel, refusal, error_number,
           refusal == Refusal::kTooMany ? "too many shell sessions are open in this sandbox"
                                        : "no shell for this command");
  }
  return true;
}

// Where a follower begins in an output: at `wanted`, as far as that is kept and there.
std::uint64_t place_in(const Ring& ring, std::uint64_t wanted) {
  std::uint64_t from = wanted < ring.start() ? ring.start() : wanted;
  return from > ring.end() ? ring.end() : from;
}

Watcher* free_watcher(Guest& guest) {
  for (Watcher& watcher : guest.watchers) {
    if (watcher.client == kNone) {
      return &watcher;
    }
  }
  return nullptr;
}

// Tells a follower of a command that takes input how much of that there was; who is the only one to
// give any is told from then on what was taken.
void tell_input(Guest& guest, Command& command, std::uint32_t index, std::uint32_t channel) {
  if ((command.flags & protocol::kStartStdin) == 0) {
    return;
  }
  unsigned char buffer[8];
  protocol::Writer writer(buffer);
  writer.u64(command.input_taken + (command.pending_size - command.pending_start));
  guest.clients[index].send(channel, FrameType::kStdinTaken,
                            {reinterpret_cast<const char*>(buffer), writer.size()});
  if (command.giver == kNone) {
    command.giver = index;
    command.giver_channel = channel;
  }
}

bool follow(Guest& guest, std::uint32_t index, std::uint32_t channel, protocol::Reader& reader) {
  std::uint64_t id = reader.u64();
  std::uint64_t offsets[2];
  offsets[0] = reader.u64();
  offsets[1] = reader.u64();
  if (!reader.finished() || find(guest, index, channel) != kNone) {
    return false;
  }
  for (std::uint32_t i = 0; i < kMaxCommands; ++i) {
    Command& command = guest.commands[i];
    if (command.state == CommandState::kFree || command.id != id) {
      continue;
    }
    Watcher* watcher = command.client == kNone ? nullptr : free_watcher(guest);
    if (command.client != kNone && watcher == nullptr) {
      refuse(guest, index, channel, Refusal::kTooMany, 0, "too many clients follow commands");
      return true;
    }
    if (watcher != nullptr) {
      *watcher = {index, channel, i, {}};
    } else {
      command.client = index;
      command.channel = channel;
    }
    for (std::uint32_t which = 0; which < 2; ++which) {
      OutputStream& stream = command.output[which];
      std::uint64_t& cursor = watcher != nullptr ? watcher->cursor[which] : stream.cursor;
      cursor = place_in(stream.ring, offsets[which]);
    }
    tell_input(guest, command, index, channel);
    pump(guest, i);
    return true;
  }
  refuse(guest, index, channel, Refusal::kUnknown, 0, "no such command");
  return true;
}

bool list(Guest& guest, std::uint32_t index, std::uint32_t channel) {
  for (const Command& command : guest.commands) {
    if (command.state == CommandState::kFree || command.kind == protocol::StartKind::kFiles) {
      continue;
    }
    protocol::CommandRow row;
    row.id = command.id;
    row.running = command.state != CommandState::kFinished ? 1 : 0;
    row.kind = command.service ? protocol::StartKind::kService : command.kind;
    row.started_ms = command.started_wall_ms;
    row.stdout_start = command.output[0].ring.start();
    row.stdout_end = command.output[0].ring.end();
    row.stderr_start = command.output[1].ring.start();
    row.stderr_end = command.output[1].ring.end();
    row.title = command.title;
    unsigned char buffer[256];
    protocol::Writer writer(buffer);
    protocol::write_command_row(writer, row);
    guest.clients[index].send(channel, FrameType::kCommand,
                              {reinterpret_cast<const char*>(buffer), writer.size()});
  }
  return guest.clients[index].send(channel, FrameType::kListEnd, {});
}

// Everybody gets SIGTERM now and the end after the grace.
bool shut_down(Guest& guest, std::uint32_t grace_ms) {
  if (grace_ms > 60'000) {
    return false;
  }
  if (grace_ms == 0) {
    _exit(0);
  }
  // The helpers do not hear signals. The spawner leaves when nobody can ask it any more, and a
  // minder when nothing is left below it.
  kill(-1, SIGTERM);
  on_spawner_end(guest);
  guest.shutdown_deadline_us = now_us() + std::uint64_t{grace_ms} * 1000;
  return true;
}

bool take_for_command(Guest& guest, std::uint32_t index, const FrameHeader& header,
                      std::string_view payload, protocol::Reader& reader) {
  std::uint32_t at = find(guest, index, header.channel);
  if (at == kNone) {
    // It may have ended while the frame was on its way.
    return header.type >= FrameType::kStdin && header.type <= FrameType::kDetach;
  }
  Command& command = guest.commands[at];
  switch (header.type) {
    case FrameType::kStdin:
      command.giver = index;
      command.giver_channel = header.channel;
      return give_input(guest, at, payload);
    case FrameType::kStdinClose:
      close_input(guest, at);
      return payload.empty();
    case FrameType::kSignal: {
      std::uint32_t signal = reader.u32();
      if (!reader.finished() || signal == 0 || signal > 64) {
        return false;
      }
      if (command.state == CommandState::kRunning) {
        send_signal(command, static_cast<int>(signal));
      }
      return true;
    }
    case FrameType::kResize: {
      struct winsize size{};
      size.ws_row = reader.u16();
      size.ws_col = reader.u16();
      if (reader.finished() && command.output[0].fd >= 0) {
        ioctl(command.output[0].fd, TIOCSWINSZ, &size);
      }
      return reader.finished();
    }
    case FrameType::kKill:
      if (!forget_queued(guest, at, protocol::EndKind::kKilled) &&
          command.state == CommandState::kRunning) {
        end_command(guest, at, protocol::EndKind::kKilled);
      }
      return payload.empty();
    case FrameType::kDetach:
      stop_following(guest, index, header.channel);
      return payload.empty();
    default:
      return false;
  }
}

}  // namespace

bool may_have_worker(const Guest& guest, std::uint32_t index) {
  for (const Command& command : guest.commands) {
    if (command.state != CommandState::kFree && command.client == index) {
      return false;
    }
  }
  return !guest.one_shot() && (index != 0 || guest.released) && guest.clients[index].idle();
}

void refuse(Guest& guest, std::uint32_t index, std::uint32_t channel, Refusal refusal,
            int error_number, std::string_view text) {
  unsigned char buffer[protocol::kMaxReason + 64];
  protocol::Writer writer(buffer);
  writer.u32(static_cast<std::uint32_t>(refusal));
  writer.u32(static_cast<std::uint32_t>(error_number));
  writer.bytes(text);
  guest.clients[index].send(channel, FrameType::kRefused,
                            {reinterpret_cast<const char*>(buffer), writer.size()});
}

bool take_frame(Guest& guest, std::uint32_t index, const FrameHeader& header,
                std::string_view payload) {
  protocol::Reader reader({reinterpret_cast<const unsigned char*>(payload.data()), payload.size()});
  if (!guest.clients[index].greeted()) {
    return header.type == FrameType::kHello && greet(guest, index, header.channel, reader);
  }
  switch (header.type) {
    case FrameType::kStart:
      return start(guest, index, header.channel, payload);
    case FrameType::kFollow:
      return follow(guest, index, header.channel, reader);
    case FrameType::kList:
      return reader.finished() && list(guest, index, header.channel);
    case FrameType::kExtend: {
      std::uint64_t lease = reader.u64();
      if (!reader.finished() || lease > protocol::kMaxTimeoutMs) {
        return false;
      }
      guest.lease_deadline_us = lease == 0 ? 0 : now_us() + lease * 1000;
      return true;
    }
    case FrameType::kShutdown: {
      std::uint32_t grace = reader.u32();
      return reader.finished() && shut_down(guest, grace);
    }
    case FrameType::kFreeze:
      return reader.finished() &&
             tell_standstill(guest, index, header.channel, begin_standstill(guest, index));
    case FrameType::kPause: {
      auto how = static_cast<protocol::Standstill>(reader.u32());
      return reader.finished() &&
             tell_standstill(guest, index, header.channel, begin_pause(guest, how));
    }
    case FrameType::kResume:
      return reader.finished() && tell_standstill(guest, index, header.channel, end_pause(guest));
    case FrameType::kThaw:
      if (guest.freezer == index) {
        end_standstill(guest);
      }
      return reader.finished();
    case FrameType::kService:
      return index == 0 && add_service(guest, payload);
    case FrameType::kServices:
      return reader.finished() && tell_services(guest, index, header.channel);
    case FrameType::kDisk:
      return reader.finished() && tell_disk(guest, index, header.channel);
    case FrameType::kNetwork:
      return reader.finished() && hand_out_sockets(guest, index, header.channel);
    case FrameType::kConnect:
      return hand_out_connection(guest, index, header.channel, payload);
    case FrameType::kRelay:
      return relay_connection(guest, index, header.channel, payload);
    case FrameType::kDetach:
      if (index == 0 && header.channel == 0) {
        guest.released = true;
        return payload.empty();
      }
      return take_for_command(guest, index, header, payload, reader);
    default:
      return take_for_command(guest, index, header, payload, reader);
  }
}

}  // namespace carrel::guest
