// See certificate.hpp.
#include "unit/net/certificate.hpp"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstring>
#include <memory>

namespace dsec::net::test {
namespace {

using file = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

}  // namespace

base::gateway_config make_certificate(const tests::temp_dir& dir, const std::string& name) {
  const std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  const std::unique_ptr<X509, void (*)(X509*)> own(X509_new(), X509_free);
  X509_set_version(own.get(), X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(own.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(own.get()), -60);
  X509_gmtime_adj(X509_getm_notAfter(own.get()), 3600);
  X509_set_pubkey(own.get(), key.get());
  auto* subject = X509_get_subject_name(own.get());
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("dsecd"), -1, -1, 0);
  X509_set_issuer_name(own.get(), subject);
  const std::unique_ptr<X509_EXTENSION, void (*)(X509_EXTENSION*)> names(
      X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name,
                          "IP:127.0.0.1,DNS:gate.example,DNS:*.wild.example"),
      X509_EXTENSION_free);
  X509_add_ext(own.get(), names.get(), -1);
  REQUIRE(X509_sign(own.get(), key.get(), EVP_sha256()) > 0);

  base::gateway_config config;
  config.tls_cert = dir / (name + ".pem");
  config.tls_key = dir / (name + ".key");
  const file certificate(std::fopen(config.tls_cert.c_str(), "w"), std::fclose);
  const file secret(std::fopen(config.tls_key.c_str(), "w"), std::fclose);
  REQUIRE(PEM_write_X509(certificate.get(), own.get()) == 1);
  REQUIRE(PEM_write_PrivateKey(secret.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) ==
          1);
  return config;
}

}  // namespace dsec::net::test
