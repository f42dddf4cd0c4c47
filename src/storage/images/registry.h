#pragma once

#include <functional>
#include <string>

#include "base/result.h"
#include "http/client.h"
#include "storage/images/reference.h"

namespace carrel::storage {

struct RegistryOptions {
  http::ClientOptions http;
  std::string credentials;  // the value of an Authorization header; empty: none
};

// One repository of a registry that speaks the OCI distribution API. What it answers is believed as
// far as its digest goes.
class Registry {
 public:
  Registry(const Reference& reference, RegistryOptions options);

  struct Document {
    std::string bytes;
    std::string digest;  // of the bytes
  };
  // A manifest or an index. By digest, it has that digest.
  Result<Document> manifest_by_tag(const std::string& tag);
  Result<Document> manifest_by_digest(const std::string& digest);
  // A small blob, such as a configuration.
  Result<std::string> small_blob(const std::string& digest);

  // The bytes of a blob from `offset` on. `restart` is called before the first piece when the
  // registry begins at 0 instead.
  struct BlobSink {
    std::function<Status()> restart;
    std::function<Status(std::string_view)> write;
  };
  Status blob(const std::string& digest, std::uint64_t offset, const BlobSink& sink);

 private:
  using Client = http::Client;

  Status choose_scheme();
  Result<http::Request> request_for(const std::string& path);
  // Sends the request; when credentials are wanted, gets them and sends it again.
  template <typename Send>
  auto authorized(const std::string& path, Send send) -> decltype(send(http::Request{}));
  Status authorize(const http::Response& refusal);
  Result<Document> manifest(const std::string& which);
  Error refused(const http::Response& response, const std::string& body, const std::string& what);

  Reference reference_;
  RegistryOptions options_;
  Client client_;
  http::Url base_;
  bool scheme_is_known_ = false;
  std::string authorization_;
};

}  // namespace carrel::storage
