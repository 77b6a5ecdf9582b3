#include "actors/on_failure.hpp"

#include <string>

#include "actors/record.hpp"
#include "base/log.hpp"

namespace dsec::actors {

std::string_view to_string(on_failure what) {
  return what == on_failure::snapshot ? "snapshot" : "none";
}

base::result<on_failure> parse_on_failure(std::string_view name) {
  for (const auto known : {on_failure::none, on_failure::snapshot}) {
    if (name == to_string(known)) return known;
  }
  return base::fail(base::errc::corrupt,
                    "sandbox record: unknown on_failure '" + std::string(name) + "'");
}

bool is_to_be_kept(const sandbox_record& r) {
  return r.spec.on_failure == on_failure::snapshot && r.phase == base::phase::failed &&
         r.cause != base::cause::killed && r.cause != base::cause::ttl;
}

void keep_nothing(const sandbox_record& r, backends::instance&) {
  base::log::warn("failed_sandbox_not_kept",
                  {{"sandbox", r.id}, {"why", "on_failure=snapshot is not available yet"}});
}

}  // namespace dsec::actors
