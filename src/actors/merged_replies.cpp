#include "actors/merged_replies.hpp"

#include <capnp/message.h>
#include <capnp/serialize.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "actors/open_answers.hpp"
#include "proto/client.capnp.h"
#include "proto/limits.hpp"
#include "proto/text.hpp"

namespace dsec::actors {
namespace {

/// What stands around a list in a message.
constexpr std::size_t envelope_bytes = 64U << 10U;

/// How many of the list, from its beginning, fit in a message.
template <class Readers>
unsigned fitting(const Readers& all) {
  std::size_t bytes = envelope_bytes;
  unsigned n = 0;
  for (const auto& one : all) {
    bytes += one.totalSize().wordCount * 8 + 64;
    if (bytes > proto::max_message_bytes) break;
    ++n;
  }
  return n;
}

/// As many of the list as fit; `make` begins a list of n in the body of the reply.
template <class Reader, class Make>
proto::frame list_of(std::uint64_t id, const std::vector<Reader>& all, bool truncated,
                     std::vector<std::string> silent, Make&& make) {
  capnp::MallocMessageBuilder message;
  auto reply = message.initRoot<proto::Reply>();
  reply.setId(id);
  const auto n = fitting(all);
  auto list = make(reply.initBody(), n);
  for (unsigned i = 0; i < n; ++i) list.setWithCaveats(i, all[i]);
  reply.setTruncated(truncated || n < all.size());
  say_silent(reply, std::move(silent));
  return proto::frame::from_builder(message);
}

}  // namespace

proto::frame merged_sandboxes(std::uint64_t id, const std::vector<edge_answer>& answers,
                              std::vector<std::string> silent) {
  const open_answers opened(answers, silent);
  std::vector<proto::Sandbox::Reader> all;
  for (const auto& [edge, reply] : opened.all()) {
    if (!reply.getBody().isSandboxes()) continue;
    for (const auto s : reply.getBody().getSandboxes()) all.push_back(s);
  }
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    const auto rank = [](const proto::Sandbox::Reader& s) {
      return std::pair(s.getEndedUnixMs() != 0, -static_cast<std::int64_t>(s.getCreatedUnixMs()));
    };
    return rank(a) < rank(b);
  });
  return list_of(id, all, opened.truncated(), std::move(silent),
                 [](auto body, unsigned n) { return body.initSandboxes(n); });
}

proto::frame merged_nodes(std::uint64_t id, const std::vector<edge_answer>& answers,
                          std::vector<std::string> silent) {
  const open_answers opened(answers, silent);
  std::map<std::string, proto::Node::Reader> all;
  for (const auto& [edge, reply] : opened.all()) {
    if (!reply.getBody().isNodes()) continue;
    for (const auto n : reply.getBody().getNodes()) all.emplace(proto::text_of(n.getEdge()), n);
  }
  std::vector<proto::Node::Reader> readers;
  readers.reserve(all.size());
  for (const auto& [edge, node] : all) readers.push_back(node);
  return list_of(id, readers, opened.truncated(), std::move(silent),
                 [](auto body, unsigned n) { return body.initNodes(n); });
}

proto::frame merged_images(std::uint64_t id, const std::vector<edge_answer>& answers,
                           std::vector<std::string> silent) {
  const open_answers opened(answers, silent);
  using name = std::tuple<std::string, std::string, std::string, std::string>;
  std::map<name, std::pair<proto::Image::Reader, std::vector<std::string>>> all;
  for (const auto& [edge, reply] : opened.all()) {
    if (!reply.getBody().isImages()) continue;
    for (const auto i : reply.getBody().getImages()) {
      auto& known = all.try_emplace({proto::text_of(i.getKind()), proto::text_of(i.getName()),
                                     proto::text_of(i.getTag()), proto::text_of(i.getDigest())},
                                    i, std::vector<std::string>())
                        .first->second;
      for (const auto e : i.getEdges()) known.second.push_back(proto::text_of(e));
      if (!edge.empty()) known.second.push_back(edge);
    }
  }
  std::vector<proto::Image::Reader> readers;
  readers.reserve(all.size());
  for (const auto& [key, image] : all) readers.push_back(image.first);
  capnp::MallocMessageBuilder message;
  auto reply = message.initRoot<proto::Reply>();
  reply.setId(id);
  const auto n = fitting(readers);
  auto list = reply.initBody().initImages(n);
  auto at = all.begin();
  for (unsigned i = 0; i < n; ++i, ++at) {
    list.setWithCaveats(i, at->second.first);
    auto& edges = at->second.second;
    std::sort(edges.begin(), edges.end());
    auto names = list[i].initEdges(static_cast<unsigned>(edges.size()));
    for (unsigned k = 0; k < names.size(); ++k) names.set(k, edges[k]);
  }
  reply.setTruncated(opened.truncated() || n < readers.size());
  say_silent(reply, std::move(silent));
  return proto::frame::from_builder(message);
}

}  // namespace dsec::actors
