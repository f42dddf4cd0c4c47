#include "cli/help.h"

#include "policy/given.h"

namespace carrel::cli {
namespace {

using policy::concat;

constexpr std::size_t kWidth = 80;
constexpr std::size_t kCommandColumn = 14;
constexpr std::size_t kOptionColumn = 28;

// Appends the words of `text`, breaking lines before the 80th column; `at` is where the first one
// goes and `indent` where the others start.
void append_wrapped(std::string& out, std::string_view text, std::size_t at, std::size_t indent) {
  bool first_of_line = true;
  for_each_word(text, [&](std::string_view word) {
    const std::size_t space = first_of_line ? 0 : 1;
    if (!first_of_line && at + space + word.size() > kWidth) {
      out += '\n';
      out.append(indent, ' ');
      at = indent;
    } else {
      out.append(space, ' ');
      at += space;
    }
    out += word;
    at += word.size();
    first_of_line = false;
  });
  out += '\n';
}

std::string label_of(const OfferedOption& option) {
  const char short_name[] = {'-', option.short_name, '\0'};
  return concat({option.short_name == 0 ? "    " : std::string_view(short_name),
                 option.short_name == 0 ? "" : ", ", "--", option.name,
                 option.placeholder.empty() ? "" : " ", option.placeholder});
}

void append_examples(std::string& out, std::string_view examples) {
  while (!examples.empty()) {
    const std::string_view line = examples.substr(0, examples.find('\n'));
    examples.remove_prefix(line.size() + 1);
    const std::size_t tab = line.find('\t');
    out += concat({"  # ", line.substr(tab + 1), "\n  ", line.substr(0, tab), "\n"});
  }
}

}  // namespace

std::string described(std::string_view label, std::string_view text, std::size_t column) {
  std::string out = concat({"  ", label});
  if (out.size() + 2 > column) {
    out += '\n';
    out.append(column, ' ');
  } else {
    out.append(column - out.size(), ' ');
  }
  append_wrapped(out, text, column, column);
  return out;
}

std::string_view group_title(CommandGroup group) {
  switch (group) {
    case CommandGroup::kOnce:
      return "Run once";
    case CommandGroup::kLongLived:
      return "Long-lived sandboxes";
    case CommandGroup::kFiles:
      return "Workspaces: files through time";
    case CommandGroup::kOther:
      break;
  }
  return "More";
}

std::string usage_line(const Command& command) {
  std::string line = concat({"carrel ", command.name, " [OPTIONS]"});
  for (std::size_t i = 0; i < command.operands.size(); ++i) {
    const bool optional = i >= command.least_operands;
    const bool repeats = command.most_operands > command.operands.size();
    line += concat({optional ? " [" : " ", command.operands[i].placeholder, repeats ? "..." : "",
                    optional ? "]" : ""});
  }
  if (command.trailing == Trailing::kCommand) {
    line += " [--] COMMAND [ARG...]";
  }
  return line;
}

std::string program_help() {
  std::string out =
      "carrel runs commands nobody has read, each in a room of its own.\n\n"
      "Usage: carrel COMMAND [OPTIONS] ...\n";
  for (const CommandGroup group : {CommandGroup::kOnce, CommandGroup::kLongLived,
                                   CommandGroup::kFiles, CommandGroup::kOther}) {
    out += concat({"\n", group_title(group), ":\n"});
    for (const Command& row : commands()) {
      if (row.group == group && row.visibility == Visibility::kListed) {
        out += described(row.name, row.summary, kCommandColumn);
      }
    }
  }
  out +=
      "\nExamples:\n"
      "  carrel run -- python3 -c 'print(42)'\n"
      "  id=$(carrel create); carrel sh $id 'make'; carrel rm $id\n"
      "\n'carrel help COMMAND' explains a command, 'carrel help --man' is the manual.\n"
      "Sandboxes are kept below the folder that CARREL_HOME names; without it that is\n"
      "/var/lib/carrel for root, else $XDG_DATA_HOME/carrel or ~/.local/share/carrel.\n"
      "'carrel env' prints what holds here.\n";
  return out;
}

std::string command_help(const Command& command) {
  std::string out = concat({"Usage: ", usage_line(command), "\n\n"});
  std::string summary(command.summary);
  summary.front() = static_cast<char>(summary.front() - 'a' + 'A');
  append_wrapped(out, concat({summary, ". ", command.details}), 0, 0);
  std::string_view section;
  for (const OfferedOption& row : offered_options(command)) {
    if (row.section != section) {
      section = row.section;
      out += concat({"\n", section, ":\n"});
    }
    out += described(label_of(row), row.help, kOptionColumn);
  }
  if (command.operation.has_value()) {
    out +=
        "\nSIZE is bytes or a number with k, m, g or t; TIME is seconds or a number\n"
        "with ms, s, m, h or d. In brackets: the default.\n";
  }
  if (!command.examples.empty()) {
    out += "\nExamples:\n";
    append_examples(out, command.examples);
  }
  if (command.usage_status == kCarrelFailed && command.operation.has_value()) {
    out +=
        "\nExit status: that of the command; 124 after a timeout, 125 if carrel itself\n"
        "failed, 126 if the command cannot be run, 127 if it does not exist.\n";
  }
  return out;
}

}  // namespace carrel::cli
