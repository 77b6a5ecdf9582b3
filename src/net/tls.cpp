#include "net/tls.hpp"

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

using base::errc;
using base::fail;
using boost::system::error_code;
using context = asio::ssl::context;

base::result<std::string> contents(const char* key, const std::filesystem::path& file) {
  std::error_code ec;
  const auto name = std::string(key) + " '" + file.string() + "'";
  if (!std::filesystem::is_regular_file(file, ec))
    return fail(errc::not_found, name + " is not a regular file");
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) return base::fail_errno("cannot read " + name);
  return text.str();
}

void warn_of_time(const SSL_CTX* tls, const std::filesystem::path& file) {
  const X509* own = ::SSL_CTX_get0_certificate(tls);
  if (own == nullptr) return;
  if (::X509_cmp_current_time(::X509_get0_notAfter(own)) < 0)
    base::log::warn("certificate_expired", {{"file", file.string()}});
  if (::X509_cmp_current_time(::X509_get0_notBefore(own)) > 0)
    base::log::warn("certificate_not_valid_yet", {{"file", file.string()}});
}

}  // namespace

base::result<std::shared_ptr<context>> load_tls(const base::gateway_config& config) {
  if (config.tls_cert.empty()) return std::shared_ptr<context>();
  DSEC_TRY(const auto chain, contents("gateway.tls_cert", config.tls_cert));
  DSEC_TRY(const auto key, contents("gateway.tls_key", config.tls_key));
  auto out = std::make_shared<context>(context::tls_server);
  SSL_CTX* tls = out->native_handle();
  ::SSL_CTX_set_min_proto_version(
      tls, config.tls_min_version == "1.3" ? TLS1_3_VERSION : TLS1_2_VERSION);
  // Sessions are not resumed: connections are few and long, and there is nothing to keep then.
  ::SSL_CTX_set_options(tls, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET);
  ::SSL_CTX_set_num_tickets(tls, 0);
  ::SSL_CTX_set_session_cache_mode(tls, SSL_SESS_CACHE_OFF);
  ::SSL_CTX_set_mode(tls, SSL_MODE_RELEASE_BUFFERS);  // 34 KiB of each idle connection
  error_code problem;
  // OpenSSL would ask the terminal for the passphrase of a key that has one.
  out->set_password_callback([](std::size_t, context::password_purpose) { return std::string(); },
                             problem);
  out->use_certificate_chain(asio::buffer(chain), problem);
  if (problem) {
    return fail(errc::invalid_argument, "gateway.tls_cert '" + config.tls_cert.string() +
                                            "' holds no certificate in PEM: " + problem.message());
  }
  out->use_private_key(asio::buffer(key), context::pem, problem);
  if (problem || ::SSL_CTX_check_private_key(tls) != 1) {
    return fail(errc::invalid_argument,
                "gateway.tls_key '" + config.tls_key.string() +
                    "' is not the key of gateway.tls_cert, in PEM and without a passphrase" +
                    (problem ? ": " + problem.message() : ""));
  }
  warn_of_time(tls, config.tls_cert);
  return out;
}

bool wire::certified_for(const std::string& host) {
  auto* tls = std::get_if<tls_stream>(&end_);
  if (tls == nullptr) return false;
  X509* own = ::SSL_get_certificate(tls->native_handle());
  return own != nullptr && (::X509_check_host(own, host.data(), host.size(), 0, nullptr) == 1 ||
                            ::X509_check_ip_asc(own, host.c_str(), 0) == 1);
}

}  // namespace dsec::net
