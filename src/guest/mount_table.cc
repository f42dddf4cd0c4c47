#include "guest/mount_table.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <string_view>

#include "guest/runtime.h"

namespace carrel::guest {

namespace {

using protocol::MountStep;
using protocol::StepKind;

struct Mounted {
  Path path;  // from the root on, without its slash
  bool read_only = false;
};

bool is_below(std::string_view path, std::string_view folder) {
  return path.size() > folder.size() && path.starts_with(folder) && path[folder.size()] == '/';
}

bool has(const MountStep& step, protocol::StepFlags flag) { return (step.flags & flag) != 0; }

bool is_digit(char c) { return c >= '0' && c <= '7'; }

// The kernel writes blanks and backslashes as three octal digits.
void unescape(std::string_view text, Path& path) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '\\' && i + 3 < text.size() && is_digit(text[i + 1]) && is_digit(text[i + 2]) &&
        is_digit(text[i + 3])) {
      c = static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + text[i + 3] - '0');
      i += 3;
    }
    path.add({&c, 1});
  }
}

// The fifth and the sixth of the words of a line: where it is, and how.
bool parse_line(std::string_view line, Mounted& mounted) {
  std::string_view words[6];
  for (std::string_view& word : words) {
    const std::size_t end = line.find(' ');
    word = part(line, 0, end);
    line = end == std::string_view::npos ? std::string_view() : part(line, end + 1);
  }
  if (!words[4].starts_with("/") || words[5].size() < 2) {
    return false;
  }
  unescape(part(words[4], 1), mounted.path);
  mounted.read_only = words[5].starts_with("ro,") || words[5] == "ro";
  return true;
}

// Whether a mount at this place is what the step is about.
bool belongs(const Mounted& mounted, const MountStep& step) {
  const std::string_view path = mounted.path.view();
  const bool here = path == step.path;
  switch (step.kind) {
    case StepKind::kAttach:
    case StepKind::kDevice:
    case StepKind::kProc:
    case StepKind::kDevpts:
    case StepKind::kReadOnly:
    case StepKind::kReplace:
      return here;
    case StepKind::kMask:  // what lies below is hidden
      return here || is_below(path, step.path);
    case StepKind::kBind:
    case StepKind::kTree:
    case StepKind::kOverlay:
      return here || (is_below(path, step.path) &&
                      (mounted.read_only || !has(step, protocol::kStepReadOnly)));
    case StepKind::kFile:  // a file over the one in the root
      return here && mounted.read_only;
    case StepKind::kMountPoint:
      return here && mounted.read_only && has(step, protocol::kStepIsFile);
    default:
      return false;
  }
}

bool is_in(const Mounted& mounted, std::string_view plan) {
  protocol::PlanReader steps(plan);
  MountStep step;
  while (steps.next(step)) {
    if (belongs(mounted, step)) {
      return true;
    }
  }
  return false;
}

bool check_line(std::string_view line, const protocol::Plan& plan, Kernel kernel,
                Failure& failure) {
  Mounted mounted;
  if (!parse_line(line, mounted)) {
    return failure.at("read", "the table of mounts", -EBADMSG);
  }
  const bool gvisors =
      kernel == Kernel::kGvisors && mounted.path.view() == "sys" && mounted.read_only;
  const bool known = mounted.path.view().empty() || mounted.path.view() == "dev" || gvisors ||
                     is_in(mounted, plan.own) || is_in(mounted, plan.alike) ||
                     is_in(mounted, plan.shared);
  return known || failure.at(
                      "rely on these walls: not asked for, or not protected, is what is "
                      "mounted at",
                      mounted.path.view(), 0);
}

// Has `take` take each line, as long as it can. Returns 0, or a negative errno where the table
// could not be read to its end.
template <typename Take>
int each_line(Take take) {
  static char buffer[32U << 10];
  int fd = openat(AT_FDCWD, "/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return -errno;
  }
  std::size_t kept = 0;
  int result = 0;
  bool goes_on = true;
  ssize_t n = 0;
  while (goes_on && (n = read(fd, buffer + kept, sizeof buffer - kept)) > 0) {
    std::string_view rest(buffer, kept + static_cast<std::size_t>(n));
    for (std::size_t end; goes_on && (end = rest.find('\n')) != std::string_view::npos;) {
      goes_on = take(part(rest, 0, end));
      rest = part(rest, end + 1);
    }
    kept = rest.size();
    __builtin_memmove(buffer, rest.data(), kept);
    if (kept == sizeof buffer) {
      result = -E2BIG;
      goes_on = false;
    }
  }
  close(fd);
  return n < 0 ? -EIO : result;
}

}  // namespace

bool check_mounts(const protocol::Plan& plan, Kernel kernel, Failure& failure) {
  bool fine = true;
  const int result = each_line([&](std::string_view line) {
    fine = check_line(line, plan, kernel, failure);
    return fine;
  });
  return fine && (result == 0 || failure.at("read", "the table of mounts", result));
}

MountedAs mounted_at(std::string_view path) {
  MountedAs found = MountedAs::kNothing;
  const int result = each_line([&](std::string_view line) {
    Mounted mounted;
    if (!parse_line(line, mounted)) {
      found = MountedAs::kNothing;
      return false;
    }
    if (mounted.path.view() == part(path, 1)) {
      found = mounted.read_only ? MountedAs::kReadOnly : MountedAs::kWritable;
    }
    return true;
  });
  return result == 0 ? found : MountedAs::kNothing;
}

}  // namespace carrel::guest
