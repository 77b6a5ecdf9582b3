#include "actors/open_answers.hpp"

#include <algorithm>

#include "proto/text.hpp"

namespace dsec::actors {

open_answers::open_answers(const std::vector<edge_answer>& answers,
                           std::vector<std::string>& silent) {
  for (const auto& a : answers) {
    const auto words = a.reply.words();
    auto reader =
        std::make_unique<capnp::FlatArrayMessageReader>(words, proto::reader_options(words.size()));
    const auto ok = proto::guarded([&] {
      const auto reply = reader->getRoot<proto::Reply>();
      if (reply.getBody().isError()) return silent.push_back(a.edge);
      for (const auto e : reply.getUnreachable()) silent.push_back(proto::text_of(e));
      read_.emplace_back(a.edge, reply);
      truncated_ = truncated_ || reply.getTruncated();
    });
    if (!ok) silent.push_back(a.edge);
    readers_.push_back(std::move(reader));
  }
}

void say_silent(proto::Reply::Builder reply, std::vector<std::string> silent) {
  std::sort(silent.begin(), silent.end());
  auto names = reply.initUnreachable(static_cast<unsigned>(silent.size()));
  for (unsigned i = 0; i < names.size(); ++i) names.set(i, silent[i]);
}

}  // namespace dsec::actors
