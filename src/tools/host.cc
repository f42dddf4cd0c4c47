#include "tools/host.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/files.h"
#include "base/open_below.h"
#include "guest/file_text.h"
#include "tools/host_program.h"

namespace carrel::tools {
namespace {

constexpr std::size_t kLargestText = 16U << 20;
constexpr int kDeepest = 32;

// A link that leads out of the folder is EXDEV or ELOOP.
Error explain(Error error, const std::string& path) {
  const int number = error.error_number;
  error.message = "'" + path + "'";
  if (number == ENOENT) {
    return {Code::kNotFound, 0, error.message + " does not exist", {}};
  }
  if (number == EXDEV || number == ELOOP) {
    return {Code::kDenied, 0, error.message + " leads through a link", "links are not followed"};
  }
  if (number == EACCES || number == EISDIR || number == ENOTDIR || number == EPERM) {
    error.code = Code::kDenied;
  }
  return error;
}

}  // namespace

Result<sandbox::ExecResult> HostCommands::run(const sandbox::CommandRequest& request,
                                              const Cancel& cancel) {
  HostProgram program;
  program.arguments = request.arguments;
  if (program.arguments.empty()) {
    program.arguments = {"bash", "--noprofile", "--norc", "-c", request.shell_text};
  }
  program.directory = folder_;
  program.timeout = request.timeout;
  program.streams = request.merged ? HostProgram::Streams::kTogether : HostProgram::Streams::kApart;
  CARREL_ASSIGN(sandbox::ExecResult result, run_on_host(program, cancel));
  result.cwd = folder_;
  return result;
}

std::string HostCommands::where() const {
  return "on the host itself, outside of any sandbox, in " + folder_;
}

Result<std::unique_ptr<HostFiles>> HostFiles::open(const std::string& folder) {
  CARREL_ASSIGN(UniqueFd root, open_at(AT_FDCWD, folder, O_PATH | O_DIRECTORY));
  return std::unique_ptr<HostFiles>(new HostFiles(std::move(root), folder));
}

std::string HostFiles::place() const { return "files of the host itself, in " + folder_; }

Result<HostFiles::Place> HostFiles::place_of(const std::string& path, Parents parents) const {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : path.substr(0, slash);
  Place place;
  place.name = slash == std::string::npos ? path : path.substr(slash + 1);
  if (parents == Parents::kMade) {
    for (std::size_t end = folder.find('/'); !folder.empty(); end = folder.find('/', end + 1)) {
      const std::string part = folder.substr(0, end);
      const std::size_t cut = part.rfind('/');
      auto above = open_below(root_.get(), cut == std::string::npos ? "" : part.substr(0, cut),
                              O_PATH | O_DIRECTORY);
      if (!above.ok()) {
        return explain(above.error(), path);
      }
      (void)::mkdirat(above->get(), part.substr(cut + 1).c_str(), 0755);
      if (end == std::string::npos) {
        break;
      }
    }
  }
  auto parent = open_below(root_.get(), folder, O_RDONLY | O_DIRECTORY);
  if (!parent.ok()) {
    return explain(parent.error(), path);
  }
  place.parent = std::move(parent.value());
  return place;
}

Result<FileStore::Text> HostFiles::read(const std::string& path, const sandbox::ReadRange& range,
                                        std::size_t limit) {
  auto file = open_below(root_.get(), path == "." ? "" : path, O_RDONLY | O_NONBLOCK);
  struct stat info{};
  if (!file.ok()) {
    return explain(file.error(), path);
  }
  if (::fstat(file->get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return Error{Code::kDenied, 0, "'" + path + "' is not a regular file", {}};
  }
  CARREL_ASSIGN(const std::string all, read_all(file->get(), kLargestText));
  Text text;
  if (range.unit == sandbox::ReadRange::Unit::kLines) {
    guest::LineRange lines(range.from, range.count == protocol::kEverything
                                           ? protocol::kEverything
                                           : range.from + range.count - 1);
    text.text = std::string(lines.take(all));
  } else {
    text.text = all.substr(std::min<std::size_t>(range.from, all.size()), range.count);
  }
  text.cut = text.text.size() > limit;
  text.text.resize(std::min(text.text.size(), limit));
  return text;
}

Status HostFiles::write(const std::string& path, std::string_view contents,
                        const sandbox::WriteOptions& options) {
  using Old = sandbox::WriteOptions::Old;
  CARREL_ASSIGN(const Place place,
                place_of(path, options.old == Old::kNeeded ? Parents::kNeeded : Parents::kMade));
  struct stat info{};
  const bool there =
      ::fstatat(place.parent.get(), place.name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0;
  if (there && options.old == Old::kRefused) {
    return Error{Code::kConflict, 0, "'" + path + "' exists already", {}};
  }
  if (!there && options.old == Old::kNeeded) {
    return Error{Code::kNotFound, 0, "'" + path + "' does not exist", {}};
  }
  if (there && !S_ISREG(info.st_mode)) {
    return Error{Code::kDenied, 0, "'" + path + "' is not a regular file", {}};
  }
  const unsigned mode = options.mode.value_or(there ? info.st_mode & 0777 : 0644);
  return replace_file_at(place.parent.get(), place.name, contents, mode, Lasting::kUnsynced);
}

Result<std::uint64_t> HostFiles::replace(const std::string& path, std::string_view old_text,
                                         std::string_view new_text) {
  CARREL_ASSIGN(Text text, read(path, {}, kLargestText));
  const guest::Occurrences found = guest::find_occurrences(text.text, old_text);
  if (found.count == 0) {
    return Error{Code::kConflict, 0, "the text to replace was not found in '" + path + "'",
                 "it has to be there exactly as it is given, blanks and tabs included"};
  }
  if (found.count > 1) {
    std::string lines;
    for (std::size_t i = 0; i < std::min<std::size_t>(found.count, found.kNamed); ++i) {
      lines += (lines.empty() ? "" : ", ") + std::to_string(found.lines[i]);
    }
    return Error{Code::kConflict, 0,
                 "the text to replace occurs " + std::to_string(found.count) + " times in '" +
                     path + "', on lines " + lines,
                 "give more of the text around it, so that it occurs once"};
  }
  text.text.replace(found.first, old_text.size(), new_text);
  CARREL_TRY(write(path, text.text, {.old = sandbox::WriteOptions::Old::kNeeded, .mode = {}}));
  return found.lines[0];
}

Status HostFiles::remove(const std::string& path) {
  CARREL_ASSIGN(const Place place, place_of(path, Parents::kNeeded));
  if (::unlinkat(place.parent.get(), place.name.c_str(), 0) != 0) {
    return explain(system_error("remove '" + path + "'"), path);
  }
  return {};
}

Result<std::vector<sandbox::FileInfo>> HostFiles::list(const std::string& path, std::size_t most) {
  std::vector<sandbox::FileInfo> found;
  std::vector<std::pair<std::string, int>> folders = {{path == "." ? "" : path, 0}};
  while (!folders.empty() && found.size() < most) {
    const auto [folder, depth] = folders.back();
    folders.pop_back();
    auto directory = open_below(root_.get(), folder, O_RDONLY | O_DIRECTORY);
    if (!directory.ok()) {
      if (depth == 0) {
        return explain(directory.error(), path);
      }
      continue;
    }
    CARREL_ASSIGN(const std::vector<std::string> names, list_directory(directory->get()));
    for (const std::string& name : names) {
      struct stat info{};
      if (::fstatat(directory->get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
        continue;
      }
      const bool is_folder = S_ISDIR(info.st_mode);
      if (guest::is_usual_clutter(name,
                                  is_folder ? guest::NameOf::kDirectory : guest::NameOf::kFile) ||
          found.size() >= most) {
        continue;
      }
      sandbox::FileInfo one;
      one.kind = is_folder ? protocol::FileKind::kDirectory : protocol::FileKind::kFile;
      one.size = static_cast<std::uint64_t>(info.st_size);
      one.path = folder.empty() ? name : folder + "/" + name;
      if (is_folder && depth < kDeepest) {
        folders.emplace_back(one.path, depth + 1);
      }
      found.push_back(std::move(one));
    }
  }
  return found;
}

}  // namespace carrel::tools
