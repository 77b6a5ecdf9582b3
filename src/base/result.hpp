// Errors are values: result<T> = T or error. DSEC_TRY is the project's only control-flow macro.
#pragma once

#include <tl/expected.hpp>

#include "base/error.hpp"

namespace dsec::base {

template <class T>
using result = tl::expected<T, error>;

inline tl::unexpected<error> fail(error e) {
  return tl::unexpected<error>(std::move(e));
}
inline tl::unexpected<error> fail(errc code, std::string message) {
  return fail(error{code, std::move(message), 0});
}
/// fail() with the calling thread's errno.
inline tl::unexpected<error> fail_errno(std::string message) {
  return fail(from_errno(std::move(message)));
}

}  // namespace dsec::base

#define DSEC_CONCAT_(a, b) a##b
#define DSEC_CONCAT(a, b) DSEC_CONCAT_(a, b)

/// DSEC_TRY(auto x, expression): x = *expression, or return its error. DSEC_CHECK(expression): only
/// the latter.
#define DSEC_TRY(declaration, expression)                                         \
  auto DSEC_CONCAT(dsec_try_, __LINE__) = (expression);                           \
  if (!DSEC_CONCAT(dsec_try_, __LINE__))                                          \
    return ::tl::unexpected(std::move(DSEC_CONCAT(dsec_try_, __LINE__)).error()); \
  declaration = *std::move(DSEC_CONCAT(dsec_try_, __LINE__))
#define DSEC_CHECK(expression)                                 \
  do {                                                         \
    if (auto dsec_check_ = (expression); !dsec_check_)         \
      return ::tl::unexpected(std::move(dsec_check_).error()); \
  } while (false)
