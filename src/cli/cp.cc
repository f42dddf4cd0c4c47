#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "cli/file_session.h"
#include "cli/output.h"
#include "cli/progress_line.h"
#include "policy/names.h"
#include "sandbox/tree_tar.h"
#include "sandbox/tree_to_host.h"

namespace carrel::cli {

namespace {

using sandbox::FileSummary;
using sandbox::LeftOutFile;

// One end of a copy: a path in a sandbox, a path of the host, or "-".
struct End {
  std::string box;  // empty: the host
  std::string path;

  [[nodiscard]] bool is_stream() const { return box.empty() && path == "-"; }
};

End end_of(std::string_view word) {
  const std::size_t colon = word.find(':');
  const std::string_view box = word.substr(0, colon);
  if (colon == std::string_view::npos || box.empty() || box.find('/') != std::string_view::npos) {
    return {"", std::string(word)};
  }
  const std::string_view path = word.substr(colon + 1);
  return {std::string(box), std::string(path.empty() ? "." : path)};
}

// What a copy did, for the one line or object that is shown.
struct Copied {
  FileSummary summary;
  std::vector<LeftOutFile> left_out;  // on this side
};

std::string_view without_slashes(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') {
    path.remove_suffix(1);
  }
  return path;
}

// The last name of a path. Empty for "x/." and what is the root: its contents are meant.
std::string last_name(std::string_view path) {
  path = without_slashes(path);
  const std::string_view name = path.substr(path.rfind('/') + 1);
  return name == "." || name == "/" ? std::string() : std::string(name);
}

std::string joined(std::string_view directory, const std::string& name) {
  std::string path(directory);
  return path + (path.back() == '/' ? "" : "/") + name;
}

// Whether it is a directory inside, or a link to one. The worker is asked for what is in it.
Result<bool> is_directory_inside(sandbox::Files& files, const std::string& path) {
  auto info = files.stat(joined(path, "."));
  if (info.ok()) {
    return true;
  }
  return info.error().code == Code::kNotFound || info.error().code == Code::kConflict
             ? Result<bool>(false)
             : Result<bool>(info.error());
}

Result<Copied> copy_file_in(sandbox::Files& files, int fd, const struct stat& info,
                            const std::string& path, const sandbox::Progress& progress) {
  sandbox::WriteOptions options;
  if (S_ISREG(info.st_mode)) {
    options.mode = info.st_mode & 0777;
    if (info.st_mtim.tv_sec > 0) {
      options.modified_ns = static_cast<std::uint64_t>(info.st_mtim.tv_sec) * 1'000'000'000 +
                            static_cast<std::uint64_t>(info.st_mtim.tv_nsec);
    }
  }
  CARREL_ASSIGN(FileSummary summary, files.write(path, options, sandbox::source_of(fd, progress)));
  summary.entries = 1;
  return Copied{std::move(summary), {}};
}

// The standard input: a tar for a directory, and the bytes of a file otherwise.
Result<Copied> copy_stream_in(sandbox::Files& files, const std::string& path,
                              const sandbox::Progress& progress) {
  CARREL_ASSIGN(const bool directory, is_directory_inside(files, path));
  if (!directory && path.back() != '/') {
    const struct stat none{};
    return copy_file_in(files, STDIN_FILENO, none, path, progress);
  }
  Copied copied;
  static const sandbox::Progress kQuiet;
  const sandbox::Files::Source archive = sandbox::source_of(STDIN_FILENO, kQuiet);
  CARREL_ASSIGN(copied.summary, files.unpack(path, [&](sandbox::TreeFeed& feed) {
    return sandbox::feed_tar(archive, feed, copied.left_out, progress);
  }));
  return copied;
}

Result<Copied> copy_in(sandbox::Files& files, const std::string& from, const std::string& to,
                       const sandbox::Progress& progress) {
  UniqueFd source(::open(from.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  struct stat info{};
  if (!source.valid() || ::fstat(source.get(), &info) != 0) {
    return errno == ENOENT
               ? Error{Code::kNotFound, 0, "'" + from + "' was not found on the host", {}}
               : system_error("open '" + from + "'");
  }
  CARREL_ASSIGN(const bool into, is_directory_inside(files, to));
  const std::string name = last_name(from);
  if (S_ISREG(info.st_mode)) {
    if (!into && to.back() == '/') {
      return Error{
          Code::kNotFound, 0, "'" + to + "' was not found: it is no directory of the sandbox", {}};
    }
    return copy_file_in(files, source.get(), info, into ? joined(to, name) : to, progress);
  }
  if (!S_ISDIR(info.st_mode)) {
    return Error{Code::kDenied, 0, "'" + from + "' is no file and no directory", {}};
  }
  Copied copied;
  const std::string top = into && !name.empty() ? joined(to, name) : to;
  CARREL_ASSIGN(copied.summary, files.unpack(top, [&](sandbox::TreeFeed& feed) {
    return sandbox::feed_host_tree(source.get(), feed, copied.left_out, progress);
  }));
  return copied;
}

// To the standard output: the bytes of a file, or a tar of a directory.
Result<Copied> copy_stream_out(sandbox::Files& files, const std::string& from) {
  const auto out = [](std::string_view data) { return write_all(STDOUT_FILENO, data); };
  CARREL_ASSIGN(const bool directory, is_directory_inside(files, from));
  Copied copied;
  if (!directory) {
    CARREL_ASSIGN(copied.summary, files.read(from, {}, out));
    return copied;
  }
  std::string gathered;
  sandbox::TarSink tar(last_name(from), [&](std::string_view data) -> Status {
    constexpr std::size_t kEnough = 128U << 10;
    gathered += data;
    if (gathered.size() < kEnough) {
      return {};
    }
    Status written = out(gathered);
    gathered.clear();
    return written;
  });
  CARREL_ASSIGN(copied.summary, files.pack(from, tar));
  CARREL_TRY(tar.finish());
  CARREL_TRY(out(gathered));
  return copied;
}

Result<Copied> copy_out(sandbox::Files& files, const std::string& from, const std::string& to,
                        sandbox::Progress progress) {
  Copied copied;
  sandbox::TreeToHost sink(to, last_name(from), std::move(progress));
  CARREL_ASSIGN(copied.summary, files.pack(from, sink));
  CARREL_TRY(sink.finish());
  return copied;
}

int show(const Context& context, const End& from, const End& to, Copied& copied) {
  // Pipes and devices are nothing that a copy could have; everything else that is missing is a
  // failure.
  std::uint64_t failed = copied.summary.left_out - copied.summary.left_outs.size();
  copied.left_out.insert(copied.left_out.end(), copied.summary.left_outs.begin(),
                         copied.summary.left_outs.end());
  nlohmann::ordered_json listed = nlohmann::ordered_json::array();
  for (const LeftOutFile& file : copied.left_out) {
    failed += file.special ? 0 : 1;
    if (context.json()) {
      nlohmann::ordered_json row;
      add_bytes(row, "path", file.path);
      row["reason"] = file.reason;
      listed.push_back(std::move(row));
    } else {
      print_error("carrel: left out '" + printable(file.path) + "': " + printable(file.reason) +
                  "\n");
    }
  }
  const int status = failed == 0 ? 0 : kCarrelFailed;
  if (context.json() && !to.is_stream()) {
    nlohmann::ordered_json object;
    add_bytes(object, "from", from.path);
    add_bytes(object, "to", to.path);
    object["entries"] = copied.summary.entries;
    object["bytes"] = copied.summary.bytes;
    object["left_out"] = std::move(listed);
    object["exit_code"] = status;
    print(object.dump() + "\n");
  }
  return status;
}

}  // namespace

int copy_command(const Context& context) {
  const End from = end_of(context.arguments.operands[0]);
  const End to = end_of(context.arguments.operands[1]);
  if (from.box.empty() == to.box.empty()) {
    return fail(context, Error{Code::kInvalid, 0,
                               "one of SRC and DST has to be a path in a sandbox, ID:PATH",
                               "'carrel file cp' copies inside of one"});
  }
  const bool in = from.box.empty();
  const End& inside = in ? to : from;
  if (Status named = policy::check_name({"ID", inside.box}); !named.ok()) {
    return fail(context, named.error());
  }
  auto session = open_files(context, inside.box, {inside.path});
  if (!session.ok()) {
    return fail(context, session.error());
  }
  sandbox::Files& files = session.value().files;
  Result<Copied> copied = Error{};
  {
    ProgressLine line(context);
    const sandbox::Progress progress = [&](std::uint64_t bytes, std::uint64_t entries) {
      line.show([&] { return size_text(bytes) + ", " + std::to_string(entries) + " files"; });
    };
    copied = in               ? from.is_stream() ? copy_stream_in(files, to.path, progress)
                                                 : copy_in(files, from.path, to.path, progress)
                           : to.is_stream() ? copy_stream_out(files, from.path)
                              : copy_out(files, from.path, to.path, progress);
  }
  note_file_work(session.value(), in ? "copy in" : "copy out", inside.path,
                 copied.ok() ? Status{} : Status{copied.error()});
  return copied.ok() ? show(context, from, to, copied.value()) : fail(context, copied.error());
}

}  // namespace carrel::cli
