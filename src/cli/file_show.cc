#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "cli/file_session.h"
#include "cli/output.h"
#include "cli/table.h"
#include "cli/terminal_filter.h"

namespace carrel::cli {

namespace {

using sandbox::FileInfo;
using sandbox::ReadRange;
using Json = nlohmann::ordered_json;

constexpr std::size_t kMostInJson = 16U << 20;

// The two numbers of A:B; without the colon the second is the first's.
struct Pair {
  std::optional<std::uint64_t> first;
  std::optional<std::uint64_t> second;
};

Pair pair_of(std::string_view text) {
  const auto number = [](std::string_view part) -> std::optional<std::uint64_t> {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    return part.empty() || error != std::errc() ? std::nullopt : std::optional(value);
  };
  const std::size_t colon = text.find(':');
  const auto first = number(text.substr(0, colon));
  return {first, colon == std::string_view::npos ? first : number(text.substr(colon + 1))};
}

Result<ReadRange> range_of(const Context& context) {
  ReadRange range;
  const auto lines = context.arguments.value(OptionId::kLines);
  const auto bytes = context.arguments.value(OptionId::kBytes);
  if (lines.has_value() && bytes.has_value()) {
    return Error{Code::kInvalid, 0, "--lines and --bytes exclude each other", {}};
  }
  if (lines.has_value()) {
    const Pair pair = pair_of(*lines);
    range.unit = ReadRange::Unit::kLines;
    range.from = pair.first.value_or(1);
    const std::uint64_t last = pair.second.value_or(protocol::kEverything);
    if (range.from == 0 || last < range.from) {
      return Error{Code::kInvalid, 0, "--lines " + std::string(*lines) + " is no range",
                   "FIRST:LAST, the first line is 1"};
    }
    range.count = last == protocol::kEverything ? last : last - range.from + 1;
  }
  if (bytes.has_value()) {
    const Pair pair = pair_of(*bytes);
    range.from = pair.first.value_or(0);
    range.count = bytes->find(':') == std::string_view::npos
                      ? protocol::kEverything
                      : pair.second.value_or(protocol::kEverything);
  }
  return range;
}

int show_contents(const Context& context, sandbox::Files& files, const std::string& path) {
  auto range = range_of(context);
  if (!range.ok()) {
    return fail(context, range.error());
  }
  std::string kept;
  std::optional<TerminalFilter> filter;
  if (::isatty(STDOUT_FILENO) == 1) {
    filter.emplace();
  }
  auto done = files.read(path, range.value(), [&](std::string_view data) -> Status {
    if (context.json()) {
      kept += data;
      return kept.size() <= kMostInJson
                 ? Status{}
                 : Status{Error{Code::kResource, 0, "'" + path + "' is too large for one object",
                                "read a part of it, or without --json"}};
    }
    return write_all(STDOUT_FILENO, filter.has_value() ? filter->filter(data) : data);
  });
  if (filter.has_value() && !context.json()) {
    print(filter->finish());
  }
  if (!done.ok()) {
    return fail(context, done.error());
  }
  if (context.json()) {
    Json object;
    add_bytes(object, "path", path);
    object["bytes"] = done.value().bytes;
    add_bytes(object, "content", kept);
    print(object.dump() + "\n");
  }
  return 0;
}

std::string mode_text(const FileInfo& info) {
  std::string text = info.kind == protocol::FileKind::kDirectory ? "d"
                     : info.kind == protocol::FileKind::kLink    ? "l"
                     : info.kind == protocol::FileKind::kOther   ? "?"
                                                                 : "-";
  constexpr std::string_view kLetters = "rwxrwxrwx";
  for (unsigned i = 0; i < 9; ++i) {
    text += (info.mode >> (8 - i) & 1) != 0 ? kLetters[i] : '-';
  }
  return text;
}

std::string time_text(std::uint64_t modified_ns) {
  const time_t seconds = static_cast<time_t>(modified_ns / 1'000'000'000);
  tm broken{};
  std::array<char, 32> text{};
  ::localtime_r(&seconds, &broken);
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M", &broken);
  return text.data();
}

std::string shown_name(const FileInfo& info, const std::string& asked) {
  const std::string& name = info.path.empty() ? asked : info.path;
  return info.kind == protocol::FileKind::kLink ? name + " -> " + info.target : name;
}

sandbox::Selection selection_of(const Context& context) {
  sandbox::Selection selection;
  const Arguments& arguments = context.arguments;
  selection.pattern = std::string(arguments.value(OptionId::kPattern).value_or(""));
  selection.skip_usual = arguments.has(OptionId::kSkipUsual);
  if (const auto limit = arguments.value(OptionId::kLimit); limit.has_value()) {
    selection.most = pair_of(*limit).first.value_or(protocol::kEverything);
  }
  std::string_view rest = arguments.value(OptionId::kExclude).value_or("");
  while (!rest.empty()) {
    const std::string_view name = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(name.size() + 1, rest.size()));
    if (!name.empty()) {
      selection.excluded.emplace_back(name);
    }
  }
  return selection;
}

void warn(const Context& context, const sandbox::FileSummary& summary) {
  for (const sandbox::LeftOutFile& file : summary.left_outs) {
    if (!context.json()) {
      print_error("carrel: left out '" + printable(file.path) + "': " + printable(file.reason) +
                  "\n");
    }
  }
}

enum class Rows { kTable, kPaths };

int show_list(const Context& context, sandbox::Files& files, const std::string& path,
              sandbox::Depth depth, Rows rows) {
  sandbox::Selection selection = selection_of(context);
  selection.depth = depth;
  std::vector<FileInfo> found;
  auto done = files.list(path, selection, [&found](const FileInfo& info) -> Status {
    found.push_back(info);
    return {};
  });
  if (!done.ok()) {
    return fail(context, done.error());
  }
  std::sort(found.begin(), found.end(),
            [](const FileInfo& a, const FileInfo& b) { return a.path < b.path; });
  warn(context, done.value());
  if (context.json()) {
    Json object;
    add_bytes(object, "path", path);
    object["entries"] = Json::array();
    for (const FileInfo& info : found) {
      object["entries"].push_back(to_json(info));
    }
    object["left_out"] = done.value().left_out;
    print(object.dump() + "\n");
    return 0;
  }
  if (rows == Rows::kPaths) {
    for (const FileInfo& info : found) {
      print(printable(info.path.empty() ? path : info.path) + "\n");
    }
    return 0;
  }
  std::vector<std::vector<std::string>> lines;
  for (const FileInfo& info : found) {
    lines.push_back({mode_text(info), std::to_string(info.size), time_text(info.modified_ns),
                     shown_name(info, path)});
  }
  print(table(lines));
  return 0;
}

int show_stat(const Context& context, sandbox::Files& files, const std::string& path) {
  auto info = files.stat(path);
  if (!info.ok()) {
    return fail(context, info.error());
  }
  info.value().path = path;
  if (context.json()) {
    print(to_json(info.value()).dump() + "\n");
  } else {
    print(table({{mode_text(info.value()), std::to_string(info.value().size),
                  time_text(info.value().modified_ns), shown_name(info.value(), path)}}));
  }
  return 0;
}

int show_matches(const Context& context, sandbox::Files& files, const std::string& path,
                 const std::string& text) {
  sandbox::Selection selection = selection_of(context);
  selection.depth = sandbox::Depth::kAll;
  Json matches = Json::array();
  auto done = files.search(path, {text, context.arguments.has(OptionId::kIgnoreCase)}, selection,
                           [&](const protocol::FileMatch& match) -> Status {
                             const std::string_view name =
                                 match.path.empty() ? std::string_view(path) : match.path;
                             if (!context.json()) {
                               print(printable(name) + ":" + std::to_string(match.line) + ":" +
                                     printable(match.text) + "\n");
                               return {};
                             }
                             Json object;
                             add_bytes(object, "path", name);
                             object["line"] = match.line;
                             add_bytes(object, "text", match.text);
                             matches.push_back(std::move(object));
                             return {};
                           });
  if (!done.ok()) {
    return fail(context, done.error());
  }
  warn(context, done.value());
  if (context.json()) {
    print(Json{{"matches", std::move(matches)}, {"left_out", done.value().left_out}}.dump() + "\n");
  }
  return done.value().entries > 0 ? 0 : 1;
}

int show_changes(const Context& context, sandbox::Files& files, const std::string& path) {
  const auto depth =
      context.arguments.has(OptionId::kRecursive) ? sandbox::Depth::kAll : sandbox::Depth::kOne;
  const auto begun = [&]() -> Status {
    if (!context.json()) {
      print_error("watching '" + printable(path) + "'\n");
    } else {
      print("{\"event\":\"watching\"}\n");
    }
    return {};
  };
  const auto changed = [&](const protocol::FileChange& change) -> Status {
    if (context.json()) {
      print(sandbox::to_json(change).dump() + "\n");
    } else {
      print(std::string(sandbox::event_name(change.event)) + " " + printable(change.path) +
            (change.other.empty() ? "" : " -> " + printable(change.other)) + "\n");
    }
    return {};
  };
  const Status status = files.watch(path, depth, {begun, changed});
  return status.ok() ? 0 : fail(context, status.error());
}

}  // namespace

int show_file_action(const Context& context, std::string_view action) {
  const std::size_t words_needed = action == "grep"                       ? 2
                                   : action == "read" || action == "stat" ? 1
                                                                          : 0;
  auto words = file_words(context, words_needed, std::max<std::size_t>(words_needed, 1));
  if (!words.ok()) {
    return fail(context, words.error());
  }
  const std::string path = words.value().empty() ? "." : words.value()[0];
  auto session = open_files(context, std::string(context.arguments.operands[1]), {path});
  if (!session.ok()) {
    return fail(context, session.error());
  }
  sandbox::Files& files = session.value().files;
  if (action == "read") {
    return show_contents(context, files, path);
  }
  if (action == "stat") {
    return show_stat(context, files, path);
  }
  if (action == "grep") {
    return show_matches(context, files, path, words.value()[1]);
  }
  if (action == "watch") {
    return show_changes(context, files, path);
  }
  const bool all = action == "find" || context.arguments.has(OptionId::kRecursive);
  return show_list(context, files, path, all ? sandbox::Depth::kAll : sandbox::Depth::kOne,
                   action == "find" ? Rows::kPaths : Rows::kTable);
}

}  // namespace carrel::cli
