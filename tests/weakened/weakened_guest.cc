// The guest with one of its walls left out. It is linked from the guest's own objects, with these
// functions in the place of a few that they call. Which wall that is stands in the program itself,
// where whoever starts it has written it: see weakened.cc. No program that is shipped has any of
// it.
#include <sched.h>
#include <stdarg.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <string_view>

extern "C" {

volatile char carrel_without[64] = "CARREL-WITHOUT:";

int __real_prctl(int operation, ...);
int __real_setns(int fd, int kind);
int __real_unshare(int flags);
int __real_setrlimit(int resource, const struct rlimit* limit);

}  // extern "C"

namespace {

bool is_without(const char* wall) {
  char name[sizeof carrel_without];
  for (std::size_t i = 0; i < sizeof name; ++i) {
    name[i] = carrel_without[i];
  }
  return strcmp(name + sizeof "CARREL-WITHOUT:" - 1, wall) == 0;
}

}  // namespace

extern "C" {

int __wrap_prctl(int operation, ...) {
  unsigned long words[4];
  va_list arguments;
  va_start(arguments, operation);
  for (unsigned long& word : words) {
    word = va_arg(arguments, unsigned long);
  }
  va_end(arguments);
  if ((operation == PR_CAPBSET_DROP && is_without("capabilities")) ||
      (operation == PR_SET_DUMPABLE && words[0] == 0 && is_without("undumpable"))) {
    return 0;
  }
  return __real_prctl(operation, words[0], words[1], words[2], words[3]);
}

int __wrap_setns(int fd, int kind) {
  return kind == CLONE_NEWNET && is_without("network") ? 0 : __real_setns(fd, kind);
}

int __wrap_unshare(int flags) {
  return flags == CLONE_NEWCGROUP && is_without("groups") ? 0 : __real_unshare(flags);
}

int __wrap_setrlimit(int resource, const struct rlimit* limit) {
  const bool counted = resource == RLIMIT_SIGPENDING || resource == RLIMIT_MEMLOCK;
  return counted && is_without("rlimits") ? 0 : __real_setrlimit(resource, limit);
}

}  // extern "C"

namespace carrel::guest {

int real_write_file(int dir, const char* path, std::string_view value) asm(
    "__real__ZN6carrel5guest10write_fileEiPKcSt17basic_string_viewIcSt11char_traitsIcEE");
int wrap_write_file(int dir, const char* path, std::string_view value) asm(
    "__wrap__ZN6carrel5guest10write_fileEiPKcSt17basic_string_viewIcSt11char_traitsIcEE");

int wrap_write_file(int dir, const char* path, std::string_view value) {
  const bool quota = strcmp(path, "max_user_namespaces") == 0;
  return quota && is_without("quota") ? 0 : real_write_file(dir, path, value);
}

}  // namespace carrel::guest
