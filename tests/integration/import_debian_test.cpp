// Imports of Debian suites: with a stand-in for mmdebstrap what can go wrong, with the real one
// what comes out.

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <functional>
#include <thread>

#include "base/failpoint.hpp"
#include "base/subprocess.hpp"
#include "import_rig.hpp"
#include "support/eventually.hpp"
#include "support/skip.hpp"

namespace {

using namespace dsec::tests;
using dsec::base::errc;
using dsec::test::eventually;
using std::chrono::seconds;

#define SKIP_WHERE_IMPOSSIBLE()                                \
  if (const auto reason = import_missing(); !reason.empty()) { \
    dsec::test::say_skipped(reason);                           \
    return;                                                    \
  }

/// A stand-in's script that makes a small root where mmdebstrap would: the argument before the
/// first "deb ".
std::string make_root(const std::string& then = "") {
  return R"(for a in "$@"; do case $a in /*) root=$a;; esac; done
mkdir -p "$root/etc/apt/apt.conf.d" "$root/bin"
echo proxy > "$root/etc/apt/apt.conf.d/99mmdebstrap"; echo mirror > "$root/etc/apt/sources.list"
echo resolver > "$root/etc/resolv.conf"; echo host > "$root/etc/hostname"; date +%N > "$root/bin/x"
)" + then;
}

/// Runs an import in a process of its own.
pid_t import_elsewhere(import_rig& rig, const std::string& source,
                       const char* fail_point = nullptr) {
  const pid_t pid = ::fork();
  REQUIRE(pid >= 0);
  if (pid > 0) return pid;
#ifdef DSEC_FAILPOINTS
  if (fail_point != nullptr) dsec::base::failpoint::arm(fail_point, "kill");
#else
  (void)fail_point;
#endif
  const auto image = rig.import("a", source);
  ::_exit(image ? 0 : 1);
}

int wait_for(pid_t pid) {
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  return status;
}

}  // namespace

TEST_CASE("a Debian root names nothing of the machine that built it", "[import]") {
  SKIP_WHERE_IMPOSSIBLE();
  import_rig rig;
  rig.stand_in_apt();
  rig.stand_in("mmdebstrap", make_root("printf '%s\\n' \"$@\" > " + (rig.dir / "argv").string()));
  const auto image = rig.import("deb", "debian:bookworm+python3,git");
  INFO(why(image));
  REQUIRE(image);
  CHECK(image->source == "debian:bookworm+python3,git");
  REQUIRE(image->config.env.size() == 2);
  CHECK(image->config.env[0].first == "PATH");
  CHECK(image->config.env[1] == std::pair<std::string, std::string>{"LANG", "C.UTF-8"});
  const auto argv = slurp(rig.dir / "argv");
  CHECK_THAT(argv, Catch::Contains("--include=python3\n--include=git\nbookworm\n"));
  CHECK_THAT(argv, Catch::Contains("deb http://mirror.test/debian bookworm main\n"));
  const mounted_image mounted(rig.store.blob(image->digest));
  const auto& root = mounted.root();
  CHECK_FALSE(std::filesystem::exists(root / "etc/apt/apt.conf.d/99mmdebstrap"));
  CHECK_FALSE(std::filesystem::exists(root / "etc/resolv.conf"));
  CHECK_FALSE(std::filesystem::exists(root / "etc/hostname"));
  CHECK_THAT(slurp(root / "etc/apt/sources.list"), !Catch::Contains("mirror\n"));
  CHECK_THAT(slurp(root / "etc/hosts"), Catch::Contains("127.0.0.1\tlocalhost"));
  CHECK(rig.leftovers().empty());
}

TEST_CASE("sixteen builds of one Debian image at once are one build and sixteen successes",
          "[import][C33]") {
  SKIP_WHERE_IMPOSSIBLE();
  import_rig rig;
  rig.stand_in_apt();
  const auto log = (rig.dir / "builds").string();
  // Ends only when all are there, so that each of them has to wait.
  rig.stand_in("mmdebstrap", make_root("echo build >> " + log + "; until [ -e " +
                                       (rig.dir / "go").string() + " ]; do :; done"));
  std::vector<pid_t> importers;
  for (int i = 0; i < 16; ++i) importers.push_back(import_elsewhere(rig, "debian:bookworm"));
  // All have opened the lock of the name: one holds it, fifteen wait.
  const auto lock = rig.paths.images() / "locks/base-a@latest";
  const auto opened = [&] {
    int count = 0;
    for (const auto pid : importers) {
      std::error_code error;
      for (const auto& fd :
           std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd", error)) {
        std::error_code ignored;
        if (std::filesystem::read_symlink(fd.path(), ignored) == lock) ++count;
      }
    }
    return count == 16;
  };
  const bool all_waiting = eventually(opened, seconds(30));
  write(rig.dir / "go", "");
  for (const auto pid : importers) CHECK(wait_for(pid) == 0);
  CHECK(all_waiting);
  CHECK(slurp(log) == "build\n");
  CHECK(rig.blobs() == 1);
  CHECK(rig.leftovers().empty());

  // A new request is a new build: the mirror may have moved on.
  REQUIRE(rig.import("a", "debian:bookworm"));
  CHECK(slurp(log) == "build\nbuild\n");
  CHECK(rig.blobs() == 1);
}

TEST_CASE("a killed import takes its builder along, and the next one removes what it left",
          "[import]") {
  SKIP_WHERE_IMPOSSIBLE();
  import_rig rig;
  rig.stand_in_apt();
  const auto beat = rig.dir / "beat";
  rig.stand_in("mmdebstrap", make_root("while :; do date +%s%N > " + beat.string() + "; done"));
  const auto pid = import_elsewhere(rig, "debian:bookworm");
  REQUIRE(eventually([&] { return std::filesystem::exists(beat); }, seconds(30)));
  ::kill(pid, SIGKILL);
  CHECK(WIFSIGNALED(wait_for(pid)));
  CHECK(rig.leftovers().size() == 1);
  auto last = slurp(beat);
  auto since = std::chrono::steady_clock::now();
  CHECK(eventually(
      [&] {  // it stops beating
        const auto now = std::chrono::steady_clock::now();
        if (auto next = slurp(beat); next != last) {
          last = std::move(next);
          since = now;
        }
        return now - since > std::chrono::milliseconds(50);
      },
      seconds(30)));
  rig.stand_in("mmdebstrap", make_root());
  CHECK(rig.import("a", "debian:bookworm"));
  CHECK(rig.leftovers().empty());
}

#ifdef DSEC_FAILPOINTS
TEST_CASE("an import killed after any step leaves a store that works", "[import]") {
  SKIP_WHERE_IMPOSSIBLE();
  for (const char* point : {"import.staged", "import.built", "import.converted",
                            "image_add.blob_taken", "image_add.manifest_written"}) {
    INFO(point);
    import_rig rig;
    write(rig.tree / "a", "one");
    REQUIRE(rig.import("a", rig.tree.string()));
    write(rig.tree / "a", "two");
    CHECK(WIFSIGNALED(wait_for(import_elsewhere(rig, rig.tree.string(), point))));
    const auto found = rig.store.find(dsec::fs::layer_kind::base, "a");
    INFO(why(found));
    REQUIRE(found);
    CHECK(rig.store.verify(found->digest));
    const auto next = rig.import("a", rig.tree.string());
    INFO(why(next));
    REQUIRE(next);
    const mounted_image mounted(rig.store.blob(next->digest));
    CHECK(slurp(mounted.root() / "a") == "two");
    CHECK(rig.leftovers().empty());
  }
}
#endif

TEST_CASE("a failed build says what the tools said, by code, and leaves nothing", "[import]") {
  SKIP_WHERE_IMPOSSIBLE();
  import_rig rig;
  rig.stand_in_apt();
  struct row {
    const char* says;
    errc code;
  };
  for (const auto& [says, code] :
       {row{"E: Unable to locate package pithon3", errc::not_found},
        row{"Err:1 http://mirror.test bookworm InRelease  Could not resolve 'mirror.test'",
            errc::unavailable},
        row{"E: cannot copy: No space left on device", errc::io},
        row{"E: something else", errc::internal}}) {
    rig.stand_in("mmdebstrap",
                 make_root("echo 'I: noise' >&2; echo \"" + std::string(says) + "\" >&2; exit 25"));
    const auto image = rig.import("a", "debian:bookworm+pithon3");
    REQUIRE_FALSE(image);
    CHECK(image.error().code == code);
    CHECK_THAT(image.error().message, Catch::Contains(says) && !Catch::Contains("noise"));
    CHECK(rig.leftovers().empty());
  }
  CHECK(rig.blobs() == 0);
  CHECK(rig.import("a", "debian:trixie").error().code == errc::internal);  // from the same archive
  rig.stand_in("apt-get", ":");
  const auto no_mirror = rig.import("a", "debian:bookworm");
  CHECK(no_mirror.error().code == errc::unavailable);
  CHECK_THAT(no_mirror.error().message, Catch::Contains("no package source of this machine"));
}

TEST_CASE("without mmdebstrap the error names the package to install", "[import]") {
  SKIP_WHERE_IMPOSSIBLE();
  import_rig rig;
  rig.stand_in_apt();
  ::setenv("PATH", (rig.dir / "bin").c_str(), 1);
  const auto image = rig.import("a", "debian:bookworm");
  REQUIRE_FALSE(image);
  CHECK(image.error().code == errc::unsupported);
  CHECK_THAT(image.error().message, Catch::Contains("install the package mmdebstrap"));
}

TEST_CASE("a real Debian root works", "[import][debian]") {
  SKIP_WHERE_IMPOSSIBLE();
  if (!dsec::base::find_program("mmdebstrap")) {
    dsec::test::say_skipped("mmdebstrap is not installed");
    return;
  }
  import_rig rig;
  const auto image = rig.import("debian", "debian:bookworm");
  if (!image && image.error().code == errc::unavailable) {
    dsec::test::say_skipped(std::string("no mirror: ") + image.error().message);
    return;
  }
  INFO(why(image));
  REQUIRE(image);
  CHECK(rig.leftovers().empty());
  const mounted_image mounted(rig.store.blob(image->digest));
  for (const char* cache : {"var/lib/apt/lists", "var/cache/apt"}) {
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(mounted.root() / cache)) {
      CHECK((entry.is_directory() || entry.path().filename() == "lock"));
    }
  }
  dsec::base::subprocess_spec spec;
  spec.argv = {"chroot", mounted.root().string(), "/bin/bash", "-c",
               "getent hosts localhost && dpkg --audit && grep VERSION_CODENAME /etc/os-release"};
  spec.env = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"};
  spec.timeout = seconds(60);
  const auto done = dsec::base::run_subprocess(spec);
  REQUIRE(done);
  INFO(done->errors);
  CHECK(done->status == 0);
  CHECK_THAT(done->out,
             Catch::Contains("localhost") && Catch::Contains("VERSION_CODENAME=bookworm"));
}
