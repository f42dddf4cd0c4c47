#include "storage/images/download.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "base/files.h"

namespace carrel::storage {

namespace {

constexpr int kMostFailures = 5;  // in a row, without a byte in between

Result<UniqueFd> open_locked(int directory, const std::string& name) {
  for (;;) {
    CARREL_ASSIGN(UniqueFd file,
                  open_at(directory, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0600));
    while (::flock(file.get(), LOCK_EX) != 0) {
      if (errno != EINTR) {
        return system_error("lock the download '" + name + "'");
      }
    }
    // Whoever had the lock may have removed the file.
    struct stat opened{};
    struct stat named{};
    if (::fstat(file.get(), &opened) == 0 &&
        ::fstatat(directory, name.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
        opened.st_ino == named.st_ino && opened.st_dev == named.st_dev) {
      return file;
    }
  }
}

// Failures that the next attempt may not have.
bool is_passing(const Error& error) {
  return error.code == Code::kUnavailable || error.code == Code::kTimeout;
}

}  // namespace

Result<Download> Download::open(int directory, std::string digest, std::uint64_t size) {
  Download download(directory, std::move(digest), size);
  CARREL_ASSIGN(download.file_, open_locked(directory, download.digest_));
  CARREL_TRY(download.hash_what_is_there());
  return download;
}

Status Download::hash_what_is_there() {
  std::string piece(256U << 10, '\0');
  for (;;) {
    const ssize_t size =
        ::pread(file_.get(), piece.data(), piece.size(), static_cast<off_t>(done_));
    if (size < 0) {
      return system_error("read the download '" + digest_ + "'");
    }
    if (size == 0) {
      return {};
    }
    done_ += static_cast<std::uint64_t>(size);
    if (done_ > size_) {
      return restart();
    }
    hash_.update(std::string_view(piece).substr(0, static_cast<std::size_t>(size)));
  }
}

Status Download::restart() {
  done_ = 0;
  hash_ = {};
  if (::ftruncate(file_.get(), 0) != 0) {
    return system_error("begin the download '" + digest_ + "' again");
  }
  return {};
}

Status Download::append(std::string_view bytes) {
  if (bytes.size() > size_ - done_) {
    return Error{Code::kDenied, 0, "the layer is longer than its manifest says", {}};
  }
  while (!bytes.empty()) {
    const ssize_t size =
        ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(done_));
    if (size < 0 && errno != EINTR) {
      return system_error("write the download '" + digest_ + "'");
    }
    if (size > 0) {
      hash_.update(bytes.substr(0, static_cast<std::size_t>(size)));
      done_ += static_cast<std::uint64_t>(size);
      bytes.remove_prefix(static_cast<std::size_t>(size));
    }
  }
  return {};
}

Status Download::attempt(Registry& registry, const Listener& listener) {
  Registry::BlobSink sink;
  sink.restart = [&] { return restart(); };
  sink.write = [&](std::string_view bytes) -> Status {
    CARREL_TRY(append(bytes));
    listener(done_);
    return {};
  };
  CARREL_TRY(registry.blob(digest_, done_, sink));
  if (done_ < size_) {
    return Error{Code::kDenied, 0, "the layer is shorter than its manifest says", {}};
  }
  return {};
}

Status Download::finish(Registry& registry, const Listener& listener) {
  int failures = 0;
  while (done_ < size_) {
    const std::uint64_t before = done_;
    auto attempted = attempt(registry, listener);
    if (attempted.ok()) {
      break;
    }
    if (!is_passing(attempted.error())) {
      // Nothing that a wrong answer left is of use.
      if (attempted.error().code == Code::kDenied) {
        remove();
      }
      return attempted;
    }
    failures = done_ > before ? 1 : failures + 1;
    if (failures >= kMostFailures) {
      attempted.error().hint = "the next pull goes on where this one stopped";
      return attempted;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100 << failures));
  }
  return check();
}

Status Download::check() {
  Sha256 hash = hash_;
  if (hash.finish() == digest_) {
    return {};
  }
  remove();
  return Error{Code::kDenied, 0, "the layer does not have the digest that it should have",
               "the registry, or somebody on the way, sent something else"};
}

void Download::remove() const { (void)::unlinkat(directory_, digest_.c_str(), 0); }

void remove_old_downloads(int directory) {
  auto names = list_directory(directory);
  if (!names.ok()) {
    return;
  }
  for (const std::string& name : names.value()) {
    const auto file = open_at(directory, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK);
    if (file.ok() && ::flock(file.value().get(), LOCK_EX | LOCK_NB) == 0) {
      (void)::unlinkat(directory, name.c_str(), 0);
    }
  }
}

}  // namespace carrel::storage
