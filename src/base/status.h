// Helpers around the public Status (blockscale/status.h): making one with fmt, handing one on, and
// BLOCKSCALE_CHECK for promises that only a programmer can break.
#pragma once

#include <fmt/format.h>

#include <utility>

#include "blockscale/status.h"

namespace blockscale {

// A message with its control characters spelled out ("\x0a"): names from outside may hold line
// breaks and terminal sequences, and a message is one line of plain text.
std::string OneLine(std::string text);

// InvalidInput("{}: tensor '{}' has ...", path, name): a Status with a formatted message.
template <typename... Args>
Status InvalidInput(fmt::format_string<Args...> text, Args&&... args) {
  return {StatusCode::kInvalidInput, OneLine(fmt::format(text, std::forward<Args>(args)...))};
}

template <typename... Args>
Status Refused(fmt::format_string<Args...> text, Args&&... args) {
  return {StatusCode::kRefused, OneLine(fmt::format(text, std::forward<Args>(args)...))};
}

// "cannot ACTION PATH: strerror(error_number)"; ENOSPC and EDQUOT become kDiskFull.
Status IoError(const std::string& action, const std::string& path, int error_number);

[[noreturn]] void CheckFailed(const char* file, int line, const std::string& what);

}  // namespace blockscale

// Ends the process with the condition and its values: for broken invariants, never for bad input.
#define BLOCKSCALE_CHECK(condition, ...)                                                         \
  do {                                                                                           \
    if (!(condition))                                                                            \
      ::blockscale::CheckFailed(__FILE__, __LINE__, #condition ": " + fmt::format(__VA_ARGS__)); \
  } while (false)

#define BLOCKSCALE_CONCAT_INNER(a, b) a##b
#define BLOCKSCALE_CONCAT(a, b) BLOCKSCALE_CONCAT_INNER(a, b)

#define BLOCKSCALE_RETURN_IF_ERROR(expression)                                      \
  do {                                                                              \
    if (::blockscale::Status status_ = (expression); !status_.ok()) return status_; \
  } while (false)

// BLOCKSCALE_ASSIGN_OR_RETURN(auto header, ReadHeader(file));
#define BLOCKSCALE_ASSIGN_OR_RETURN(declaration, expression) \
  BLOCKSCALE_ASSIGN_OR_RETURN_INNER(BLOCKSCALE_CONCAT(result_, __LINE__), declaration, expression)
#define BLOCKSCALE_ASSIGN_OR_RETURN_INNER(result, declaration, expression) \
  auto result = (expression);                                              \
  if (!result.ok()) return result.status();                                \
  declaration = std::move(result).value()
