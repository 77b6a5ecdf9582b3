dsec_fuzz(aether_channel DEPENDS dsec_options
          PARSER src/guest/aether/decode.hpp)
