dsec_fuzz(image_config DEPENDS dsec_fs
          PARSER src/fs/image_config.cpp src/fs/bounded_json.cpp src/base/json_shape.cpp)
