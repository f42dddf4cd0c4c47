#include "backends/native/kept_watches.h"

#include <utility>

#include "backends/native/open_files.h"
#include "storage/box.h"

namespace carrel::native {

namespace {

// A user has 128 by default, for all of his programs.
constexpr std::size_t kMost = 32;

}  // namespace

void KeptWatches::keep(const std::string& id, storage::KeptWatch watch) {
  forget(id);
  kept_.push_back({id, std::move(watch)});
  if (kept_.size() > kMost) {
    kept_.pop_front();
  }
}

std::optional<storage::KeptWatch> KeptWatches::take(const storage::Home& home,
                                                    const std::string& id) {
  for (auto one = kept_.begin(); one != kept_.end(); ++one) {
    if (one->id != id) {
      continue;
    }
    storage::KeptWatch watch = std::move(one->watch);
    kept_.erase(one);
    const auto record = storage::read_record(home, id);
    const auto device = storage::TreeWatch::device_of(watch.events.get());
    const bool certain = record.ok() && storage::is_alive(record.value()) && device.has_value() &&
                         !may_write_unseen(record.value().pid, *device);
    return certain ? std::optional(std::move(watch)) : std::nullopt;
  }
  return std::nullopt;
}

void KeptWatches::forget(const std::string& id) {
  kept_.remove_if([&](const Kept& one) { return one.id == id; });
}

}  // namespace carrel::native
