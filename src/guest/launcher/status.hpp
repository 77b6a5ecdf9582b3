// How a step of the launcher says that it failed: what it was doing and the errno. Plain values,
// usable in helpers that share the launcher's memory.
#pragma once

namespace dsec::launcher {

struct [[nodiscard]] status {
  const char* what = "";  // a literal: "create", "proc", … ; becomes the end of launch_result.step
  int error = 0;          // 0 = done

  [[nodiscard]] bool ok() const { return error == 0; }
};

/// From the answer of a raw system call.
inline status failed(const char* what, long answer) {
  return {what, static_cast<int>(-answer)};
}

}  // namespace dsec::launcher

/// LAUNCH_TRY(what, expression): returns failed(what, …) from the function when the raw call
/// answers an error.
#define LAUNCH_TRY(what, expression)                                  \
  do {                                                                \
    if (const long launch_answer_ = (expression); launch_answer_ < 0) \
      return ::dsec::launcher::failed(what, launch_answer_);          \
  } while (false)
