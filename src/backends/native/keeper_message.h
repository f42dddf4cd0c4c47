#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backends/native/given_tree.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "policy/spec.h"
#include "storage/workspaces/tree_watch.h"

namespace carrel::native {

// A wish for a long-lived sandbox, as it travels to the keeper.
struct CreateRequest {
  std::string id;  // chosen by the caller, so that it can look for it if the keeper dies
  enum class Origin { kNew, kStopped } origin = Origin::kNew;
  // kWarm: the id is that of a sandbox that the keeper has ready.
  enum class From { kNothing, kWarm } from = From::kNothing;
  std::string name;  // empty: none
  policy::Spec spec;
  std::uint64_t lease_ms = 0;    // 0: until it is removed
  std::vector<GivenTree> trees;  // the spec's mounts; their descriptors travel beside the text
};

std::string encode_create(const CreateRequest& request);
// `descriptors` are those of the trees, in their order.
Result<CreateRequest> decode_create(const std::string& text, std::vector<UniqueFd> descriptors);

// A wish for sandboxes that are kept warm, for as long as the connection is open. Each of them is
// told as an answer with its id, or offered to whoever is at the same place as the keeper. That one
// sends the id of each that it has taken, and nothing else.
struct KeepWarm {
  std::size_t count = 0;
  std::string place;
};
std::string encode_keep_warm(const KeepWarm& wish);
// Nothing when the message is another one.
std::optional<KeepWarm> decode_keep_warm(const std::string& text);
// The namespaces that a process has to share with another one to do in its place what that one
// would do; empty where they cannot be told.
std::string place_of_this_process();

// A wish to have a watch over a sandbox's workspace kept, or back. One that is kept comes with its
// descriptor and has no answer; the answer to the other is the same message.
struct WatchWish {
  enum class Kind { kKeep, kTake } kind = Kind::kTake;
  std::string id;                 // of the sandbox
  storage::KeptWatch watch = {};  // kKeep
};
std::string encode_watch(const WatchWish& wish);
// Nothing when the message is another one. `descriptors` is emptied if it is one.
std::optional<WatchWish> decode_watch(const std::string& text, std::vector<UniqueFd>& descriptors);

// A warm sandbox that is given to another process, which is responsible for it from then on. The
// keeper stays the parent of its first process, and cleans up when that has ended.
struct Offer {
  std::string id;
  std::string parent;        // the control group that it is in
  std::string why_no_scope;  // where that is not one of its own
  pid_t pid = 0;
  std::optional<std::uint32_t> id_range;
  UniqueFd lock;  // of its box
  UniqueFd listener;
  UniqueFd stream;
  UniqueFd process;
};
std::string encode_offer(const Offer& offer);
// Nothing when the message is another one; `descriptors` are the four of the offer.
Result<std::optional<Offer>> decode_offer(const std::string& text,
                                          std::vector<UniqueFd> descriptors);

std::string encode_answer(const Result<std::string>& id);
Result<std::string> decode_answer(const std::string& text);

// Messages on the keeper's socket: four bytes of length and JSON; descriptors come with the first
// of them. After an answer with an id the client sends kTaken; if it closes the stream instead, a
// new sandbox is nobody's and is removed. One that was stopped is started whether or not the client
// is still there.
inline constexpr std::uint32_t kLargestMessage = 4U << 20;
inline constexpr char kTaken = 't';
std::string frame_message(const std::string& text);

}  // namespace carrel::native
