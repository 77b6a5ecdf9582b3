// See certificate.hpp.
#include "unit/net/certificate.hpp"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <catch2/catch.hpp>
#include <cstdio>

namespace dsec::net::test {
namespace {

namespace fs = std::filesystem;
using file = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;
using key_ptr = std::shared_ptr<EVP_PKEY>;
using x509_ptr = std::shared_ptr<X509>;

key_ptr new_key() {
  return {EVP_EC_gen("P-256"), EVP_PKEY_free};
}

void extend(X509* certificate, int nid, const std::string& value) {
  if (value.empty()) return;
  const std::unique_ptr<X509_EXTENSION, void (*)(X509_EXTENSION*)> extension(
      X509V3_EXT_conf_nid(nullptr, nullptr, nid, value.c_str()), X509_EXTENSION_free);
  REQUIRE(extension);
  X509_add_ext(certificate, extension.get(), -1);
}

/// Not signed yet.
x509_ptr new_certificate(EVP_PKEY* key, const std::string& name, long valid_for) {
  static long serial = 0;
  x509_ptr out(X509_new(), X509_free);
  X509_set_version(out.get(), X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(out.get()), ++serial);
  X509_gmtime_adj(X509_getm_notBefore(out.get()), -7200);
  X509_gmtime_adj(X509_getm_notAfter(out.get()), valid_for);
  X509_set_pubkey(out.get(), key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(out.get()), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  return out;
}

void sign(X509* certificate, X509* issuer, EVP_PKEY* with) {
  X509_set_issuer_name(certificate, X509_get_subject_name(issuer));
  REQUIRE(X509_sign(certificate, with, EVP_sha256()) > 0);
}

certificate_files write(const fs::path& dir, const std::string& name, X509* certificate,
                        EVP_PKEY* key) {
  certificate_files out{dir / (name + ".pem"), dir / (name + ".key")};
  const file shown(std::fopen(out.certificate.c_str(), "w"), std::fclose);
  const file secret(std::fopen(out.key.c_str(), "w"), std::fclose);
  REQUIRE(PEM_write_X509(shown.get(), certificate) == 1);
  REQUIRE(PEM_write_PrivateKey(secret.get(), key, nullptr, nullptr, 0, nullptr, nullptr) == 1);
  fs::permissions(out.key, fs::perms::owner_read | fs::perms::owner_write);
  return out;
}

}  // namespace

authority::authority(const tests::temp_dir& dir, const std::string& name)
    : dir_(dir.path()), key_(new_key()), own_(new_certificate(key_.get(), name, 3600)) {
  extend(own_.get(), NID_basic_constraints, "critical,CA:TRUE");
  sign(own_.get(), own_.get(), key_.get());
  files_ = write(dir_, name, own_.get(), key_.get());
}

certificate_files authority::issue(const std::string& name,
                                   const certificate_request& request) const {
  const auto key = new_key();
  const auto made = new_certificate(key.get(), name, request.valid_for);
  extend(made.get(), NID_subject_alt_name, request.names);
  extend(made.get(), NID_ext_key_usage, request.use);
  sign(made.get(), own_.get(), key_.get());
  return write(dir_, name, made.get(), key.get());
}

base::gateway_config make_certificate(const tests::temp_dir& dir, const std::string& name) {
  const auto key = new_key();
  const auto made = new_certificate(key.get(), "dsecd", 3600);
  extend(made.get(), NID_subject_alt_name, certificate_request{}.names);
  sign(made.get(), made.get(), key.get());
  const auto files = write(dir.path(), name, made.get(), key.get());
  base::gateway_config config;
  config.tls_cert = files.certificate;
  config.tls_key = files.key;
  return config;
}

}  // namespace dsec::net::test
