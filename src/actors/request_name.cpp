#include "actors/request_name.hpp"

#include <capnp/schema.h>

namespace dsec::actors {

std::string_view name_of(proto::Request::Body::Which which) {
  KJ_IF_MAYBE (field, capnp::Schema::from<proto::Request::Body>().getFieldByDiscriminant(which)) {
    const auto name = field->getProto().getName();
    return {name.begin(), name.size()};
  }
  return "unknown";
}

}  // namespace dsec::actors
