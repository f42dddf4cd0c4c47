#include "storage/workspaces/flatten.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <map>
#include <utility>

#include "base/files.h"
#include "storage/workspaces/layer_writer.h"

namespace carrel::storage {

namespace {

// How many are left below the new one, at most.
constexpr std::size_t kLeft = 12;

Result<std::uint64_t> size_of(WorkspaceStore& store, const LayerRef& layer) {
  CARREL_ASSIGN(const UniqueFd directory, store.open_layer(layer.id));
  struct stat info{};
  if (::fstatat(directory.get(), "changes", &info, AT_SYMLINK_NOFOLLOW) != 0) {
    return system_error("look at the layer " + layer.id);
  }
  return static_cast<std::uint64_t>(info.st_size);
}

// The number of the lowest layer that is to be part of the new one.
Result<std::size_t> lowest_of(WorkspaceStore& store, const std::vector<LayerRef>& layers) {
  std::size_t lowest = layers.size();
  std::uint64_t sum = 0;
  while (lowest > 0) {
    CARREL_ASSIGN(const std::uint64_t size, size_of(store, layers[lowest - 1]));
    // One that is twice as large would be taken up again and again for little.
    if (lowest <= kLeft && size > 2 * sum) {
      break;
    }
    sum += size;
    --lowest;
  }
  return lowest;
}

// Several layers as one.
class Merger {
 public:
  explicit Merger(WorkspaceStore& store) : store_(store) {}

  // What is gone is told to nobody when there is nothing below.
  void forget_gone() {
    std::erase_if(merged_,
                  [](const auto& one) { return one.second.entry.kind == EntryKind::kGone; });
  }

  Status add(const LayerRef& layer) {
    CARREL_ASSIGN(const std::vector<TreeEntry> changes, store_.read_changes(layer));
    CARREL_ASSIGN(const UniqueFd directory, store_.open_layer(layer.id));
    CARREL_ASSIGN(UniqueFd tree, open_at(directory.get(), "tree", O_RDONLY | O_DIRECTORY));
    merge_changes(merged_, changes, layer.id);
    for (const TreeEntry& entry : changes) {
      // Directories on the way to an entry are in the layer, too, as they were then.
      for (std::size_t at = entry.path.find('/'); at != std::string::npos;
           at = entry.path.find('/', at + 1)) {
        newest_[entry.path.substr(0, at)] = tree.get();
      }
      newest_[entry.path] = tree.get();
    }
    trees_.push_back(std::move(tree));
    return {};
  }

  Result<LayerRef> write(const WorkspaceStore::Draft& draft) {
    LayerWriter writer([this](const std::string& path) { return newest_.at(path); },
                       draft.tree.get());
    std::vector<TreeEntry> changes;
    for (auto& [path, node] : merged_) {
      ScannedEntry entry;
      static_cast<TreeEntry&>(entry) = std::move(node.entry);
      const ContentHash hash = entry.hash;
      CARREL_TRY(writer.add_sealed(entry));
      if (entry.hash != hash) {
        return Error{Code::kInvalid, 0,
                     "the layer " + node.layer + " is damaged: '" + path + "' has changed",
                     "see 'carrel workspace fsck'"};
      }
      changes.push_back(std::move(entry));
    }
    CARREL_ASSIGN(LayerFiles files, writer.finish());
    return store_.finish_layer(draft, changes, files);
  }

 private:
  WorkspaceStore& store_;
  Tree merged_;
  std::vector<UniqueFd> trees_;
  std::map<std::string, int> newest_;  // for each path the tree of the highest layer that has it
};

}  // namespace

Status flatten(WorkspaceStore& store, SnapshotRow& snapshot) {
  if (snapshot.layers.size() <= kMostLayers) {
    return {};
  }
  CARREL_ASSIGN(const std::size_t lowest, lowest_of(store, snapshot.layers));
  Merger merger(store);
  std::vector<LayerRef> layers;
  for (std::size_t i = 0; i < snapshot.layers.size(); ++i) {
    if (i < lowest) {
      layers.push_back(snapshot.layers[i]);
    } else {
      CARREL_TRY(merger.add(snapshot.layers[i]));
    }
  }
  if (lowest == 0) {
    merger.forget_gone();
  }
  CARREL_ASSIGN(const WorkspaceStore::Draft draft, store.make_layer());
  auto merged = merger.write(draft);
  if (!merged.ok()) {
    store.drop_layer(draft);
    return merged.error();
  }
  layers.push_back(std::move(merged.value()));
  CARREL_TRY(store.records().set_layers(snapshot.id, layers));
  snapshot.layers = std::move(layers);
  return store.sweep();
}

}  // namespace carrel::storage
