// Tells the service manager that started this process how far it is (sd_notify(3), Type=notify).
// Never fails: a manager that does not listen is none. Main thread.
#pragma once

#include <string_view>

namespace dsec::cli {

/// One or more `NAME=VALUE` lines, such as "READY=1". Nothing happens without $NOTIFY_SOCKET.
void notify_manager(std::string_view state);

}  // namespace dsec::cli
