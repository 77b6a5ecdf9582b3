dsec_fuzz(request_policy DEPENDS dsec_net)
