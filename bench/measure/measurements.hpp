// The measurements by name; main.cpp has the words of the command line, and what each prints.
#pragma once

#include "measure/requests.hpp"

namespace dsec::measure {

// single.cpp
result<int> create_exec(const subject& s, int count);
result<int> exec_rtt(const subject& s, int count);
result<int> ping(const subject& s, int count);

// crowd.cpp
result<int> churn(const subject& s, int seconds, int connections);
result<int> density(const subject& s, int count, int connections);

// recovery.cpp
result<int> recovery_fill(const subject& s, int count, int running);
result<int> recovery_check(const subject& s, double killed_at_ms, int running);
result<int> stream_start(const subject& s, const std::string& script, std::uint64_t cap);
result<int> stream_read(const subject& s, const std::string& sandbox);

// protocol.cpp
result<int> no_ops(const subject& s, int seconds, int connections, const std::string& encoding);
result<int> idle(const subject& s, int connections);

}  // namespace dsec::measure
