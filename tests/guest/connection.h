#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "protocol/message.h"
#include "sandbox/guest_stream.h"
#include "support/box.h"

namespace carrel::test {

// What a client has heard about one command.
struct Heard {
  std::string out;
  std::string err;
  std::uint64_t out_start = 0;  // where the first piece of stdout began
  bool ended = false;
  bool refused = false;
  std::string refusal;
  protocol::Exit end;
  std::string cwd;
  std::chrono::milliseconds took{0};
};

// A client that speaks to a sandbox's guest itself, as the library does. Everything that goes wrong
// with the connection fails the test.
class Connection {
 public:
  Connection(As as, const Box& box);

  struct Request {
    std::string text;                    // for the shell
    std::vector<std::string> arguments;  // or a separate process
    std::uint32_t flags = 0;
    std::uint64_t timeout_ms = 20'000;
    std::string session = {};
  };
  // Returns the channel of the command.
  std::uint32_t start(const Request& request);
  std::uint32_t sh(const std::string& text) { return start({.text = text, .arguments = {}}); }
  void send(std::uint32_t channel, protocol::FrameType type, std::string_view payload = {});
  // Asks for everything from those offsets on.
  std::uint32_t follow(std::uint64_t id, std::uint64_t stdout_offset, std::uint64_t stderr_offset);
  // The ids of all commands that the guest knows, with the beginning of each.
  std::map<std::uint64_t, std::string> list();

  // Reads until the command has ended or was refused; fails the test when that takes too long.
  Heard& wait(std::uint32_t channel, std::chrono::milliseconds patience = std::chrono::seconds(30));
  // Reads until that text is in the command's stdout; false when it takes too long.
  bool wait_for_output(std::uint32_t channel, const std::string& text);
  Heard run(const std::string& text) { return wait(sh(text)); }
  void close() { stream_.close(); }

 private:
  void take(const sandbox::GuestFrame& frame);

  sandbox::GuestStream stream_;
  std::uint32_t next_channel_ = 1;
  std::map<std::uint32_t, Heard> heard_;
  std::map<std::uint64_t, std::string> listed_;
  bool list_ended_ = false;
};

// User and system time of a process of the host, in milliseconds.
long cpu_ms(pid_t pid);

}  // namespace carrel::test
