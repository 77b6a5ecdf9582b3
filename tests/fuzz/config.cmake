dsec_fuzz(config DEPENDS dsec_base
          PARSER src/base/config.cpp src/base/config_rules.cpp
          APART load_config peer_file changed_keys with_reloadable)
