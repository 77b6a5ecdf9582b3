dsec_fuzz(client_json DEPENDS dsec_proto)
