#include "storage/workspaces/taking.h"

#include <algorithm>
#include <utility>

#include "storage/workspaces/layer_writer.h"

namespace carrel::storage {

namespace {

class Taker {
 public:
  explicit Taker(const LayerRequest& request)
      : request_(request), writer_(request.tree, request.layer) {
    writer_.set_most(request.most);
  }

  Status compare(TreeScan& scan) {
    const TreeIndex& before = request_.before;
    std::size_t old = 1;  // after the top
    auto next = scan.entries.begin();
    for (const ScanPart& part : scan.parts) {
      if (!part.is_entry()) {
        for (; old < part.first; ++old) {
          CARREL_TRY(gone(old));
        }
        old = part.last;
        continue;
      }
      ScannedEntry& now = *next++;
      for (; old < before.size() && comes_before(before.path(old), now.path); ++old) {
        CARREL_TRY(gone(old));
      }
      const bool known = old < before.size() && before.path(old) == now.path;
      CARREL_TRY(known ? both(old, now) : changed(now));
      old += known ? 1 : 0;
    }
    for (; old < before.size(); ++old) {
      CARREL_TRY(gone(old));
    }
    return {};
  }

  Result<LayerFiles> finish() { return writer_.finish(); }
  [[nodiscard]] std::uint64_t bytes() const { return writer_.bytes(); }
  [[nodiscard]] Found found() const {
    return changes_.empty() ? Found::kNothingNew : Found::kChanges;
  }
  std::vector<TreeEntry> take() { return std::move(changes_); }

 private:
  Status gone(std::size_t old) {
    const std::string_view path = request_.before.path(old);
    // What was below something that is gone or no directory any more is gone with it.
    if (request_.before[old].kind == EntryKind::kGone ||
        (!replaced_.empty() && lies_in(path, replaced_))) {
      return {};
    }
    replaced_ = path;
    ScannedEntry entry;
    entry.path = path;
    entry.kind = EntryKind::kGone;
    return changed(entry);
  }

  Status both(std::size_t number, ScannedEntry& now) {
    const IndexRecord& old = request_.before[number];
    if (old.kind == EntryKind::kDirectory && now.kind != EntryKind::kDirectory) {
      replaced_ = now.path;
    }
    if (old.kind != now.kind || old.mode != now.mode ||
        request_.before.target(number) != now.target || old.opaque != now.opaque ||
        old.size != now.size || old.mtime_ns != now.mtime_ns) {
      return changed(now);
    }
    if (now.kind != EntryKind::kFile && now.kind != EntryKind::kDirectory) {
      return {};
    }
    now.hash = old.hash;
    now.attributes = request_.before.attributes(number);
    const bool same = has_same_attributes(old, now, request_.before.began_ns());
    if (same &&
        (now.kind != EntryKind::kFile || is_certain(old, now, request_.before.began_ns()))) {
      return {};
    }
    CARREL_ASSIGN(now.attributes, attributes_below(request_.tree, now.path));
    if (now.attributes != request_.before.attributes(number)) {
      return changed(now);
    }
    if (now.kind != EntryKind::kFile) {
      return {};
    }
    CARREL_ASSIGN(const ContentHash hash, hash_synced(request_.tree, now.path));
    return hash == old.hash ? Status{} : changed(now);
  }

  Status changed(ScannedEntry& now) {
    CARREL_TRY(writer_.add(now));
    // One more name of a file that was copied just now has its hash.
    if (now.kind == EntryKind::kFile && !now.target.empty()) {
      const auto first = std::lower_bound(changes_.begin(), changes_.end(), now.target,
                                          [](const TreeEntry& entry, const std::string& path) {
                                            return comes_before(entry.path, path);
                                          });
      now.hash = first != changes_.end() && first->path == now.target ? first->hash : now.hash;
    }
    changes_.push_back(now);
    return {};
  }

  const LayerRequest& request_;
  LayerWriter writer_;
  std::vector<TreeEntry> changes_;
  std::string replaced_;
};

}  // namespace

Result<TakenLayer> take_layer(const LayerRequest& request) {
  TakenLayer layer;
  ScanOptions options{request.without, &request.before, true, request.tables, request.watch};
  CARREL_ASSIGN(layer.scan, scan_tree(request.tree, request.form, options));
  if (request.watch != nullptr && request.watch->knows() && !request.watch->is_good()) {
    options.watch = nullptr;
    CARREL_ASSIGN(layer.scan, scan_tree(request.tree, request.form, options));
  }
  Taker taker(request);
  CARREL_TRY(taker.compare(layer.scan));
  if (request.read) {
    request.read(taker.found());
  }
  CARREL_ASSIGN(layer.files, taker.finish());
  layer.changes = taker.take();
  layer.bytes = taker.bytes();
  return layer;
}

}  // namespace carrel::storage
