// The C++ part of the benchmark `call`: whole calls through floe.hpp.
//
//   call EACH THREADS,THREADS... CASE...
//
// It prints a line `case,threads,messages per second,p50,p99,busy` for each number of threads and
// each case, with times in microseconds. If a reply or an event is wrong, missing or duplicated, it
// exits with code 2.

#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <vector>

#include "floe/floe.hpp"
#include "messages.hpp"

namespace {

// The number of pending requests of one thread in asynchronous cases: enough to keep the engine
// busy, and few enough not to measure the capacity of its queues.
constexpr std::uint64_t WINDOW = 64;

// Calls of each thread before the gate, so that cases, workers and allocators are there.
constexpr std::uint64_t WARM_UP = 100;

// A row that takes longer hangs: the slowest one has thousands of messages per second, not 100.
constexpr unsigned SECONDS_MIN = 60;
constexpr std::uint64_t RATE_MIN = 100;

constexpr Case CASES[] = {
    {"sync scalar", false, true, false, 0},       {"sync 64 B", false, false, false, 64},
    {"sync 512 B", false, false, false, 512},     {"sync 4 KiB", false, false, false, 4096},
    {"sync 64 KiB", false, false, false, 65536},  {"async scalar", true, true, false, 0},
    {"async 64 B", true, false, false, 64},       {"async 4 KiB", true, false, false, 4096},
    {"async 64 KiB", true, false, false, 65536},  {"event 512 B", true, true, true, 512},
};

// The results of a thread.
struct Seen {
  // The time of each message in nanoseconds, from before its request until its reply was decoded.
  std::vector<std::uint64_t> times;
  std::uint64_t busy = 0;
  Clock::time_point end;
};

// A thread that sends requests.
template <typename Messages>
class Asker {
 public:
  using Reply = typename floe::Calls<Messages::METHOD>::Reply;

  Asker(floe::Engine &engine, const Case &case, std::uint64_t first, Seen &seen)
      : engine_(engine), case_(case), messages_(case, first), seen_(seen) {}

  void ask(std::uint64_t count) { case_.is_async ? with_a_window(count) : one_by_one(count); }

 private:
  struct Sent {
    Clock::time_point begun;
    floe::Future<Reply> future;
  };

  void one_by_one(std::uint64_t count) {
    for (std::uint64_t number = 0; number < count; ++number) {
      const auto begun = Clock::now();
      const auto &request = messages_.request(number);
      take(number, begun, until_taken([&] { return engine_.call<Messages::METHOD>(request); }));
    }
  }

  void with_a_window(std::uint64_t count) {
    std::vector<Sent> window;
    window.reserve(WINDOW);
    for (std::uint64_t number = 0; number < count; ++number) {
      if (number < WINDOW) {
        window.push_back(send(number));
        continue;
      }
      Sent &oldest = window[number % WINDOW];
      take(number - WINDOW, oldest.begun, oldest.future.get());
      oldest = send(number);
    }
    for (std::uint64_t number = count - window.size(); number < count; ++number) {
      Sent &oldest = window[number % WINDOW];
      take(number, oldest.begun, oldest.future.get());
    }
  }

  Sent send(std::uint64_t number) {
    const auto begun = Clock::now();
    const auto &request = messages_.request(number);
    return {begun, until_taken([&] { return engine_.submit<Messages::METHOD>(request); })};
  }

  // Retries on FLOE_BUSY. The alarm of the row bounds the time.
  template <typename Ask>
  std::invoke_result_t<Ask> until_taken(Ask ask) {
    for (;;) {
      try {
        return ask();
      } catch (const floe::SubmitError &refused) {
        if (refused.status() != FLOE_BUSY) {
          throw;
        }
        ++seen_.busy;
        std::this_thread::yield();
      }
    }
  }

  void take(std::uint64_t number, Clock::time_point begun, const Reply &reply) {
    const std::chrono::nanoseconds time = Clock::now() - begun;
    seen_.times.push_back(static_cast<std::uint64_t>(time.count()));
    if (!messages_.is_answer(number, reply)) {
      fail(case_, "message " + std::to_string(number) + " of a thread got a wrong reply");
    }
  }

  floe::Engine &engine_;
  const Case &case_;
  Messages messages_;
  Seen &seen_;
};

template <typename Messages>
void measure(const Case &case, std::uint64_t threads, std::uint64_t each) {
  floe::Engine engine;
  Events events(case, case.has_events ? threads * each : 0);
  // An extra event fails as an event of no request, or as a duplicate.
  std::optional<floe::Subscription> subscription;
  if (case.has_events) {
    subscription.emplace(engine.subscribe(
        {floe::Event::echoed},
        [&](floe::Event, std::span<const std::byte> payload) { events.receive(payload); }));
  }
  Clock::time_point begun;
  std::barrier gate(static_cast<std::ptrdiff_t>(threads), [&]() noexcept { begun = Clock::now(); });
  std::vector<Seen> seen(threads);
  std::vector<std::thread> workers;
  for (std::uint64_t thread = 0; thread < threads; ++thread) {
    workers.emplace_back([&, thread] {
      try {
        Case quiet = case;
        quiet.has_events = false;
        Seen warm_up;
        Asker<Messages>(engine, quiet, thread * each, warm_up).ask(WARM_UP);
        seen[thread].times.reserve(each);
        Asker<Messages> asker(engine, case, thread * each, seen[thread]);
        gate.arrive_and_wait();
        asker.ask(each);
        seen[thread].end = Clock::now();
      } catch (const std::exception &error) {
        fail(case, error.what());
      }
    });
  }
  for (std::thread &worker : workers) {
    worker.join();
  }
  Clock::time_point end = case.has_events ? events.wait() : begun;
  subscription.reset();
  Seen all;
  for (const Seen &one : seen) {
    end = std::max(end, one.end);
    all.busy += one.busy;
    all.times.insert(all.times.end(), one.times.begin(), one.times.end());
  }
  if (all.times.size() != threads * each) {
    fail(case, "replies are missing");
  }
  std::sort(all.times.begin(), all.times.end());
  const auto part = [&](std::size_t percent) {
    return static_cast<double>(all.times[(all.times.size() - 1) * percent / 100]) / 1e3;
  };
  const double seconds = std::chrono::duration<double>(end - begun).count();
  std::printf("%s,%llu,%.0f,%.2f,%.2f,%llu\n", std::string(case.name).c_str(),
              static_cast<unsigned long long>(threads),
              static_cast<double>(all.times.size()) / seconds, part(50), part(99),
              static_cast<unsigned long long>(all.busy));
}

bool number_of(std::string_view text, std::uint64_t &number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number > 0;
}

int usage() {
  std::fprintf(stderr, "usage: call EACH THREADS,THREADS... CASE...; cases are:\n");
  for (const Case &case : CASES) {
    std::fprintf(stderr, "  %s\n", std::string(case.name).c_str());
  }
  return 1;
}

}  // namespace

int main(int count, char **words) {
  std::uint64_t each = 0;
  if (count < 4 || !number_of(words[1], each)) {
    return usage();
  }
  for (std::string_view rest = words[2]; !rest.empty();) {
    const std::string_view word = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), word.size() + 1));
    std::uint64_t threads = 0;
    if (!number_of(word, threads)) {
      return usage();
    }
    for (int i = 3; i < count; ++i) {
      const auto *case = std::ranges::find(CASES, std::string_view(words[i]), &Case::name);
      if (case == std::end(CASES)) {
        return usage();
      }
      alarm(SECONDS_MIN + static_cast<unsigned>(threads * each / RATE_MIN));
      case->is_text ? measure<Texts>(*case, threads, each) : measure<Blobs>(*case, threads, each);
    }
  }
  return 0;
}
