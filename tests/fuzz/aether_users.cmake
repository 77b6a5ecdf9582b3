dsec_fuzz(aether_users DEPENDS dsec_options
          PARSER src/guest/aether/user_scan.hpp)
