#include "guest/launcher/log.hpp"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

namespace dsec::launcher {
namespace {

void line(const char* level, const char* event, const char* object, const char* what, int error) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  dprintf(STDERR_FILENO,
          R"({"ts":%lld.%06ld,"level":"%s","event":"%s","object":"%s","what":"%s","errno":%d})"
          "\n",
          static_cast<long long>(now.tv_sec), now.tv_nsec / 1000, level, event, object, what,
          error);
}

}  // namespace

void log_info(const char* event, const char* object) {
  line("info", event, object, "", 0);
}

void log_warn(const char* event, const char* object, status why) {
  line("warn", event, object, why.what, why.error);
}

void log_kernel_message(char* text) {
  for (char* c = text; *c != '\0'; ++c) {
    if (*c < ' ' || *c == '"' || *c == '\\' || *c == '\x7f') *c = ' ';
  }
  line("warn", "kernel_message", "", text, 0);
}

}  // namespace dsec::launcher
