dsec_fuzz(peer_hello DEPENDS dsec_proto)
