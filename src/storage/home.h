#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace carrel::storage {

// CARREL_HOME: where one installation keeps its state. Everything in it is private to its user.
//
//   installation      eight hex digits that label this installation's control groups
//   state.db          the long-lived sandboxes
//   machines/         virtual machines that were saved: see backends/microvm/snapshots.h
//   run/once/ID       a one-shot sandbox; whoever owns it holds a lock on the file
//   run/box/ID/       a long-lived one: its socket
//   run/ids/N         as root: which sandbox has the N-th range of user ids
//   run/places        as root: there may be control groups that one-shots left for the next ones
//   run/one-shots     its time is that of the last one-shot
class Home {
 public:
  // The directory of CARREL_HOME, or the default for this user; made if it is missing.
  static Result<Home> open();
  static Result<Home> open_at(const std::string& path);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const std::string& label() const { return label_; }
  [[nodiscard]] int directory() const { return directory_.get(); }
  [[nodiscard]] int once() const { return once_.get(); }
  [[nodiscard]] int boxes() const { return boxes_.get(); }
  // Whether somebody has removed it: nobody can ask for anything in it any more, and nothing in it
  // can be opened. One that was only given another name is still there.
  [[nodiscard]] bool is_removed() const;

  // The mark of a live one-shot sandbox: as long as the descriptor is open, it is somebody's.
  Result<UniqueFd> claim_once(const std::string& id);
  void release_once(const std::string& id);
  // The one-shot sandboxes whose owner is gone, with the lock that keeps others away from them.
  struct Abandoned {
    std::string id;
    UniqueFd lock;
  };
  std::vector<Abandoned> abandoned();

  // Root only: takes a free number below `limit` for the sandbox.
  Result<std::uint32_t> claim_ids(const std::string& id, std::uint32_t limit);
  // The first free one of those from `first` to `last`; nothing when each is taken.
  std::optional<std::uint32_t> claim_ids_between(const std::string& id, std::uint32_t first,
                                                 std::uint32_t last);
  void release_ids(const std::string& id, std::uint32_t number);
  void release_ids_of(const std::string& id);
  [[nodiscard]] std::vector<std::uint32_t> ids_of(const std::string& id) const;

 private:
  [[nodiscard]] std::string owner_of(std::uint32_t number) const;

  std::string path_;
  std::string label_;
  UniqueFd directory_;
  UniqueFd once_;
  UniqueFd boxes_;
  UniqueFd ids_;
};

// The directory that Home::open() uses, whether it is there or not.
Result<std::string> home_path();

// A random id in the form of a UUID, version 4.
std::string make_id();
// `count` random hex digits.
std::string random_hex(std::size_t count);

}  // namespace carrel::storage
