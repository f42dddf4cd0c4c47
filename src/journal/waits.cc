#include "journal/waits.h"

#include <openssl/evp.h>

#include <array>

#include "http/tls.h"
#include "journal/json_text.h"
#include "policy/json_schema.h"

namespace carrel::journal {

Result<std::string> wait_name(std::size_t index, std::string_view question) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  CARREL_TRY(http::prepare_tls());
  if (EVP_Digest(question.data(), question.size(), digest.data(), &size, EVP_sha1(), nullptr) !=
      1) {
    return Error{Code::kSystem, 0, "cannot compute the name of a question", {}};
  }
  std::string name = "ask_question:" + std::to_string(index) + ":";
  for (std::size_t i = 0; i < 4; ++i) {
    constexpr char kDigits[] = "0123456789abcdef";
    name += kDigits[digest[i] >> 4U];
    name += kDigits[digest[i] & 15U];
  }
  return name;
}

Status check_schema(std::string_view schema) {
  if (schema.empty()) {
    return {};
  }
  CARREL_ASSIGN(const nlohmann::json json, parse_json(schema, "the schema of a wait"));
  return policy::check_schema(json, "the answer");
}

Status check_answer(std::string_view schema, std::string_view answer) {
  CARREL_ASSIGN(const nlohmann::json value, parse_json(answer, "the answer"));
  if (schema.empty()) {
    return {};
  }
  CARREL_TRY(check_schema(schema));
  CARREL_ASSIGN(const nlohmann::json json, parse_json(schema, "the schema of a wait"));
  return policy::check_against_schema(json, value, "the answer");
}

}  // namespace carrel::journal
