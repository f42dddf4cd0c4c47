#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "protocol/files.h"
#include "sandbox/file_stream.h"
#include "sandbox/files.h"

namespace carrel::sandbox {

// A directory of one test's, removed at its end.
class ScratchTree {
 public:
  ScratchTree() {
    std::string name = (std::filesystem::temp_directory_path() / "carrel-tree-XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    top_ = name;
  }
  ~ScratchTree() { std::filesystem::remove_all(top_); }
  ScratchTree(const ScratchTree&) = delete;
  ScratchTree& operator=(const ScratchTree&) = delete;

  [[nodiscard]] std::string operator/(const std::string& name) const { return top_ / name; }
  void put(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((top_ / name).parent_path());
    std::ofstream(top_ / name) << text;
  }
  [[nodiscard]] std::string text(const std::string& name) const {
    std::ifstream file(top_ / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  [[nodiscard]] std::size_t count() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(top_), {}));
  }

 private:
  std::filesystem::path top_;
};

// What a feed told, in words: "dir:a 755;file:a/b 644 'text';".
inline std::string told_by(const std::function<Status(TreeFeed&)>& feed, Status& status) {
  std::array<int, 2> fds{-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()), 0);
  std::string bytes;
  std::thread reader([fd = UniqueFd(fds[1]), &bytes] {
    std::array<char, 65536> piece{};
    for (ssize_t n = 0; (n = ::recv(fd.get(), piece.data(), piece.size(), 0)) > 0;) {
      bytes.append(piece.data(), static_cast<std::size_t>(n));
    }
  });
  {
    FileStream stream{UniqueFd(fds[0])};
    TreeFeed tree(stream);
    status = feed(tree);
    EXPECT_TRUE(stream.flush().ok());
  }
  reader.join();
  std::string told;
  std::string_view rest = bytes;
  while (rest.size() >= protocol::kHeaderSize) {
    protocol::FrameHeader header;
    EXPECT_TRUE(protocol::parse_header(
        std::span<const unsigned char, protocol::kHeaderSize>(
            reinterpret_cast<const unsigned char*>(rest.data()), protocol::kHeaderSize),
        protocol::kMaxFileRequest, header));
    const std::string_view body = rest.substr(protocol::kHeaderSize, header.size);
    rest.remove_prefix(protocol::kHeaderSize + header.size);
    protocol::FileEntry entry;
    if (header.type == protocol::FrameType::kFileData) {
      told += "'" + std::string(body.substr(0, 40)) + "'";
    } else if (header.type == protocol::FrameType::kFileHole) {
      told += "hole";
    } else if (protocol::parse_file_entry(body, entry)) {
      constexpr std::array kNames = {"", "file", "dir", "link", "hard", "end", "other"};
      std::array<char, 16> mode{};
      std::snprintf(mode.data(), mode.size(), "%o", entry.mode);
      told += std::string(told.empty() ? "" : ";") + kNames[static_cast<std::size_t>(entry.kind)] +
              ":" + std::string(entry.path) + " " + mode.data() +
              (entry.target.empty() ? "" : " -> " + std::string(entry.target));
    } else {
      ADD_FAILURE() << "a worker would not accept this";
    }
  }
  return told;
}

}  // namespace carrel::sandbox
