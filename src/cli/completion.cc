#include "cli/completion.h"

#include <string_view>

#include "cli/options.h"
#include "policy/given.h"

namespace carrel::cli {
namespace {

using policy::concat;

// What completes an option's value.
enum class ValueSource { kNone, kChoices, kFiles, kAnything };

ValueSource source_of(const OfferedOption& option) {
  if (option.placeholder.empty()) {
    return ValueSource::kNone;
  }
  if (!option.choices.empty()) {
    return ValueSource::kChoices;
  }
  return option.placeholder == "FILE" ? ValueSource::kFiles : ValueSource::kAnything;
}

std::string listed_names() {
  std::string names;
  for (const Command& row : commands()) {
    if (row.visibility == Visibility::kListed) {
      names += concat({names.empty() ? "" : " ", row.name});
    }
  }
  return names;
}

// The words that complete the first operand, if they are known beforehand.
std::string operand_words(const Command& command) {
  if (command.operands.empty()) {
    return {};
  }
  switch (command.operands.front().kind) {
    case OperandKind::kShellName:
      return "bash zsh fish";
    case OperandKind::kCommandName:
      return listed_names();
    case OperandKind::kImageAction:
      return "import pull build ls rm prune";
    case OperandKind::kWorkspaceAction:
      return std::string(kWorkspaceActions);
    case OperandKind::kFlowAction:
      return std::string(kFlowActions);
    case OperandKind::kNetAction:
      return std::string(kNetActions);
    case OperandKind::kSecretAction:
      return std::string(kSecretActions);
    case OperandKind::kFileAction:
      return std::string(kFileActions);
    case OperandKind::kSandbox:
    case OperandKind::kFile:
    case OperandKind::kShellText:
    case OperandKind::kVerb:
    case OperandKind::kAnything:
      break;
  }
  return {};
}

// The word that comes first, of commands that have one: `check` of `mount check PATH`.
std::string_view verb_of(const Command& command) {
  const bool has = !command.operands.empty() && command.operands[0].kind == OperandKind::kVerb;
  return has ? command.operands[0].placeholder : std::string_view();
}

bool operand_is_file(const Command& command) {
  return command.trailing == Trailing::kCommand ||
         (!command.operands.empty() && command.operands.back().kind == OperandKind::kFile);
}

// Text inside single quotes of a shell; `extra` are more characters to put a backslash before.
std::string escaped(std::string_view text, std::string_view extra) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      if (extra.find(c) != std::string_view::npos) {
        out += '\\';
      }
      out += c;
    }
  }
  return out;
}

// The branch of one command: the values of options first, then options, then operands.
std::string bash_branch(const Command& command) {
  std::string words;
  std::string values;
  for (const OfferedOption& row : offered_options(command)) {
    words += concat({words.empty() ? "" : " ", "--", row.name});
    const char short_name[] = {' ', '-', row.short_name, '\0'};
    words += row.short_name == 0 ? "" : short_name;
    switch (source_of(row)) {
      case ValueSource::kChoices:
        values +=
            concat({"        --", row.name, ") _carrel_words '", row.choices, "'; return ;;\n"});
        break;
      case ValueSource::kFiles:
        values += concat({"        --", row.name, ") _carrel_files; return ;;\n"});
        break;
      case ValueSource::kAnything:
        values += concat({"        --", row.name, ") return ;;\n"});
        break;
      case ValueSource::kNone:
        break;
    }
  }
  const std::string operands = operand_words(command);
  std::string fallback = operand_is_file(command) ? "_carrel_files"
                         : operands.empty()       ? "return"
                                                  : concat({"_carrel_words '", operands, "'"});
  if (const std::string_view verb = verb_of(command); !verb.empty()) {
    fallback = concat({"if [[ \" ${COMP_WORDS[*]:2:COMP_CWORD-2} \" == *' ", verb, " '* ]]; then ",
                       fallback, "; else _carrel_words '", verb, "'; fi"});
  }
  return concat({"    ", command.name, ")\n      case \"$prev\" in\n", values, "      esac\n",
                 "      case \"$cur\" in\n        -*) _carrel_words '", words, "' ;;\n        *) ",
                 fallback, " ;;\n      esac\n      ;;\n"});
}

}  // namespace

std::string bash_completion() {
  std::string out =
      "# bash completion for carrel. Load it with: source <(carrel completion bash)\n"
      "_carrel_words() {\n"
      "  local IFS=$' \\t\\n'\n"
      "  COMPREPLY=($(compgen -W \"$1\" -- \"$cur\"))\n"
      "}\n"
      "_carrel_files() {\n"
      "  local IFS=$'\\n'\n"
      "  compopt -o filenames 2>/dev/null\n"
      "  COMPREPLY=($(compgen -f -- \"$cur\"))\n"
      "}\n"
      "_carrel() {\n"
      "  local cur=\"${COMP_WORDS[COMP_CWORD]}\" prev=\"${COMP_WORDS[COMP_CWORD-1]}\"\n"
      "  COMPREPLY=()\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n";
  out += concat({"    _carrel_words '", listed_names(), " --help --version'\n"});
  out +=
      "    return\n"
      "  fi\n"
      "  if [ \"$cur\" = = ]; then\n"
      "    cur=\n"
      "  elif [ \"$prev\" = = ]; then\n"
      "    prev=\"${COMP_WORDS[COMP_CWORD-2]}\"\n"
      "  fi\n"
      "  local i\n"
      "  for ((i = 2; i < COMP_CWORD; i++)); do\n"
      "    if [ \"${COMP_WORDS[i]}\" = -- ]; then\n"
      "      _carrel_files\n"
      "      return\n"
      "    fi\n"
      "  done\n"
      "  case \"${COMP_WORDS[1]}\" in\n";
  for (const Command& row : commands()) {
    if (row.visibility == Visibility::kListed) {
      out += bash_branch(row);
    }
  }
  out +=
      "  esac\n"
      "}\n"
      "complete -F _carrel carrel\n";
  return out;
}

std::string zsh_completion() {
  std::string out =
      "#compdef carrel\n"
      "# zsh completion for carrel. Put it as _carrel into a folder of $fpath.\n"
      "_carrel() {\n"
      "  local -a commands\n"
      "  commands=(\n";
  for (const Command& row : commands()) {
    if (row.visibility == Visibility::kListed) {
      out += concat({"    '", row.name, ":", escaped(row.summary, ":"), "'\n"});
    }
  }
  out +=
      "  )\n"
      "  if (( CURRENT == 2 )); then\n"
      "    _describe -t commands 'carrel command' commands\n"
      "    return\n"
      "  fi\n"
      "  local command=$words[2]\n"
      "  shift words\n"
      "  (( CURRENT-- ))\n"
      "  case $command in\n";
  for (const Command& row : commands()) {
    if (row.visibility == Visibility::kHidden) {
      continue;
    }
    out += concat({"    ", row.name, ")\n      _arguments -s"});
    for (const OfferedOption& option : offered_options(row)) {
      const std::string help = escaped(option.help, "[]:\\");
      const std::string value =
          option.placeholder.empty()
              ? std::string()
              : concat({":", escaped(option.placeholder, ":[]\\"), ":",
                        source_of(option) == ValueSource::kFiles ? "_files" : "",
                        option.choices.empty() ? "" : "(", escaped(option.choices, ":"),
                        option.choices.empty() ? "" : ")"});
      const std::string_view repeat = option.name == "env" ? "*" : "";
      out += concat({" \\\n        '", repeat, "--", option.name,
                     option.placeholder.empty() ? "" : "=", "[", help, "]", value, "'"});
      if (option.short_name != 0) {
        const char short_name[] = {'-', option.short_name, '\0'};
        out += concat({" \\\n        '", short_name, "[", help, "]'"});
      }
    }
    const std::string operands = operand_words(row);
    if (row.trailing == Trailing::kCommand) {
      out += " \\\n        '*::command:_normal'";
    } else if (!verb_of(row).empty()) {
      out += concat({" \\\n        '1:word:(", verb_of(row), ")' \\\n        '2:file:_files'"});
    } else if (operand_is_file(row)) {
      out += " \\\n        '1:file:_files'";
    } else if (!operands.empty()) {
      out += concat({" \\\n        '1:word:(", operands, ")'"});
    }
    out += "\n      ;;\n";
  }
  out +=
      "  esac\n"
      "}\n"
      "if [ \"$funcstack[1]\" = _carrel ]; then\n"
      "  _carrel \"$@\"\n"
      "else\n"
      "  compdef _carrel carrel\n"
      "fi\n";
  return out;
}

std::string fish_completion() {
  std::string out =
      "# fish completion for carrel. Put it as carrel.fish into ~/.config/fish/completions.\n"
      "complete -c carrel -f\n";
  for (const Command& row : commands()) {
    if (row.visibility == Visibility::kHidden) {
      continue;
    }
    out += concat({"complete -c carrel -n __fish_use_subcommand -a ", row.name, " -d '",
                   escaped(row.summary, ""), "'\n"});
    const std::string when =
        concat({"complete -c carrel -n '__fish_seen_subcommand_from ", row.name, "'"});
    for (const OfferedOption& option : offered_options(row)) {
      const char short_name[] = {' ', '-', 's', ' ', option.short_name, '\0'};
      out += concat({when, " -l ", option.name,
                     option.short_name == 0 ? std::string_view() : std::string_view(short_name)});
      switch (source_of(option)) {
        case ValueSource::kChoices:
          out += concat({" -x -a '", option.choices, "'"});
          break;
        case ValueSource::kFiles:
          out += " -r -F";
          break;
        case ValueSource::kAnything:
          out += " -x";
          break;
        case ValueSource::kNone:
          break;
      }
      out += concat({" -d '", escaped(option.help, ""), "'\n"});
    }
    const std::string operands = operand_words(row);
    if (!verb_of(row).empty()) {
      out += concat({when, " -a ", verb_of(row), "\n"});
    }
    if (operand_is_file(row)) {
      out += concat({when, " -F\n"});
    } else if (!operands.empty()) {
      out += concat({when, " -a '", operands, "'\n"});
    }
  }
  return out;
}

}  // namespace carrel::cli
