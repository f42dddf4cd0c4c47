#include "backends/native/dbus_message.h"

#include <cstring>

namespace carrel::native {

namespace {

constexpr char kLittleEndian = 'l';
constexpr std::uint8_t kVersion = 1;
constexpr std::size_t kMostFields = 32;

enum class Field : std::uint8_t {
  kPath = 1,
  kInterface = 2,
  kMember = 3,
  kErrorName = 4,
  kReplySerial = 5,
  kDestination = 6,
  kSignature = 8,
};

Error malformed(const char* what) {
  return Error{Code::kInvalid, 0, std::string("a malformed message on the bus: ") + what, {}};
}

// Reads from a message. After anything that does not fit, every read gives nothing and ok() is
// false.
class Reader {
 public:
  explicit Reader(std::string_view data) : data_(data) {}

  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] std::size_t position() const { return at_; }
  void expect(bool good) { ok_ = ok_ && good; }

  void align(std::size_t boundary) {
    const std::size_t next = (at_ + boundary - 1) & ~(boundary - 1);
    for (std::string_view padding = take(next - at_); char c : padding) {
      expect(c == '\0');
    }
  }
  std::uint8_t byte() {
    const std::string_view bytes = take(1);
    return bytes.empty() ? std::uint8_t{0} : static_cast<std::uint8_t>(bytes[0]);
  }
  std::uint32_t u32() {
    align(4);
    std::uint32_t value = 0;
    if (const std::string_view bytes = take(4); !bytes.empty()) {
      std::memcpy(&value, bytes.data(), sizeof value);
    }
    return value;
  }
  std::string_view string() { return text(u32()); }
  std::string_view signature() { return text(byte()); }

 private:
  std::string_view take(std::size_t size) {
    if (!ok_ || size > data_.size() - at_) {
      ok_ = false;
      return {};
    }
    at_ += size;
    return data_.substr(at_ - size, size);
  }
  std::string_view text(std::size_t size) {
    const std::string_view value = take(size);
    const std::string_view end = take(1);
    expect(!end.empty() && end[0] == '\0' && value.find('\0') == std::string_view::npos);
    return ok_ ? value : std::string_view();
  }

  std::string_view data_;
  std::size_t at_ = 0;
  bool ok_ = true;
};

// The value of one header field. Only what a header may hold is understood.
void read_field(Reader& reader, DbusMessage& message, std::string_view& body_signature) {
  const auto field = static_cast<Field>(reader.byte());
  const std::string_view type = reader.signature();
  if (type == "s" || type == "o") {
    const std::string_view value = reader.string();
    if (field == Field::kErrorName) {
      message.error_name = value;
    }
  } else if (type == "u") {
    const std::uint32_t value = reader.u32();
    if (field == Field::kReplySerial) {
      message.reply_serial = value;
    }
  } else if (type == "g") {
    const std::string_view value = reader.signature();
    if (field == Field::kSignature) {
      body_signature = value;
    }
  } else {
    reader.expect(false);
  }
}

void write_text_field(DbusWriter& writer, Field field, std::string_view type,
                      std::string_view value) {
  if (value.empty()) {
    return;
  }
  writer.align(8);
  writer.byte(static_cast<std::uint8_t>(field));
  writer.signature(type);
  if (type == "g") {
    writer.signature(value);
  } else {
    writer.string(value);
  }
}

}  // namespace

void DbusWriter::u32(std::uint32_t value) {
  align(4);
  for (unsigned shift = 0; shift < 32; shift += 8) {
    byte(static_cast<std::uint8_t>(value >> shift));
  }
}

void DbusWriter::u64(std::uint64_t value) {
  align(8);
  for (unsigned shift = 0; shift < 64; shift += 8) {
    byte(static_cast<std::uint8_t>(value >> shift));
  }
}

void DbusWriter::string(std::string_view value) {
  u32(static_cast<std::uint32_t>(value.size()));
  data_ += value;
  data_ += '\0';
}

void DbusWriter::signature(std::string_view value) {
  byte(static_cast<std::uint8_t>(value.size()));
  data_ += value;
  data_ += '\0';
}

DbusWriter::Array DbusWriter::begin_array(std::size_t element_alignment) {
  Array array;
  align(4);
  array.size_at = data_.size();
  u32(0);
  align(element_alignment);
  array.first_at = data_.size();
  return array;
}

void DbusWriter::end_array(const Array& array) {
  const auto size = static_cast<std::uint32_t>(data_.size() - array.first_at);
  for (unsigned i = 0; i < 4; ++i) {
    data_[array.size_at + i] = static_cast<char>(size >> (8 * i));
  }
}

std::string encode_call(const DbusCall& call, std::uint32_t serial) {
  DbusWriter writer;
  writer.byte(static_cast<std::uint8_t>(kLittleEndian));
  writer.byte(static_cast<std::uint8_t>(DbusKind::kCall));
  writer.byte(0);
  writer.byte(kVersion);
  writer.u32(static_cast<std::uint32_t>(call.body.size()));
  writer.u32(serial);
  const DbusWriter::Array fields = writer.begin_array(8);
  write_text_field(writer, Field::kPath, "o", call.path);
  write_text_field(writer, Field::kInterface, "s", call.interface);
  write_text_field(writer, Field::kMember, "s", call.member);
  write_text_field(writer, Field::kDestination, "s", call.destination);
  write_text_field(writer, Field::kSignature, "g", call.signature);
  writer.end_array(fields);
  writer.align(8);
  return writer.data() + std::string(call.body);
}

Result<std::size_t> dbus_message_size(std::string_view header) {
  Reader reader(header.substr(0, kDbusFixedHeader));
  const std::uint8_t order = reader.byte();
  const std::uint8_t kind = reader.byte();
  reader.byte();  // flags
  const std::uint8_t version = reader.byte();
  const std::uint32_t body = reader.u32();
  const std::uint32_t serial = reader.u32();
  const std::uint32_t fields = reader.u32();
  if (!reader.ok() || order != static_cast<std::uint8_t>(kLittleEndian) || version != kVersion ||
      serial == 0 || kind < static_cast<std::uint8_t>(DbusKind::kCall) ||
      kind > static_cast<std::uint8_t>(DbusKind::kSignal)) {
    return malformed("its beginning");
  }
  if (fields > kLargestDbusMessage || body > kLargestDbusMessage) {
    return malformed("its size");
  }
  const std::size_t size = ((kDbusFixedHeader + fields + 7) & ~std::size_t{7}) + body;
  if (size > kLargestDbusMessage) {
    return malformed("its size");
  }
  return size;
}

Result<DbusMessage> decode_message(std::string_view data) {
  CARREL_ASSIGN(std::size_t size, dbus_message_size(data));
  if (size != data.size()) {
    return malformed("its size");
  }
  DbusMessage message;
  message.kind = static_cast<DbusKind>(data[1]);
  Reader reader(data);
  for (std::size_t i = 0; i < kDbusFixedHeader / 4 - 1; ++i) {
    reader.u32();
  }
  const std::size_t fields_end = kDbusFixedHeader + reader.u32();
  std::string_view body_signature;
  for (std::size_t count = 0; reader.ok() && reader.position() < fields_end; ++count) {
    reader.align(8);
    reader.expect(count < kMostFields);
    read_field(reader, message, body_signature);
  }
  if (!reader.ok() || reader.position() != fields_end) {
    return malformed("its header");
  }
  const bool answers = message.kind == DbusKind::kReturn || message.kind == DbusKind::kError;
  if (answers && message.reply_serial == 0) {
    return malformed("an answer to nothing");
  }
  reader.align(8);
  if (message.kind == DbusKind::kError && body_signature.starts_with('s')) {
    message.text = reader.string();
  }
  if (!reader.ok()) {
    return malformed("its body");
  }
  return message;
}

}  // namespace carrel::native
