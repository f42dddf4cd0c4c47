#include "storage/open_state.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <utility>

namespace carrel::storage {

Status OpenState::use(const std::function<Status(State& state)>& what) {
  const std::lock_guard lock(mutex_);
  CARREL_ASSIGN(State * state, get());
  return what(*state);
}

Result<State*> OpenState::get() {
  struct stat info{};
  const bool there = ::fstatat(home_->directory(), "state.db", &info, AT_SYMLINK_NOFOLLOW) == 0;
  if (state_.has_value() && there && info.st_dev == device_ && info.st_ino == file_) {
    return &*state_;
  }
  state_.reset();
  CARREL_ASSIGN(State opened, State::open(*home_));
  if (::fstatat(home_->directory(), "state.db", &info, AT_SYMLINK_NOFOLLOW) != 0) {
    return system_error("look at the state database");
  }
  device_ = info.st_dev;
  file_ = info.st_ino;
  state_.emplace(std::move(opened));
  return &*state_;
}

}  // namespace carrel::storage
