// dsecd doctor: what of what dsecd needs this host has, found by doing it. Works with a dsecd or
// without, as an instance of its own beside it, and leaves nothing behind. Main thread.
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/log.hpp"
#include "cli/cli.hpp"
#include "cli/doctor/capability.hpp"
#include "cli/own_instance.hpp"
#include "cli/scratch.hpp"

namespace dsec::cli {
namespace doctor {

finding judge(capability what, const base::result<std::string>& found) {
  if (found) return {std::move(what), true, *found};
  return {std::move(what), false, found.error().sentence()};
}

}  // namespace doctor

namespace {

using base::errc;
using base::fail;
using base::result;
using doctor::finding;
using doctor::findings;
using json = nlohmann::ordered_json;

/// Before the sandboxes, those that fork: a process with one thread is theirs.
constexpr findings (*areas[])(const doctor::place&) = {
    doctor::look_at_file_systems, doctor::look_at_memory, doctor::look_at_groups,
    doctor::look_at_sandboxes,    doctor::look_at_limits, doctor::look_at_devices,
    doctor::look_at_tools,
};

result<findings> look(const base::config& c) {
  if (::geteuid() != 0) {
    return fail(errc::permission_denied,
                "dsecd doctor must run as root: it tries what dsecd does, mounts and namespaces "
                "among others");
  }
  DSEC_TRY(const auto place, scratch::make(c.state, instance_here(c), "doctor"));
  DSEC_CHECK(place.clear());
  const doctor::place where{c, own_instance(c, "doctor", 1), place.path()};
  findings all;
  for (const auto area : areas) {
    auto found = area(where);
    std::move(found.begin(), found.end(), std::back_inserter(all));
  }
  return all;
}

bool good(const findings& all) {
  return std::none_of(all.begin(), all.end(),
                      [](const finding& f) { return f.what.needed && !f.have; });
}

void print_json(const base::config& c, const findings& all) {
  utsname host{};
  ::uname(&host);
  json out;
  out["ok"] = good(all);
  out["kernel"] = host.release;
  out["state"] = c.state.string();
  out["max_sandboxes"] = c.node.max_sandboxes;
  for (const auto& f : all) {
    out["capabilities"].push_back({{"area", f.what.area},
                                   {"name", f.what.name},
                                   {"needed", f.what.needed},
                                   {"have", f.have},
                                   {"found", f.detail},
                                   {"mend", f.what.mend},
                                   {"without", f.what.without}});
  }
  std::cout << out.dump(2, ' ', false, json::error_handler_t::replace) << "\n";
}

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(text.size(), width), ' ');
  return text;
}

void print_table(const findings& all) {
  constexpr std::size_t width = 28;  // longer names push their own line out
  std::string area;
  for (const auto& f : all) {
    if (f.what.area != area) std::cout << (area.empty() ? "" : "\n") << f.what.area << "\n";
    area = f.what.area;
    const auto* state = f.have ? "have" : f.what.needed ? "LACK" : "lack";
    std::cout << "  " << state << "  " << padded(f.what.name, width) << "  " << f.detail << "\n";
    if (f.have) continue;
    const auto indent = std::string(width + 10, ' ');
    std::cout << indent << "to mend: " << f.what.mend << "\n"
              << indent << "works without: " << f.what.without << "\n";
  }
  const auto lacking = std::count_if(all.begin(), all.end(),
                                     [](const finding& f) { return f.what.needed && !f.have; });
  if (lacking == 0) {
    std::cout << "\nall that sandboxes need is there\n";
  } else {
    std::cout << "\n" << lacking << " of what sandboxes need is lacking (LACK)\n";
  }
}

}  // namespace

void add_doctor(CLI::App& app, context& shared) {
  auto as_json = std::make_shared<bool>(false);
  auto* command = app.add_subcommand(
      "doctor", "try what dsecd needs of this host: have, lack, how to mend, what works without");
  command->footer(
      "Examples:\n"
      "  dsecd doctor\n"
      "  dsecd doctor --json --state /srv/dsec\n");
  command->add_flag("--json", *as_json, "for programs");
  add_places(*command, shared);
  command->callback([&shared, as_json] {
    shared.chosen = [&shared, as_json] {
      const auto c = shared.effective();
      if (!c) return report(c.error());
      base::log::set_level(base::log::level::error);  // what is lacking stands in the table
      const auto all = look(*c);
      if (!all) return report(all.error());
      *as_json ? print_json(*c, *all) : print_table(*all);
      return good(*all) ? 0 : 1;
    };
  });
}

}  // namespace dsec::cli
