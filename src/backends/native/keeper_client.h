#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "policy/spec.h"
#include "storage/home.h"

namespace carrel::native {

// A wish for a long-lived sandbox, as it travels to the keeper.
struct CreateRequest {
  std::string name;  // empty: none
  policy::Spec spec;
  std::uint64_t lease_ms = 0;  // 0: until it is removed
};

std::string encode_create(const CreateRequest& request);
Result<CreateRequest> decode_create(const std::string& text);
std::string encode_answer(const Result<std::string>& id);
Result<std::string> decode_answer(const std::string& text);

// Messages on the keeper's socket: four bytes of length and JSON.
Status send_message(int socket, const std::string& text);
Result<std::string> receive_message(int socket);

// Has the keeper make a sandbox and returns its id. Starts the keeper, as `program keeper`, when
// none is running. The sandbox is stored and running when this returns.
Result<std::string> create_sandbox(const storage::Home& home, const CreateRequest& request);

}  // namespace carrel::native
