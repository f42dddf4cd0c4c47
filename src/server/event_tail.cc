#include "server/event_tail.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/files.h"

namespace carrel::server {

EventTail::EventTail(const storage::Home& home, From from, std::string file)
    : home_(home), name_(std::move(file)) {
  open();
  if (from == From::kEnd && file_.valid()) {
    offset_ = ::lseek(file_.get(), 0, SEEK_END);
  }
}

std::vector<std::string> EventTail::next() {
  std::vector<std::string> lines = read_lines();
  struct stat named{};
  struct stat held{};
  const bool there = ::fstatat(home_.directory(), name_.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0;
  const bool same = there && file_.valid() && ::fstat(file_.get(), &held) == 0 &&
                    named.st_ino == held.st_ino && named.st_dev == held.st_dev;
  if (there && !same) {
    const std::string last = last_;
    open();
    std::vector<std::string> anew = read_lines();
    const auto known = std::find(anew.begin(), anew.end(), last);
    lines.insert(lines.end(), known == anew.end() ? anew.begin() : known + 1, anew.end());
  }
  return lines;
}

void EventTail::open() {
  auto file = open_at(home_.directory(), name_, O_RDONLY | O_NOFOLLOW);
  file_ = file.ok() ? std::move(file.value()) : UniqueFd();
  offset_ = 0;
  rest_.clear();
}

std::vector<std::string> EventTail::read_lines() {
  std::vector<std::string> lines;
  std::vector<char> piece(64U << 10);
  while (file_.valid()) {
    const ssize_t size = ::pread(file_.get(), piece.data(), piece.size(), offset_);
    if (size <= 0) {
      break;
    }
    offset_ += size;
    rest_.append(piece.data(), static_cast<std::size_t>(size));
    for (std::size_t end = rest_.find('\n'); end != std::string::npos; end = rest_.find('\n')) {
      lines.push_back(rest_.substr(0, end));
      rest_.erase(0, end + 1);
    }
  }
  if (!lines.empty()) {
    last_ = lines.back();
  }
  return lines;
}

}  // namespace carrel::server
