// Status and Result<T>: how every function of blockscale says that a user's input or machine is at
// fault. Nothing in the library throws, prints or aborts across its surface; a broken promise of a
// programmer (not of a user) ends in BLOCKSCALE_CHECK.
//
// A message names the object (file, tensor, field), its value, the limit and the remedy, in one
// line, without a full stop at its end.
#pragma once

#include <string>
#include <utility>
#include <variant>

namespace blockscale {

// What kind of trouble it is; decides the exit code and whether a retry makes sense.
enum class StatusCode {
  kOk,
  kInvalidInput,  // a file, tensor, field or flag holds what it must not hold
  kRefused,       // valid input, but doing it would lose or overwrite something
  kIo,            // the operating system said no: the message carries its words
  kDiskFull,      // ENOSPC or EDQUOT: what is finished stays, the run can be resumed
  kCancelled,     // a signal or a caller asked to stop
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status OkStatus() { return {}; }

// Either a value or the Status that says why there is none. Reading the value of an error is a
// programmer's mistake and throws std::bad_variant_access.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}         // NOLINT: implicit on purpose
  Result(Status status) : state_(std::move(status)) {}  // NOLINT: implicit on purpose

  bool ok() const { return std::holds_alternative<T>(state_); }
  Status status() const { return ok() ? Status() : std::get<Status>(state_); }
  T& value() & { return std::get<T>(state_); }
  const T& value() const& { return std::get<T>(state_); }
  // By value from a temporary, so that `for (x : *List())` holds what it walks over.
  T value() && { return std::get<T>(std::move(state_)); }
  T operator*() && { return std::get<T>(std::move(state_)); }
  T* operator->() { return &std::get<T>(state_); }
  const T* operator->() const { return &std::get<T>(state_); }
  T& operator*() & { return std::get<T>(state_); }
  const T& operator*() const& { return std::get<T>(state_); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace blockscale
