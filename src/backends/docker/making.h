#pragma once

#include <chrono>
#include <map>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "backends/docker/door.h"
#include "backends/docker/engine.h"
#include "base/result.h"
#include "sandbox/walls.h"

// What containers of all runtimes have in common on their way.
namespace carrel::docker {

// With a host, so that no engine takes it for an image of a registry.
inline constexpr char kImageName[] = "localhost/carrel-room";

std::string address_of(const std::string& given);
std::string label_of(const std::string& installation);
bool exists(const std::string& path);

// What engines said about themselves a moment ago, and which of them did not answer.
class KnownEngines {
 public:
  Result<Facts> facts(const std::string& address) const;

  // Whoever found that an engine does not answer spares others the waiting for a moment. Errors
  // that are not kTimeout are not about that.
  void note(const std::string& address, const Error& error) const;
  // What was noted a moment ago.
  Status check_silence(const std::string& address) const;

 private:
  using Time = std::chrono::steady_clock::time_point;
  struct Seen {
    Time when;
    Facts facts;
  };
  struct Silence {
    Time when;
    Error error;
  };
  mutable std::mutex mutex_;
  mutable std::map<std::string, Seen> seen_;
  mutable std::map<std::string, Silence> silent_;
};

// kUnsupported: the engine has no such runtime; the hint names those that it has.
Status check_runtime(const std::string& runtime, const Facts& facts);
// kUnsupported: containers of that engine cannot be sandboxes.
Status check_engine(const Facts& facts);

// A container that is removed unless it is kept.
class Container {
 public:
  Container(const Engine& engine, std::string id, Door& door)
      : engine_(&engine), id_(std::move(id)), door_(&door) {}
  Container(const Container&) = delete;
  Container& operator=(const Container&) = delete;
  ~Container();
  [[nodiscard]] const std::string& id() const { return id_; }
  void keep() { id_.clear(); }
  // Has the engine start it. One that does not answer is not asked once more: whoever cleans up is
  // left to remove it.
  Status start();

 private:
  const Engine* engine_;
  std::string id_;
  Door* door_;
};

// The id of a new container. Its image is made of the archive where there is none of that tag.
Result<std::string> create(const Engine& engine, const sandbox::RoomRequest& request,
                           const nlohmann::json& asked, const std::string& tag,
                           const std::string& archive, Door& door);

// Removes what callers left that died in the middle of a start.
void sweep_doors(const std::string& folder, const std::string& installation,
                 const KnownEngines& engines);
// Containers that run nothing and whose maker is gone: an engine can finish what nobody waits for
// any more, and one that was killed does not always remove what had ended meanwhile.
// kTimeout: it does not answer.
Status sweep_forgotten(const Engine& engine, const std::string& folder,
                       const std::string& installation);

}  // namespace carrel::docker
