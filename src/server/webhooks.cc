#include "server/webhooks.h"

#include <algorithm>
#include <array>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/files.h"
#include "base/sha256.h"
#include "server/event_tail.h"
#include "server/outgoing.h"
#include "storage/state.h"

namespace carrel::server {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPatience = 10s;
constexpr std::chrono::milliseconds kTick = 200ms;
constexpr std::chrono::milliseconds kFirstPause = 500ms;
constexpr std::chrono::milliseconds kLongestPause = 60s;
constexpr const char* kLast = "webhook.last";
constexpr std::size_t kBlock = 64;

std::string raw(const std::array<unsigned char, 32>& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace

std::string hmac_sha256(std::string_view key, std::string_view data) {
  std::string block(key);
  if (block.size() > kBlock) {
    Sha256 hash;
    hash.update(block);
    block = raw(hash.digest());
  }
  block.resize(kBlock, '\0');
  std::string inner_key = block;
  std::string outer_key = block;
  for (std::size_t i = 0; i < kBlock; ++i) {
    inner_key[i] = static_cast<char>(inner_key[i] ^ 0x36);
    outer_key[i] = static_cast<char>(outer_key[i] ^ 0x5c);
  }
  Sha256 inner;
  inner.update(inner_key);
  inner.update(data);
  Sha256 outer;
  outer.update(outer_key);
  outer.update(raw(inner.digest()));
  return outer.finish();
}

std::string sign_event(std::string_view secret, std::int64_t seconds, std::string_view body) {
  const std::string time = std::to_string(seconds);
  return "t=" + time + ",v1=" + hmac_sha256(secret, time + "." + std::string(body));
}

Status Webhooks::check(const Options& options) {
  if (options.url.empty()) {
    return {};
  }
  CARREL_TRY(parse_receiver(options.url, "events"));
  if (options.secret.empty()) {
    return Error{Code::kInvalid, 0, "a webhook needs a secret, with which its events are signed",
                 "--webhook-secret-file FILE"};
  }
  if (options.secret.size() < 16) {
    return Error{Code::kInvalid, 0, "the secret of the webhook is shorter than 16 characters",
                 "--webhook-secret-file FILE"};
  }
  return {};
}

Told Webhooks::tell(const http::Url& url, const std::string& line) const {
  const std::int64_t now = storage::wall_clock_ms() / 1000;
  return post_json(url, {{"carrel-signature", sign_event(options_.secret, now, line)}}, line,
                   kPatience);
}

void Webhooks::note_last(const std::string& line) const {
  (void)replace_file_at(home_.directory(), kLast, sha256(line), 0600);
}

void Webhooks::run(const std::atomic<bool>& stopping) {
  auto url = http::parse_url(options_.url);
  if (options_.url.empty() || !url.ok()) {
    return;
  }
  const auto last = read_file_at(home_.directory(), kLast, 256);
  EventTail tail(home_, last.ok() ? EventTail::From::kStart : EventTail::From::kEnd);
  std::vector<std::string> lines;
  if (last.ok()) {
    lines = tail.next();
    const auto known = std::find_if(lines.begin(), lines.end(), [&](const std::string& line) {
      return sha256(line) == last.value();
    });
    lines.erase(lines.begin(), known == lines.end() ? lines.begin() : known + 1);
  } else {
    note_last({});  // from now on
  }
  std::chrono::milliseconds pause = kFirstPause;
  std::size_t at = 0;
  while (!stopping) {
    if (at == lines.size()) {
      lines = tail.next();
      at = 0;
      if (lines.empty()) {
        std::this_thread::sleep_for(kTick);
        continue;
      }
    }
    const Told outcome = tell(url.value(), lines[at]);
    if (outcome == Told::kLater) {
      failed_.fetch_add(1, std::memory_order_relaxed);
      const Clock::time_point again = Clock::now() + pause;
      pause = std::min(pause * 2, kLongestPause);
      while (!stopping && Clock::now() < again) {
        std::this_thread::sleep_for(kTick);
      }
      continue;
    }
    (outcome == Told::kTaken ? told_ : failed_).fetch_add(1, std::memory_order_relaxed);
    pause = kFirstPause;
    note_last(lines[at]);
    ++at;
  }
}

}  // namespace carrel::server
