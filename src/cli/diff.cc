#include "cli/diff.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/utf8.h"
#include "cli/context.h"
#include "cli/output.h"
#include "manager/workspace_target.h"
#include "storage/workspaces/compare.h"
#include "storage/workspaces/current.h"
#include "storage/workspaces/text_diff.h"

namespace carrel::cli {

namespace {

using Json = nlohmann::ordered_json;
using storage::Change;
using storage::Difference;
using storage::EntryKind;
using storage::Hunk;

const char* kind_name(EntryKind kind) {
  switch (kind) {
    case EntryKind::kFile:
      return "file";
    case EntryKind::kDirectory:
      return "directory";
    case EntryKind::kLink:
      return "link";
    case EntryKind::kPipe:
      return "pipe";
    case EntryKind::kGone:
      break;
  }
  return "none";
}

std::string octal(unsigned mode) {
  std::string text(4, '0');
  for (std::size_t i = 4; i-- > 0; mode >>= 3) {
    text[i] = static_cast<char>('0' + (mode & 7));
  }
  return text;
}

bool is_file(const std::optional<storage::TreeNode>& node) {
  return node.has_value() && node->entry.kind == EntryKind::kFile;
}

// The contents of one side; what is too large to be compared is not read.
Result<std::string> contents(manager::WorkspaceTarget& at,
                             const std::optional<storage::TreeNode>& node) {
  if (!is_file(node)) {
    return std::string();
  }
  if (node->entry.size > storage::kLargestText) {
    return std::string(1, '\0');
  }
  CARREL_ASSIGN(const UniqueFd file, storage::open_contents(*at.store, at.row, *node));
  return read_all(file.get(), storage::kLargestText);
}

struct FileDiff {
  bool binary = false;
  std::vector<Hunk> hunks;
};

Result<FileDiff> compare_contents(manager::WorkspaceTarget& at, const Difference& difference) {
  FileDiff diff;
  const bool same = is_file(difference.before) && is_file(difference.after) &&
                    difference.before->entry.hash == difference.after->entry.hash;
  if (same || (!is_file(difference.before) && !is_file(difference.after))) {
    return diff;
  }
  CARREL_ASSIGN(const std::string before, contents(at, difference.before));
  CARREL_ASSIGN(const std::string after, contents(at, difference.after));
  diff.binary = storage::is_binary(before) || storage::is_binary(after);
  if (!diff.binary) {
    diff.hunks = storage::compare_text(before, after);
  }
  return diff;
}

Json side_json(const std::optional<storage::TreeNode>& node) {
  if (!node.has_value()) {
    return nullptr;
  }
  const storage::TreeEntry& entry = node->entry;
  Json side{{"type", kind_name(entry.kind)}, {"mode", octal(entry.mode)}};
  if (entry.kind == EntryKind::kFile) {
    side["size"] = entry.size;
    side["sha256"] = storage::hash_to_hex(entry.hash);
  }
  if (entry.kind == EntryKind::kLink) {
    side["target"] = entry.target;
  }
  if (!entry.attributes.empty()) {
    side["attributes"] = entry.attributes;
  }
  return side;
}

Json difference_json(const Difference& difference, const FileDiff& diff) {
  Json object{{"change", change_name(difference.change)}, {"path", difference.path}};
  if (!difference.from.empty()) {
    object["from"] = difference.from;
  }
  object["before"] = side_json(difference.before);
  object["after"] = side_json(difference.after);
  if (!is_file(difference.before) && !is_file(difference.after)) {
    return object;
  }
  object["binary"] = diff.binary;
  Json hunks = Json::array();
  for (const Hunk& hunk : diff.hunks) {
    Json lines = Json::array();
    for (const Hunk::Line& line : hunk.lines) {
      lines.push_back(std::string(1, line.kind) + line.text);
    }
    hunks.push_back({{"old_start", hunk.old_start},
                     {"old_lines", hunk.old_lines},
                     {"new_start", hunk.new_start},
                     {"new_lines", hunk.new_lines},
                     {"lines", lines}});
  }
  object["hunks"] = hunks;
  return object;
}

// A line of a file: as it is for programs, and on a terminal without what that would obey.
std::string line_text(std::string_view line) {
  static const bool terminal = ::isatty(STDOUT_FILENO) != 0;
  if (!terminal) {
    return std::string(line);
  }
  std::string shown;
  for (std::size_t tab = line.find('\t'); tab != std::string_view::npos; tab = line.find('\t')) {
    shown += printable(line.substr(0, tab)) + '\t';
    line.remove_prefix(tab + 1);
  }
  return shown + printable(line);
}

// What git has no words for, in a line that it passes over; empty when there is nothing to say.
std::string attributes_text(const Difference& difference) {
  const auto of = [](const std::optional<storage::TreeNode>& node) {
    return node.has_value() ? node->entry.attributes : std::string();
  };
  const std::string before = of(difference.before);
  const std::string after = of(difference.after);
  return before == after ? ""
                         : "attributes of " + printable(difference.path) + ": " +
                               (before.empty() ? "none" : before) + " -> " +
                               (after.empty() ? "none" : after) + "\n";
}

bool is_same_but_attributes(const Difference& difference) {
  storage::TreeEntry before = difference.before->entry;
  before.attributes = difference.after->entry.attributes;
  return storage::same_contents(before, difference.after->entry);
}

// In the form that `git apply` and `patch -p1` read.
std::string difference_text(const Difference& difference, const FileDiff& diff) {
  const std::string old_path =
      printable(difference.from.empty() ? difference.path : difference.from);
  const std::string new_path = printable(difference.path);
  std::string text = attributes_text(difference);
  if (!text.empty() && difference.change == Change::kModified &&
      is_same_but_attributes(difference)) {
    return text;
  }
  text += "diff --git a/" + old_path + " b/" + new_path + "\n";
  const auto mode = [](const storage::TreeNode& node) {
    switch (node.entry.kind) {
      case EntryKind::kDirectory:
        return "04" + octal(node.entry.mode);
      case EntryKind::kLink:
        return std::string("120000");
      default:
        return "10" + octal(node.entry.mode);
    }
  };
  if (!difference.before.has_value()) {
    text += "new " + std::string(kind_name(difference.after->entry.kind)) + " mode " +
            mode(*difference.after) + "\n";
  } else if (!difference.after.has_value()) {
    text += "deleted " + std::string(kind_name(difference.before->entry.kind)) + " mode " +
            mode(*difference.before) + "\n";
  } else if (mode(*difference.before) != mode(*difference.after)) {
    text += "old mode " + mode(*difference.before) + "\nnew mode " + mode(*difference.after) + "\n";
  }
  if (difference.change == Change::kRenamed) {
    text += "rename from " + old_path + "\nrename to " + new_path + "\n";
  }
  for (const auto& [node, sign] : {std::pair(&difference.before, '-'), {&difference.after, '+'}}) {
    if (node->has_value() && (*node)->entry.kind == EntryKind::kLink) {
      text += std::string(1, sign) + printable((*node)->entry.target) + "\n";
    }
  }
  if (diff.binary) {
    return text + "Binary files differ\n";
  }
  if (diff.hunks.empty()) {
    return text;
  }
  text += "--- " + (is_file(difference.before) ? "a/" + old_path : "/dev/null") + "\n+++ " +
          (is_file(difference.after) ? "b/" + new_path : "/dev/null") + "\n";
  for (const Hunk& hunk : diff.hunks) {
    text += "@@ -" + std::to_string(hunk.old_start) + "," + std::to_string(hunk.old_lines) + " +" +
            std::to_string(hunk.new_start) + "," + std::to_string(hunk.new_lines) + " @@\n";
    for (const Hunk::Line& line : hunk.lines) {
      const bool ended = line.text.ends_with('\n');
      const std::string_view shown(line.text.data(), line.text.size() - (ended ? 1 : 0));
      text += line.kind + line_text(shown) + (ended ? "\n" : "\n\\ No newline at end of file\n");
    }
  }
  return text;
}

// The tree that a word names, or what it is when none was given.
Result<storage::Tree> tree_at(manager::WorkspaceTarget& at,
                              const std::optional<std::string_view>& named) {
  if (named.has_value()) {
    CARREL_ASSIGN(const storage::SnapshotRow row, manager::find_snapshot(at, std::string(*named)));
    return at.store->read_tree(row.layers);
  }
  return storage::current_tree(*at.store, at.row);
}

// What a workspace began with: its last snapshot, what it was forked from, or nothing.
Result<storage::Tree> tree_before(manager::WorkspaceTarget& at,
                                  const std::optional<std::string_view>& named) {
  if (named.has_value()) {
    return tree_at(at, named);
  }
  if (!at.row.head.empty() && at.row.head != at.row.base) {
    CARREL_ASSIGN(const storage::SnapshotRow row, at.store->snapshot(at.row.head));
    return at.store->read_tree(row.layers);
  }
  CARREL_ASSIGN(const std::vector<storage::LayerRef> base,
                at.store->records().base_layers(at.row.name));
  return at.store->read_tree(base);
}

}  // namespace

const char* change_name(Change change) {
  switch (change) {
    case Change::kAdded:
      return "added";
    case Change::kModified:
      return "modified";
    case Change::kDeleted:
      return "deleted";
    case Change::kRenamed:
      return "renamed";
  }
  return "";
}

int diff_command(const Context& context) {
  auto target = manager::open_workspace_target(std::string(context.arguments.operands.front()));
  if (!target.ok()) {
    return fail(context, target.error());
  }
  manager::WorkspaceTarget& at = **target;
  auto before = tree_before(at, context.arguments.value(OptionId::kFromSnapshot));
  if (!before.ok()) {
    return fail(context, before.error());
  }
  auto after = tree_at(at, context.arguments.value(OptionId::kToSnapshot));
  if (!after.ok()) {
    return fail(context, after.error());
  }
  return show_diff(context, at, before.value(), after.value());
}

int show_diff(const Context& context, manager::WorkspaceTarget& at, const storage::Tree& before,
              const storage::Tree& after) {
  Json changes = Json::array();
  for (const Difference& difference : storage::compare_trees(before, after)) {
    if (context.arguments.has(OptionId::kNamesOnly)) {
      changes.push_back(
          Json{{"change", change_name(difference.change)}, {"path", difference.path}});
      if (!context.json()) {
        print(std::string(1, "AMDR"[static_cast<int>(difference.change)]) + "  " +
              printable(difference.path) + "\n");
      }
      continue;
    }
    auto diff = compare_contents(at, difference);
    if (!diff.ok()) {
      return fail(context, diff.error());
    }
    if (context.json()) {
      changes.push_back(difference_json(difference, diff.value()));
    } else {
      print(difference_text(difference, diff.value()));
    }
  }
  if (context.json()) {
    print(Json{{"workspace", at.row.name}, {"changes", changes}}.dump(
              -1, ' ', false, Json::error_handler_t::replace) +
          "\n");
  }
  return 0;
}

}  // namespace carrel::cli
