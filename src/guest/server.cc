#include "guest/server.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest/command.h"
#include "guest/processes.h"
#include "guest/runtime.h"
#include "guest/shell.h"

namespace carrel::guest {

namespace {

using protocol::FrameHeader;
using protocol::FrameType;
using protocol::Refusal;

constexpr std::uint64_t kMemoryWatchUs = 20'000;

class Server {
 public:
  explicit Server(Guest& guest) : guest_(guest) {}

  [[noreturn]] void run(int control) {
    if (guest_.listener >= 0) {
      guest_.poller.add(guest_.listener, EPOLLIN, Source::kListener, 0);
    }
    guest_.poller.add(guest_.signals, EPOLLIN, Source::kSignals, 0);
    adopt(control);
    guest_.clients[0].set_greeted();
    take_frames(0);
    for (;;) {
      struct epoll_event events[32];
      int count = guest_.poller.wait(events, 32, wait_time());
      for (int i = 0; i < count; ++i) {
        handle(events[i]);
      }
      expire();
      flush_all();
    }
  }

 private:
  void adopt(int fd) {
    for (std::uint32_t i = 0; i < kMaxClients; ++i) {
      if (!guest_.clients[i].used()) {
        fcntl(fd, F_SETFL, O_NONBLOCK);
        guest_.clients[i].open(fd);
        guest_.poller.add(fd, EPOLLIN, Source::kClient, i);
        return;
      }
    }
    close(fd);
  }

  void handle(const struct epoll_event& event) {
    std::uint32_t index = Poller::index(event);
    switch (Poller::source(event)) {
      case Source::kListener: {
        int fd = accept4(guest_.listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
          adopt(fd);
        }
        break;
      }
      case Source::kClient:
        on_client(index, event.events);
        break;
      case Source::kSignals:
        reap();
        break;
      case Source::kSpawner:
        guest_.poller.remove(guest_.spawner);
        close(guest_.spawner);
        guest_.spawner = -1;
        break;
      case Source::kOutput:
        if (guest_.commands[index / 2].output[index % 2].fd >= 0) {
          on_output(guest_, index / 2, index % 2);
        }
        break;
      case Source::kInput:
        on_input_ready(guest_, index);
        break;
      case Source::kReport:
        if (guest_.commands[index].report >= 0) {
          on_report(guest_, index);
        }
        break;
      case Source::kShellReport:
        if (guest_.shells[index].report >= 0) {
          on_shell_report(guest_, index);
        }
        break;
      case Source::kShellControl:
        if (guest_.shells[index].control >= 0) {
          on_shell_control(guest_, index);
        }
        break;
    }
  }

  void reap() {
    struct signalfd_siginfo info {};
    while (read(guest_.signals, &info, sizeof info) > 0) {
    }
    int status = 0;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
      on_child_end(guest_, pid, status);
    }
  }

  void on_client(std::uint32_t index, std::uint32_t events) {
    Client& client = guest_.clients[index];
    if (!client.used()) {
      return;
    }
    if ((events & EPOLLOUT) != 0) {
      if (!client.flush()) {
        drop(index);
        return;
      }
      for (std::uint32_t i = 0; i < kMaxCommands; ++i) {
        if (guest_.commands[i].client == index) {
          pump(guest_, i);
        }
      }
    }
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) {
      if (!client.fill()) {
        drop(index);
        return;
      }
      take_frames(index);
    }
  }

  void take_frames(std::uint32_t index) {
    Client& client = guest_.clients[index];
    FrameHeader header;
    std::string_view payload;
    bool broken = false;
    while (client.used() && client.next(header, payload, broken)) {
      if (!take(index, header, payload)) {
        refuse(index, header.channel, Refusal::kBadRequest, 0, "malformed frame");
        client.flush();
        drop(index);
        return;
      }
    }
    if (broken) {
      drop(index);
    }
  }

  // The connection is over. Commands go on; in a one-shot sandbox everything ends with it.
  void drop(std::uint32_t index) {
    // The maker leaves only after it has stored what it made; before that the sandbox is nobody's.
    if (guest_.one_shot() || (index == 0 && !released_)) {
      _exit(0);
    }
    for (Command& command : guest_.commands) {
      if (command.client == index) {
        command.client = kNone;
      }
    }
    for (std::uint32_t i = 0; i < kMaxCommands; ++i) {
      if (guest_.commands[i].state != CommandState::kFree) {
        pump(guest_, i);
        rearm(i);
      }
    }
    guest_.poller.remove(guest_.clients[index].fd());
    guest_.clients[index].close();
  }

  // Nobody holds the output back any more.
  void rearm(std::uint32_t index) {
    for (std::uint32_t which = 0; which < 2; ++which) {
      OutputStream& stream = guest_.commands[index].output[which];
      if (stream.fd >= 0 && !stream.armed) {
        guest_.poller.change(stream.fd, EPOLLIN, Source::kOutput, index * 2 + which);
        stream.armed = true;
      }
    }
  }

  void refuse(std::uint32_t index, std::uint32_t channel, Refusal refusal, int error_number,
              std::string_view text) {
    unsigned char buffer[256];
    protocol::Writer writer(buffer);
    writer.u32(static_cast<std::uint32_t>(refusal));
    writer.u32(static_cast<std::uint32_t>(error_number));
    writer.bytes(text);
    guest_.clients[index].send(channel, FrameType::kRefused,
                               {reinterpret_cast<const char*>(buffer), writer.size()});
  }

  std::uint32_t find(std::uint32_t client, std::uint32_t channel) {
    for (std::uint32_t i = 0; i < kMaxCommands; ++i) {
      const Command& command = guest_.commands[i];
      if (command.state != CommandState::kFree && command.client == client &&
          command.channel == channel) {
        return i;
      }
    }
    return kNone;
  }

  // False when the frame is not one that a client may send now.
  bool take(std::uint32_t index, const FrameHeader& header, std::string_view payload) {
    protocol::Reader reader(
        {reinterpret_cast<const unsigned char*>(payload.data()), payload.size()});
    if (!guest_.clients[index].greeted()) {
      return header.type == FrameType::kHello && greet(index, header.channel, reader);
    }
    switch (header.type) {
      case FrameType::kStart:
        return start(index, header.channel, payload);
      case FrameType::kFollow:
        return follow(index, header.channel, reader);
      case FrameType::kList:
        return reader.finished() && list(index, header.channel);
      case FrameType::kExtend: {
        std::uint64_t lease = reader.u64();
        guest_.lease_deadline_us = lease == 0 ? 0 : now_us() + lease * 1000;
        return reader.finished() && lease <= protocol::kMaxTimeoutMs;
      }
      case FrameType::kShutdown: {
        std::uint32_t grace = reader.u32();
        return reader.finished() && shut_down(grace);
      }
      case FrameType::kDetach:
        if (index == 0 && header.channel == 0) {
          released_ = true;
          return payload.empty();
        }
        return take_for_command(index, header, payload, reader);
      default:
        return take_for_command(index, header, payload, reader);
    }
  }

  bool take_for_command(std::uint32_t index, const FrameHeader& header, std::string_view payload,
                        protocol::Reader& reader) {
    std::uint32_t at = find(index, header.channel);
    if (at == kNone) {
      // It may have ended while the frame was on its way.
      return header.type >= FrameType::kStdin && header.type <= FrameType::kDetach;
    }
    Command& command = guest_.commands[at];
    switch (header.type) {
      case FrameType::kStdin:
        return give_input(guest_, at, payload);
      case FrameType::kStdinClose:
        close_input(guest_, at);
        return payload.empty();
      case FrameType::kSignal: {
        std::uint32_t signal = reader.u32();
        if (!reader.finished() || signal == 0 || signal > 64) {
          return false;
        }
        if (command.state == CommandState::kRunning && command.program > 1) {
          kill(-command.program, static_cast<int>(signal));
        }
        return true;
      }
      case FrameType::kResize: {
        struct winsize size {};
        size.ws_row = reader.u16();
        size.ws_col = reader.u16();
        if (reader.finished() && command.output[0].fd >= 0) {
          ioctl(command.output[0].fd, TIOCSWINSZ, &size);
        }
        return reader.finished();
      }
      case FrameType::kKill:
        if (!forget_queued(guest_, at) && command.state == CommandState::kRunning) {
          end_command(guest_, at, protocol::EndKind::kKilled);
        }
        return payload.empty();
      case FrameType::kDetach:
        command.client = kNone;
        rearm(at);
        return payload.empty();
      default:
        return false;
    }
  }

  bool greet(std::uint32_t index, std::uint32_t channel, protocol::Reader& reader) {
    std::uint32_t version = reader.u32();
    std::string_view id = reader.text(protocol::kIdSize);
    if (!reader.finished() || version != protocol::kVersion || id != guest_.boot.id) {
      return false;
    }
    guest_.clients[index].set_greeted();
    unsigned char buffer[64];
    protocol::Writer writer(buffer);
    writer.u32(protocol::kVersion);
    writer.bytes(guest_.boot.id);
    return guest_.clients[index].send(channel, FrameType::kWelcome,
                                      {reinterpret_cast<const char*>(buffer), writer.size()});
  }

  bool start(std::uint32_t index, std::uint32_t channel, std::string_view payload) {
    protocol::Start start;
    if (!protocol::parse_start(payload, start) || find(index, channel) != kNone) {
      return false;
    }
    std::uint32_t at = take_command(guest_);
    if (at == kNone) {
      refuse(index, channel, Refusal::kTooMany, 0, "too many commands are running");
      return true;
    }
    Command& command = guest_.commands[at];
    command.kind = start.kind;
    command.flags = start.flags;
    command.client = index;
    command.channel = channel;
    command.timeout_us = start.timeout_ms * 1000;
    entitle(command, start);
    if (start.kind == protocol::StartKind::kExec) {
      start_exec(guest_, at, start, payload);
      return true;
    }
    Refusal refusal = Refusal::kInternal;
    int error_number = 0;
    if (!start_in_shell(guest_, at, start, refusal, error_number)) {
      free_command(guest_, at);
      refuse(index, channel, refusal, error_number, "no shell for this command");
    }
    return true;
  }

  static void entitle(Command& command, const protocol::Start& start) {
    std::string_view text =
        start.kind == protocol::StartKind::kShell ? start.text : start.arguments.data;
    std::size_t size = text.size() < sizeof command.title - 1 ? text.size() : sizeof command.title - 1;
    for (std::size_t i = 0; i < size; ++i) {
      command.title[i] = text[i] == '\0' ? ' ' : text[i];
    }
  }

  bool follow(std::uint32_t index, std::uint32_t channel, protocol::Reader& reader) {
    std::uint64_t id = reader.u64();
    std::uint64_t offsets[2];
    offsets[0] = reader.u64();
    offsets[1] = reader.u64();
    if (!reader.finished() || find(index, channel) != kNone) {
      return false;
    }
    for (std::uint32_t i = 0; i < kMaxCommands; ++i) {
      Command& command = guest_.commands[i];
      if (command.state == CommandState::kFree || command.id != id) {
        continue;
      }
      if (command.client != kNone && command.client != index) {
        refuse(index, channel, Refusal::kTooMany, 0, "another client follows this command");
        return true;
      }
      command.client = index;
      command.channel = channel;
      for (std::uint32_t which = 0; which < 2; ++which) {
        OutputStream& stream = command.output[which];
        std::uint64_t start = stream.ring.start();
        std::uint64_t end = stream.ring.end();
        stream.cursor = offsets[which] < start ? start : (offsets[which] > end ? end : offsets[which]);
      }
      pump(guest_, i);
      return true;
    }
    refuse(index, channel, Refusal::kUnknown, 0, "no such command");
    return true;
  }

  bool list(std::uint32_t index, std::uint32_t channel) {
    for (const Command& command : guest_.commands) {
      if (command.state == CommandState::kFree) {
        continue;
      }
      protocol::CommandRow row;
      row.id = command.id;
      row.running = command.state != CommandState::kFinished ? 1 : 0;
      row.kind = command.kind;
      row.started_ms = command.started_wall_ms;
      row.stdout_start = command.output[0].ring.start();
      row.stdout_end = command.output[0].ring.end();
      row.stderr_start = command.output[1].ring.start();
      row.stderr_end = command.output[1].ring.end();
      row.title = command.title;
      unsigned char buffer[256];
      protocol::Writer writer(buffer);
      protocol::write_command_row(writer, row);
      guest_.clients[index].send(channel, FrameType::kCommand,
                                 {reinterpret_cast<const char*>(buffer), writer.size()});
    }
    return guest_.clients[index].send(channel, FrameType::kListEnd, {});
  }

  // Everybody gets SIGTERM now and the end after the grace.
  bool shut_down(std::uint32_t grace_ms) {
    if (grace_ms > 60'000) {
      return false;
    }
    if (grace_ms == 0) {
      _exit(0);
    }
    kill(-1, SIGTERM);
    guest_.shutdown_deadline_us = now_us() + std::uint64_t{grace_ms} * 1000;
    return true;
  }

  static void nearest(std::uint64_t& at, std::uint64_t deadline) {
    if (deadline != 0 && (at == 0 || deadline < at)) {
      at = deadline;
    }
  }

  int wait_time() {
    std::uint64_t at = 0;
    nearest(at, guest_.lease_deadline_us);
    nearest(at, guest_.shutdown_deadline_us);
    bool running = false;
    for (const Command& command : guest_.commands) {
      nearest(at, command.deadline_us);
      running = running || command.state == CommandState::kRunning;
    }
    std::uint64_t now = now_us();
    if (guest_.boot.memory_watch_bytes != 0 && running) {
      nearest(at, now + kMemoryWatchUs);
    }
    if (guest_.shutdown_deadline_us != 0) {
      nearest(at, now + 10'000);
    }
    if (at == 0) {
      return -1;
    }
    return at <= now ? 0 : static_cast<int>((at - now + 999) / 1000 > 3'600'000 ? 3'600'000 : (at - now + 999) / 1000);
  }

  void expire() {
    std::uint64_t now = now_us();
    if (guest_.lease_deadline_us != 0 && now >= guest_.lease_deadline_us) {
      _exit(3);
    }
    if (guest_.shutdown_deadline_us != 0 && (now >= guest_.shutdown_deadline_us || nobody_left())) {
      _exit(0);
    }
    for (std::uint32_t i = 0; i < kMaxCommands; ++i) {
      Command& command = guest_.commands[i];
      if (command.deadline_us != 0 && now >= command.deadline_us) {
        end_command(guest_, i, protocol::EndKind::kTimedOut);
      }
    }
    if (guest_.boot.memory_watch_bytes != 0) {
      watch_memory();
    }
  }

  // Whether no process but the guest and its idle helpers is left.
  bool nobody_left() {
    static ProcessRow rows[kMaxProcessRows];
    return list_processes(rows, kMaxProcessRows) <= 1;
  }

  // Where no cgroup holds the limit. Not exact: it looks every now and then.
  void watch_memory() {
    bool running = false;
    for (const Command& command : guest_.commands) {
      running = running || command.state == CommandState::kRunning;
    }
    if (!running || memory_of_all() <= guest_.boot.memory_watch_bytes) {
      return;
    }
    for (std::uint32_t i = 0; i < kMaxCommands; ++i) {
      Command& command = guest_.commands[i];
      if (command.state == CommandState::kRunning) {
        command.end.flags |= protocol::kExitOutOfMemory;
      }
    }
    kill(-1, SIGKILL);
  }

  void flush_all() {
    for (std::uint32_t i = 0; i < kMaxClients; ++i) {
      Client& client = guest_.clients[i];
      if (!client.used()) {
        continue;
      }
      if (!client.flush()) {
        drop(i);
        continue;
      }
      guest_.poller.change(client.fd(), client.has_output() ? EPOLLIN | EPOLLOUT : EPOLLIN,
                           Source::kClient, i);
    }
    if (guest_.one_shot() && !guest_.clients[0].has_output()) {
      for (const Command& command : guest_.commands) {
        if (command.follow_sent) {
          _exit(0);
        }
      }
    }
  }

  Guest& guest_;
  bool released_ = false;
};

}  // namespace

[[noreturn]] void serve(Guest& guest, int control) {
  Server server(guest);
  server.run(control);
}

}  // namespace carrel::guest
