#include "actors/stream_frames.hpp"

#include <capnp/message.h>

#include <utility>

#include "actors/replies.hpp"
#include "proto/client.capnp.h"

namespace dsec::actors {
namespace {

using base::errc;

capnp::Text::Reader as_text(const std::string& s) {
  return {s.c_str(), s.size()};
}

template <class F>
proto::frame data_frame(const stream& s, F&& fill) {
  capnp::MallocMessageBuilder message;
  auto out = message.initRoot<proto::Reply>().getBody().initStreamData();
  out.setStreamId(s.id);
  out.setOffset(s.offset);
  fill(out);
  return proto::frame::from_builder(message);
}

void read_output(proto::Output::Reader output, stream_piece& piece) {
  piece.offset = output.getOffset();
  piece.size = output.getData().size();
  // Of an ended command whose total is known there may be more; where nothing comes there is none,
  // whatever it should have been.
  if (output.getEnded() && (piece.size == 0 || piece.offset + piece.size >= output.getTotal()))
    piece.total = output.getTotal();
}

void read_file(proto::FileData::Reader file, stream_piece& piece) {
  piece.offset = file.getOffset();
  piece.size = file.getData().size();
  if (file.getEndOfFile()) piece.total = piece.offset + piece.size;
}

/// The sandbox of a command that is lost has ended before it.
proto::frame lost(const stream& s) {
  const auto* output = std::get_if<output_source>(&s.source);
  return error_reply(
      0,
      {errc::sandbox_failed,
       "sandbox '" + s.sandbox_id + "' ended before command '" +
           (output != nullptr ? output->command_id : "") + "'; what it wrote until then was sent",
       0},
      s.sandbox_id);
}

}  // namespace

proto::frame piece_request(const stream& s, std::chrono::milliseconds wait) {
  capnp::MallocMessageBuilder message;
  auto request = message.initRoot<proto::Request>();
  request.setId(s.id);
  if (const auto* output = std::get_if<output_source>(&s.source)) {
    auto read = request.getBody().initReadOutput();
    read.setSandboxId(as_text(s.sandbox_id));
    read.setCommandId(as_text(output->command_id));
    read.setStderr(output->err);
    read.setOffset(s.offset);
    read.setLength(s.next_length());
    read.setWaitMs(static_cast<std::uint32_t>(wait.count()));
  } else {
    const auto& file = std::get<file_source>(s.source);
    auto read = request.getBody().initReadFile();
    read.setSandboxId(as_text(s.sandbox_id));
    read.setPath(as_text(file.path));
    read.setUser(as_text(file.user));
    read.setOffset(s.offset);
    read.setLength(s.next_length());
  }
  return proto::frame::from_builder(message);
}

base::result<stream_piece> read_piece(const stream& s, proto::frame reply) {
  stream_piece piece;
  DSEC_CHECK(proto::view<proto::Reply>(reply).read([&](proto::Reply::Reader r) {
    const auto body = r.getBody();
    if (body.isOutput()) {
      read_output(body.getOutput(), piece);
      if (piece.total && body.getOutput().getLost()) {
        piece.failed = true;
        reply = lost(s);
      }
    } else if (body.isFileData()) {
      read_file(body.getFileData(), piece);
    } else {
      piece.failed = true;
    }
  }));
  piece.reply = std::move(reply);
  return piece;
}

proto::frame stream_reply(std::uint64_t id, const stream& s) {
  capnp::MallocMessageBuilder message;
  auto reply = message.initRoot<proto::Reply>();
  reply.setId(id);
  auto out = reply.getBody().initStream();
  out.setStreamId(s.id);
  out.setOffset(s.offset);
  out.setCredit(s.credit);
  return proto::frame::from_builder(message);
}

proto::frame stream_data(const stream& s, const stream_piece& piece) {
  return data_frame(s, [&](proto::StreamData::Builder out) {
    out.setOffset(piece.offset);
    static_cast<void>(proto::view<proto::Reply>(piece.reply).read([&](proto::Reply::Reader reply) {
      const auto body = reply.getBody();
      out.setData(body.isOutput() ? body.getOutput().getData() : body.getFileData().getData());
    }));
    if (!piece.total) return;
    out.setEnd(proto::StreamEnd::COMPLETE);
    out.setTotal(*piece.total);
  });
}

proto::frame stream_failed(const stream& s, const proto::frame& error_reply) {
  return data_frame(s, [&](proto::StreamData::Builder out) {
    out.setEnd(proto::StreamEnd::FAILED);
    static_cast<void>(proto::view<proto::Reply>(error_reply).read([&](proto::Reply::Reader reply) {
      if (reply.getBody().isError()) out.setError(reply.getBody().getError());
    }));
  });
}

}  // namespace dsec::actors
