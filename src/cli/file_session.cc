#include "cli/file_session.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "cli/output.h"
#include "policy/size.h"
#include "storage/events.h"

namespace carrel::cli {

namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kTimeout = 1h;

std::chrono::milliseconds timeout_of(const Context& context) {
  const auto given = context.arguments.value(OptionId::kFileTimeout);
  if (given.has_value()) {
    auto timeout = policy::parse_duration({"--timeout", *given});
    if (timeout.ok()) {
      return timeout.value();
    }
  }
  return kTimeout;
}

}  // namespace

Result<FileSession> open_files(const Context& context, const std::string& named,
                               const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    Status checked = sandbox::check_path(path);
    if (checked.ok()) {
      continue;
    }
    auto home = storage::Home::open();
    auto record = home.ok() ? storage::find_box(home.value(), named) : home.error();
    if (record.ok() && checked.error().code == Code::kDenied) {
      storage::add_event(home.value(),
                         storage::path_event(record.value().id, path, "potentially unsafe path"));
    }
    return checked.error();
  }
  CARREL_ASSIGN(Connection connection, connect_to(named));
  const std::chrono::milliseconds timeout = timeout_of(context);
  CARREL_ASSIGN(sandbox::Files files, sandbox::Files::open(std::move(connection.stream), timeout));
  files.set_patience(std::min<std::chrono::milliseconds>(timeout + 5s, 60s));
  return FileSession{std::move(connection.home), connection.record.id, std::move(files)};
}

void note_file_work(const FileSession& session, std::string_view action, std::string_view path,
                    const Status& result) {
  storage::add_event(session.home,
                     storage::file_event(session.id, action, path,
                                         result.ok() ? "" : code_name(result.error().code)));
}

void add_bytes(nlohmann::ordered_json& object, const std::string& name, std::string_view bytes) {
  object[name] = replace_invalid_utf8(bytes);
  if (!valid_utf8(bytes)) {
    object[name + "_b64"] = base64(bytes);
  }
}

std::string_view kind_name(protocol::FileKind kind) {
  switch (kind) {
    case protocol::FileKind::kFile:
    case protocol::FileKind::kHardLink:
      return "file";
    case protocol::FileKind::kDirectory:
    case protocol::FileKind::kDirectoryEnd:
      return "directory";
    case protocol::FileKind::kLink:
      return "link";
    case protocol::FileKind::kOther:
      break;
  }
  return "other";
}

nlohmann::ordered_json to_json(const sandbox::FileInfo& info) {
  nlohmann::ordered_json object;
  add_bytes(object, "path", info.path);
  object["kind"] = kind_name(info.kind);
  std::array<char, 8> mode{};
  std::snprintf(mode.data(), mode.size(), "%04o", info.mode);
  object["mode"] = mode.data();
  object["size"] = info.size;
  object["modified_ms"] = info.modified_ns / 1'000'000;
  if (info.kind == protocol::FileKind::kLink) {
    add_bytes(object, "target", info.target);
  }
  return object;
}

Result<std::vector<std::string>> file_words(const Context& context, std::size_t least,
                                            std::size_t most) {
  const std::vector<std::string_view>& operands = context.arguments.operands;
  std::vector<std::string> words(operands.begin() + 2, operands.end());
  if (words.size() >= least && words.size() <= most) {
    return words;
  }
  return Error{Code::kInvalid, 0,
               "file " + std::string(operands.front()) +
                   (words.size() < least ? " needs more words" : " has too many words"),
               "try 'carrel file --help'"};
}

}  // namespace carrel::cli
