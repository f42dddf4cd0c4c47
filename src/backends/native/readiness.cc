#include "backends/native/readiness.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>

#include "backends/native/keeper_client.h"
#include "base/files.h"
#include "storage/background.h"

namespace carrel::native {

namespace {

constexpr std::time_t kSoon = 10;      // seconds
constexpr char kMark[] = "one-shots";  // in run/: was written when the last one ended

}  // namespace

bool one_shots_come(int run) {
  struct stat mark{};
  if (::fstatat(run, kMark, &mark, AT_SYMLINK_NOFOLLOW) != 0) {
    return false;
  }
  const std::time_t age = std::time(nullptr) - mark.st_mtim.tv_sec;
  return age >= 0 && age <= kSoon;
}

void note_one_shot(const storage::Home& home, Nurseries nursery) {
  auto run = open_at(home.directory(), "run", O_PATH | O_DIRECTORY);
  if (!run.ok()) {
    return;
  }
  const bool again = nursery == Nurseries::kMissed && one_shots_come(run.value().get());
  if (::utimensat(run.value().get(), kMark, nullptr, AT_SYMLINK_NOFOLLOW) != 0) {
    (void)open_at(run.value().get(), kMark, O_WRONLY | O_CREAT | O_NOFOLLOW, 0600);
  }
  if (again && !keeper_is_alive(home)) {
    // It is for the next ones; if it does not start, they are made without it.
    (void)storage::start_in_background(home, "keeper", storage::Readiness::kLater);
  }
}

}  // namespace carrel::native
