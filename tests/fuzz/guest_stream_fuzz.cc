// A hostile guest: any bytes to the host's end of the stream. The host never crashes, never waits
// for something that cannot come, hands on no more than was sent, and ends with a result that is
// in range or with one short line.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/unique_fd.h"
#include "protocol/frame.h"
#include "sandbox/command.h"
#include "sandbox/guest_stream.h"

namespace {

namespace protocol = carrel::protocol;
namespace sandbox = carrel::sandbox;
using carrel::Code;
using carrel::UniqueFd;

void require(bool fact) {
  if (!fact) {
    std::abort();
  }
}

struct Ends {
  sandbox::GuestStream host;
  UniqueFd guest;
};

Ends make_ends() {
  std::array<int, 2> fds{-1, -1};
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) == 0);
  Ends ends{sandbox::GuestStream(UniqueFd(fds[0])), UniqueFd(fds[1])};
  ends.host.set_patience(std::chrono::milliseconds(200));
  return ends;
}

void guest_says(const UniqueFd& guest, std::string_view bytes) {
  require(::send(guest.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
          static_cast<ssize_t>(bytes.size()));
}

void check_error(const carrel::Error& error) {
  require(error.code != Code::kTimeout);  // the guest has gone: there was nothing to wait for
  require(error.message.size() <= 2048);
  require(!error.to_string().empty());
}

// A file with some input for the command, or none.
int input_file() {
  static const int kFile = [] {
    const int fd = ::memfd_create("input", MFD_CLOEXEC);
    const std::string text(3000, 'i');
    require(::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    return fd;
  }();
  require(::lseek(kFile, 0, SEEK_SET) == 0);
  return kFile;
}

void serve(std::string_view bytes, int input) {
  Ends ends = make_ends();
  guest_says(ends.guest, bytes);
  ::shutdown(ends.guest.get(), SHUT_WR);
  std::size_t handed_on = 0;
  sandbox::CommandIo io;
  io.input = input;
  io.output = [&](protocol::Stream stream, std::string_view data) -> carrel::Status {
    require(stream == protocol::Stream::kStdout || stream == protocol::Stream::kStderr);
    handed_on += data.size();
    return {};
  };
  const auto result = sandbox::serve_command(ends.host, protocol::FrameType::kStart, "start",
                                             std::chrono::milliseconds(1000), io);
  require(handed_on <= bytes.size());
  if (!result.ok()) {
    check_error(result.error());
    return;
  }
  const sandbox::ExecResult& end = result.value();
  require(end.exit_code >= 0 && end.exit_code <= 255);
  require(end.signal >= 0 && end.signal <= 64);
  require(end.duration_ms >= 0);
  require(end.cwd.size() <= protocol::kMaxPath);
  require(end.cwd.find('\0') == std::string::npos);
}

// The same bytes in small pieces: what comes out does not depend on how they came.
void read_in_pieces(std::string_view bytes, std::size_t piece) {
  Ends ends = make_ends();
  std::size_t taken = 0;
  const std::string_view all = bytes;
  while (!bytes.empty()) {
    const std::size_t now = std::min(piece, bytes.size());
    guest_says(ends.guest, bytes.substr(0, now));
    bytes.remove_prefix(now);
    require(ends.host.fill().ok());
    sandbox::GuestFrame frame;
    for (;;) {
      const auto whole = ends.host.next(frame);
      if (!whole.ok()) {
        require(whole.error().code == Code::kGone);
        return;
      }
      if (!whole.value()) {
        break;
      }
      require(frame.payload.size() <= protocol::kMaxGuestPayload);
      taken += protocol::kHeaderSize;
      require(all.substr(taken, frame.payload.size()) == frame.payload);
      taken += frame.payload.size();
    }
    require(taken <= all.size());
  }
}

void greet(std::string_view bytes) {
  const std::string id = "01234567-89ab-4cde-8f01-23456789abcd";
  Ends ends = make_ends();
  guest_says(ends.guest, bytes);
  ::shutdown(ends.guest.get(), SHUT_WR);
  const auto status = ends.host.greet(id, 1000);
  if (status.ok()) {
    require(bytes.find(id) != std::string_view::npos);
  } else {
    check_error(status.error());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0 || size > (64U << 10)) {
    return -1;
  }
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto before = std::chrono::steady_clock::now();
  switch (data[0]) {
    case 's':
      serve(bytes, -1);
      break;
    case 'i':
      serve(bytes, input_file());
      break;
    case 'g':
      greet(bytes);
      break;
    default:
      read_in_pieces(bytes, std::size_t{data[0]} % 64 + 1);
      break;
  }
  require(std::chrono::steady_clock::now() - before < std::chrono::seconds(20));
  return 0;
}
