// The same program as every.c, with the C++ structs.
#include <cstdio>

#include "../shapes/shapes.hpp"

int main() {
  std::uint32_t len;
  while (std::fread(&len, sizeof len, 1, stdin) == 1) {
    floe::Bytes data(len);
    if (std::fread(data.data(), 1, len, stdin) != len) {
      return 1;
    }
    try {
      const auto it = floe::EveryType::decode(data);
      const auto again = it.encode();
      if (floe::EveryType::decode(again) != it) {
        return 2;
      }
      len = static_cast<std::uint32_t>(again.size());
      std::fputc(1, stdout);
      std::fwrite(&len, sizeof len, 1, stdout);
      std::fwrite(again.data(), 1, again.size(), stdout);
    } catch (const floe::DecodeError &) {
      std::fputc(0, stdout);
    }
  }
  return 0;
}
