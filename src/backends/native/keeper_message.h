#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backends/native/given_tree.h"
#include "base/result.h"
#include "policy/spec.h"

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
// told as an answer with its id.
std::string encode_keep_warm(std::size_t count);
// Nothing when the message is another one.
std::optional<std::size_t> decode_keep_warm(const std::string& text);

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
