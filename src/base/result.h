#pragma once

#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace carrel {

// Why Carrel could not do something. Closed on purpose: each maps to one exit status, one HTTP
// status and one MCP error, so a new kind of failure has to choose where it belongs.
enum class Code {
  kInvalid,      // the caller's input makes no sense
  kNotFound,     // the named sandbox, file or program does not exist
  kConflict,     // the object is in a state that does not allow this now
  kDenied,       // policy says no
  kUnsupported,  // this host cannot enforce what was asked for
  kUnavailable,  // a part is not built yet, or not running
  kResource,     // a limit of the host or of the sandbox was reached
  kTimeout,      // it took longer than allowed
  kGone,         // the sandbox ended while it was used
  kSystem,       // the operating system refused; `error_number` says how
};

// A failure that a person can act on: `message` is a sentence that names the object, `hint` says
// what to do about it (may be empty).
struct Error {
  Code code = Code::kSystem;
  int error_number = 0;
  std::string message;
  std::string hint;

  // The message with the operating system's reason and the hint, as one line.
  [[nodiscard]] std::string to_string() const {
    std::string text = message;
    if (error_number != 0) {
      text += ": ";
      text += std::strerror(error_number);
    }
    if (!hint.empty()) {
      text += " (" + hint + ")";
    }
    return text;
  }
};

// An Error from errno as it is now.
inline Error system_error(std::string message, std::string hint = {}) {
  return Error{Code::kSystem, errno, std::move(message), std::move(hint)};
}
inline Error system_error(int error_number, std::string message, std::string hint = {}) {
  return Error{Code::kSystem, error_number, std::move(message), std::move(hint)};
}

// An Error that says what this host cannot enforce, and what to use instead.
inline Error unsupported(std::string message, std::string hint) {
  return Error{Code::kUnsupported, 0, std::move(message), std::move(hint)};
}

// A value or an Error. Access to the absent one is a programming mistake and ends the program.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  [[nodiscard]] bool ok() const { return state_.index() == 0; }
  T& value() { return std::get<0>(state_); }
  const T& value() const { return std::get<0>(state_); }
  Error& error() { return std::get<1>(state_); }
  const Error& error() const { return std::get<1>(state_); }
  T* operator->() { return &value(); }
  T& operator*() { return value(); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}

  [[nodiscard]] bool ok() const { return !error_.has_value(); }
  Error& error() { return *error_; }
  const Error& error() const { return *error_; }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace carrel

#define CARREL_CONCAT_INNER(a, b) a##b
#define CARREL_CONCAT(a, b) CARREL_CONCAT_INNER(a, b)

// Returns from the enclosing function with the Error of `expression`, if it has one.
#define CARREL_TRY(expression)                 \
  do {                                         \
    auto carrel_status = (expression);         \
    if (!carrel_status.ok()) {                 \
      return std::move(carrel_status.error()); \
    }                                          \
  } while (false)

// `CARREL_ASSIGN(auto fd, open_something())`: declares or assigns the value, or returns the Error.
#define CARREL_ASSIGN(target, expression) \
  CARREL_ASSIGN_INNER(CARREL_CONCAT(carrel_result_, __LINE__), target, expression)
#define CARREL_ASSIGN_INNER(name, target, expression) \
  auto name = (expression);                           \
  if (!name.ok()) {                                   \
    return std::move(name.error());                   \
  }                                                   \
  target = std::move(name.value())
