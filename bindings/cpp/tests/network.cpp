// Installs a path with network options.
//
//   network CACHE ROOT KEY PATH [OPTION=VALUE]...
//
// An option has the name of a field of floe::NetworkOptions.

#include <cstdio>
#include <cstdlib>
#include <string>

#include "floe/floe.hpp"

namespace {

void set_option(floe::NetworkOptions &network, const std::string &word) {
  const std::size_t end = word.find('=');
  const std::string name = word.substr(0, end), value = word.substr(end + 1);
  if (name == "http_proxy") {
    network.http_proxy = value;
  } else if (name == "no_proxy") {
    network.no_proxy = value;
  } else if (name == "netrc_files") {
    network.netrc_files = {value};
  } else if (name == "certificates") {
    network.certificates = value;
  } else if (name == "connections") {
    network.connections = std::stoull(value);
  } else if (name == "connect_timeout_ms") {
    network.connect_timeout_ms = std::stoull(value);
  } else if (name == "stall_timeout_ms") {
    network.stall_timeout_ms = std::stoull(value);
  } else if (name == "attempts") {
    network.attempts = std::stoull(value);
  } else if (name == "narinfo_disk_cache") {
    network.narinfo_disk_cache = value;
  } else {
    std::fprintf(stderr, "unknown option %s\n", name.c_str());
    std::exit(2);
  }
}

}  // namespace

int main(int count, char **words) {
  if (count < 5) {
    return 2;
  }
  floe::CopyRequest request;
  request.from = {words[1]};
  request.to = words[2];
  request.trusted_public_keys = {words[3]};
  request.paths = {words[4]};
  for (int i = 5; i < count; ++i) {
    set_option(request.network, words[i]);
  }
  try {
    floe::Engine engine;
    const auto reply = engine.call<floe::Method::install>(request);
    std::printf("%llu paths installed\n", static_cast<unsigned long long>(reply.copied));
    return 0;
  } catch (const floe::Failed &failed) {
    std::printf("%s\n", failed.what());
    return 1;
  }
}
