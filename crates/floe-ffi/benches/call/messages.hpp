// The messages of the benchmark `call`, and the checks of its replies.

#ifndef FLOE_BENCH_CALL_MESSAGES_HPP
#define FLOE_BENCH_CALL_MESSAGES_HPP

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "floe/floe.hpp"

using Clock = std::chrono::steady_clock;

// An upper bound for the delay of events after the last reply. They use the same path.
inline constexpr std::chrono::seconds EVENTS_LATE_MAX{10};

struct Case {
  std::string_view name;
  bool is_async;
  bool is_text;
  bool has_events;
  // The length of a message in bytes. 0: the length of its number.
  std::size_t size;
};

// Exits at once, from any thread, because the other threads would continue.
[[noreturn]] inline void fail(const Case &case, const std::string &text) {
  std::fprintf(stderr, "%s: %s\n", std::string(case.name).c_str(), text.c_str());
  std::_Exit(2);
}

// Returns the message with this number.
inline std::string text_of(std::uint64_t number, std::size_t size) {
  std::string text = std::to_string(number);
  text.resize(std::max(size, text.size()), '.');
  return text;
}

// Requests of `echo`. The replies are compared as a whole.
class Texts {
 public:
  static constexpr floe::Method METHOD = floe::Method::echo;

  Texts(const Case &case, std::uint64_t first) : size_(case.size), first_(first) {
    request_.event = case.has_events;
  }

  const floe::EchoRequest &request(std::uint64_t number) {
    request_.message = text_of(first_ + number, size_);
    return request_;
  }

  bool is_answer(std::uint64_t number, const floe::EchoReply &reply) const {
    return reply.message == text_of(first_ + number, size_);
  }

 private:
  std::size_t size_;
  std::uint64_t first_;
  floe::EchoRequest request_;
};

// Requests of `bytes`. Only the first and last byte differ and are compared, so that the benchmark
// measures floe and not the creation of messages.
class Blobs {
 public:
  static constexpr floe::Method METHOD = floe::Method::bytes;

  Blobs(const Case &case, std::uint64_t first) : first_(first) {
    request_.data.resize(case.size, std::byte{0x5a});
  }

  const floe::BytesRequest &request(std::uint64_t number) {
    request_.data.front() = front(number);
    request_.data.back() = back(number);
    return request_;
  }

  bool is_answer(std::uint64_t number, const floe::BytesReply &reply) const {
    return reply.data.size() == request_.data.size() && reply.data.front() == front(number) &&
           reply.data.back() == back(number);
  }

 private:
  // The two lowest bytes of the number, which distinguish 65536 messages.
  std::byte front(std::uint64_t number) const { return static_cast<std::byte>(first_ + number); }
  std::byte back(std::uint64_t number) const {
    return static_cast<std::byte>((first_ + number) >> 8);
  }

  std::uint64_t first_;
  floe::BytesRequest request_;
};

// The events that the engine thread receives: each message once.
class Events {
 public:
  Events(const Case &case, std::uint64_t total) : case_(case), received_(total) {}

  void receive(std::span<const std::byte> payload) {
    std::string text;
    try {
      text = floe::EchoReply::decode(payload).message;
    } catch (const floe::DecodeError &error) {
      fail(case_, error.what());
    }
    std::uint64_t number = 0;
    std::from_chars(text.data(), text.data() + text.size(), number);
    if (number >= received_.size() || text != text_of(number, case_.size)) {
      fail(case_, "an event belongs to no request: " + text.substr(0, 40));
    }
    if (received_[number]) {
      fail(case_, "message " + std::to_string(number) + " arrived twice as an event");
    }
    received_[number] = true;
    last_ = Clock::now();
    count_.fetch_add(1, std::memory_order_release);
  }

  // Returns the time of the last event.
  Clock::time_point wait() const {
    const auto deadline = Clock::now() + EVENTS_LATE_MAX;
    while (count_.load(std::memory_order_acquire) < received_.size()) {
      if (Clock::now() > deadline) {
        fail(case_, std::to_string(received_.size() - count_.load()) + " events are missing");
      }
      std::this_thread::yield();
    }
    return last_;
  }

 private:
  const Case &case_;
  std::vector<bool> received_;
  Clock::time_point last_;
  std::atomic<std::uint64_t> count_{0};
};

#endif
