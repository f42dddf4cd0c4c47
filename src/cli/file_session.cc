#include "cli/file_session.h"

#include <unistd.h>

#include <chrono>

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
  return FileSession{std::move(connection.home), connection.record.id, std::move(connection.use),
                     std::move(files)};
}

void note_file_work(const FileSession& session, std::string_view action, std::string_view path,
                    const Status& result) {
  storage::add_event(session.home,
                     storage::file_event(session.id, action, path,
                                         result.ok() ? "" : code_name(result.error().code)));
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
