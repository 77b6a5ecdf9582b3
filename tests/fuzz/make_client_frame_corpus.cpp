// Writes the seeds of fuzz_client_frame: one Request per member of its body, as it is and packed,
// every field filled in, so that a new member gets a seed without a change here.  usage:
// make_client_frame_corpus DIRECTORY
#include <capnp/dynamic.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "proto/client.capnp.h"
#include "proto/frame.hpp"

namespace {

void fill(capnp::DynamicStruct::Builder into);

void fill_list(capnp::DynamicList::Builder list) {
  for (unsigned i = 0; i < list.size(); ++i) {
    if (list.getSchema().whichElementType() == capnp::schema::Type::STRUCT) {
      fill(list[i].as<capnp::DynamicStruct>());
    } else {
      list.set(i, "item");  // every other list of the protocol is of texts
    }
  }
}

void fill_field(capnp::DynamicStruct::Builder into, capnp::StructSchema::Field field) {
  const auto type = field.getType();
  if (type.isStruct()) {
    auto inner = into.init(field).as<capnp::DynamicStruct>();
    fill(inner);
    const auto members = inner.getSchema().getUnionFields();
    if (members.size() > 0) fill_field(inner, members[members.size() - 1]);
    return;
  }
  if (type.isList()) return fill_list(into.init(field, 2).as<capnp::DynamicList>());
  if (type.isText()) return into.set(field, "text");
  if (type.isData())
    return into.set(field, capnp::Data::Reader(kj::StringPtr("\x00 bytes").asBytes()));
  if (type.isVoid()) return into.set(field, capnp::VOID);
  if (type.isBool()) return into.set(field, true);
  into.set(field, 1);
}

void fill(capnp::DynamicStruct::Builder into) {
  for (const auto field : into.getSchema().getNonUnionFields()) {
    // main() chooses what a request is.
    if (field.getProto().getName() != "body") fill_field(into, field);
  }
}

void write(const std::filesystem::path& file, std::string_view bytes) {
  std::ofstream(file, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  for (const auto member : capnp::Schema::from<dsec::proto::Request::Body>().getUnionFields()) {
    capnp::MallocMessageBuilder builder;
    auto request = builder.initRoot<dsec::proto::Request>();
    fill(request);
    fill_field(request.getBody(), member);
    const auto frame = dsec::proto::frame::from_builder(builder);
    const auto file = std::filesystem::path(argv[1]) / member.getProto().getName().cStr();
    write(file, {reinterpret_cast<const char*>(frame.bytes().data()), frame.bytes().size()});
    write(file.string() + ".packed", frame.packed());
  }
  return 0;
}
