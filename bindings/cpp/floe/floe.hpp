// libfloe for C++20: an engine that frees itself, replies as values, failures as exceptions.
//
//   floe::Engine engine;
//   floe::CopyReply reply = engine.call<floe::Method::install>(request);             // waits
//   auto future = engine.submit<floe::Method::install>(request, {.progress = show}); // returns
//   reply = future.get();                                                            // or co_await
//
// This layer is header only and uses floe.h. It starts no thread per call: the engine thread
// completes futures. It also resumes a coroutine that awaits one, which must then be quick or move
// to another thread. docs/embedding.md describes the contracts. Functions that wait (call, get,
// wait, ~Engine, ~Subscription) must not be used on the engine thread: not inside a callback, a
// progress function, or a coroutine that it has resumed.

#ifndef FLOE_FLOE_HPP
#define FLOE_FLOE_HPP

#include <atomic>
#include <chrono>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "floe.h"
#include "floe/messages.hpp"

namespace floe {

// A call that libfloe did not accept. It has no effect.
class CallError : public std::runtime_error {
 public:
  CallError(floe_status status, const std::string &text)
      : std::runtime_error(text), status_(status) {}

  // Returns the status: FLOE_BUSY and so on.
  floe_status status() const noexcept { return status_; }

 private:
  floe_status status_;
};

// A request that failed.
class Failed : public std::runtime_error {
 public:
  explicit Failed(Error error) : std::runtime_error(error.message), error_(std::move(error)) {}

  const Error &error() const noexcept { return error_; }
  ErrorKind kind() const noexcept { return error_.kind; }

 private:
  Error error_;
};

// A request that was cancelled.
class Cancelled : public std::runtime_error {
 public:
  Cancelled() : std::runtime_error("the request was cancelled") {}
};

// A request that ended because its engine was closed.
class ShutDown : public std::runtime_error {
 public:
  ShutDown() : std::runtime_error("the engine was closed before the request was done") {}
};

// The options of an engine. A zero selects the default.
struct Options {
  std::uint32_t query_workers{};
  std::uint32_t copy_workers{};
  std::uint32_t per_thread{};
  std::uint64_t in_flight{};
  std::uint64_t payload_bytes{};
  std::chrono::milliseconds progress_interval{};
  std::chrono::milliseconds slow_after{};
};

// The options of a request.
struct CallOptions {
  // The request fails if it takes longer. Zero: no deadline. Negative: it fails at once.
  std::chrono::milliseconds deadline{};
  // Called on the engine thread. An exception cancels the request, and its future rethrows it.
  std::function<void(const Progress &)> progress{};
  // Receives the NAR. The library duplicates the descriptor.
  std::optional<int> descriptor{};
  // Receives the NAR in chunks, on a worker. An exception fails the request.
  std::function<void(std::span<const std::byte>)> sink{};
};

namespace detail {

// Throws the exception of a status.
inline void check(floe_status status) {
  if (status == FLOE_OK) {
    return;
  }
  if (status == FLOE_BUSY) {
    throw CallError(status, floe_status_text(status));
  }
  std::string text(floe_last_error(nullptr, 0), '\0');
  floe_last_error(text.data(), text.size() + 1);
  throw CallError(status, text);
}

inline std::span<const std::byte> payload(const floe_completion &completion) {
  return {static_cast<const std::byte *>(completion.payload), completion.payload_len};
}

// Returns the reply of a completion, or throws its exception.
template <typename Reply>
Reply reply_of(const floe_completion &completion) {
  switch (completion.kind) {
    case FLOE_DONE:
      if constexpr (std::is_same_v<Reply, Empty>) {
        return Empty{};
      } else {
        return Reply::decode(payload(completion));
      }
    case FLOE_FAILED:
      throw Failed(Error::decode(payload(completion)));
    case FLOE_CANCELLED:
      throw Cancelled();
    default:
      throw ShutDown();
  }
}

// A pending request, owned by its future and by the engine.
class Pending {
 public:
  virtual ~Pending() = default;

  void release() noexcept {
    if (holders_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      delete this;
    }
  }

  // Receives a completion. The terminal one ends the ownership of the engine.
  void receive(floe_engine engine, const floe_completion &completion) noexcept {
    if (completion.kind == FLOE_PROGRESS) {
      advance(engine, completion);
      return;
    }
    try {
      if (!error_) {
        keep(completion);
      }
    } catch (...) {
      error_ = std::current_exception();
    }
    const bool is_awaited = state_.exchange(DONE, std::memory_order_acq_rel) == AWAITED;
    state_.notify_all();
    if (is_awaited) {
      waiter_.resume();
    }
    release();
  }

  bool is_done() const noexcept { return state_.load(std::memory_order_acquire) == DONE; }

  void wait() const noexcept {
    State state = state_.load(std::memory_order_acquire);
    while (state != DONE) {
      state_.wait(state, std::memory_order_acquire);
      state = state_.load(std::memory_order_acquire);
    }
  }

  // Returns whether the coroutine must suspend. It is resumed later.
  bool await(std::coroutine_handle<> waiter) noexcept {
    waiter_ = waiter;
    State expected = EMPTY;
    return state_.compare_exchange_strong(expected, AWAITED, std::memory_order_acq_rel);
  }

  void rethrow() const {
    if (error_) {
      std::rethrow_exception(error_);
    }
  }

  CallOptions options;

 private:
  virtual void keep(const floe_completion &completion) = 0;

  void advance(floe_engine engine, const floe_completion &completion) noexcept {
    if (error_) {
      return;
    }
    try {
      options.progress(Progress::decode(payload(completion)));
    } catch (...) {
      error_ = std::current_exception();
      floe_cancel(engine, completion.request);
    }
  }

  enum State : std::uint32_t { EMPTY, AWAITED, DONE };

  std::atomic<int> holders_{2};
  std::atomic<State> state_{EMPTY};
  std::coroutine_handle<> waiter_{};
  std::exception_ptr error_{};
};

template <typename Reply>
class PendingReply final : public Pending {
 public:
  std::optional<Reply> reply;

 private:
  void keep(const floe_completion &completion) override { reply = reply_of<Reply>(completion); }
};

inline std::int32_t write_to_sink(void *context, const void *data, std::size_t len) noexcept {
  try {
    (*static_cast<std::function<void(std::span<const std::byte>)> *>(context))(
        {static_cast<const std::byte *>(data), len});
    return 0;
  } catch (...) {
    return 1;
  }
}

// Returns the C request, which borrows from all arguments.
inline floe_request request_of(Method method, const Bytes &payload, CallOptions &options) {
  floe_request request{};
  request.struct_size = sizeof request;
  request.method = static_cast<std::uint32_t>(method);
  request.codec = FLOE_FLAT;
  request.payload = payload.data();
  request.payload_len = payload.size();
  // A deadline in the past must not become 0, which means no deadline.
  const auto deadline = options.deadline.count();
  request.deadline_ms = deadline < 0 ? 1 : static_cast<std::uint64_t>(deadline);
  if (options.progress) {
    request.flags |= FLOE_WANTS_PROGRESS;
  }
  if (options.descriptor) {
    request.flags |= FLOE_HAS_DESCRIPTOR;
    request.descriptor = *options.descriptor;
  }
  if (options.sink) {
    request.sink = write_to_sink;
    request.sink_context = &options.sink;
  }
  return request;
}

}  // namespace detail

// The future reply of a pending request. Dropping it does not end the request. A moved-from future
// is not valid, and only valid() may be called on it.
template <typename Reply>
class [[nodiscard]] Future {
 public:
  bool valid() const noexcept { return pending_ != nullptr; }

  bool is_done() const noexcept { return pending_->is_done(); }

  void wait() const noexcept { pending_->wait(); }

  // Waits for the reply and returns it; call it once. Throws Failed, Cancelled or ShutDown.
  Reply get() {
    pending_->wait();
    return take();
  }

  // Asks the request to end.
  void cancel() const noexcept { floe_cancel(engine_, id_); }

  // Returns the number of the request, which events contain.
  std::uint64_t id() const noexcept { return id_; }

  auto operator co_await() noexcept {
    struct Awaiter {
      Future &future;
      bool await_ready() const noexcept { return future.is_done(); }
      bool await_suspend(std::coroutine_handle<> waiter) const noexcept {
        return future.pending_->await(waiter);
      }
      Reply await_resume() const { return future.take(); }
    };
    return Awaiter{*this};
  }

 private:
  friend class Engine;

  Future(floe_engine engine, std::uint64_t id, detail::PendingReply<Reply> *pending) noexcept
      : engine_(engine), id_(id), pending_(pending) {}

  Reply take() {
    pending_->rethrow();
    return std::move(*pending_->reply);
  }

  struct Release {
    void operator()(detail::Pending *pending) const noexcept { pending->release(); }
  };

  floe_engine engine_;
  std::uint64_t id_;
  std::unique_ptr<detail::PendingReply<Reply>, Release> pending_;
};

// A subscription to events. Dropping it ends the subscription.
class [[nodiscard]] Subscription {
 public:
  using EventHandler = std::function<void(Event, std::span<const std::byte>)>;

  Subscription(Subscription &&other) noexcept = default;
  Subscription &operator=(Subscription &&) = delete;

  ~Subscription() {
    if (handler_ != nullptr) {
      floe_unsubscribe(engine_, id_);
    }
  }

 private:
  friend class Engine;

  Subscription(floe_engine engine, std::uint64_t mask, EventHandler handler)
      : engine_(engine), id_(0), handler_(std::make_unique<EventHandler>(std::move(handler))) {
    detail::check(floe_subscribe(engine, mask, receive, handler_.get(), &id_));
  }

  static void receive(void *context, const floe_completion *completion) noexcept {
    (*static_cast<EventHandler *>(context))(static_cast<Event>(completion->method),
                                            detail::payload(*completion));
  }

  floe_engine engine_;
  std::uint64_t id_;
  std::unique_ptr<EventHandler> handler_;
};

// An engine. Destroying it completes all accepted requests.
class Engine {
 public:
  explicit Engine(const Options &options = {}) {
    if (floe_abi_version() >> 16 != FLOE_ABI_VERSION >> 16 || floe_schema_hash() != schema_hash) {
      throw CallError(FLOE_INVALID, std::string("libfloe ") + floe_version() +
                                      " does not match these headers; rebuild this program");
    }
    floe_engine_options it{};
    it.struct_size = sizeof it;
    it.callback = receive;
    it.context = &handle_;
    it.query_workers = options.query_workers;
    it.copy_workers = options.copy_workers;
    it.per_thread = options.per_thread;
    it.in_flight = options.in_flight;
    it.payload_bytes = options.payload_bytes;
    it.progress_interval_ms = static_cast<std::uint32_t>(options.progress_interval.count());
    it.slow_after_ms = static_cast<std::uint32_t>(options.slow_after.count());
    detail::check(floe_engine_open(&it, &handle_));
  }

  Engine(const Engine &) = delete;
  Engine &operator=(const Engine &) = delete;

  ~Engine() {
    // An engine cannot be freed inside its own callback, which would then use a destroyed engine.
    if (floe_engine_free(handle_) == FLOE_WOULD_DEADLOCK) {
      std::abort();
    }
  }

  // Makes a call and waits for the reply on this thread.
  template <Method M>
  typename Calls<M>::Reply call(const typename Calls<M>::Request &message,
                                CallOptions options = {}) {
    if (options.progress) {
      return submit<M>(message, std::move(options)).get();
    }
    const Bytes payload = message.encode();
    const floe_request request = detail::request_of(M, payload, options);
    floe_completion completion{};
    completion.struct_size = sizeof completion;
    detail::check(floe_call(handle_, &request, &completion));
    const std::unique_ptr<floe_completion, decltype(&floe_completion_release)> release(
        &completion, floe_completion_release);
    return detail::reply_of<typename Calls<M>::Reply>(completion);
  }

  // Submits a request without waiting. Throws CallError; with FLOE_BUSY, try again later.
  template <Method M>
  Future<typename Calls<M>::Reply> submit(const typename Calls<M>::Request &message,
                                          CallOptions options = {}) {
    using Reply = typename Calls<M>::Reply;
    const Bytes payload = message.encode();
    auto pending = std::make_unique<detail::PendingReply<Reply>>();
    pending->options = std::move(options);
    floe_request request = detail::request_of(M, payload, pending->options);
    request.tag = reinterpret_cast<std::uintptr_t>(static_cast<detail::Pending *>(pending.get()));
    std::uint64_t id = 0;
    detail::check(floe_submit(handle_, &request, &id));
    return Future<Reply>(handle_, id, pending.release());
  }

  // Subscribes to these events. `handler` runs on the engine thread; an exception ends the process.
  Subscription subscribe(std::initializer_list<Event> events, Subscription::EventHandler handler) {
    std::uint64_t mask = 0;
    for (Event event : events) {
      mask |= std::uint64_t{1} << static_cast<std::uint32_t>(event);
    }
    return Subscription(handle_, mask, std::move(handler));
  }

  // Returns the handle, for the functions of floe.h.
  floe_engine handle() const noexcept { return handle_; }

 private:
  static void receive(void *context, const floe_completion *completion) noexcept {
    if (completion->kind == FLOE_EVENT || completion->tag == 0) {
      return;
    }
    // The handle is written before the first submit, and therefore before the first completion.
    const floe_engine engine = *static_cast<const floe_engine *>(context);
    auto *pending = reinterpret_cast<detail::Pending *>(
        static_cast<std::uintptr_t>(completion->tag));
    pending->receive(engine, *completion);
  }

  floe_engine handle_{};
};

}  // namespace floe

#endif
