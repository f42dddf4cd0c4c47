#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/files.h"
#include "cli/context.h"
#include "cli/output.h"
#include "cli/table.h"
#include "storage/home.h"
#include "storage/secrets.h"

namespace carrel::cli {

namespace {

using Words = std::vector<std::string_view>;
using nlohmann::ordered_json;

constexpr std::size_t kLargestInput = storage::kLongestSecret + 2;  // and the end of its line

Result<std::string> printed_by(const std::string& command) {
  std::FILE* output = ::popen(command.c_str(), "re");
  if (output == nullptr) {
    return system_error("start the command that prints the secret");
  }
  auto text = read_all(::fileno(output), kLargestInput);
  const int status = ::pclose(output);
  if (text.ok() && status != 0) {
    return Error{Code::kInvalid, 0, "the command that prints the secret failed", {}};
  }
  return text;
}

Result<std::string> given_value(const Arguments& arguments) {
  if (const auto file = arguments.value(OptionId::kFromFile); file.has_value()) {
    return read_file_at(AT_FDCWD, std::string(*file), kLargestInput);
  }
  if (const auto name = arguments.value(OptionId::kFromEnv); name.has_value()) {
    const char* value = ::getenv(std::string(*name).c_str());
    if (value == nullptr) {
      return Error{Code::kNotFound, 0, "there is no variable '" + printable(*name) + "'", {}};
    }
    return std::string(value);
  }
  if (const auto command = arguments.value(OptionId::kFromCommand); command.has_value()) {
    return printed_by(std::string(*command));
  }
  if (::isatty(STDIN_FILENO) != 0) {
    // It would be shown while it is typed.
    return Error{Code::kInvalid, 0, "a secret is not read from a terminal",
                 "use --from-file, --from-env or --from-command, or a pipe"};
  }
  return read_all(STDIN_FILENO, kLargestInput);
}

Status set(const Context& context, storage::Secrets& secrets, const Words& names) {
  const Arguments& arguments = context.arguments;
  const int sources = static_cast<int>(arguments.has(OptionId::kFromFile)) +
                      static_cast<int>(arguments.has(OptionId::kFromEnv)) +
                      static_cast<int>(arguments.has(OptionId::kFromCommand));
  if (names.size() != 1 || sources > 1) {
    return Error{Code::kInvalid, 0, "secret set takes one NAME and one place to read it from",
                 "the value is no word of the command line, where others could see it"};
  }
  auto value = given_value(arguments);
  if (!value.ok() && value.error().code == Code::kResource) {
    value.error().message = "the secret is too long";
  }
  CARREL_TRY(value);
  return secrets.set(std::string(names.front()), value.value());
}

Status list(const Context& context, const storage::Secrets& secrets) {
  CARREL_ASSIGN(const std::vector<storage::Secrets::Entry> entries, secrets.list());
  if (context.json()) {
    ordered_json rows = ordered_json::array();
    for (const storage::Secrets::Entry& entry : entries) {
      rows.push_back({{"name", entry.name}, {"set_ms", entry.set_ms}});
    }
    print(ordered_json{{"secrets", rows}}.dump() + "\n");
    return {};
  }
  std::vector<std::vector<std::string>> lines = {{"NAME", "SET"}};
  for (const storage::Secrets::Entry& entry : entries) {
    const std::time_t seconds = entry.set_ms / 1000;
    std::tm moment{};
    ::localtime_r(&seconds, &moment);
    std::array<char, 32> time{};
    std::strftime(time.data(), time.size(), "%Y-%m-%d %H:%M:%S", &moment);
    lines.push_back({entry.name, time.data()});
  }
  print(table(lines));
  return {};
}

Status remove(storage::Secrets& secrets, const Words& names) {
  if (names.empty()) {
    return Error{Code::kInvalid, 0, "secret rm takes the names of secrets", {}};
  }
  for (const std::string_view name : names) {
    CARREL_TRY(secrets.remove(std::string(name)));
  }
  return {};
}

}  // namespace

int secret_command(const Context& context) {
  auto home = storage::Home::open();
  if (!home.ok()) {
    return fail(context, home.error());
  }
  auto secrets = storage::Secrets::open(home.value());
  if (!secrets.ok()) {
    return fail(context, secrets.error());
  }
  const std::vector<std::string_view>& operands = context.arguments.operands;
  const Words names(operands.begin() + 1, operands.end());
  const Status done = operands.front() == "set"  ? set(context, secrets.value(), names)
                      : operands.front() == "ls" ? list(context, secrets.value())
                                                 : remove(secrets.value(), names);
  return done.ok() ? 0 : fail(context, done.error());
}

}  // namespace carrel::cli
