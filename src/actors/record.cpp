#include "actors/record.hpp"

#include <nlohmann/json.hpp>

#include "base/unix_time.hpp"

namespace dsec::actors {

using json = nlohmann::json;

backends::start_spec start_spec_of(const sandbox_record& r) {
  return {r.id, r.spec.hostname.empty() ? r.id : r.spec.hostname, r.spec.layers, r.spec.limits};
}

base::error why_not_running(const sandbox_record& r) {
  std::string text = "sandbox '" + r.id + "' is " + std::string(to_string(r.phase));
  if (r.cause != base::cause::none) text += " (" + std::string(to_string(r.cause)) + ")";
  if (!r.detail.empty()) text += ": " + r.detail;
  const bool ended = r.phase >= base::phase::stopping;
  return {ended ? base::errc::sandbox_failed : base::errc::wrong_phase, std::move(text), 0};
}

void note_end(sandbox_record& r, std::chrono::system_clock::time_point at) {
  r.ended_unix_ms = base::unix_ms(at);
  std::vector<std::string>().swap(r.spec.env);
}

std::string to_json(const sandbox_spec& spec) {
  auto layers = json::array();
  for (const auto& l : spec.layers)
    layers.push_back({{"digest", l.digest}, {"blob", l.blob.string()}});
  const json j{{"backend", spec.backend},
               {"image", spec.image},
               {"workspace", spec.workspace},
               {"toolkits", spec.toolkits},
               {"layers", layers},
               {"cpu_millis", spec.limits.cpu_millis},
               {"memory_bytes", spec.limits.memory_bytes},
               {"pids", spec.limits.pids},
               {"nofile", spec.limits.nofile},
               {"idle_ttl_seconds", spec.idle_ttl_seconds},
               {"absolute_ttl_seconds", spec.absolute_ttl_seconds},
               {"env", spec.env},
               {"user", spec.user},
               {"workdir", spec.workdir},
               {"entrypoint", spec.entrypoint},
               {"cmd", spec.cmd},
               {"hostname", spec.hostname},
               {"labels", spec.labels},
               {"on_failure", to_string(spec.on_failure)},
               {"warnings", spec.warnings},
               {"trace", spec.trace}};
  // A client's text need not be UTF-8; a replaced character in the record is better than no record.
  return j.dump(-1, ' ', false, json::error_handler_t::replace);
}

base::result<sandbox_spec> parse_spec(std::string_view text) {
  try {
    const auto j = json::parse(text);
    sandbox_spec s;
    s.backend = j.at("backend");
    s.image = j.at("image");
    s.workspace = j.at("workspace");
    s.toolkits = j.at("toolkits").get<std::vector<std::string>>();
    for (const auto& l : j.at("layers")) {
      s.layers.push_back({l.at("digest").get<std::string>(), l.at("blob").get<std::string>()});
    }
    s.limits = {j.at("cpu_millis"), j.at("memory_bytes"), j.at("pids"), j.at("nofile")};
    s.idle_ttl_seconds = j.at("idle_ttl_seconds");
    s.absolute_ttl_seconds = j.at("absolute_ttl_seconds");
    s.env = j.at("env").get<std::vector<std::string>>();
    s.user = j.at("user");
    s.workdir = j.at("workdir");
    s.hostname = j.at("hostname");
    s.labels = j.at("labels").get<decltype(s.labels)>();
    // Records of releases before have none of these.
    s.entrypoint = j.value("entrypoint", s.entrypoint);
    s.cmd = j.value("cmd", s.cmd);
    DSEC_TRY(s.on_failure, parse_on_failure(j.value("on_failure", std::string("none"))));
    s.warnings = j.at("warnings").get<std::vector<std::string>>();
    s.trace = j.value("trace", std::string());  // likewise
    return s;
  } catch (const json::exception& e) {
    return base::fail(base::errc::corrupt, std::string("sandbox record: ") + e.what());
  }
}

}  // namespace dsec::actors
