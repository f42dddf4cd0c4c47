#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "http/stream.h"

namespace carrel::http {

// A connected socket that does not block.
class TcpStream final : public Stream {
 public:
  explicit TcpStream(UniqueFd socket) : socket_(std::move(socket)) {}

  Result<std::size_t> read(std::span<char> into, Deadline deadline) override;
  Status write(std::string_view bytes, Deadline deadline) override;
  // Gives the socket away.
  [[nodiscard]] UniqueFd release() { return std::move(socket_); }

 private:
  UniqueFd socket_;
};

// Looks the host up and tries its addresses one after the other, each for at most `patience`.
Result<std::unique_ptr<TcpStream>> dial(const std::string& host, std::uint16_t port,
                                        std::chrono::milliseconds patience);

}  // namespace carrel::http
