#include "tools/danger.h"

#include <algorithm>
#include <array>
#include <vector>

namespace carrel::tools {
namespace {

// A word of a shell's command, without its quotes.
struct Word {
  std::string text;
  bool separator = false;  // ends a command: ; & | ( ) { } or a new line
};

constexpr std::size_t kMostWords = 20'000;

// Enough of the shell's grammar to know which words are a command's: quotes, escapes, separators
// and comments. Nothing is expanded.
std::vector<Word> words_of(std::string_view text) {
  std::vector<Word> words;
  std::string word;
  bool in_word = false;
  const auto end_word = [&] {
    if (in_word) {
      words.push_back({word, false});
    }
    word.clear();
    in_word = false;
  };
  for (std::size_t i = 0; i < text.size() && words.size() < kMostWords; ++i) {
    const char c = text[i];
    if (c == '\'') {
      const std::size_t end = std::min(text.find('\'', i + 1), text.size());
      word += text.substr(i + 1, end - i - 1);
      in_word = true;
      i = end;
    } else if (c == '"') {
      in_word = true;
      for (++i; i < text.size() && text[i] != '"'; ++i) {
        i += text[i] == '\\' && i + 1 < text.size() ? 1U : 0U;
        word += text[i];
      }
    } else if (c == '\\' && i + 1 < text.size()) {
      ++i;
      if (text[i] != '\n') {
        word += text[i];
        in_word = true;
      }
    } else if (c == '#' && !in_word) {
      i = std::min(text.find('\n', i), text.size()) - 1;
    } else if (std::string_view(";&|()\n`").find(c) != std::string_view::npos) {
      end_word();
      words.push_back({std::string(1, c), true});
    } else if (c == ' ' || c == '\t' || c == '\r') {
      end_word();
    } else {
      word += c;
      in_word = true;
    }
  }
  end_word();
  return words;
}

std::string_view base_of(std::string_view program) {
  return program.substr(program.rfind('/') == std::string_view::npos ? 0 : program.rfind('/') + 1);
}

// The root itself, or all that is in it.
bool is_everything(std::string_view path) {
  std::string plain;
  for (const char c : path) {
    if (!(c == '/' && !plain.empty() && plain.back() == '/')) {
      plain += c;
    }
  }
  return plain == "/" || plain == "/*" || plain == "/." || plain == "/.*" || plain == "/.." ||
         plain == "/./";
}

bool is_disk(std::string_view path) {
  constexpr std::array<std::string_view, 8> kDisks = {"/dev/sd",      "/dev/hd",   "/dev/vd",
                                                      "/dev/xvd",     "/dev/nvme", "/dev/mmcblk",
                                                      "/dev/mapper/", "/dev/md"};
  return std::any_of(kDisks.begin(), kDisks.end(),
                     [&](std::string_view disk) { return path.starts_with(disk); });
}

using Arguments = std::vector<std::string>;  // of one command, its program first

bool has_flag(const Arguments& command, char letter, std::string_view name) {
  return std::any_of(command.begin() + 1, command.end(), [&](const std::string& word) {
    if (word.starts_with("--")) {
      return std::string_view(word).substr(2) == name;
    }
    return word.size() > 1 && word[0] == '-' && word.find(letter) != std::string::npos;
  });
}

bool names_everything(const Arguments& command) {
  return std::any_of(command.begin() + 1, command.end(),
                     [](const std::string& word) { return is_everything(word); });
}

std::string judge(const Arguments& command) {
  const std::string_view program = base_of(command.front());
  if (program == "rm" && (has_flag(command, 'r', "recursive") || has_flag(command, 'R', "")) &&
      names_everything(command)) {
    return "removes everything below the root";
  }
  if ((program == "chmod" || program == "chown" || program == "chgrp") &&
      has_flag(command, 'R', "recursive") && names_everything(command)) {
    return "changes everything below the root";
  }
  if (program == "find" && names_everything(command)) {
    const bool removes = std::find(command.begin(), command.end(), "-delete") != command.end();
    const auto runs = std::find_if(command.begin(), command.end(), [](const std::string& word) {
      return word == "-exec" || word == "-execdir";
    });
    if (removes ||
        (runs != command.end() && runs + 1 != command.end() && base_of(*(runs + 1)) == "rm")) {
      return "removes everything below the root";
    }
  }
  if (program == "mkfs" || program.starts_with("mkfs.") || program == "mke2fs" ||
      program == "wipefs") {
    return "makes a new file system";
  }
  for (const std::string& word : command) {
    if (program == "dd" && word.starts_with("of=") && is_disk(std::string_view(word).substr(3))) {
      return "writes to a disk itself";
    }
    const std::size_t arrow = word.find('>');
    if (arrow != std::string::npos &&
        is_disk(std::string_view(word).substr(word.find_last_of('>') + 1))) {
      return "writes to a disk itself";
    }
  }
  for (std::size_t i = 0; i + 1 < command.size(); ++i) {
    if ((command[i].ends_with(">")) && is_disk(command[i + 1])) {
      return "writes to a disk itself";
    }
  }
  return {};
}

// What a program is started through, with its own words.
constexpr std::array<std::string_view, 10> kWrappers = {"sudo", "env",  "exec", "command", "nohup",
                                                        "time", "nice", "then", "do",      "else"};

void drop_wrappers(Arguments& command) {
  while (!command.empty()) {
    const std::string& word = command.front();
    const bool assignment = word.find('=') != std::string::npos && word.front() != '=' &&
                            word.front() != '/' && word.front() != '-';
    const bool wrapper =
        std::find(kWrappers.begin(), kWrappers.end(), base_of(word)) != kWrappers.end();
    if (!assignment && !wrapper && word != "{" && word != "!") {
      return;
    }
    command.erase(command.begin());
    while (wrapper && !command.empty() && command.front().starts_with("-")) {
      command.erase(command.begin());
    }
  }
}

// name() { name | name & }, with or without blanks and with any name.
bool is_fork_bomb(std::string_view text) {
  std::string tight;
  for (const char c : text) {
    if (c != ' ' && c != '\t' && c != '\n') {
      tight += c;
    }
  }
  for (std::size_t at = tight.find("(){"); at != std::string::npos;
       at = tight.find("(){", at + 1)) {
    std::size_t begin = at;
    while (begin > 0 &&
           std::string_view(";&|()").find(tight[begin - 1]) == std::string_view::npos) {
      --begin;
    }
    const std::string name = tight.substr(begin, at - begin);
    if (!name.empty() && tight.compare(at + 3, 2 * name.size() + 2, name + "|" + name + "&") == 0) {
      return true;
    }
  }
  return false;
}

// A call of another language that removes the whole tree.
bool removes_by_code(std::string_view text) {
  for (const std::string_view call : {"rmtree(\"/\"", "rmtree('/'", "rmSync('/'", "rmSync(\"/\""}) {
    if (text.find(call) != std::string_view::npos) {
      return true;
    }
  }
  return false;
}

std::string find_danger(std::string_view text, int depth) {
  if (is_fork_bomb(text)) {
    return "is a fork bomb";
  }
  if (removes_by_code(text)) {
    return "removes everything below the root";
  }
  Arguments command;
  std::vector<Word> words = words_of(text);
  words.push_back({"\n", true});
  for (Word& word : words) {
    if (!word.separator) {
      command.push_back(std::move(word.text));
      continue;
    }
    drop_wrappers(command);
    if (!command.empty()) {
      if (std::string found = judge(command); !found.empty()) {
        return found;
      }
      const std::string_view program = base_of(command.front());
      const bool shell = program == "sh" || program == "bash" || program == "eval";
      for (std::size_t i = 1; shell && depth < 3 && i < command.size(); ++i) {
        if (std::string found = find_danger(command[i], depth + 1); !found.empty()) {
          return found;
        }
      }
    }
    command.clear();
  }
  return {};
}

}  // namespace

std::string advice_about(std::string_view command) {
  const std::string found = find_danger(command, 0);
  return found.empty() ? found : "notice: this command " + found;
}

}  // namespace carrel::tools
