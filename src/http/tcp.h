#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "http/stream.h"

namespace carrel::dns {
struct Address;
}

namespace carrel::http {

// A connected socket that does not block.
class TcpStream final : public Stream {
 public:
  // `cancel` is borrowed: once it is readable, waiting ends with kGone. -1: nobody can.
  explicit TcpStream(UniqueFd socket, int cancel = -1)
      : socket_(std::move(socket)), cancel_(cancel) {}

  Result<std::size_t> read(std::span<char> into, Deadline deadline) override;
  Status write(std::string_view bytes, Deadline deadline) override;
  // Gives the socket away.
  [[nodiscard]] UniqueFd release() { return std::move(socket_); }

 private:
  UniqueFd socket_;
  int cancel_;
};

struct DialPatience {
  std::chrono::milliseconds each;    // for an address
  std::optional<Deadline> all = {};  // for all of them
  int cancel = -1;                   // see TcpStream
};

// Looks the host up and tries its addresses one after the other.
Result<std::unique_ptr<TcpStream>> dial(const std::string& host, std::uint16_t port,
                                        const DialPatience& patience);
// Tries those addresses of the host. The error is that of the last one of which more is known than
// that there is no route to it, and after `all` no other one is tried.
Result<std::unique_ptr<TcpStream>> dial_any(const std::string& host,
                                            const std::vector<dns::Address>& addresses,
                                            std::uint16_t port, const DialPatience& patience);

// The same for a socket of this host, by its path.
Result<std::unique_ptr<TcpStream>> dial_unix(const std::string& path, Deadline deadline,
                                             int cancel = -1);

}  // namespace carrel::http
