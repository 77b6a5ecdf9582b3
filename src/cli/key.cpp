// dsecd key create|ls|revoke: API keys of principals, in the state directory, whether or not a
// daemon runs on it.
#include <signal.h>
#include <unistd.h>

#include <array>
#include <iomanip>
#include <iostream>
#include <memory>

#include "auth/key_store.hpp"
#include "auth/key_watch.hpp"
#include "cli/cli.hpp"
#include "cli/state_dir.hpp"

namespace dsec::cli {
namespace {

struct options {
  std::string principal, name, id;
};
using options_ptr = std::shared_ptr<options>;

base::result<auth::key_store> open_keys(const base::config& c) {
  if (::access(c.state.c_str(), R_OK | W_OK | X_OK) != 0) {
    return base::fail_errno("cannot use the state directory '" + c.state.string() +
                            "'; `dsecd serve` makes one, --state names another");
  }
  return auth::key_store::open(base::paths(c.state));
}

base::result<void> create(const base::config& c, const options& o) {
  DSEC_TRY(auto keys, open_keys(c));
  ::signal(SIGPIPE, SIG_IGN);  // a reader that has gone is an error, too
  std::string id;
  DSEC_TRY(const auto key, keys.create(o.principal, o.name, id));
  std::cout << key << "\n" << std::flush;
  if (!std::cout) {
    // Nobody has it, and nobody could find out that it is there.
    DSEC_TRY(const auto revoked, keys.revoke(id));
    return base::fail(base::errc::io, "cannot write the key to standard output; key " + revoked.id +
                                          " is revoked again, make another");
  }
  std::cerr << "key " << id << " of principal " << o.principal
            << "; it is shown this once, only its hash is kept\n";
  return {};
}

std::string when(std::optional<std::uint64_t> unix_ms) {
  if (!unix_ms) return "-";
  const auto seconds = static_cast<std::time_t>(*unix_ms / 1000);
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc)};
}

void line(const std::string& id, const std::string& principal, const std::string& created,
          const std::string& revoked, const std::string& name) {
  std::cout << std::left << std::setw(16) << id << " " << std::setw(20) << principal << " "
            << std::setw(21) << created << std::setw(21) << revoked << name << "\n";
}

base::result<void> list(const base::config& c) {
  DSEC_TRY(auto keys, open_keys(c));
  DSEC_TRY(const auto all, keys.list());
  line("ID", "PRINCIPAL", "CREATED", "REVOKED", "NAME");
  const base::paths where(c.state);
  if (std::filesystem::exists(where.api_key())) {
    DSEC_TRY(const auto key, load_or_make_api_key(where));
    const auto local = auth::local_key(key);
    line(local.id, local.principal, "-", "-", where.api_key().string());
  }
  for (const auto& k : all)
    line(k.id, k.principal, when(k.created_unix_ms), when(k.revoked_unix_ms), k.name);
  return {};
}

base::result<void> revoke(const base::config& c, const options& o) {
  if (o.id.starts_with(auth::local_id_prefix)) {
    return base::fail(base::errc::invalid_argument,
                      "'" + o.id + "' is the key in '" + base::paths(c.state).api_key().string() +
                          "': remove that file and send dsecd a SIGHUP, which makes another");
  }
  DSEC_TRY(auto keys, open_keys(c));
  DSEC_TRY(const auto key, keys.revoke(o.id));
  std::cerr << "revoked " << key.id << " of principal " << key.principal
            << "; its connections close within a second\n";
  return {};
}

CLI::App* add_verb(CLI::App& key, context& shared, const std::string& name, const std::string& help,
                   std::function<base::result<void>(const base::config&)> action) {
  auto* verb = key.add_subcommand(name, help);
  add_places(*verb, shared);
  on_chosen(*verb, shared, std::move(action));
  return verb;
}

}  // namespace

void add_key(CLI::App& app, context& shared) {
  auto* key = app.add_subcommand("key", "make, list and revoke API keys");
  key->require_subcommand(1);
  key->footer(
      "Examples:\n"
      "  dsecd key create --principal alice --name laptop    prints the key, this once\n"
      "  dsecd key ls                                        which there are\n"
      "  dsecd key revoke k-abcdefghij                       its connections close within a "
      "second\n");
  auto o = std::make_shared<options>();
  auto* make = add_verb(*key, shared, "create", "make a key and print it, this once",
                        [o](const base::config& c) { return create(c, *o); });
  make->footer("Examples:\n  dsecd key create --principal alice --name laptop\n");
  make->add_option("--principal", o->principal,
                   "whose it is; sandboxes of one principal are unknown to all others")
      ->required();
  make->add_option("--name", o->name, "what it is for");
  add_verb(*key, shared, "ls", "list keys, revoked ones too", list)
      ->footer("Examples:\n  dsecd key ls\n");
  auto* end = add_verb(*key, shared, "revoke", "end a key and the connections made with it",
                       [o](const base::config& c) { return revoke(c, *o); });
  end->footer("Examples:\n  dsecd key revoke k-abcdefghij\n");
  end->add_option("id", o->id, "ID, see `dsecd key ls`")->required();
}

}  // namespace dsec::cli
