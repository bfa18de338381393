// The contract of the C++ layer: replies, exceptions, futures, coroutines, events.
//
//   contract STORE PATH        a local store and a path in it

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <coroutine>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "floe/floe.hpp"

namespace {

using namespace std::chrono_literals;

void require(bool holds, const char *claim) {
  if (!holds) {
    std::fprintf(stderr, "failed: %s\n", claim);
    std::exit(1);
  }
}

template <typename Exception, typename F>
void require_throws(F &&f, const char *claim) {
  try {
    f();
  } catch (const Exception &) {
    return;
  } catch (const std::exception &other) {
    std::fprintf(stderr, "unexpected exception: %s\n", other.what());
  }
  require(false, claim);
}

floe::EchoRequest echo(std::string message, std::uint64_t delay_ms = 0) {
  floe::EchoRequest request;
  request.message = std::move(message);
  request.delay_ms = delay_ms;
  return request;
}

// A coroutine without a caller that waits; the test observes its side effects.
struct Detached {
  struct promise_type {
    Detached get_return_object() const { return {}; }
    std::suspend_never initial_suspend() const noexcept { return {}; }
    std::suspend_never final_suspend() const noexcept { return {}; }
    void return_void() const {}
    void unhandled_exception() const { std::terminate(); }
  };
};

Detached ask_twice(floe::Engine &engine, std::atomic<int> &step, std::string &replies) {
  for (int round = 0; round < 2; ++round) {
    auto reply = co_await engine.submit<floe::Method::echo>(echo("answer", round == 0 ? 20 : 0));
    replies += reply.message + ";";
  }
  step = 2;
  step.notify_all();
}

void replies_are_values_and_texts_may_contain_nul(floe::Engine &engine) {
  const std::string text("a\0b", 3);
  require(engine.call<floe::Method::echo>(echo(text)).message == text, "NUL round-trips");
  std::vector<floe::Future<floe::EchoReply>> futures;
  for (int number = 0; number < 100; ++number) {
    futures.push_back(engine.submit<floe::Method::echo>(echo(std::to_string(number))));
  }
  for (int number = 0; number < 100; ++number) {
    const std::string reply = futures[static_cast<std::size_t>(number)].get().message;
    require(reply == std::to_string(number), "each future has its own reply");
  }
  engine.call<floe::Method::ping>({});
}

void failures_are_exceptions(floe::Engine &engine) {
  floe::StopRequest stop;
  stop.server = 7;
  try {
    engine.call<floe::Method::stop>(stop);
    require(false, "an unknown server is an error");
  } catch (const floe::Failed &failed) {
    require(failed.kind() == floe::ErrorKind::bad_handle, "the error is `bad_handle`");
    require(std::string(failed.what()).find('7') != std::string::npos, "it names the handle");
  }
  auto late = engine.submit<floe::Method::echo>(echo("late", 60'000), {.deadline = 30ms});
  require_throws<floe::Failed>([&] { late.get(); }, "a deadline fails the request");
  auto over = engine.submit<floe::Method::echo>(echo("late", 60'000), {.deadline = -30ms});
  require_throws<floe::Failed>([&] { over.get(); }, "a deadline in the past fails the request");
  auto cancelled = engine.submit<floe::Method::echo>(echo("never", 60'000));
  cancelled.cancel();
  require_throws<floe::Cancelled>([&] { cancelled.get(); }, "cancel ends the request");
  auto moved = std::move(cancelled);
  require(moved.valid() && !cancelled.valid(), "a moved-from future is not valid");
}

void dropped_future_does_not_end_its_request(floe::Engine &engine) {
  std::atomic<int> received{0};
  auto subscription = engine.subscribe(
      {floe::Event::echoed}, [&](floe::Event event, std::span<const std::byte> payload) {
        require(event == floe::Event::echoed, "only subscribed events arrive");
        require(floe::EchoReply::decode(payload).message == "loud", "the event has its message");
        ++received;
        received.notify_all();
      });
  auto request = echo("loud");
  request.event = true;
  { auto dropped = engine.submit<floe::Method::echo>(request); }
  received.wait(0);
  require(received == 1, "the event arrives once");
}

void coroutines_resume_with_the_reply(floe::Engine &engine) {
  std::atomic<int> step{0};
  std::string replies;
  ask_twice(engine, step, replies);
  step.wait(0);
  require(replies == "answer;answer;", "both replies arrive in order");
}

void throwing_progress_function_ends_the_request(floe::Engine &engine,
                                                      const std::string &store) {
  floe::VerifyRequest request;
  request.store = store;
  struct Enough {};
  std::atomic<int> calls{0};
  auto future = engine.submit<floe::Method::verify>(
      request, {.progress = [&](const floe::Progress &) {
        ++calls;
        throw Enough();
      }});
  bool is_thrown = false;
  try {
    future.get();
  } catch (const Enough &) {
    is_thrown = true;
  }
  require(is_thrown && calls == 1, "the future rethrows the exception");
}

void sink_receives_nar_and_throwing_sink_fails_the_request(floe::Engine &engine,
                                                               const std::string &store,
                                                               const std::string &path) {
  floe::NarRequest request;
  request.store = store;
  request.path = path;
  std::size_t bytes = 0;
  auto count = [&](std::span<const std::byte> piece) { bytes += piece.size(); };
  const floe::NarReply reply = engine.call<floe::Method::nar>(request, {.sink = count});
  require(bytes > 0 && bytes == reply.nar_size, "the sink receives the whole NAR");
  auto refuse = [](std::span<const std::byte>) { throw std::runtime_error("full"); };
  require_throws<floe::Failed>([&] { engine.call<floe::Method::nar>(request, {.sink = refuse}); },
                               "a sink that throws fails the request");
}

std::ptrdiff_t threads_of_this_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

void many_futures_need_no_thread_each() {
  floe::Engine engine(floe::Options{.query_workers = 2});
  std::vector<floe::Future<floe::EchoReply>> futures;
  for (int number = 0; number < 200; ++number) {
    futures.push_back(engine.submit<floe::Method::echo>(echo("asleep", 60'000)));
  }
  engine.call<floe::Method::ping>({});
  // This thread, the engine thread, and two workers.
  require(threads_of_this_process() <= 4, "200 waiting futures need no threads");
  for (auto &future : futures) {
    future.cancel();
  }
  for (auto &future : futures) {
    require_throws<floe::Cancelled>([&] { future.get(); }, "each future ends");
  }
}

void destroyed_engine_ends_its_requests() {
  auto engine = std::make_unique<floe::Engine>(floe::Options{.query_workers = 1});
  auto first = engine->submit<floe::Method::echo>(echo("never", 60'000));
  auto second = engine->submit<floe::Method::echo>(echo("never", 60'000));
  engine.reset();
  require_throws<floe::ShutDown>([&] { first.get(); }, "a running request is shut down");
  require_throws<floe::ShutDown>([&] { second.get(); }, "a waiting request is shut down");
}

}  // namespace

int main(int count, char **words) {
  require(count == 3, "usage: contract STORE PATH");
  // More than the whole program takes.
  alarm(120);
  {
    floe::Engine engine(floe::Options{.progress_interval = 1ms});
    replies_are_values_and_texts_may_contain_nul(engine);
    failures_are_exceptions(engine);
    dropped_future_does_not_end_its_request(engine);
    coroutines_resume_with_the_reply(engine);
    throwing_progress_function_ends_the_request(engine, words[1]);
    sink_receives_nar_and_throwing_sink_fails_the_request(engine, words[1], words[2]);
  }
  many_futures_need_no_thread_each();
  destroyed_engine_ends_its_requests();
  std::printf("all checks passed\n");
  return 0;
}
