#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "guest/command.h"

namespace carrel::guest {

namespace {

using protocol::FrameType;

constexpr std::size_t kPiece = 32U << 10;
// A pipe is looked at again only after news: so one that has lost its last writer is quiet.
constexpr std::uint32_t kNews = EPOLLIN | EPOLLET;

std::uint32_t output_index(std::uint32_t command, std::uint32_t stream) {
  return command * 2 + stream;
}

// How much can be read without pushing bytes out of the ring that somebody still wants.
std::size_t room_for(const Guest& guest, std::uint32_t index, std::uint32_t which) {
  const Command& command = guest.commands[index];
  const OutputStream& stream = command.output[which];
  if (command.state == CommandState::kFinished) {
    return Ring::kCapacity;
  }
  std::uint64_t keep = stream.ring.end();
  if (command.client != kNone) {
    keep = stream.cursor;
  }
  for (const Watcher& watcher : guest.watchers) {
    if (watcher.command == index && watcher.cursor[which] < keep) {
      keep = watcher.cursor[which];
    }
  }
  return stream.ring.room(keep);
}

// Whether the stream is a fifo whose only writer may just not have opened it yet.
bool can_gain_a_writer(const Command& command) {
  return command.shell != kNone && command.state == CommandState::kRunning;
}

// What is there counts as news again.
void look_again(const Guest& guest, const OutputStream& stream, std::uint32_t index,
                std::uint32_t which) {
  if (stream.fd >= 0 && stream.watched) {
    guest.poller.change(stream.fd, kNews, Source::kOutput, output_index(index, which));
  }
}

void drain(Guest& guest, std::uint32_t index, std::uint32_t which) {
  OutputStream& stream = guest.commands[index].output[which];
  while (stream.drain > 0) {
    Got got = read_output(guest, index, which);
    if (got == Got::kNoRoom) {
      return;
    }
    if (got != Got::kData && got != Got::kShort) {
      stream.drain = 0;
    }
    if (got == Got::kEnd) {
      guest.poller.close(stream.fd);
    }
  }
}

bool drained(const Command& command) {
  return command.output[0].drain == 0 && command.output[1].drain == 0;
}

// Sends from `cursor` on what the client has room for; whether it was anything.
bool send_output(Client& client, std::uint32_t channel, const Ring& ring, std::uint64_t& cursor,
                 std::uint32_t which) {
  bool any = false;
  while (cursor < ring.end()) {
    if (cursor < ring.start()) {
      cursor = ring.start();
    }
    unsigned char head[9];
    protocol::Writer writer(head);
    writer.u8(static_cast<std::uint8_t>(which + 1));
    writer.u64(cursor);
    std::string_view piece = ring.from(cursor, kPiece);
    if (!client.send(channel, FrameType::kOutput,
                     {reinterpret_cast<const char*>(head), sizeof head}, piece)) {
      return any;
    }
    cursor += piece.size();
    any = true;
  }
  return any;
}

// One of the outputs, to everybody who follows it.
bool send_to_all(Guest& guest, std::uint32_t index, std::uint32_t which) {
  Command& command = guest.commands[index];
  OutputStream& stream = command.output[which];
  bool any = command.client != kNone && send_output(guest.clients[command.client], command.channel,
                                                    stream.ring, stream.cursor, which);
  for (Watcher& watcher : guest.watchers) {
    if (watcher.command == index && send_output(guest.clients[watcher.client], watcher.channel,
                                                stream.ring, watcher.cursor[which], which)) {
      any = true;
    }
  }
  return any;
}

void send_end(Guest& guest, std::uint32_t index, std::uint32_t client, std::uint32_t channel) {
  Command& command = guest.commands[index];
  command.end.stdout_bytes = command.output[0].ring.end();
  command.end.stderr_bytes = command.output[1].ring.end();
  command.end.cwd = command.cwd == nullptr ? std::string_view() : std::string_view(command.cwd);
  unsigned char buffer[protocol::kMaxPath + 128];
  protocol::Writer writer(buffer);
  protocol::write_exit(writer, command.end);
  guest.clients[client].send(channel, FrameType::kExit,
                             {reinterpret_cast<const char*>(buffer), writer.size()});
}

// Tells the end to everybody who has got everything before it.
void send_ends(Guest& guest, std::uint32_t index) {
  Command& command = guest.commands[index];
  const std::uint64_t ends[2] = {command.output[0].ring.end(), command.output[1].ring.end()};
  for (Watcher& watcher : guest.watchers) {
    if (watcher.command == index && watcher.cursor[0] == ends[0] && watcher.cursor[1] == ends[1]) {
      send_end(guest, index, watcher.client, watcher.channel);
      watcher = Watcher();
    }
  }
  if (command.client == kNone || command.output[0].cursor != ends[0] ||
      command.output[1].cursor != ends[1]) {
    return;
  }
  send_end(guest, index, command.client, command.channel);
  command.follow_sent = true;
  command.client = kNone;
  if (command.shell != kNone) {
    guest.answered_us = command.started_us + command.end.duration_us;
  }
}

void tell_input_taken(Guest& guest, const Command& command) {
  if (command.giver == kNone) {
    return;
  }
  unsigned char buffer[8];
  protocol::Writer writer(buffer);
  writer.u64(command.input_taken);
  guest.clients[command.giver].send(command.giver_channel, FrameType::kStdinTaken,
                                    {reinterpret_cast<const char*>(buffer), writer.size()});
}

}  // namespace

void set_output(Guest& guest, std::uint32_t index, std::uint32_t which, int fd) {
  OutputStream& stream = guest.commands[index].output[which];
  stream.fd = fd;
  stream.watched = false;
  stream.held = false;
  stream.resting = false;
}

void watch_output(Guest& guest, std::uint32_t index, std::uint32_t which) {
  OutputStream& stream = guest.commands[index].output[which];
  if (stream.fd >= 0 && !stream.watched) {
    stream.watched = true;
    stream.resting = false;
    guest.poller.add(stream.fd, kNews, Source::kOutput, output_index(index, which));
  }
}

Got read_output(Guest& guest, std::uint32_t index, std::uint32_t which) {
  Command& command = guest.commands[index];
  OutputStream& stream = command.output[which];
  if (stream.fd < 0) {
    return Got::kNothing;
  }
  std::size_t room = room_for(guest, index, which);
  if (room == 0) {
    stream.held = true;
    return Got::kNoRoom;
  }
  // Most outputs are empty or short, and need no ring: few bytes come by way of this.
  static char few[Ring::kFew];
  bool is_short = stream.ring.is_short();
  std::size_t size = sizeof few < room ? sizeof few : room;
  char* place = is_short ? few : stream.ring.place(room, size);
  if (place == nullptr) {
    return Got::kEnd;
  }
  ssize_t n = read(stream.fd, place, size);
  if (n > 0) {
    std::size_t got = static_cast<std::size_t>(n);
    if (!is_short) {
      stream.ring.added(got);
    } else if (!stream.ring.add({few, got})) {
      return Got::kEnd;
    }
    stream.drain -= got < stream.drain ? got : stream.drain;
    return got < size ? Got::kShort : Got::kData;
  }
  // A terminal whose program is gone answers EIO.
  return n == 0 || (errno != EAGAIN && errno != EINTR) ? Got::kEnd : Got::kNothing;
}

void on_output(Guest& guest, std::uint32_t index, std::uint32_t which) {
  // A bounded number of reads, so that a flood does not keep others waiting.
  Got got = Got::kData;
  for (int i = 0; i < 8 && (got == Got::kData || got == Got::kShort); ++i) {
    got = read_output(guest, index, which);
  }
  Command& command = guest.commands[index];
  if (got == Got::kData || got == Got::kShort) {
    look_again(guest, command.output[which], index, which);
  } else if (got == Got::kEnd && !can_gain_a_writer(command)) {
    command.output[which].drain = 0;
    guest.poller.close(command.output[which].fd);
  }
  pump(guest, index);
}

void release_outputs(Guest& guest, std::uint32_t index) {
  for (std::uint32_t which = 0; which < 2; ++which) {
    OutputStream& stream = guest.commands[index].output[which];
    if (stream.held) {
      stream.held = false;
      look_again(guest, stream, index, which);
    }
  }
}

bool follows(const Guest& guest, std::uint32_t client, std::uint32_t index) {
  for (const Watcher& watcher : guest.watchers) {
    if (watcher.client == client && watcher.command == index) {
      return true;
    }
  }
  return guest.commands[index].client == client;
}

void stop_following(Guest& guest, std::uint32_t client, std::uint32_t channel) {
  for (std::uint32_t i = 0; i < kMaxCommands; ++i) {
    Command& command = guest.commands[i];
    bool left = false;
    if (command.client == client && (channel == kEveryChannel || command.channel == channel)) {
      command.client = kNone;
      left = true;
    }
    if (command.giver == client && (channel == kEveryChannel || command.giver_channel == channel)) {
      command.giver = kNone;
    }
    for (Watcher& watcher : guest.watchers) {
      if (watcher.command == i && watcher.client == client &&
          (channel == kEveryChannel || watcher.channel == channel)) {
        watcher = Watcher();
        left = true;
      }
    }
    if (left) {
      release_outputs(guest, i);
      pump(guest, i);
    }
  }
}

void pump(Guest& guest, std::uint32_t index) {
  Command& command = guest.commands[index];
  for (bool again = true; again;) {
    again = false;
    if (command.state == CommandState::kDraining) {
      drain(guest, index, 0);
      drain(guest, index, 1);
    }
    for (std::uint32_t which = 0; which < 2; ++which) {
      OutputStream& stream = command.output[which];
      const bool sent = send_to_all(guest, index, which);
      if (sent && stream.held) {
        stream.held = false;
        look_again(guest, stream, index, which);
      }
      again = again || (sent && command.state == CommandState::kDraining && !drained(command));
    }
  }
  if (command.state == CommandState::kDraining && drained(command)) {
    command.state = CommandState::kFinished;
  }
  if (command.state == CommandState::kFinished) {
    send_ends(guest, index);
  }
}

bool give_input(Guest& guest, std::uint32_t index, std::string_view data) {
  Command& command = guest.commands[index];
  std::size_t kept = command.pending_size - command.pending_start;
  if (kept + data.size() > protocol::kInputWindow) {
    return false;
  }
  bool waits =
      command.state == CommandState::kQueued && (command.flags & protocol::kStartStdin) != 0;
  if (data.empty()) {
    return true;
  }
  if (command.input < 0 && !waits) {
    command.input_taken += data.size();
    tell_input_taken(guest, command);
    return true;
  }
  char* grown = static_cast<char*>(malloc(kept + data.size()));
  if (grown == nullptr) {
    return false;
  }
  if (kept > 0) {
    memcpy(grown, command.pending + command.pending_start, kept);
  }
  memcpy(grown + kept, data.data(), data.size());
  free(command.pending);
  command.pending = grown;
  command.pending_start = 0;
  command.pending_size = kept + data.size();
  on_input_ready(guest, index);
  return true;
}

void on_input_ready(Guest& guest, std::uint32_t index) {
  Command& command = guest.commands[index];
  if (command.input < 0 || !command.input_opened) {
    return;
  }
  std::size_t size = command.pending_size - command.pending_start;
  if (size > 0) {
    ssize_t n = write(command.input, command.pending + command.pending_start, size);
    if (n < 0 && errno != EAGAIN && errno != EINTR) {
      on_input_unwanted(guest, index);
      return;
    }
    if (n > 0) {
      command.pending_start += static_cast<std::size_t>(n);
      command.input_taken += static_cast<std::uint64_t>(n);
      tell_input_taken(guest, command);
    }
  }
  bool waiting = command.pending_start < command.pending_size;
  if (!waiting && command.input_closing) {
    guest.poller.close(command.input);
  } else {
    guest.poller.change(command.input, waiting ? EPOLLOUT : 0U, Source::kInput, index);
  }
}

void on_input_unwanted(Guest& guest, std::uint32_t index) {
  Command& command = guest.commands[index];
  guest.poller.close(command.input);
  command.input_taken += command.pending_size - command.pending_start;
  command.pending_start = command.pending_size;
  tell_input_taken(guest, command);
}

void close_input(Guest& guest, std::uint32_t index) {
  Command& command = guest.commands[index];
  if (command.input < 0 || !command.input_opened || command.pending_start < command.pending_size) {
    command.input_closing = true;
  } else {
    guest.poller.close(command.input);
  }
}

}  // namespace carrel::guest
