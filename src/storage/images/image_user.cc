#include "storage/images/image_user.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <array>
#include <charconv>
#include <string_view>

#include "base/files.h"
#include "base/open_below.h"
#include "policy/names.h"

namespace carrel::storage {

namespace {

constexpr std::size_t kMostBytes = 1U << 20;
constexpr std::uint32_t kHighestId = 0x7fffffff;

// The beginning of a file of the image; empty if there is none, or it is no file.
std::string read_below(int root, const std::string& path) {
  const auto file = open_below(root, path, O_RDONLY | O_NONBLOCK);
  struct stat info{};
  if (!file.ok() || ::fstat(file.value().get(), &info) != 0 || !S_ISREG(info.st_mode) ||
      info.st_size > static_cast<off_t>(kMostBytes)) {
    return {};
  }
  auto text = read_all(file.value().get(), kMostBytes);
  return text.ok() ? std::move(text.value()) : std::string();
}

std::optional<std::uint32_t> to_id(std::string_view text) {
  std::uint32_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  return !text.empty() && error == std::errc() && end == text.data() + text.size() &&
                 id <= kHighestId
             ? std::optional(id)
             : std::nullopt;
}

// A line of /etc/passwd or /etc/group: NAME, a password, an id and, of a user, that of a group.
struct Line {
  std::string_view name;
  std::uint32_t id = 0;
  std::uint32_t group = 0;
};

std::optional<Line> parse_line(std::string_view line) {
  std::array<std::string_view, 4> fields;
  for (std::string_view& field : fields) {
    const std::size_t colon = line.find(':');
    field = line.substr(0, colon);
    line.remove_prefix(colon == std::string_view::npos ? line.size() : colon + 1);
  }
  const auto id = to_id(fields[2]);
  return fields[0].empty() || !id
             ? std::nullopt
             : std::optional(Line{fields[0], *id, to_id(fields[3]).value_or(0)});
}

// The first line that has this name or, if it is a number that is nobody's name, this id.
std::optional<Line> find(std::string_view text, std::string_view wanted) {
  const std::optional<std::uint32_t> id = to_id(wanted);
  std::optional<Line> by_id;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::optional<Line> line = parse_line(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line && line->name == wanted) {
      return line;
    }
    if (line && id && line->id == *id && !by_id) {
      by_id = line;
    }
  }
  return by_id;
}

Error unknown(const std::string& what, std::string_view name) {
  return Error{Code::kNotFound, 0,
               "the image wants to run as the " + what + " '" + std::string(name) +
                   "', which it does not have",
               "choose the user inside: --user agent"};
}

}  // namespace

Result<std::optional<ImageUser>> resolve_user(int root, const std::string& user) {
  const std::size_t colon = user.find(':');
  const std::string_view who = std::string_view(user).substr(0, colon);
  if (who.empty() || who == "root" || who == "0") {
    return std::optional<ImageUser>();
  }
  ImageUser found;
  const std::string users = read_below(root, "etc/passwd");
  if (const auto line = find(users, who); line.has_value()) {
    found.name = line->name;
    found.uid = line->id;
    found.gid = line->group;
  } else if (const auto id = to_id(who); id.has_value()) {
    found.uid = *id;
  } else {
    return unknown("user", who);
  }
  if (found.uid == 0) {
    return std::optional<ImageUser>();
  }
  if (found.name == "root" || !policy::check_user_name({"user", found.name}).ok()) {
    found.name.clear();
  }
  if (colon == std::string::npos) {
    return std::optional(std::move(found));
  }
  const std::string_view group = std::string_view(user).substr(colon + 1);
  const std::string groups = read_below(root, "etc/group");
  if (const auto line = find(groups, group); line.has_value()) {
    found.gid = line->id;
  } else if (const auto id = to_id(group); id.has_value()) {
    found.gid = *id;
  } else {
    return unknown("group", group);
  }
  return std::optional(std::move(found));
}

}  // namespace carrel::storage
