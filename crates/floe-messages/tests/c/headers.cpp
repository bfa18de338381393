// Builds a reply with the C++ header and reads it back.
#include "floe/messages.hpp"

int main() {
  floe::ClosureReply reply;
  reply.infos.resize(2);
  reply.infos[1].references = {"a", ""};
  reply.infos[1].compression = floe::Compression::zstd;
  const floe::Bytes bytes = reply.encode();
  const floe::Empty empty;
  if (floe::ClosureReply::decode(bytes) != reply || floe::Empty::decode(empty.encode()) != empty) {
    return 1;
  }
  try {
    floe::PathInfo::decode(bytes);
    return 2;
  } catch (const floe::DecodeError &) {
    return floe::name(floe::Compression::zstd) == "zstd" ? 0 : 3;
  }
}
