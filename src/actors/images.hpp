// Image references -> layers and configuration. Blocking (reads manifests); called on the copy
// pool.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/backend.hpp"
#include "base/result.hpp"
#include "fs/image_config.hpp"
#include "fs/image_store.hpp"

namespace dsec::actors {

struct image_refs {
  std::string base;
  std::string workspace;              // empty = none
  std::vector<std::string> toolkits;  // bottom to top
};

struct resolved_images {
  std::vector<backends::layer_ref> layers;  // bottom first
  fs::image_config config;                  // merged
};

class image_catalogue {
 public:
  virtual ~image_catalogue() = default;
  virtual base::result<resolved_images> resolve(const image_refs& refs) = 0;
  virtual base::result<std::vector<fs::image>> list() = 0;
};

std::unique_ptr<image_catalogue> make_catalogue(fs::image_store store);

}  // namespace dsec::actors
