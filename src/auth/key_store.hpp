// API keys on disk: STATE/keys.db, with hashes in place of keys. Written by `dsecd key`, read by
// dsecd beside it. Blocking; one thread at a time per object.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "auth/gate.hpp"
#include "base/paths.hpp"
#include "base/result.hpp"
#include "base/store.hpp"

namespace dsec::auth {

struct stored_key {
  std::string id;
  std::string name;  // for people; may be empty
  std::string principal;
  std::string hash;
  std::uint64_t created_unix_ms = 0;
  std::optional<std::uint64_t> revoked_unix_ms;
};

class key_store {
 public:
  static base::result<key_store> open(const base::paths& where);

  /// Makes a key and returns it, this once; its id is in `id`.
  base::result<std::string> create(const std::string& principal, const std::string& name,
                                   std::string& id);
  /// All there ever were, oldest first.
  base::result<std::vector<stored_key>> list();
  /// Returns the key. errc::not_found; a second time is no error and changes nothing.
  base::result<stored_key> revoke(const std::string& id);

  /// Those that are good.
  base::result<std::vector<known_key>> good();
  /// Whether another process has written since the last call, or since it was opened.
  base::result<bool> changed();

 private:
  explicit key_store(std::unique_ptr<base::store> s) : store_(std::move(s)) {}

  std::unique_ptr<base::store> store_;
  std::int64_t seen_ = 0;
};

}  // namespace dsec::auth
