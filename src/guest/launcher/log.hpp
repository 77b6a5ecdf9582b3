// The launcher's log: the same JSON lines on stderr as dsecd's (ts, level, event, then fields).
// Names that get here are checked before (digests, sandbox ids); kernel messages are cleaned.
#pragma once

#include "guest/launcher/status.hpp"

namespace dsec::launcher {

void log_info(const char* event, const char* object = "");
void log_warn(const char* event, const char* object, status why);
void log_kernel_message(char* text);

}  // namespace dsec::launcher
