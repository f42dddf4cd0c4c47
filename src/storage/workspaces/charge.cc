#include "storage/workspaces/charge.h"

#include <unistd.h>

#include <vector>

#include "storage/workspaces/disk_image.h"

namespace carrel::storage {

namespace {

constexpr std::uint64_t kBlock = 4096;
constexpr std::uint64_t kBesides = 64U << 10;  // for directories, marks and locks beside a tree

std::uint64_t in_blocks(std::uint64_t bytes) { return (bytes + kBlock - 1) / kBlock * kBlock; }

// At the least what a layer with these changes takes: a hole counts like what is written.
std::uint64_t bytes_of(const std::vector<TreeEntry>& changes) {
  std::uint64_t bytes = 2 * kBlock;
  std::uint64_t list = 0;
  for (const TreeEntry& entry : changes) {
    list += 2 * entry.path.size() + entry.target.size() + entry.attributes.size() + 128;
    bytes += entry.kind == EntryKind::kFile        ? in_blocks(entry.size)
             : entry.kind == EntryKind::kDirectory ? kBlock
                                                   : 0;
  }
  return bytes + in_blocks(list);
}

}  // namespace

std::uint64_t charge_for_new(std::uint64_t disk_bytes) {
  // As root it has a file system of its own, which takes something for itself.
  const bool own = disk_bytes != 0 && ::geteuid() == 0;
  return kBesides + (own ? shape_of_disk(disk_bytes).blocks * kBlock : disk_bytes);
}

std::uint64_t charge_for(const WorkspaceRow& workspace) {
  return charge_for_new(workspace.disk_bytes);
}

Result<Charges> charges_of(WorkspaceRecords& records, const std::string& owner) {
  CARREL_ASSIGN(const std::vector<WorkspaceRow> rows, records.owned_by(owner));
  Charges charges;
  for (const WorkspaceRow& row : rows) {
    charges.workspaces += charge_for(row);
  }
  CARREL_ASSIGN(charges.layers, records.layer_bytes(owner));
  return charges;
}

Status measure_old_layers(WorkspaceStore& store) {
  CARREL_ASSIGN(const std::vector<LayerRef> layers, store.records().unmeasured());
  for (const LayerRef& layer : layers) {
    auto changes = store.read_changes(layer);
    if (changes.ok()) {  // `workspace fsck` tells of a damaged one
      CARREL_TRY(store.records().set_size(layer.id, bytes_of(changes.value())));
    }
  }
  return {};
}

}  // namespace carrel::storage
