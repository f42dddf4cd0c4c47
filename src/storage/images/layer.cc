#include "storage/images/layer.h"

#include <fcntl.h>

#include "base/files.h"

namespace carrel::storage {

namespace {

constexpr std::string_view kPrefix = ".wh.";
constexpr std::string_view kOpaque = ".wh..wh..opq";
constexpr std::string_view kNotes = ".wh..wh.";
constexpr std::size_t kLargestWhiteouts = 64U << 20;

}  // namespace

Result<Whiteout> whiteout_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string directory = slash == std::string::npos ? "" : path.substr(0, slash);
  const std::string_view name = std::string_view(path).substr(slash + 1);
  if (!name.starts_with(kPrefix)) {
    return Whiteout{};
  }
  if (name == kOpaque) {
    return Whiteout{Whiteout::Kind::kOpaque, directory};
  }
  if (name.starts_with(kNotes)) {
    return Whiteout{Whiteout::Kind::kIgnored, {}};
  }
  const std::string deleted(name.substr(kPrefix.size()));
  if (deleted.empty() || deleted == "." || deleted == "..") {
    return Error{Code::kDenied, 0, "'" + path + "' deletes what is no entry of a directory", {}};
  }
  return Whiteout{Whiteout::Kind::kDelete, directory.empty() ? deleted : directory + "/" + deleted};
}

std::string encode_whiteout(const Whiteout& whiteout) {
  return (whiteout.kind == Whiteout::Kind::kOpaque ? "o" : "d") + whiteout.path + '\0';
}

Result<std::vector<Whiteout>> decode_whiteouts(std::string_view text) {
  const Error damaged{Code::kConflict, 0, "the layer's list of deletions is damaged", {}};
  std::vector<Whiteout> all;
  while (!text.empty()) {
    const std::size_t end = text.find('\0');
    if (end == std::string_view::npos || end == 0 || (text[0] != 'o' && text[0] != 'd')) {
      return damaged;
    }
    const std::string_view path = text.substr(1, end - 1);
    auto normal = normal_path(path);
    if (!normal.ok() || normal.value() != path || (text[0] == 'd' && path.empty())) {
      return damaged;
    }
    all.push_back(
        {text[0] == 'o' ? Whiteout::Kind::kOpaque : Whiteout::Kind::kDelete, std::string(path)});
    text.remove_prefix(end + 1);
  }
  return all;
}

Status apply_layer(int layer, TreeWriter& root) {
  CARREL_ASSIGN(const std::string text, read_file_at(layer, "whiteouts", kLargestWhiteouts));
  CARREL_ASSIGN(const std::vector<Whiteout> whiteouts, decode_whiteouts(text));
  // They are about the layers below, so what this one brings comes afterwards.
  for (const Whiteout& whiteout : whiteouts) {
    CARREL_TRY(whiteout.kind == Whiteout::Kind::kOpaque ? root.clear(whiteout.path)
                                                        : root.remove(whiteout.path));
  }
  CARREL_ASSIGN(UniqueFd tree, open_at(layer, "tree", O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  LeftOut none;
  return copy_tree(tree.get(), root, none);
}

}  // namespace carrel::storage
