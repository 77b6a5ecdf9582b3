#include "fs/unpack/plan.hpp"

#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/json_shape.hpp"
#include "base/text.hpp"

namespace dsec::fs::unpack {
namespace {

using base::errc;
using base::fail;
using base::result;
using nlohmann::json;

constexpr std::array<std::string_view, 3> compressions{"none", "gzip", "zstd"};
constexpr std::size_t plan_words = 4;
constexpr std::size_t layer_words = 5;
constexpr std::size_t max_findings = 64;
constexpr std::size_t max_line = 4096;

result<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    return fail(errc::internal, "unpack: '" + std::string(text) + "' is not a number");
  return value;
}

result<layer> parse_layer(const std::string* words) {
  layer l;
  l.blob = words[0];
  DSEC_TRY(const auto packed, number(words[1]));
  if (packed >= compressions.size()) return fail(errc::internal, "unpack: unknown compression");
  l.packed = static_cast<compression>(packed);
  DSEC_TRY(l.size, number(words[2]));
  l.digest = words[3];
  l.diff_id = words[4];
  return l;
}

}  // namespace

std::vector<std::string> arguments_of(const plan& p) {
  std::vector<std::string> out{p.root.string(), std::to_string(p.most.bytes),
                               std::to_string(p.most.entries), std::to_string(p.most.ratio)};
  for (const auto& l : p.layers) {
    out.insert(out.end(), {l.blob.string(), std::to_string(static_cast<int>(l.packed)),
                           std::to_string(l.size), l.digest, l.diff_id});
  }
  return out;
}

result<plan> parse_arguments(const std::vector<std::string>& arguments) {
  if (arguments.size() < plan_words || (arguments.size() - plan_words) % layer_words != 0)
    return fail(errc::internal, "unpack: ROOT BYTES ENTRIES RATIO, and five words for each layer");
  plan p;
  p.root = arguments[0];
  DSEC_TRY(p.most.bytes, number(arguments[1]));
  DSEC_TRY(p.most.entries, number(arguments[2]));
  DSEC_TRY(const auto ratio, number(arguments[3]));
  p.most.ratio = static_cast<std::uint32_t>(ratio);
  for (auto at = plan_words; at < arguments.size(); at += layer_words) {
    DSEC_TRY(auto l, parse_layer(&arguments[at]));
    p.layers.push_back(std::move(l));
  }
  return p;
}

std::string to_json(const result<report>& outcome) {
  json out;
  if (outcome) {
    out = {
        {"entries", outcome->entries}, {"bytes", outcome->bytes}, {"findings", outcome->findings}};
  } else {
    const auto& e = outcome.error();
    out = {{"code", static_cast<unsigned>(e.code)}, {"message", e.message}, {"errno", e.sys_errno}};
  }
  return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

result<report> parse_report(std::string_view text) {
  constexpr std::size_t most_values = 1000;
  if (base::shape_of_json(text).values > most_values)
    return fail(errc::internal, "unpack: the answer is too long");
  try {
    const auto said = json::parse(text);
    if (said.contains("code")) {
      const auto code = said.at("code").get<unsigned>();
      const bool known = code > 0 && code <= static_cast<unsigned>(errc::cancelled);
      return fail({known ? static_cast<errc>(code) : errc::internal,
                   base::shown(said.at("message").get<std::string>(), max_line),
                   said.at("errno").get<int>()});
    }
    report r{said.at("entries"), said.at("bytes"), {}};
    for (const auto& line : said.at("findings")) {
      if (r.findings.size() < max_findings)
        r.findings.push_back(base::shown(line.get<std::string>(), max_line));
    }
    return r;
  } catch (const json::exception&) {
    return fail(errc::internal, "unpack: the answer is not what was expected");
  }
}

}  // namespace dsec::fs::unpack
