// The answers of several workers to one question, opened for whoever makes one of them. Pure, any
// thread.
#pragma once

#include <capnp/serialize.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "actors/merged_replies.hpp"
#include "proto/client.capnp.h"

namespace dsec::actors {

/// The answers that can be read, for as long as this lives.
class open_answers {
 public:
  /// Whose cannot be read, or is an error, is added to `silent`.
  open_answers(const std::vector<edge_answer>& answers, std::vector<std::string>& silent);

  [[nodiscard]] const std::vector<std::pair<std::string, proto::Reply::Reader>>& all() const {
    return read_;
  }
  [[nodiscard]] bool truncated() const { return truncated_; }

 private:
  std::vector<std::unique_ptr<capnp::FlatArrayMessageReader>> readers_;
  std::vector<std::pair<std::string, proto::Reply::Reader>> read_;
  bool truncated_ = false;
};

/// The names of those who did not answer.
void say_silent(proto::Reply::Builder reply, std::vector<std::string> silent);

}  // namespace dsec::actors
