#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

// Reading the JSON documents of images, which strangers wrote: what is missing or of another kind
// is empty.
namespace carrel::storage {

inline constexpr std::size_t kLargestJson = 4U << 20;

std::string text_of(const nlohmann::json& object, const char* name);
const nlohmann::json& part_of(const nlohmann::json& object, const char* name);

// The hex digits of "sha256:HEX"; empty: it is something else.
std::string sha256_of(std::string_view digest);
// Those of a descriptor's `digest`.
std::string digest_of(const nlohmann::json& descriptor);

// How images call the processor of this host.
std::string_view host_architecture();
// Whether a `platform`, or a configuration, is for this host as far as it says.
bool is_for_this_host(const nlohmann::json& platform);

}  // namespace carrel::storage
