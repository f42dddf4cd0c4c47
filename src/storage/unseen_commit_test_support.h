#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/unique_fd.h"

namespace carrel::storage {

// Makes commits look like those of a writer that was killed while the disk took them: they are in
// the log of the database, and its index, which all connections share, does not tell of them.
class UnseenCommit {
 public:
  // What is committed from now on can be hidden.
  explicit UnseenCommit(const std::string& database)
      : index_(database + "-shm"), before_(database + "-before") {
    copy_head(index_, before_);
  }
  void hide() const { copy_head(before_, index_); }
  UnseenCommit(const UnseenCommit&) = delete;
  UnseenCommit& operator=(const UnseenCommit&) = delete;
  ~UnseenCommit() { std::filesystem::remove(before_); }

 private:
  // In a process of its own: whoever closes a file loses the locks that its process has on it.
  static void copy_head(const std::string& from, const std::string& to) {
    const pid_t child = ::fork();
    if (child == 0) {
      char head[136];  // two copies of what the log holds, and what is in the database already
      const UniqueFd source(::open(from.c_str(), O_RDONLY | O_CLOEXEC));
      const UniqueFd target(::open(to.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
      const bool copied = ::pread(source.get(), head, sizeof head, 0) == sizeof head &&
                          ::pwrite(target.get(), head, sizeof head, 0) == sizeof head;
      ::_exit(copied ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }

  std::string index_;
  std::string before_;
};

}  // namespace carrel::storage
