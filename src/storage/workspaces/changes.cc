#include "storage/workspaces/changes.h"

#include <charconv>

#include "storage/workspaces/attributes.h"

namespace carrel::storage {

namespace {

constexpr std::string_view kHeader = "carrel-changes 1\n";
constexpr char kHexDigits[] = "0123456789abcdef";

void add_escaped_path(std::string& text, std::string_view path) {
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte <= ' ' || byte > '~' || byte == '%') {
      text += '%';
      text += kHexDigits[byte >> 4];
      text += kHexDigits[byte & 15];
    } else {
      text += c;
    }
  }
}

int digit(char c) {
  const std::size_t at = std::string_view(kHexDigits, 16).find(c);
  return at == std::string_view::npos ? -1 : static_cast<int>(at);
}

bool unescape(std::string_view text, std::string& path) {
  path.clear();
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      path += text[i];
      continue;
    }
    const int high = text.size() - i > 2 ? digit(text[i + 1]) : -1;
    const int low = text.size() - i > 2 ? digit(text[i + 2]) : -1;
    if (high < 0 || low < 0) {
      return false;
    }
    path += static_cast<char>(high << 4 | low);
    i += 2;
  }
  return true;
}

// A path of a tree: no empty, "." or ".." component, and no NUL.
bool is_tree_path(std::string_view path) {
  if (path.empty() || path.find('\0') != std::string_view::npos) {
    return false;
  }
  for (;;) {
    const std::size_t slash = path.find('/');
    const std::string_view name = path.substr(0, slash);
    if (name.empty() || name == "." || name == "..") {
      return false;
    }
    if (slash == std::string_view::npos) {
      return true;
    }
    path.remove_prefix(slash + 1);
  }
}

// The words of one line.
class ChangeWords {
 public:
  explicit ChangeWords(std::string_view line) : line_(line) {}
  std::string_view next() {
    const std::size_t space = line_.find(' ');
    const std::string_view word = line_.substr(0, space);
    ok_ = ok_ && !word.empty();
    line_ = space == std::string_view::npos ? std::string_view() : line_.substr(space + 1);
    return word;
  }
  template <typename Number>
  void number(Number& value, int base) {
    const std::string_view word = next();
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value, base);
    ok_ = ok_ && error == std::errc() && end == word.data() + word.size();
  }
  void hash(ContentHash& value) {
    const std::string_view word = next();
    ok_ = ok_ && word.size() == 2 * value.size();
    for (std::size_t i = 0; ok_ && i < value.size(); ++i) {
      const int high = digit(word[2 * i]);
      const int low = digit(word[2 * i + 1]);
      ok_ = high >= 0 && low >= 0;
      value[i] = static_cast<unsigned char>(high << 4 | low);
    }
  }
  void path(std::string& value) { ok_ = ok_ && unescape(next(), value) && is_tree_path(value); }
  void target(std::string& value) { ok_ = ok_ && unescape(next(), value); }
  [[nodiscard]] bool whole() const { return ok_ && line_.empty(); }

 private:
  std::string_view line_;
  bool ok_ = true;
};

bool parse_line(std::string_view line, TreeEntry& entry) {
  ChangeWords words(line);
  const std::string_view kind = words.next();
  if (kind == "f" || kind == "h") {
    entry.kind = EntryKind::kFile;
    words.number(entry.mode, 8);
    words.number(entry.size, 10);
    words.number(entry.mtime_ns, 10);
    words.hash(entry.hash);
    if (kind == "h") {
      words.path(entry.target);
    }
  } else if (kind == "d" || kind == "D") {
    entry.kind = EntryKind::kDirectory;
    entry.opaque = kind == "D";
    words.number(entry.mode, 8);
    words.number(entry.mtime_ns, 10);
  } else if (kind == "l") {
    entry.kind = EntryKind::kLink;
    entry.mode = 0777;
    words.number(entry.mtime_ns, 10);
    words.target(entry.target);
  } else if (kind == "p") {
    entry.kind = EntryKind::kPipe;
    words.number(entry.mode, 8);
    words.number(entry.mtime_ns, 10);
  } else if (kind == "-") {
    entry.kind = EntryKind::kGone;
  } else {
    return false;
  }
  words.path(entry.path);
  return words.whole() && entry.mode <= 01777;
}

bool add_attributes(std::string_view text, TreeEntry& entry) {
  const bool can_have = entry.kind == EntryKind::kFile || entry.kind == EntryKind::kDirectory;
  if (!can_have || !entry.attributes.empty() || text.empty() || !are_attributes(text)) {
    return false;
  }
  entry.attributes = text;
  return true;
}

void drop_below(Tree& tree, const std::string& path) {
  auto at = tree.upper_bound(path);
  while (at != tree.end() && lies_in(at->first, path)) {
    at = tree.erase(at);
  }
}

std::string octal(unsigned mode) {
  std::array<char, 8> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), mode, 8);
  return std::string(text.data(), end);
}

}  // namespace

std::string hash_to_hex(const ContentHash& hash) {
  std::string text;
  for (const unsigned char byte : hash) {
    text += kHexDigits[byte >> 4];
    text += kHexDigits[byte & 15];
  }
  return text;
}

std::string changes_to_text(const std::vector<TreeEntry>& changes) {
  std::string text(kHeader);
  text.reserve(text.size() + changes.size() * 140);
  for (const TreeEntry& entry : changes) {
    const std::string time = std::to_string(entry.mtime_ns);
    switch (entry.kind) {
      case EntryKind::kFile:
        text += entry.target.empty() ? "f " : "h ";
        text += octal(entry.mode) + " " + std::to_string(entry.size) + " " + time + " ";
        text += hash_to_hex(entry.hash) + " ";
        if (!entry.target.empty()) {
          add_escaped_path(text, entry.target);
          text += ' ';
        }
        break;
      case EntryKind::kDirectory:
        text += (entry.opaque ? "D " : "d ") + octal(entry.mode) + " " + time + " ";
        break;
      case EntryKind::kLink:
        text += "l " + time + " ";
        add_escaped_path(text, entry.target);
        text += ' ';
        break;
      case EntryKind::kPipe:
        text += "p " + octal(entry.mode) + " " + time + " ";
        break;
      case EntryKind::kGone:
        text += "- ";
        break;
    }
    add_escaped_path(text, entry.path);
    text += '\n';
    if (!entry.attributes.empty()) {
      text += "a " + entry.attributes + "\n";
    }
  }
  return text;
}

Result<std::vector<TreeEntry>> changes_from_text(std::string_view text) {
  const auto damaged = [](std::size_t line) {
    return Error{Code::kInvalid,
                 0,
                 "the list of changes is damaged at its line " + std::to_string(line),
                 {}};
  };
  if (!text.starts_with(kHeader)) {
    return damaged(1);
  }
  text.remove_prefix(kHeader.size());
  std::vector<TreeEntry> changes;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (text.starts_with("a ") && end != std::string_view::npos && !changes.empty()) {
      if (!add_attributes(text.substr(2, end - 2), changes.back())) {
        return damaged(changes.size() + 2);
      }
      text.remove_prefix(end + 1);
      continue;
    }
    TreeEntry entry;
    if (end == std::string_view::npos || !parse_line(text.substr(0, end), entry) ||
        (!changes.empty() && !comes_before(changes.back().path, entry.path))) {
      return damaged(changes.size() + 2);
    }
    changes.push_back(std::move(entry));
    text.remove_prefix(end + 1);
  }
  return changes;
}

void apply_changes(Tree& tree, const std::vector<TreeEntry>& changes, const std::string& layer) {
  for (const TreeEntry& entry : changes) {
    const auto known = tree.find(entry.path);
    const bool was_directory =
        known != tree.end() && known->second.entry.kind == EntryKind::kDirectory;
    if (was_directory && (entry.kind != EntryKind::kDirectory || entry.opaque)) {
      drop_below(tree, entry.path);
    }
    if (entry.kind == EntryKind::kGone) {
      if (known != tree.end()) {
        tree.erase(known);
      }
      continue;
    }
    TreeNode node{entry, layer};
    node.entry.opaque = false;
    tree.insert_or_assign(entry.path, std::move(node));
  }
}

void merge_changes(Tree& changes, const std::vector<TreeEntry>& later, const std::string& layer) {
  for (const TreeEntry& entry : later) {
    const auto known = changes.find(entry.path);
    TreeNode node{entry, layer};
    if (entry.kind != EntryKind::kDirectory || entry.opaque) {
      drop_below(changes, entry.path);
    } else if (known != changes.end()) {
      // Where something else came before it, nothing of a directory of layers further below is
      // left.
      const TreeEntry& before = known->second.entry;
      node.entry.opaque = before.kind != EntryKind::kDirectory || before.opaque;
    }
    changes.insert_or_assign(entry.path, std::move(node));
  }
}

bool same_contents(const TreeEntry& a, const TreeEntry& b) {
  return a.kind == b.kind && a.mode == b.mode && a.size == b.size && a.hash == b.hash &&
         a.attributes == b.attributes && (a.kind != EntryKind::kLink || a.target == b.target);
}

}  // namespace carrel::storage
