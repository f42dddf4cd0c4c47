#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "support/box.h"
#include "support/fixture.h"

// Servers in sandboxes, and whoever reaches them from the host.
namespace carrel::test {

inline constexpr std::chrono::seconds kPortPatience(20);

// A connection of the host's to 127.0.0.1 or another address of it.
class TcpClient {
 public:
  explicit TcpClient(int port, const char* address = "127.0.0.1")
      : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_port = htons(static_cast<std::uint16_t>(port));
    ::inet_pton(AF_INET, address, &place.sin_addr);
    const timeval limit{20, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    connected_ = ::connect(fd_, reinterpret_cast<const sockaddr*>(&place), sizeof place) == 0;
  }
  ~TcpClient() { ::close(fd_); }
  TcpClient(const TcpClient&) = delete;
  TcpClient& operator=(const TcpClient&) = delete;

  [[nodiscard]] bool connected() const { return connected_; }
  void send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t n = ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
      if (n <= 0) {
        failed_ = true;  // a reset is told once
        return;
      }
      text.remove_prefix(static_cast<std::size_t>(n));
    }
  }
  void finish() const { ::shutdown(fd_, SHUT_WR); }
  // Everything until the end; `failed()` when that was no orderly end.
  std::string read() {
    std::string text;
    std::vector<char> buffer(64U << 10);
    ssize_t n = 0;
    while ((n = ::recv(fd_, buffer.data(), buffer.size(), 0)) > 0) {
      text.append(buffer.data(), static_cast<std::size_t>(n));
    }
    failed_ = failed_ || n < 0;
    return text;
  }
  std::string read_line() const {
    std::string text;
    for (char c = 0; c != '\n' && ::recv(fd_, &c, 1, 0) == 1;) {
      text += c;
    }
    return text;
  }
  [[nodiscard]] bool failed() const { return failed_; }

 private:
  int fd_;
  bool connected_ = false;
  bool failed_ = false;
};

// Inside: repeats what comes until its end, says "end" and closes. Prints "listening" first. One
// thread: a sandbox has no more processes than it may have.
inline std::string echo_server(const std::string& family, const std::string& address) {
  return "import asyncio, socket\n"
         "async def serve(reader, writer):\n"
         "    while data := await reader.read(1 << 16):\n"
         "        writer.write(data)\n"
         "        await writer.drain()\n"
         "    writer.write(b'end')\n"
         "    await writer.drain()\n"
         "    writer.close()\n"
         "async def main():\n"
         "    server = await asyncio.start_server(serve, '" +
         address + "', 8080, family=socket." + family +
         ")\n"
         "    print('listening', flush=True)\n"
         "    await server.serve_forever()\n"
         "asyncio.run(main())\n";
}

template <typename Base>
class WithServers : public Base {
 protected:
  // A server in the sandbox, once it listens.
  std::unique_ptr<Process> serve(const Box& box, const std::string& program) const {
    auto server =
        std::make_unique<Process>(this->launch({"exec", box.id(), "--", "python3", "-c", program}));
    EXPECT_TRUE(server->wait_for_output("listening", kPortPatience)) << server->err();
    return server;
  }
  // The port of the host on which `carrel port` published the one inside.
  static int port_of(Process& published) {
    EXPECT_TRUE(published.wait_for_output("\n", kPortPatience)) << published.err();
    const std::size_t at = published.out().find(" -> ");
    const std::size_t colon = published.out().rfind(':', at);
    return at == std::string::npos ? 0 : std::stoi(published.out().substr(colon + 1));
  }
};

}  // namespace carrel::test
