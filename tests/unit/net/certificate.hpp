// Certificates of a test's own making, as the PEM files that dsecd reads.
#pragma once

#include <openssl/types.h>

#include <filesystem>
#include <memory>
#include <string>

#include "base/config.hpp"
#include "support/temp_dir.hpp"

namespace dsec::net::test {

struct certificate_files {
  std::filesystem::path certificate, key;  // the key is 0600
};

struct certificate_request {
  std::string names = "IP:127.0.0.1,DNS:gate.example,DNS:*.wild.example";
  std::string use = {};   // "serverAuth", "clientAuth"; empty: both
  long valid_for = 3600;  // s from now; less than 0: it has expired
};

/// Whoever trusts `file()` trusts what it has issued.
class authority {
 public:
  authority(const tests::temp_dir& dir, const std::string& name);

  [[nodiscard]] const std::filesystem::path& file() const { return files_.certificate; }
  /// Writes NAME.pem and NAME.key.
  certificate_files issue(const std::string& name, const certificate_request& request = {}) const;

 private:
  std::filesystem::path dir_;
  certificate_files files_;
  std::shared_ptr<EVP_PKEY> key_;
  std::shared_ptr<X509> own_;
};

/// One that is for 127.0.0.1 and that nobody else has signed, named in a configuration.
base::gateway_config make_certificate(const tests::temp_dir& dir, const std::string& name);

}  // namespace dsec::net::test
