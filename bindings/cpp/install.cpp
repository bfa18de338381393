// Installs a closure and shows its progress.
//
//   install CACHE ROOT KEY PATH...
//
// c++ -std=c++20 -I../../crates/floe-ffi/include -I. install.cpp $(pkg-config --libs floe)

#include <cstdio>
#include <string>

#include "floe/floe.hpp"

namespace {

void show(const floe::Progress &progress) {
  std::fprintf(stderr, "\r%llu of %llu paths, %.1f of %.1f MB",
               static_cast<unsigned long long>(progress.paths_done),
               static_cast<unsigned long long>(progress.paths_total),
               static_cast<double>(progress.nar_bytes_done) / 1e6,
               static_cast<double>(progress.nar_bytes_total) / 1e6);
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
    std::fprintf(stderr, "\n%llu paths installed\n", static_cast<unsigned long long>(reply.copied));
    for (const std::string &root : reply.paths) {
      std::printf("%s\n", root.c_str());
    }
    return 0;
  } catch (const floe::Failed &failed) {
    std::fprintf(stderr, "\n%s\n", failed.what());
    for (const std::string &cause : failed.error().causes) {
      std::fprintf(stderr, "  %s\n", cause.c_str());
    }
    return failed.kind() == floe::ErrorKind::untrusted ? 3 : 1;
  } catch (const std::exception &error) {
    std::fprintf(stderr, "\n%s\n", error.what());
    return 1;
  }
}
