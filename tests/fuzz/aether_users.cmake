dsec_fuzz(aether_users DEPENDS dsec_options)
