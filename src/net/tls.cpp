#include "net/tls.hpp"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <boost/asio/buffer.hpp>
#include <fstream>
#include <sstream>
#include <string>

#include "base/log.hpp"
#include "net/wire.hpp"

namespace dsec::net {
namespace {

namespace fs = std::filesystem;
using base::errc;
using base::fail;
using base::result;
using boost::system::error_code;
using context = asio::ssl::context;

/// A file and the configuration's key that names it.
struct named_file {
  const char* key;
  fs::path path;

  [[nodiscard]] std::string name() const { return std::string(key) + " '" + path.string() + "'"; }
};

result<std::string> contents(const named_file& file) {
  std::error_code ec;
  if (!fs::is_regular_file(file.path, ec))
    return fail(errc::not_found, file.name() + " is not a regular file");
  std::ifstream in(file.path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) return base::fail_errno("cannot read " + file.name());
  return text.str();
}

void warn_of_time(const SSL_CTX* tls, const fs::path& file) {
  const X509* own = ::SSL_CTX_get0_certificate(tls);
  if (own == nullptr) return;
  if (::X509_cmp_current_time(::X509_get0_notAfter(own)) < 0)
    base::log::warn("certificate_expired", {{"file", file.string()}});
  if (::X509_cmp_current_time(::X509_get0_notBefore(own)) > 0)
    base::log::warn("certificate_not_valid_yet", {{"file", file.string()}});
}

std::shared_ptr<context> make_context(context::method side, const std::string& min_version) {
  auto out = std::make_shared<context>(side);
  SSL_CTX* tls = out->native_handle();
  ::SSL_CTX_set_min_proto_version(tls, min_version == "1.3" ? TLS1_3_VERSION : TLS1_2_VERSION);
  // Sessions are not resumed: connections are few and long, and there is nothing to keep then.
  ::SSL_CTX_set_options(tls, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET);
  ::SSL_CTX_set_num_tickets(tls, 0);
  ::SSL_CTX_set_session_cache_mode(tls, SSL_SESS_CACHE_OFF);
  ::SSL_CTX_set_mode(tls, SSL_MODE_RELEASE_BUFFERS);  // 34 KiB of each idle connection
  ::SSL_CTX_set_mode(tls, SSL_MODE_NO_AUTO_CHAIN);    // shown is what is in the file, no more
  return out;
}

/// What our side shows.
result<void> show(context& tls, const named_file& certificate, const named_file& key) {
  DSEC_TRY(const auto chain, contents(certificate));
  DSEC_TRY(const auto secret, contents(key));
  error_code problem;
  // OpenSSL would ask the terminal for the passphrase of a key that has one.
  tls.set_password_callback([](std::size_t, context::password_purpose) { return std::string(); },
                            problem);
  tls.use_certificate_chain(asio::buffer(chain), problem);
  if (problem) {
    return fail(errc::invalid_argument,
                certificate.name() + " holds no certificate in PEM: " + problem.message());
  }
  tls.use_private_key(asio::buffer(secret), context::pem, problem);
  if (problem || ::SSL_CTX_check_private_key(tls.native_handle()) != 1) {
    return fail(errc::invalid_argument, key.name() + " is not the key of " + certificate.key +
                                            ", in PEM and without a passphrase" +
                                            (problem ? ": " + problem.message() : ""));
  }
  warn_of_time(tls.native_handle(), certificate.path);
  return {};
}

/// Whose certificates are believed when the other side shows one: nobody's but these.
result<void> trust(context& tls, const named_file& authorities) {
  DSEC_TRY(const auto text, contents(authorities));
  error_code problem;
  tls.add_certificate_authority(asio::buffer(text), problem);
  if (problem) {
    return fail(errc::invalid_argument,
                authorities.name() + " holds no certificate in PEM: " + problem.message());
  }
  ::SSL_CTX_set_verify(tls.native_handle(), SSL_VERIFY_PEER, nullptr);
  return {};
}

/// Clients choose by these names what they show: a browser that has nothing of them asks nobody.
void name_authorities(SSL_CTX* tls) {
  const auto* all = ::X509_STORE_get0_objects(::SSL_CTX_get_cert_store(tls));
  for (int i = 0; i < sk_X509_OBJECT_num(all); ++i) {
    if (X509* one = ::X509_OBJECT_get0_X509(sk_X509_OBJECT_value(all, i)); one != nullptr)
      ::SSL_CTX_add_client_CA(tls, one);
  }
}

/// Takes everybody, and has OpenSSL keep what is wrong: SSL_get_verify_result(3).
int verify_and_go_on(X509_STORE_CTX* shown, void*) {
  ::ERR_set_mark();  // else an entry would be taken for a failed handshake (SSL_get_error(3))
  if (::X509_verify_cert(shown) != 1 && ::X509_STORE_CTX_get_error(shown) == X509_V_OK)
    ::X509_STORE_CTX_set_error(shown, X509_V_ERR_UNSPECIFIED);
  ::ERR_pop_to_mark();
  return 1;
}

result<void> ask_for_certificates(context& tls, const fs::path& peer_ca) {
  DSEC_CHECK(trust(tls, {"peer.ca_file", peer_ca}));
  name_authorities(tls.native_handle());
  // Who has none or a bad one shall get an answer that says so. Not by a callback of Asio's: those
  // go with its context, which a reload replaces while handshakes are under way.
  ::SSL_CTX_set_cert_verify_callback(tls.native_handle(), verify_and_go_on, nullptr);
  return {};
}

result<void> check_private(const named_file& key) {
  std::error_code ec;
  const auto found = fs::status(key.path, ec);
  if (!fs::is_regular_file(found)) return {};  // contents() says so
  constexpr auto of_others = fs::perms::group_all | fs::perms::others_all;
  if ((found.permissions() & of_others) == fs::perms::none) return {};
  return fail(errc::permission_denied, key.name() + " can be read by others; chmod 600 it");
}

}  // namespace

result<std::shared_ptr<context>> load_tls(const base::gateway_config& config,
                                          const fs::path& peer_ca) {
  if (config.tls_cert.empty()) return std::shared_ptr<context>();
  auto out = make_context(context::tls_server, config.tls_min_version);
  DSEC_CHECK(
      show(*out, {"gateway.tls_cert", config.tls_cert}, {"gateway.tls_key", config.tls_key}));
  if (!peer_ca.empty()) DSEC_CHECK(ask_for_certificates(*out, peer_ca));
  return out;
}

result<std::shared_ptr<context>> load_link_tls(const base::config& config) {
  const auto file = [&](const char* key, const fs::path& named) {
    return named_file{key, base::peer_file(config, named)};
  };
  const auto& peer = config.peer;
  if (peer.ca_file.empty()) return std::shared_ptr<context>();
  auto out = make_context(context::tls_client, config.gateway.tls_min_version);
  DSEC_CHECK(trust(*out, file("peer.ca_file", peer.ca_file)));
  const auto key = file("peer.key_file", peer.key_file);
  DSEC_CHECK(check_private(key));
  DSEC_CHECK(show(*out, file("peer.cert_file", peer.cert_file), key));
  return out;
}

bool wire::certified_for(const std::string& host) {
  auto* tls = std::get_if<tls_stream>(&end_);
  if (tls == nullptr) return false;
  X509* own = ::SSL_get_certificate(tls->native_handle());
  return own != nullptr && (::X509_check_host(own, host.data(), host.size(), 0, nullptr) == 1 ||
                            ::X509_check_ip_asc(own, host.c_str(), 0) == 1);
}

bool wire::expect(const std::string& host) {
  auto* tls = std::get_if<tls_stream>(&end_);
  if (tls == nullptr) return true;
  auto* how = ::SSL_get0_param(tls->native_handle());
  // Through which of our interfaces an address is reached (fe80::1%eth0) is not in its certificate.
  const auto name = host.substr(0, host.find('%'));
  return ::X509_VERIFY_PARAM_set1_ip_asc(how, name.c_str()) == 1 ||
         ::X509_VERIFY_PARAM_set1_host(how, name.data(), name.size()) == 1;
}

std::string wire::distrust() {
  auto* tls = std::get_if<tls_stream>(&end_);
  if (tls == nullptr) return "there is no TLS";
  const SSL* ssl = tls->native_handle();
  if (const long found = ::SSL_get_verify_result(ssl); found != X509_V_OK)
    return ::X509_verify_cert_error_string(found);
  return ::SSL_get0_peer_certificate(ssl) == nullptr ? "it shows none" : "";
}

}  // namespace dsec::net
