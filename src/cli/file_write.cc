#include <unistd.h>

#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>

#include "cli/file_session.h"
#include "cli/output.h"

namespace carrel::cli {

namespace {

using sandbox::FileSummary;
using Json = nlohmann::ordered_json;

std::optional<unsigned> mode_from(std::string_view text) {
  unsigned mode = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), mode, 8);
  if (error != std::errc() || end != text.data() + text.size() || mode > 01777) {
    return std::nullopt;
  }
  return mode;
}

std::optional<unsigned> mode_option(const Context& context) {
  const auto given = context.arguments.value(OptionId::kMode);
  return given.has_value() ? mode_from(*given) : std::nullopt;
}

// What is to be written: --text, or the standard input.
sandbox::Files::Source source_for(const Context& context) {
  const auto text = context.arguments.value(OptionId::kText);
  if (!text.has_value()) {
    static const sandbox::Progress kQuiet;
    return sandbox::source_of(STDIN_FILENO, kQuiet);
  }
  return [rest = *text](char* place, std::size_t size) mutable -> Result<std::size_t> {
    const std::size_t piece = std::min(size, rest.size());
    std::memcpy(place, rest.data(), piece);
    rest.remove_prefix(piece);
    return piece;
  };
}

// Actions on one path; `words` is PATH and what comes after it.
Result<FileSummary> perform(const Context& context, sandbox::Files& files, std::string_view action,
                            const std::vector<std::string>& words) {
  const std::string& path = words.front();
  sandbox::WriteOptions options;
  options.mode = mode_option(context);
  if (action == "write") {
    return files.write(path, options, source_for(context));
  }
  if (action == "append") {
    return files.append(path, source_for(context));
  }
  if (action == "create") {
    options.old = sandbox::WriteOptions::Old::kRefused;
    options.mode = options.mode.value_or(0644);
    return files.write(path, options, source_for(context));
  }
  if (action == "rewrite") {
    options.old = sandbox::WriteOptions::Old::kNeeded;
    return files.write(path, options, source_for(context));
  }
  if (action == "str-replace") {
    return files.replace(path, words[1], words[2]);
  }
  if (action == "mv") {
    return files.move(path, words[1]);
  }
  if (action == "cp") {
    return files.copy(path, words[1]);
  }
  if (action == "chmod") {
    const auto mode = mode_from(words[1]);
    if (!mode.has_value()) {
      return Error{Code::kInvalid, 0, "'" + words[1] + "' is not a mode",
                   "octal digits up to 1777, such as 644"};
    }
    return files.change_mode(path, *mode);
  }
  if (action == "mkdir") {
    return files.make_directory(path, mode_option(context));
  }
  return files.remove(path, context.arguments.has(OptionId::kRecursive) ? sandbox::Depth::kAll
                                                                        : sandbox::Depth::kOne);
}

std::size_t words_of(std::string_view action) {
  if (action == "str-replace") {
    return 3;
  }
  return action == "mv" || action == "cp" || action == "chmod" ? 2 : 1;
}

}  // namespace

int write_file_action(const Context& context, std::string_view action) {
  auto words = file_words(context, words_of(action), words_of(action));
  if (!words.ok()) {
    return fail(context, words.error());
  }
  std::vector<std::string> paths = {words.value()[0]};
  if (action == "mv" || action == "cp") {
    paths.push_back(words.value()[1]);
  }
  auto session = open_files(context, std::string(context.arguments.operands[1]), paths);
  if (!session.ok()) {
    return fail(context, session.error());
  }
  auto done = perform(context, session.value().files, action, words.value());
  note_file_work(session.value(), action, paths.front(),
                 done.ok() ? Status{} : Status{done.error()});
  if (!done.ok()) {
    return fail(context, done.error());
  }
  const FileSummary& summary = done.value();
  for (const sandbox::LeftOutFile& file : summary.left_outs) {
    if (!context.json()) {
      print_error("carrel: left out '" + printable(file.path) + "': " + printable(file.reason) +
                  "\n");
    }
  }
  if (context.json()) {
    Json object;
    add_bytes(object, "path", paths.front());
    object["bytes"] = summary.bytes;
    object["entries"] = summary.entries;
    object["left_out"] = summary.left_out;
    if (action == "str-replace") {
      object["line"] = summary.value;
    }
    print(object.dump() + "\n");
  }
  return summary.left_out == 0 ? 0 : kCarrelFailed;
}

}  // namespace carrel::cli
