// Writes the seeds of fuzz_client_frame: one Request per member of its body, every field filled in,
// so that a new member gets a seed without a change here.  usage: make_client_frame_corpus
// DIRECTORY
#include <capnp/dynamic.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

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
  if (type.isStruct()) return fill(into.init(field).as<capnp::DynamicStruct>());
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
    // A group with a union inside was given its member by the caller.
    const bool has_union =
        field.getType().isStruct() && field.getType().asStruct().getUnionFields().size() > 0;
    if (!has_union) fill_field(into, field);
  }
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
    const std::filesystem::path file =
        std::filesystem::path(argv[1]) / member.getProto().getName().cStr();
    std::ofstream(file, std::ios::binary)
        .write(reinterpret_cast<const char*>(frame.bytes().data()),
               static_cast<std::streamsize>(frame.bytes().size()));
  }
  return 0;
}
