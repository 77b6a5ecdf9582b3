#include "backends/container/trial_slot.hpp"

namespace dsec::container {
namespace {

constexpr auto patience = std::chrono::seconds(10);

base::result<std::string> in_slot(const cgroup_tree& tree, std::uint32_t aether,
                                  const slot_trial& use) {
  DSEC_TRY(auto slot, tree.make_slot(0, aether));
  return use(tree, slot);
}

}  // namespace

base::result<std::string> with_trial_slot(const base::node_config& node,
                                          const std::filesystem::path& state,
                                          const slot_trial& use) {
  DSEC_TRY(const auto tree, cgroup_tree::open(node.instance, state));
  DSEC_CHECK(tree.clear(sys::after(patience)));
  auto used = in_slot(tree, node.aether_uid_base, use);
  const auto cleared = tree.clear(sys::after(patience));
  const auto removed = tree.remove(sys::after(patience));
  if (used && !cleared) return base::fail(cleared.error());
  if (used && !removed) return base::fail(removed.error());
  return used;
}

}  // namespace dsec::container
