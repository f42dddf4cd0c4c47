// A hostile file worker, and a hostile archive. The host never crashes, never waits for something
// that cannot come, and hands on only paths below the top and as many bytes as were announced.
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "base/unique_fd.h"
#include "protocol/files.h"
#include "protocol/frame.h"
#include "sandbox/files.h"
#include "sandbox/tree_tar.h"

namespace {

namespace protocol = carrel::protocol;
namespace sandbox = carrel::sandbox;
using carrel::Result;
using carrel::Status;
using carrel::UniqueFd;

void require(bool fact) {
  if (!fact) {
    std::abort();
  }
}

// Holds a tree to what a sink may rely on.
class Strict : public sandbox::TreeSink {
 public:
  Status entry(const protocol::FileEntry& entry) override {
    require(protocol::is_tree_path(entry.path));
    require(entry.kind != protocol::FileKind::kOther);
    left_ = entry.kind == protocol::FileKind::kFile ? entry.size : 0;
    return {};
  }
  Status contents(std::string_view data) override {
    require(data.size() <= left_);
    left_ -= data.size();
    return {};
  }
  Status hole(std::uint64_t size) override {
    require(size <= left_);
    left_ -= size;
    return {};
  }

 private:
  std::uint64_t left_ = 0;
};

std::array<UniqueFd, 2> make_ends() {
  std::array<int, 2> fds{-1, -1};
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) == 0);
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

void answer(char operation, std::string_view bytes) {
  std::array<UniqueFd, 2> ends = make_ends();
  std::array<unsigned char, protocol::kHeaderSize> ready{};
  protocol::write_header({0, 0, protocol::FrameType::kFilesReady}, ready);
  std::string all(reinterpret_cast<const char*>(ready.data()), ready.size());
  all += bytes;
  require(::send(ends[1].get(), all.data(), all.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
          static_cast<ssize_t>(all.size()));
  ::shutdown(ends[1].get(), SHUT_WR);
  auto files = sandbox::Files::open(sandbox::GuestStream(std::move(ends[0])),
                                    std::chrono::milliseconds(1000));
  require(files.ok());
  files.value().set_patience(std::chrono::milliseconds(200));
  std::size_t handed_on = 0;
  switch (operation) {
    case 'p': {
      Strict strict;
      (void)files.value().pack("x", strict);
      break;
    }
    case 'l':
      (void)files.value().list("x", {}, [](const sandbox::FileInfo& info) -> Status {
        require(protocol::is_tree_path(info.path));
        return {};
      });
      break;
    case 's':
      (void)files.value().search("x", {"y"}, {}, [](const protocol::FileMatch& match) -> Status {
        require(match.line > 0);
        return {};
      });
      break;
    case 'w':
      (void)files.value().write("x", {}, [n = 3](char* place, std::size_t size) mutable {
        std::fill_n(place, size, 'x');
        return Result<std::size_t>(n-- > 0 ? size : 0);
      });
      break;
    default:
      (void)files.value().read("x", {}, [&](std::string_view data) -> Status {
        handed_on += data.size();
        return handed_on < (1U << 20) ? Status{} : Status{carrel::Error{}};
      });
      break;
  }
}

void unpack(std::string_view bytes) {
  std::array<UniqueFd, 2> ends = make_ends();
  sandbox::FileStream stream(std::move(ends[0]));
  stream.set_patience(std::chrono::milliseconds(1));
  sandbox::TreeFeed feed(stream);
  std::vector<sandbox::LeftOutFile> left_out;
  const sandbox::Progress quiet;
  const sandbox::Files::Source source = [bytes](char* place, std::size_t size) mutable {
    const std::size_t piece = std::min(size, bytes.size());
    std::memcpy(place, bytes.data(), piece);
    bytes.remove_prefix(piece);
    return Result<std::size_t>(piece);
  };
  (void)sandbox::feed_tar(source, feed, left_out, quiet);
  (void)stream.flush();
  // What a worker would be told: every entry is one that it accepts.
  std::string told(1U << 20, '\0');
  const ssize_t n = ::recv(ends[1].get(), told.data(), told.size(), MSG_DONTWAIT);
  std::string_view rest(told.data(), n > 0 ? static_cast<std::size_t>(n) : 0);
  while (rest.size() >= protocol::kHeaderSize) {
    protocol::FrameHeader header;
    const auto* head = reinterpret_cast<const unsigned char*>(rest.data());
    require(protocol::parse_header(
        std::span<const unsigned char, protocol::kHeaderSize>(head, protocol::kHeaderSize),
        protocol::kMaxFileRequest, header));
    if (rest.size() - protocol::kHeaderSize < header.size) {
      break;
    }
    protocol::FileEntry entry;
    require(header.type != protocol::FrameType::kFileEntry ||
            protocol::parse_file_entry(rest.substr(protocol::kHeaderSize, header.size), entry));
    rest.remove_prefix(protocol::kHeaderSize + header.size);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0 || size > (64U << 10)) {
    return -1;
  }
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto before = std::chrono::steady_clock::now();
  if (data[0] == 't') {
    unpack(bytes);
  } else {
    answer(static_cast<char>(data[0]), bytes);
  }
  require(std::chrono::steady_clock::now() - before < std::chrono::seconds(20));
  return 0;
}
