// Installs a closure and shows its progress.
//
//   install CACHE ROOT KEY PATH...
//
// c++ -std=c++20 -I../../crates/floe-ffi/include -I. install.cpp $(pkg-config --libs floe)

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "floe/floe.hpp"

namespace {

void print_progress(std::uint64_t paths, std::uint64_t all_paths, std::uint64_t bytes,
                    std::uint64_t all_bytes) {
  std::fprintf(stderr, "\r%llu of %llu paths, %.1f of %.1f MB",
               static_cast<unsigned long long>(paths), static_cast<unsigned long long>(all_paths),
               static_cast<double>(bytes) / 1e6, static_cast<double>(all_bytes) / 1e6);
}

void show(const floe::Progress &progress) {
  print_progress(progress.paths_done, progress.paths_total, progress.nar_bytes_done,
                 progress.nar_bytes_total);
}

}  // namespace

int main(int count, char **words) {
  if (count < 5) {
    std::fprintf(stderr, "usage: install CACHE ROOT KEY PATH...\n");
    return 2;
  }
  floe::CopyRequest request;
  request.from = {words[1]};
  request.to = words[2];
  request.trusted_public_keys = {words[3]};
  request.paths.assign(words + 4, words + count);
  try {
    floe::Engine engine;
    auto future = engine.submit<floe::Method::install>(request, {.progress = show});
    const floe::CopyReply reply = future.get();
    // No progress follows the reply, and the last one may be older.
    print_progress(reply.copied, reply.copied, reply.nar_bytes, reply.nar_bytes);
    std::fprintf(stderr, "\n%llu paths installed\n", static_cast<unsigned long long>(reply.copied));
    for (const std::string &root : reply.paths) {
      std::printf("%s\n", root.c_str());
    }
    return 0;
  } catch (const floe::Failed &failed) {
    std::fprintf(stderr, "\n%s\n", failed.what());
    // The message contains the first cause.
    const std::vector<std::string> &causes = failed.error().causes;
    for (std::size_t i = 1; i < causes.size(); i++) {
      std::fprintf(stderr, "  %s\n", causes[i].c_str());
    }
    return failed.kind() == floe::ErrorKind::untrusted ? 3 : 1;
  } catch (const std::exception &error) {
    std::fprintf(stderr, "\n%s\n", error.what());
    return 1;
  }
}
