#include "egress/sniff.h"

#include <gtest/gtest.h>

#include <utility>

namespace carrel::egress {
namespace {

Sniffed of(std::string_view text) {
  return sniff({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
}

TEST(Sniff, TellsTlsHttpAndTheRest) {
  for (const auto& [text, kind] : {
           std::pair<std::string_view, Sniffed>{"", Sniffed::kNeedMore},
           {"\x16", Sniffed::kNeedMore},
           {"\x16\x03", Sniffed::kTls},
           {"\x16\x02", Sniffed::kOpaque},
           {"\x17\x03", Sniffed::kOpaque},
           {"G", Sniffed::kNeedMore},
           {"GET", Sniffed::kNeedMore},
           {"GET ", Sniffed::kHttp},
           {"GETS ", Sniffed::kOpaque},
           {"P", Sniffed::kNeedMore},
           {"PRI * HTTP/2.0", Sniffed::kOpaque},
           {"OPTIONS * ", Sniffed::kHttp},
           {"get / ", Sniffed::kOpaque},
           {"SSH-2.0-x", Sniffed::kOpaque},
           {"\r\nGET / ", Sniffed::kOpaque},
           {" GET / ", Sniffed::kOpaque},
       }) {
    EXPECT_EQ(of(text), kind) << text;
  }
}

}  // namespace
}  // namespace carrel::egress
