#include "storage/secrets.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/files.h"
#include "policy/credential.h"

namespace carrel::storage {

namespace {

constexpr const char* kDirectory = "secrets";

Error unknown(const std::string& name) {
  return Error{Code::kNotFound, 0, "there is no secret '" + name + "'",
               "'carrel secret set " + name + "' stores one"};
}

Status check_value(std::string_view value) {
  if (value.size() < kShortestSecret || value.size() > kLongestSecret) {
    return Error{Code::kInvalid,
                 0,
                 "a secret has " + std::to_string(kShortestSecret) + " to " +
                     std::to_string(kLongestSecret) + " bytes",
                 {}};
  }
  const bool visible = std::all_of(value.begin(), value.end(), [](char c) {
    return static_cast<unsigned char>(c) >= ' ' && c != '\x7f';
  });
  return visible ? Status()
                 : Status(Error{
                       Code::kInvalid, 0, "a secret has one line, without control characters", {}});
}

}  // namespace

Result<Secrets> Secrets::open(const Home& home) {
  if (::mkdirat(home.directory(), kDirectory, 0700) != 0 && errno != EEXIST) {
    return system_error("make the directory of the secrets");
  }
  CARREL_ASSIGN(UniqueFd directory,
                open_at(home.directory(), kDirectory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  struct stat info{};
  // CRITICAL: nobody else may look into it, however it came to be.
  if (::fstat(directory.get(), &info) != 0 || info.st_uid != ::geteuid() ||
      (info.st_mode & 077) != 0) {
    return Error{Code::kDenied, 0, "the directory of the secrets is open to others",
                 "it has to be yours, with mode 0700"};
  }
  return Secrets(std::move(directory));
}

Status Secrets::set(const std::string& name, std::string_view value) {
  CARREL_TRY(policy::check_secret_name({"NAME", name}));
  if (value.ends_with('\n')) {
    value.remove_suffix(1);
  }
  if (value.ends_with('\r')) {
    value.remove_suffix(1);
  }
  CARREL_TRY(check_value(value));
  return replace_file_at(directory_.get(), name, value, 0600);
}

Result<std::string> Secrets::read(const std::string& name) const {
  CARREL_TRY(policy::check_secret_name({"NAME", name}));
  auto value = [&]() -> Result<std::string> {
    CARREL_ASSIGN(const UniqueFd file, open_at(directory_.get(), name, O_RDONLY | O_NOFOLLOW));
    return read_all(file.get(), kLongestSecret);
  }();
  if (!value.ok() && value.error().error_number == ENOENT) {
    return unknown(name);
  }
  CARREL_TRY(value);
  CARREL_TRY(check_value(value.value()));
  return value;
}

Status Secrets::remove(const std::string& name) {
  CARREL_TRY(policy::check_secret_name({"NAME", name}));
  if (::unlinkat(directory_.get(), name.c_str(), 0) != 0) {
    return errno == ENOENT ? unknown(name) : system_error("remove the secret '" + name + "'");
  }
  if (::fsync(directory_.get()) != 0) {
    return system_error("remove the secret '" + name + "' for good");
  }
  return {};
}

Result<std::vector<Secrets::Entry>> Secrets::list() const {
  CARREL_ASSIGN(const std::vector<std::string> names, list_directory(directory_.get()));
  std::vector<Entry> entries;
  for (const std::string& name : names) {
    struct stat info{};
    if (policy::check_secret_name({"NAME", name}).ok() &&
        ::fstatat(directory_.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0) {
      entries.push_back({name, static_cast<std::int64_t>(info.st_mtim.tv_sec) * 1000});
    }
  }
  return entries;
}

}  // namespace carrel::storage
