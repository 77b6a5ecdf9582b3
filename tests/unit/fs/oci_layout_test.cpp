#include "fs/oci_layout.hpp"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <functional>

#include "support/oci_layout_maker.hpp"

namespace {

using namespace dsec::tests;
using namespace dsec::fs;
using dsec::base::errc;
using json = nlohmann::json;

struct scene {
  temp_dir dir;
  oci_layout_maker layout{dir / "layout"};

  dsec::base::result<oci_image> read(std::string_view tag = {}) const {
    return read_oci_image(layout.directory(), tag);
  }
  void refused(errc code, const std::string& says, std::string_view tag = {}) const {
    const auto image = read(tag);
    INFO(says);
    REQUIRE_FALSE(image);
    INFO(image.error().message);
    CHECK(image.error().code == code);
    CHECK_THAT(image.error().message, Catch::Contains(says));
  }
};

}  // namespace

TEST_CASE("an image of a layout is its configuration and its layers, bottom first") {
  scene s;
  s.layout.index({s.layout.image({"one", "two"}, {{"Env", {"A=1"}}, {"Cmd", {"run"}}})});
  const auto image = s.read();
  INFO((image ? std::string() : image.error().message));
  REQUIRE(image);
  REQUIRE(image->layers.size() == 2);
  CHECK(slurp(image->layers[0].blob) == "one");
  CHECK(image->layers[1].digest == dsec::base::sha256_of("two"));
  CHECK(image->layers[1].diff_id == image->layers[1].digest);
  CHECK(image->layers[1].size == 3);
  CHECK(image->config.env.front().second == "1");
  CHECK(image->config.cmd == std::vector<std::string>{"run"});
}

TEST_CASE("of several images the tag says which; without one they are listed") {
  scene s;
  const auto one = s.layout.image({"1"});
  const auto two = s.layout.image({"2"});
  s.layout.index({oci_layout_maker::tagged(one, "v1"), oci_layout_maker::tagged(two, "v2")});
  CHECK(slurp(s.read("v1")->layers[0].blob) == "1");
  CHECK(slurp(s.read("v2")->layers[0].blob) == "2");
  s.refused(errc::not_found, "no image 'v3' in", "v3");
  s.refused(errc::not_found, "there are: v1, v2", "v3");
  s.refused(errc::invalid_argument, "TAG with v1, v2");
}

TEST_CASE("of an index's images the one for this machine is taken, however deep it lies") {
  scene s;
  const auto mine = s.layout.image({"mine"});
  const auto other = s.layout.image({"other"}, json::object(), "riscv64");
  const auto list =
      s.layout.nested({oci_layout_maker::for_platform(other, "riscv64"),
                       oci_layout_maker::for_platform(other, oci_layout_maker::own(), "windows"),
                       oci_layout_maker::for_platform(other, "unknown", "unknown"),
                       oci_layout_maker::for_platform(mine, oci_layout_maker::own())});
  s.layout.index({list});
  CHECK(slurp(s.read()->layers[0].blob) == "mine");
  s.layout.index({s.layout.nested({s.layout.nested({list})})});
  CHECK(s.read());
  s.layout.index({s.layout.nested({s.layout.nested({s.layout.nested({list})})})});
  s.refused(errc::invalid_argument, "more than 4 deep");
}

TEST_CASE("an image for other machines only is unsupported, and says which there are") {
  scene s;
  const auto other = s.layout.image({"x"}, json::object(), "riscv64");
  s.layout.index({other});
  s.refused(errc::unsupported, "is for linux/riscv64; this machine is linux/");
  s.layout.index({s.layout.nested({oci_layout_maker::for_platform(other, "riscv64"),
                                   oci_layout_maker::for_platform(other, "s390x")})});
  s.refused(errc::unsupported, "there are: linux/riscv64, linux/s390x");
}

TEST_CASE("compressions are told by media types, OCI's and Docker's; others are refused by name") {
  const auto packed = [](const std::string& type) {
    return parse_oci_manifest(
        json{{"schemaVersion", 2},
             {"config", {{"digest", "sha256:" + std::string(64, 'a')}, {"size", 1}}},
             {"layers",
              {{{"mediaType", type}, {"digest", "sha256:" + std::string(64, 'b')}, {"size", 2}}}}}
            .dump(),
        "m");
  };
  using dsec::fs::unpack::compression;
  const std::string oci = "application/vnd.oci.image.layer.v1.tar";
  const std::string docker = "application/vnd.docker.image.rootfs.diff.tar";
  CHECK(packed(oci)->layers[0].packed == compression::none);
  CHECK(packed(oci + "+gzip")->layers[0].packed == compression::gzip);
  CHECK(packed(oci + "+zstd")->layers[0].packed == compression::zstd);
  CHECK(packed(docker + ".gzip")->layers[0].packed == compression::gzip);
  for (const auto& bad : {oci + "+xz", std::string("application/json"), std::string()}) {
    const auto m = packed(bad);
    REQUIRE_FALSE(m);
    CHECK(m.error().code == errc::unsupported);
    CHECK_THAT(m.error().message, Catch::Contains("m: layers[0].mediaType '" + bad + "'"));
  }
}

TEST_CASE("layouts that are damaged are corrupt, and the blob is named", "[threat-17]") {
  scene s;
  const auto good = s.layout.image({"one"});
  const auto file = s.layout.file(good["digest"].get<std::string>());
  const auto text = slurp(file);
  s.layout.index({good});
  REQUIRE(s.read());
  write(file, text + " ");
  s.refused(errc::corrupt, "its descriptor says");
  auto other = text;
  other.back() = ' ';
  write(file, other);
  s.refused(errc::corrupt, "is damaged");
  std::filesystem::remove(file);
  s.refused(errc::corrupt, "is missing: no file " + file.string());
  std::filesystem::create_directory(file);
  s.refused(errc::invalid_argument, "is not a regular file");

  // One layer and two digests of layers.
  const json config{{"os", "linux"},
                    {"architecture", oci_layout_maker::own()},
                    {"rootfs", {{"diff_ids", {"sha256:" + std::string(64, 'a')}}}}};
  s.layout.index({s.layout.manifest(s.layout.blob(config.dump(), ""), json::array())});
  s.refused(errc::corrupt, "has 0 layers, its configuration 1");
}

TEST_CASE("hostile JSON is refused by text and member", "[threat-17]") {
  scene s;
  const auto index = s.layout.directory() / "index.json";
  const std::string digest = "sha256:" + std::string(64, 'a');
  const std::string head = R"({"schemaVersion":2,"manifests":[)";
  const auto refused = [&](const std::string& text, errc code, const std::string& says) {
    write(index, text);
    s.refused(code, says);
  };
  refused("", errc::invalid_argument, "index.json: not valid JSON");
  refused("[]", errc::invalid_argument, "must be a JSON object");
  refused("{}", errc::invalid_argument, "schemaVersion");
  refused(R"({"schemaVersion":1,"manifests":[]})", errc::unsupported, "schemaVersion is not 2");
  refused(R"({"schemaVersion":2})", errc::invalid_argument, "manifests must be a list");
  refused(head + "]}", errc::not_found, "holds no image");
  refused(head + "5]}", errc::invalid_argument, "manifests[0] must be an object");
  refused(head + R"({"digest":"md5:00","size":1}]})", errc::unsupported, "manifests[0].digest");
  refused(head + R"({"digest":"sha256:../../etc/passwd","size":1}]})", errc::invalid_argument,
          "is not a sha256 digest");
  refused(head + R"({"digest":")" + digest + R"(","size":-1}]})", errc::invalid_argument,
          "size must be a number of bytes");
  refused(head + R"({"digest":")" + digest + R"(","size":1e300}]})", errc::invalid_argument,
          "size must be");
  refused(head + R"({"digest":")" + digest + R"(","size":18446744073709551615}]})", errc::too_large,
          "size is too large");
  refused(head + R"({"digest":")" + digest + R"(","size":2000000}]})", errc::too_large,
          "has 2000000 bytes");
  refused(head + R"({"digest":")" + digest + R"(","size":1,"platform":[]}]})",
          errc::invalid_argument, "platform must be an object");
  refused(std::string(1'000'000, '['), errc::invalid_argument, "nested deeper");
  refused(head + std::string(500'000, ','), errc::too_large, "more than 50000 values");
  refused(std::string(2U << 20U, ' '), errc::too_large, "more than");
  std::string many = head;
  for (int i = 0; i < 2000; ++i) many += "0,";
  refused(many + "0]}", errc::too_large, "manifests has more than 1024");
  std::filesystem::remove(index);
  REQUIRE(::mkfifo(index.c_str(), 0600) == 0);
  s.refused(errc::invalid_argument, "is not a regular file");
  std::filesystem::remove(index);
  s.refused(errc::not_found, "index.json");
  write(s.layout.directory() / "oci-layout", R"({"imageLayoutVersion":"2.0.0"})");
  s.refused(errc::unsupported, "'2.0.0'");
  std::filesystem::remove(s.layout.directory() / "oci-layout");
  s.refused(errc::invalid_argument, "is not an OCI layout");
}

TEST_CASE("a configuration that is wrong is refused by the text's digest and the member",
          "[threat-17]") {
  scene s;
  const auto refused = [&](const json& config, errc code, const std::string& says) {
    const auto blob = s.layout.blob(config.dump(), "");
    s.layout.index({s.layout.manifest(blob, json::array())});
    s.refused(code, says);
    s.refused(code, blob["digest"].get<std::string>());
  };
  const json good{{"os", "linux"},
                  {"architecture", oci_layout_maker::own()},
                  {"rootfs", {{"diff_ids", json::array()}}}};
  auto bad = good;
  bad.erase("rootfs");
  refused(bad, errc::invalid_argument, "rootfs must be an object");
  bad = good;
  bad["rootfs"]["diff_ids"] = {5};
  refused(bad, errc::invalid_argument, "diff_ids[0] must be a string");
  bad["rootfs"]["diff_ids"] = {"sha256:short"};
  refused(bad, errc::invalid_argument, "diff_ids[0] is not a sha256 digest");
  bad = good;
  bad["config"] = {{"Env", {"NOVALUE"}}};
  refused(bad, errc::invalid_argument, "Env[0] must be NAME=VALUE");
}

TEST_CASE("what the unpacking program says is believed only as far as it makes sense") {
  using namespace dsec::fs::unpack;
  const report r{5, 6, {"left out"}};
  const auto back = parse_report(to_json(dsec::base::result<report>(r)));
  REQUIRE(back);
  CHECK(back->entries == 5);
  CHECK(back->findings == r.findings);
  const auto failed =
      parse_report(to_json(dsec::base::fail(dsec::base::error{errc::io, "write 'x\xff'", ENOSPC})));
  CHECK(failed.error().code == errc::io);
  CHECK(failed.error().sys_errno == ENOSPC);
  for (const char* nonsense : {"", "[]", "{}", R"({"code":99,"message":"m","errno":0})",
                               R"({"entries":"a"})", R"({"code":1})"})
    CHECK(parse_report(nonsense).error().code == errc::internal);
  CHECK(parse_report("[" + std::string(5000, ',')).error().code == errc::internal);

  const plan p{"/root", {1, 2, 3}, {{"/a b", compression::zstd, 7, "d", "e"}}};
  const auto read = parse_arguments(arguments_of(p));
  REQUIRE(read);
  CHECK(read->most.ratio == 3);
  CHECK(read->layers[0].blob == "/a b");
  CHECK(read->layers[0].packed == compression::zstd);
  CHECK_FALSE(parse_arguments({"/root", "1", "2"}));
  CHECK_FALSE(parse_arguments({"/root", "1", "2", "x"}));
}
