#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace floe {

using Bytes = std::vector<std::byte>;

/// Thrown if bytes are not a valid message of the expected type.
class DecodeError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

namespace detail {

inline constexpr std::size_t header_len = 16;
inline constexpr std::size_t slot_len = 8;
inline constexpr std::uint32_t magic = 0x314f4c46;  // FLO1
inline constexpr std::uint64_t low_half = 0xffffffff;

/// Builds a flat message, which is little-endian on every machine.
class Writer {
 public:
  Writer(std::uint32_t id, std::size_t fixed_len) : out_(header_len + fixed_len) {
    number(0, magic);
    number(slot_len, id);
  }

  void number(std::size_t at, std::uint64_t value) {
    for (std::size_t i = 0; i < slot_len; ++i) {
      out_[at + i] = static_cast<std::byte>(value >> (8 * i));
    }
  }

  void text(std::size_t at, std::string_view text) {
    reference(at, out_.size(), text.size());
    room_for(text.size() + 1);
    append(text.data(), text.size());
    out_.push_back(std::byte{0});
  }

  void bytes(std::size_t at, std::span<const std::byte> bytes) {
    reference(at, out_.size(), bytes.size());
    append(bytes.data(), bytes.size());
  }

  /// Writes a list. `put` writes one element at a position.
  template <typename T, typename Put>
  void list(std::size_t at, const std::vector<T> &list, std::size_t element_len, Put put) {
    if (list.empty()) {
      return;
    }
    const std::size_t begin = (out_.size() + slot_len - 1) / slot_len * slot_len;
    out_.resize(begin + list.size() * element_len);
    reference(at, begin, list.size());
    for (std::size_t i = 0; i < list.size(); ++i) {
      put(begin + i * element_len, list[i]);
    }
  }

  /// Returns the whole message. The writer is empty afterwards.
  Bytes finish() {
    if (out_.size() > low_half) {
      throw std::length_error("the message exceeds 4 GiB");
    }
    for (std::size_t i = 0; i < 4; ++i) {
      out_[4 + i] = static_cast<std::byte>(out_.size() >> (8 * i));
    }
    return std::move(out_);
  }

 private:
  void reference(std::size_t at, std::uint64_t offset, std::uint64_t length) {
    number(at, (offset & low_half) | length << 32);
  }

  void append(const void *data, std::size_t len) {
    const auto *bytes = static_cast<const std::byte *>(data);
    out_.insert(out_.end(), bytes, bytes + len);
  }

  /// Reserves room for a text and its NUL, so that appending them reallocates at most once. Doubles
  /// the capacity, so that many texts rarely reallocate.
  void room_for(std::size_t len) {
    const std::size_t needed = out_.size() + len;
    if (needed > out_.capacity()) {
      out_.reserve(needed > 2 * out_.capacity() ? needed : 2 * out_.capacity());
    }
  }

  Bytes out_;
};

/// Checks a flat message and reads values from it.
class Reader {
 public:
  Reader(std::span<const std::byte> data, std::uint32_t id, std::size_t fixed_len)
      : data_(data), budget_(data.size()) {
    if (data.size() < header_len + fixed_len || (number(0) & low_half) != magic) {
      throw DecodeError("the bytes do not begin with the header of a flat message");
    }
    if (number(0) >> 32 != data.size()) {
      throw DecodeError("the length in the header is wrong");
    }
    if (number(slot_len) != id) {
      throw DecodeError("the ID in the header belongs to another message");
    }
  }

  std::uint64_t number(std::size_t at) const {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < slot_len; ++i) {
      value |= std::to_integer<std::uint64_t>(data_[at + i]) << (8 * i);
    }
    return value;
  }

  bool boolean(std::size_t at) const {
    const std::uint64_t value = number(at);
    if (value > 1) {
      throw DecodeError("a number is not a bool");
    }
    return value == 1;
  }

  /// Returns whether an optional number is present. Its value is in the next slot.
  bool present(std::size_t at) const {
    const bool present = boolean(at);
    if (!present && number(at + slot_len) != 0) {
      throw DecodeError("an unused part is not zero");
    }
    return present;
  }

  template <typename E>
  E value(std::size_t at) const {
    const std::uint64_t number = this->number(at);
    const E value = static_cast<E>(number);
    if (number > low_half || name(value).empty()) {
      throw DecodeError("an enum has no such value");
    }
    return value;
  }

  std::string text(std::size_t at) {
    const std::uint64_t reference = number(at);
    if (reference == 0) {
      return {};
    }
    const std::uint64_t len = reference >> 32;
    const auto span = this->span(reference & low_half, len + 1);
    const auto *text = reinterpret_cast<const char *>(span.data());
    if (text[len] != 0) {
      throw DecodeError("no NUL follows a text");
    }
    if (!is_utf8(std::string_view(text, len))) {
      throw DecodeError("a text is not UTF-8");
    }
    return std::string(text, len);
  }

  Bytes bytes(std::size_t at) {
    const std::uint64_t reference = number(at);
    if (reference == 0) {
      return {};
    }
    const auto span = this->span(reference & low_half, reference >> 32);
    return Bytes(span.begin(), span.end());
  }

  /// Reads a list. `take` reads the element at a position.
  template <typename T, typename Take>
  std::vector<T> list(std::size_t at, std::size_t element_len, Take take) {
    std::vector<T> list;
    const std::uint64_t reference = number(at);
    if (reference == 0) {
      return list;
    }
    const std::uint64_t offset = reference & low_half;
    const std::uint64_t count = reference >> 32;
    if (count == 0 || offset % slot_len != 0) {
      throw DecodeError("a list is not aligned or has no elements");
    }
    span(offset, count * element_len);
    list.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) {
      list.push_back(take(offset + i * element_len));
    }
    return list;
  }

 private:
  /// All references together may span at most the length of the message, so that a small message
  /// cannot expand to a large one.
  std::span<const std::byte> span(std::uint64_t offset, std::uint64_t length) {
    if (offset < header_len || offset + length > data_.size()) {
      throw DecodeError("a reference points outside of the contents of the message");
    }
    if (length > budget_) {
      throw DecodeError("the references together span more than the whole message");
    }
    budget_ -= length;
    return data_.subspan(offset, length);
  }

  static bool is_utf8(std::string_view text) {
    std::size_t i = 0;
    while (i < text.size()) {
      const auto first = static_cast<unsigned char>(text[i++]);
      if (first < 0x80) {
        continue;
      }
      if (first < 0xc2 || first > 0xf4) {
        return false;
      }
      const std::size_t more = first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
      if (text.size() - i < more) {
        return false;
      }
      // Rejects overlong forms, surrogates, and code points above U+10FFFF.
      const unsigned char least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
      const unsigned char most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
      const auto second = static_cast<unsigned char>(text[i]);
      if (second < least || second > most) {
        return false;
      }
      for (std::size_t end = i + more; ++i < end;) {
        if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) {
          return false;
        }
      }
    }
    return true;
  }

  std::span<const std::byte> data_;
  std::uint64_t budget_;
};

}  // namespace detail

