#include "backends/native/doctor_trial.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <ctime>

namespace carrel::native {

SharedBoard::SharedBoard() {
  void* area = ::mmap(nullptr, sizeof(TrialBoard), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (area != MAP_FAILED) {
    board_ = new (area) TrialBoard;
    board_->outcomes.fill(kNotTried);
  }
}

SharedBoard::~SharedBoard() {
  if (board_ != nullptr) {
    ::munmap(board_, sizeof(TrialBoard));
  }
}

void SharedBoard::report(FeatureOutcomes& outcomes) const {
  for (std::size_t i = 0; board_ != nullptr && i < kFeatureCount; ++i) {
    if (board_->outcomes[i] != kNotTried) {
      outcomes.values[i] = board_->outcomes[i];
    }
  }
}

TrialEnd end_trial(pid_t pid, int patience_ms) {
  for (int waited = 0; waited < patience_ms; ++waited) {
    const pid_t ended = ::waitpid(pid, nullptr, WNOHANG);
    if (ended == pid || (ended < 0 && errno == ECHILD)) {
      return TrialEnd::kByItself;
    }
    const timespec millisecond{0, 1'000'000};
    ::nanosleep(&millisecond, nullptr);
  }
  ::kill(pid, SIGKILL);
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  return TrialEnd::kKilled;
}

}  // namespace carrel::native
