// Any bytes from the service manager are a message within its bounds, or refused.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "backends/native/dbus_message.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
  using namespace carrel::native;
  const std::string_view data(reinterpret_cast<const char*>(bytes), count);
  auto size = dbus_message_size(data);
  if (size.ok() && (size.value() < kDbusFixedHeader || size.value() > kLargestDbusMessage)) {
    std::abort();
  }
  auto message = decode_message(data);
  if (!message.ok()) {
    return 0;
  }
  const bool answers =
      message.value().kind == DbusKind::kReturn || message.value().kind == DbusKind::kError;
  if (!size.ok() || size.value() != count || (answers && message.value().reply_serial == 0) ||
      message.value().text.size() > count || message.value().error_name.size() > count) {
    std::abort();
  }
  return 0;
}
