#include "cli/args.h"

#include <algorithm>
#include <string>

#include "policy/given.h"
#include "policy/names.h"
#include "policy/suggest.h"

namespace carrel::cli {
namespace {

using policy::concat;
using policy::Offered;
using policy::quote;
using policy::Setting;

Error usage_error(const Command& command, std::string message) {
  return Error{Code::kInvalid, 0, std::move(message),
               concat({"try 'carrel ", command.name, " --help'"})};
}

// The commands that do take an option, for the error of one that does not.
std::string takers_of(std::string_view name) {
  std::string takers;
  const auto add = [&](const Command& command) {
    takers += takers.empty() ? "" : ", ";
    takers += command.name;
  };
  const Setting* setting = policy::find_setting(name);
  for (const Command& row : commands()) {
    if (row.visibility == Visibility::kHidden) {
      continue;
    }
    if (setting != nullptr && takes_setting(row, *setting)) {
      add(row);
      continue;
    }
    for (const Option& candidate : options()) {
      if (candidate.name == name && candidate.belongs_to(row)) {
        add(row);
      }
    }
  }
  return takers;
}

Error unknown_option(const Command& command, std::string_view written) {
  const std::string_view name = written.starts_with("--") ? written.substr(2) : written;
  if (const std::string takers = takers_of(name); !takers.empty()) {
    return usage_error(command, concat({command.name, " has no option ", quote(written),
                                        "; it belongs to ", takers}));
  }
  std::vector<std::string_view> names;
  for (const Option& candidate : options()) {
    if (candidate.belongs_to(command)) {
      names.push_back(candidate.name);
    }
  }
  for (const Setting& setting : policy::settings()) {
    if (takes_setting(command, setting) && setting.offered != Offered::kNotBuilt) {
      names.push_back(setting.name);
    }
  }
  const std::string_view nearest = policy::nearest(name, names);
  const std::string message = concat({"unknown option ", quote(written)});
  if (nearest.empty()) {
    return usage_error(command, message);
  }
  return usage_error(command, concat({message, "; did you mean '--", nearest, "'?"}));
}

bool is_word_of(std::string_view words, std::string_view wanted) {
  bool found = false;
  for_each_word(words, [&](std::string_view word) { found = found || word == wanted; });
  return found;
}

class Parser {
 public:
  Parser(const Command& command, std::span<const std::string_view> words) : words_(words) {
    arguments_.command = &command;
  }

  Result<Arguments> parse() {
    while (next_ < words_.size()) {
      const std::string_view word = words_[next_++];
      if (word == "--") {
        take_rest();
        break;
      }
      if (word.starts_with("--")) {
        CARREL_TRY(long_option(word));
      } else if (word.size() > 1 && word.front() == '-') {
        CARREL_TRY(short_options(word));
      } else if (begins_command()) {
        --next_;
        take_rest();
        break;
      } else {
        arguments_.operands.push_back(word);
      }
    }
    if (!arguments_.has(OptionId::kHelp)) {
      CARREL_TRY(check_words());
    }
    return std::move(arguments_);
  }

 private:
  [[nodiscard]] const Command& command() const { return *arguments_.command; }

  [[nodiscard]] bool begins_command() const {
    return command().trailing == Trailing::kCommand &&
           arguments_.operands.size() == command().most_operands;
  }

  // All that is left: operands until there are enough, then the command to run.
  void take_rest() {
    for (; next_ < words_.size(); ++next_) {
      if (begins_command()) {
        // `exec -- ID -- CMD`: a second `--` after the operands is the one that counts.
        if (words_[next_] == "--" && arguments_.command_line.empty() && skip_dashes_) {
          skip_dashes_ = false;
          continue;
        }
        arguments_.command_line.push_back(words_[next_]);
      } else {
        skip_dashes_ = command().most_operands > 0;
        arguments_.operands.push_back(words_[next_]);
      }
    }
  }

  Status long_option(std::string_view word) {
    const std::size_t equals = word.find('=');
    const std::string_view written = word.substr(0, equals);
    const std::string_view name = written.substr(2);
    std::optional<std::string_view> value;
    if (equals != std::string_view::npos) {
      value = word.substr(equals + 1);
    }
    for (const Option& candidate : options()) {
      if (candidate.name == name && candidate.belongs_to(command())) {
        return add_option(candidate, written, value);
      }
    }
    const Setting* setting = policy::find_setting(name);
    if (setting != nullptr && takes_setting(command(), *setting)) {
      return add_setting(*setting, written, value);
    }
    return unknown_option(command(), written);
  }

  // `-t`, or several flags in one word.
  Status short_options(std::string_view word) {
    for (std::size_t i = 1; i < word.size(); ++i) {
      const auto found =
          std::find_if(options().begin(), options().end(), [&](const Option& candidate) {
            return candidate.short_name == word[i] && candidate.belongs_to(command());
          });
      if (found == options().end()) {
        return unknown_option(command(), word);
      }
      CARREL_TRY(add_option(*found, word, std::nullopt));
    }
    return {};
  }

  Status add_option(const Option& given, std::string_view written,
                    std::optional<std::string_view> value) {
    if (given.times == Option::Times::kOnce && arguments_.has(given.id)) {
      return usage_error(command(), concat({quote(written), " is given twice"}));
    }
    if (given.is_flag()) {
      CARREL_TRY(expect_no_value(written, value));
      arguments_.options.push_back({given.id, {}});
      return {};
    }
    CARREL_ASSIGN(const std::string_view text, take_value(written, given.placeholder, value));
    if (given.check != nullptr) {
      CARREL_TRY(given.check({written, text}));
    }
    arguments_.options.push_back({given.id, text});
    return {};
  }

  Status add_setting(const Setting& setting, std::string_view written,
                     std::optional<std::string_view> value) {
    if (!setting.repeats() && arguments_.has_setting(setting.name)) {
      return usage_error(command(), concat({quote(written), " is given twice"}));
    }
    std::string_view text = "true";
    if (setting.is_flag()) {
      CARREL_TRY(expect_no_value(written, value));
    } else {
      CARREL_ASSIGN(text, take_value(written, setting.placeholder, value));
    }
    CARREL_TRY(setting.set(scratch_, {written, text}));
    arguments_.settings.push_back({&setting, written, text});
    return {};
  }

  Status expect_no_value(std::string_view written, std::optional<std::string_view> value) {
    if (value.has_value()) {
      return usage_error(command(), concat({quote(written), " takes no value"}));
    }
    return {};
  }

  // The value after the '=', or the next word unless that is an option itself.
  Result<std::string_view> take_value(std::string_view written, std::string_view placeholder,
                                      std::optional<std::string_view> value) {
    if (!value.has_value() && next_ < words_.size() && !words_[next_].starts_with("--")) {
      value = words_[next_++];
    }
    if (!value.has_value() || value->empty()) {
      return usage_error(command(),
                         concat({quote(written), " needs a value: ", written, " ", placeholder}));
    }
    return *value;
  }

  [[nodiscard]] std::string_view placeholder_of(std::size_t index) const {
    return command().operands[std::min(index, command().operands.size() - 1)].placeholder;
  }

  Status check_words() {
    const std::vector<std::string_view>& operands = arguments_.operands;
    if (operands.size() > command().most_operands) {
      const std::string_view extra = operands[command().most_operands];
      const std::string_view advice =
          command().id == CommandId::kShell ? "; quote the command as one word" : "";
      return usage_error(command(), concat({"unexpected word ", quote(extra), advice}));
    }
    if (operands.size() < command().least_operands) {
      return usage_error(command(),
                         concat({command().name, " needs ", placeholder_of(operands.size())}));
    }
    for (std::size_t i = 0; i < operands.size(); ++i) {
      CARREL_TRY(check_operand(command().operands[std::min(i, command().operands.size() - 1)],
                               operands[i]));
    }
    if (command().id == CommandId::kRemove && operands.empty() == !arguments_.has(OptionId::kAll)) {
      return usage_error(command(), "rm needs either the ID of a sandbox or --all");
    }
    if (command().trailing == Trailing::kCommand) {
      // An image may say itself what runs in it.
      if (arguments_.command_line.empty() && command().id == CommandId::kRun &&
          arguments_.has_setting("image")) {
        return {};
      }
      if (arguments_.command_line.empty()) {
        return usage_error(command(), concat({command().name, " needs a command to run"}));
      }
      if (arguments_.command_line.front().empty()) {
        return usage_error(command(), "the name of the command to run is empty");
      }
    }
    return {};
  }

  Status check_operand(const Operand& operand, std::string_view word) {
    switch (operand.kind) {
      case OperandKind::kSandbox:
        return policy::check_name({operand.placeholder, word});
      case OperandKind::kShellName:
        if (word != "bash" && word != "zsh" && word != "fish") {
          return usage_error(command(),
                             concat({"unknown shell ", quote(word), "; it is bash, zsh or fish"}));
        }
        return {};
      case OperandKind::kImageAction:
        if (word != "import" && word != "pull" && word != "build" && word != "ls" && word != "rm" &&
            word != "prune") {
          return usage_error(command(), concat({"unknown action ", quote(word),
                                                "; it is import, pull, build, ls, rm or prune"}));
        }
        return {};
      case OperandKind::kWorkspaceAction:
        if (!is_word_of(kWorkspaceActions, word)) {
          return usage_error(command(), concat({"unknown action ", quote(word), "; it is one of ",
                                                kWorkspaceActions}));
        }
        return {};
      case OperandKind::kFlowAction:
        if (!is_word_of(kFlowActions, word)) {
          return usage_error(
              command(), concat({"unknown action ", quote(word), "; it is one of ", kFlowActions}));
        }
        return {};
      case OperandKind::kNetAction:
        if (!is_word_of(kNetActions, word)) {
          return usage_error(
              command(), concat({"unknown action ", quote(word), "; it is one of ", kNetActions}));
        }
        return {};
      case OperandKind::kSecretAction:
        if (!is_word_of(kSecretActions, word)) {
          return usage_error(command(), concat({"unknown action ", quote(word), "; it is one of ",
                                                kSecretActions}));
        }
        return {};
      case OperandKind::kFileAction:
        if (!is_word_of(kFileActions, word)) {
          return usage_error(
              command(), concat({"unknown action ", quote(word), "; it is one of ", kFileActions}));
        }
        return {};
      case OperandKind::kCommandName: {
        const std::string_view name[] = {word};
        CARREL_TRY(select_command(name));
        return {};
      }
      case OperandKind::kFile:
        if (word.empty()) {
          return usage_error(command(), "the name of the file is empty");
        }
        return {};
      case OperandKind::kVerb:
        if (word != operand.placeholder) {
          return usage_error(command(), concat({command().name, " does not know ", quote(word),
                                                "; it is ", operand.placeholder}));
        }
        return {};
      case OperandKind::kShellText:
      case OperandKind::kAnything:
        break;
    }
    return {};
  }

  std::span<const std::string_view> words_;
  std::size_t next_ = 0;
  bool skip_dashes_ = false;
  Arguments arguments_;
  policy::Spec scratch_;
};

}  // namespace

std::optional<std::string_view> Arguments::value(OptionId id) const {
  for (const GivenOption& given : options) {
    if (given.id == id) {
      return given.value;
    }
  }
  return std::nullopt;
}

std::vector<std::string_view> Arguments::values(OptionId id) const {
  std::vector<std::string_view> found;
  for (const GivenOption& given : options) {
    if (given.id == id) {
      found.push_back(given.value);
    }
  }
  return found;
}

bool Arguments::has_setting(std::string_view name) const {
  const policy::Setting* wanted = policy::find_setting(name);
  return std::any_of(settings.begin(), settings.end(),
                     [&](const GivenSetting& given) { return given.setting == wanted; });
}

Result<const Command*> select_command(std::span<const std::string_view> words) {
  const std::string_view word = words.empty() ? std::string_view() : words.front();
  if (word == "--help" || word == "-h") {
    return &command(CommandId::kHelp);
  }
  if (word == "--version" || word == "-V") {
    return &command(CommandId::kVersion);
  }
  if (const Command* found = find_command(word); found != nullptr) {
    return found;
  }
  const std::string hint = "try 'carrel help'";
  if (word.starts_with("-")) {
    return Error{Code::kInvalid, 0,
                 concat({"a command comes first, then options like ", quote(word)}), hint};
  }
  std::vector<std::string_view> names;
  for (const Command& row : commands()) {
    if (row.visibility == Visibility::kListed) {
      names.push_back(row.name);
    }
  }
  const std::string question = policy::did_you_mean(word, names);
  return Error{Code::kInvalid, 0,
               concat({"unknown command ", quote(word), question.empty() ? "" : "; ", question}),
               hint};
}

Result<Arguments> parse_arguments(const Command& command, std::span<const std::string_view> words) {
  return Parser(command, words).parse();
}

Status apply_settings(const Arguments& arguments, policy::Spec& spec) {
  for (const Arguments::GivenSetting& given : arguments.settings) {
    CARREL_TRY(given.setting->set(spec, {given.name, given.value}));
  }
  return {};
}

int status_of(const Command& command, const Error& error) {
  return error.code == Code::kInvalid ? command.usage_status : kCarrelFailed;
}

}  // namespace carrel::cli
