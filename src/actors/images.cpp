#include "actors/images.hpp"

#include <optional>
#include <utility>

namespace dsec::actors {
namespace {

class store_catalogue final : public image_catalogue {
 public:
  explicit store_catalogue(fs::image_store store) : store_(std::move(store)) {}

  base::result<resolved_images> resolve(const image_refs& refs) override {
    resolved_images out;
    DSEC_TRY(const auto base, add_layer(out, fs::layer_kind::base, refs.base));
    std::optional<fs::image_config> workspace;
    if (!refs.workspace.empty()) {
      DSEC_TRY(workspace, add_layer(out, fs::layer_kind::workspace, refs.workspace));
    }
    std::vector<fs::image_config> toolkits;
    for (const auto& reference : refs.toolkits) {
      DSEC_TRY(auto config, add_layer(out, fs::layer_kind::toolkit, reference));
      toolkits.push_back(std::move(config));
    }
    out.config = fs::merge(base, workspace ? &*workspace : nullptr, toolkits);
    return out;
  }

  base::result<std::vector<fs::image>> list() override { return store_.list(); }

 private:
  base::result<fs::image_config> add_layer(resolved_images& out, fs::layer_kind kind,
                                           const std::string& reference) {
    auto image = store_.find(kind, reference);
    if (!image) {
      image.error().object = reference;
      return base::fail(std::move(image).error());
    }
    out.layers.push_back({image->digest, store_.blob(image->digest)});
    return std::move(image->config);
  }

  fs::image_store store_;
};

}  // namespace

std::unique_ptr<image_catalogue> make_catalogue(fs::image_store store) {
  return std::make_unique<store_catalogue>(std::move(store));
}

}  // namespace dsec::actors
