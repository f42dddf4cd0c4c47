#include "journal/tree_identity.h"

#include "base/sha256.h"

namespace carrel::journal {
namespace {

void add_text(std::string& line, std::string_view text) {
  line += std::to_string(text.size());
  line += ':';
  line += text;
}

}  // namespace

std::string identity_of(const storage::Tree& tree) {
  Sha256 sum;
  sum.update("carrel files 1\n");
  std::string line;
  for (const auto& [path, node] : tree) {
    const storage::TreeEntry& entry = node.entry;
    if (storage::lies_in(path, kOutputFolder)) {
      continue;
    }
    line.clear();
    line += static_cast<char>(entry.kind);
    line += std::to_string(entry.mode);
    line += ' ';
    add_text(line, path);
    add_text(line, entry.kind == storage::EntryKind::kLink ? entry.target : "");
    add_text(line, entry.attributes);
    if (entry.kind == storage::EntryKind::kFile) {
      line.append(reinterpret_cast<const char*>(entry.hash.data()), entry.hash.size());
    }
    sum.update(line);
  }
  return sum.finish();
}

}  // namespace carrel::journal
