dsec_fuzz(client_frame DEPENDS dsec_proto
          PARSER src/proto/frame.cpp
          APART from_reply root_of from_builder with bytes packed)
add_executable(make_client_frame_corpus make_client_frame_corpus.cpp)
target_link_libraries(make_client_frame_corpus PRIVATE dsec_proto)
