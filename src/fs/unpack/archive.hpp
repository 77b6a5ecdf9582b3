// libarchive's reader with an owner, and its failures as errors. Used by one thread.
#pragma once

#include <archive.h>
#include <archive_entry.h>

#include <memory>
#include <string>

#include "base/result.hpp"

namespace dsec::fs::unpack {

struct free_reader {
  void operator()(archive* a) const { ::archive_read_free(a); }
};
using reader = std::unique_ptr<archive, free_reader>;

/// errc::corrupt with libarchive's own words; of running out of memory errc::too_large.
base::error error_of(archive* a, const std::string& what);

}  // namespace dsec::fs::unpack
