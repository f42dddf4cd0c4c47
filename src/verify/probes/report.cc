#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "verify/probes/probe.h"

namespace carrel::probe {
namespace {

void add_json(std::string& out, std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte > 0x7e) {
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

void add_list(std::string& out, std::string_view name, const std::vector<std::string>& items) {
  out += ",\"";
  out += name;
  out += "\":[";
  for (std::size_t i = 0; i < items.size(); ++i) {
    out += i == 0 ? "" : ",";
    add_json(out, items[i]);
  }
  out += ']';
}

}  // namespace

void Report::held(std::string what) { held_.push_back(std::move(what)); }
void Report::open(std::string what) { open_.push_back(std::move(what)); }
void Report::not_applicable(std::string reason) { not_applicable_.push_back(std::move(reason)); }

void Report::must_fail(std::string what, long result) {
  const int reason = errno;
  if (result < 0) {
    held(what + ": " + error_name(reason));
  } else {
    open(what + ": it worked");
  }
}

void Report::must_fail_with(std::string what, long result, std::span<const int> reasons) {
  const int reason = errno;
  if (result < 0 && std::find(reasons.begin(), reasons.end(), reason) != reasons.end()) {
    held(what + ": " + error_name(reason));
  } else {
    open(what + ": " + (result < 0 ? error_name(reason) : std::string("it worked")));
  }
}

void Report::expect(std::string what, Fact holds) {
  if (holds) {
    held(std::move(what));
  } else {
    open("not so: " + what);
  }
}

std::string Report::line(std::string_view probe) const {
  std::string out = "{\"probe\":";
  add_json(out, probe);
  out += ",\"verdict\":";
  add_json(out, !open_.empty() ? "open" : !held_.empty() ? "held" : "n/a");
  add_list(out, "open", open_);
  add_list(out, "n/a", not_applicable_);
  add_list(out, "held", held_);
  return out + "}\n";
}

std::string error_name(int number) {
  const char* name = ::strerrorname_np(number);
  return name != nullptr ? name : std::to_string(number);
}

std::string read_some(const std::string& path, std::size_t limit) {
  std::string text(limit, '\0');
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    return {};
  }
  std::size_t size = 0;
  while (size < limit) {
    const ssize_t n = ::read(fd, text.data() + size, limit - size);
    if (n <= 0) {
      break;
    }
    size += static_cast<std::size_t>(n);
  }
  ::close(fd);
  text.resize(size);
  return text;
}

bool can_read(const std::string& path) { return !read_some(path, 1).empty(); }

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  DIR* stream = ::opendir(directory.c_str());
  if (stream == nullptr) {
    return names;
  }
  while (const dirent* entry = ::readdir(stream)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") {
      names.push_back(name);
    }
  }
  ::closedir(stream);
  return names;
}

int in_child(void (*body)(void*), void* context, unsigned seconds) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGALRM, SIG_DFL);
    ::alarm(seconds);
    body(context);
    ::_exit(0);
  }
  int status = 0;
  while (child > 0 && ::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return child < 0 ? -1 : status;
}

bool has_argument(Arguments arguments, std::string_view name) {
  return std::any_of(arguments.begin(), arguments.end(),
                     [&](const char* argument) { return name == argument; });
}

}  // namespace carrel::probe
