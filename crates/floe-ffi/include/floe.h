/* libfloe: copies Nix closures, verifies stores and serves them, inside your program.
 *
 *   floe_engine engine;
 *   floe_engine_options options = { .struct_size = sizeof options, .callback = on_completion };
 *   if (floe_engine_open(&options, &engine) != FLOE_OK) ...
 *   floe_submit(engine, &request, NULL);       from any thread; never waits
 *   ...                                        on_completion receives one terminal completion
 *   floe_engine_free(engine);
 *
 * Requests and replies are messages: flat structs (floe_messages.h) or CBOR (floe.cddl).
 * docs/embedding.md explains the contracts. In short:
 *
 * - Every thread may call every function, also inside a callback, unless the function says
 *   otherwise. Only floe_call, floe_engine_close, floe_engine_free, floe_queue_wait and, outside
 *   a callback, floe_unsubscribe wait.
 * - A submit that returned FLOE_OK gets exactly one terminal completion (FLOE_DONE, FLOE_FAILED,
 *   FLOE_CANCELLED or FLOE_SHUT_DOWN). A submit that returned anything else gets none.
 * - Handles are numbers that are never used twice. If a handle is not valid, the function returns
 *   FLOE_BAD_HANDLE. A bad handle never reaches another object.
 * - Arguments are borrowed until the function returns. Each result says who frees it.
 * - After fork(), every function returns FLOE_FORKED in the child of a process that had engines.
 */
#ifndef FLOE_H
#define FLOE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header: major in the upper 16 bits, minor in the lower. The library is
 * compatible if floe_abi_version() has the same major version and not a lower minor one. */
#define FLOE_ABI_VERSION (((uint32_t)1 << 16) | 1)

/* A handle of an engine. Never 0. */
typedef uint64_t floe_engine;

/* The result of a function: FLOE_OK, or the reason for which it did nothing. floe_last_error has
 * the details. */
typedef int32_t floe_status;

enum {
  FLOE_OK = 0,
  FLOE_INVALID = -1,        /* an argument is invalid; see floe_last_error */
  FLOE_BUSY = -2,           /* too many requests are waiting; try again later */
  FLOE_CLOSED = -3,         /* the engine is closed */
  FLOE_BAD_HANDLE = -4,     /* the handle is not valid, or no longer valid */
  FLOE_WOULD_DEADLOCK = -5, /* the call would wait for its own thread */
  FLOE_NO_MEMORY = -6,      /* the system has no memory */
  FLOE_SYSTEM = -7,         /* a system call failed; see floe_last_error */
  FLOE_FORKED = -8,         /* this process is the child of a process that had engines */
  FLOE_INTERNAL = -9,       /* a bug in libfloe */
  FLOE_TIMED_OUT = -10      /* the timeout has passed */
};

/* The encoding of a payload. 0 means FLOE_FLAT. */
enum {
  FLOE_CBOR = 1,
  FLOE_FLAT = 2
};

/* The kind of a completion. Kinds below 16 are terminal. */
enum {
  FLOE_DONE = 1,      /* the payload is the reply */
  FLOE_FAILED = 2,    /* the payload is the message Error */
  FLOE_CANCELLED = 3, /* no payload */
  FLOE_SHUT_DOWN = 4, /* the engine was closed before the request was done; no payload */
  FLOE_PROGRESS = 16, /* the payload is the message Progress; never after a terminal completion */
  FLOE_EVENT = 17     /* belongs to no request; method is the number of the event */
};

typedef struct floe_completion {
  size_t struct_size; /* set it to sizeof(floe_completion) where you pass one in */
  uint64_t request;   /* the number of the request, from floe_submit; 0 for an event */
  uint64_t tag;       /* the tag of the request */
  uint32_t kind;      /* FLOE_DONE and so on */
  uint32_t method;    /* the number of the method, or of the event */
  uint32_t codec;     /* the encoding of the payload */
  uint32_t reserved;  /* 0 */
  void *payload;      /* aligned to 8 bytes; may be NULL if payload_len is 0 */
  size_t payload_len; /* in bytes */
  size_t capacity;    /* private to the library */
} floe_completion;

/* Called on the engine thread, one call at a time. The completion and its payload are valid until
 * the callback returns; copy what you keep. The callback must be quick, because all other
 * completions wait for it. It must not throw, longjmp, or end the thread. It may submit, cancel,
 * subscribe and unsubscribe. */
typedef void (*floe_callback)(void *context, const floe_completion *completion);

/* Receives the chunks of a NAR in order, on a worker. May block. If it returns anything but 0, the
 * request fails. Must not throw, longjmp, or end the thread. */
typedef int32_t (*floe_sink)(void *context, const void *data, size_t len);

/* The options of an engine. Set struct_size. A field that is 0 has its default, in parentheses. */
typedef struct floe_engine_options {
  size_t struct_size;            /* sizeof(floe_engine_options) */
  floe_callback callback;        /* NULL: completions wait in a queue, see floe_queue_take */
  void *context;                 /* passed to the callback; valid until the engine is closed */
  uint32_t codec;                /* the encoding of events (FLOE_FLAT) */
  uint32_t query_workers;        /* threads that answer queries (8) */
  uint32_t copy_workers;         /* threads that copy, verify, dump and serve (4) */
  uint32_t per_thread;           /* waiting requests of one thread (65536) */
  uint64_t in_flight;            /* requests that the engine has taken and not completed, plus
                                    completions in the queue (65536) */
  uint64_t payload_bytes;        /* bytes of waiting payloads longer than 71 bytes (256 MiB) */
  uint32_t progress_interval_ms; /* the shortest time between two progress reports (100) */
  uint32_t slow_after_ms;        /* the time between two reports of a slow request (5000) */
} floe_engine_options;

/* The request receives FLOE_PROGRESS. */
#define FLOE_WANTS_PROGRESS ((uint32_t)1)
/* The NAR is written to the descriptor of the request. */
#define FLOE_HAS_DESCRIPTOR ((uint32_t)2)

/* A request. Set struct_size. A field that is 0 has its default. */
typedef struct floe_request {
  size_t struct_size;   /* sizeof(floe_request) */
  uint32_t method;      /* FLOE_METHOD_INSTALL and so on, in floe_messages.h */
  uint32_t codec;       /* the encoding of the payload and of the reply (FLOE_FLAT) */
  const void *payload;  /* the encoded message; borrowed until the call returns */
  size_t payload_len;   /* in bytes, at most 64 MiB */
  uint64_t tag;         /* chosen by you; returned with each completion */
  uint64_t deadline_ms; /* the request fails if it takes longer; 0: no deadline */
  uint32_t flags;       /* FLOE_WANTS_PROGRESS, FLOE_HAS_DESCRIPTOR */
  int32_t descriptor;   /* receives the NAR; the library duplicates it */
  floe_sink sink;       /* receives the NAR, instead of a descriptor */
  void *sink_context;   /* passed to the sink; valid until the request is completed */
} floe_request;

/* Returns the version of the library's ABI, in the format of FLOE_ABI_VERSION. */
uint32_t floe_abi_version(void);

/* Returns the version of floe, such as "0.1.0". Never freed. */
const char *floe_version(void);

/* Returns the hash of the message schema. Compare it with FLOE_SCHEMA_HASH. */
uint64_t floe_schema_hash(void);

/* Returns the description of a status. Never freed. */
const char *floe_status_text(floe_status status);

/* Copies the error text of this thread's last failed call, with a NUL and cut to capacity. Returns
 * the length of the whole text without the NUL. FLOE_BUSY does not change the text. */
size_t floe_last_error(char *out, size_t capacity);

/* Opens an engine: one thread, plus workers when there is work for them.
 * Returns FLOE_INVALID, FLOE_SYSTEM, FLOE_FORKED, or FLOE_BUSY if there are 1024 engines. */
floe_status floe_engine_open(const floe_engine_options *options, floe_engine *out);

/* Stops accepting requests, without waiting. Requests that no worker has started are completed as
 * FLOE_SHUT_DOWN. Running requests are cancelled. A second call does nothing. */
floe_status floe_engine_shut_down(floe_engine engine);

/* Does what floe_engine_shut_down does, and waits until all requests are completed. After it
 * returns, no callback is called. Completions in the queue can still be taken.
 * Returns FLOE_WOULD_DEADLOCK inside a callback or a sink of this engine. */
floe_status floe_engine_close(floe_engine engine);

/* Closes the engine like floe_engine_close, and invalidates its handle. Completions in the queue
 * are dropped. */
floe_status floe_engine_free(floe_engine engine);

/* Submits a request. *out (out may be NULL) is its number, written before the engine sees the
 * request. FLOE_OK: exactly one terminal completion follows, perhaps before this function returns.
 * FLOE_BUSY, FLOE_CLOSED, FLOE_BAD_HANDLE, FLOE_INVALID, FLOE_NO_MEMORY, FLOE_FORKED: none
 * follows. */
floe_status floe_submit(floe_engine engine, const floe_request *request, uint64_t *out);

/* Submits a request and waits for its terminal completion, which is written only to *out. Release
 * it. Progress goes to the callback or the queue. Set out->struct_size.
 * Returns FLOE_WOULD_DEADLOCK inside a callback or a sink of this engine, and otherwise the same
 * as floe_submit. */
floe_status floe_call(floe_engine engine, const floe_request *request, floe_completion *out);

/* Asks a request to end. It ends as FLOE_CANCELLED. If it is already done, or does not notice in
 * time, it ends as it would have without the call. Returns FLOE_OK also for an unknown number and
 * for a second call. */
floe_status floe_cancel(floe_engine engine, uint64_t request);

/* Returns a descriptor that is readable while completions wait, and forever once the queue has
 * ended. The engine owns it: only poll it. Returns FLOE_INVALID if the engine has a callback. */
floe_status floe_queue_descriptor(floe_engine engine, int *out);

/* Takes up to capacity completions without waiting, and writes their number to *count. Release each
 * of them. struct_size is sizeof(floe_completion).
 * Returns FLOE_CLOSED if the queue is empty and has ended. */
floe_status floe_queue_take(floe_engine engine, void *out, size_t struct_size, size_t capacity,
                            size_t *count);

/* Waits until a completion can be taken or the queue has ended (FLOE_OK), or until the timeout has
 * passed (FLOE_TIMED_OUT). A negative timeout waits forever. */
floe_status floe_queue_wait(floe_engine engine, int64_t timeout_ms);

/* Frees the payload of a completion written by floe_queue_take or floe_call, and sets it to NULL.
 * Do not call it for the completion of a callback. It may be called after the engine was freed.
 * NULL is ignored. */
void floe_completion_release(floe_completion *completion);

/* Subscribes to the events of mask: bit n for the event with number n (FLOE_EVENT_SLOW and so on).
 * Events go to the callback. If it is NULL, they go to the callback of the engine, or to its queue.
 * The queue keeps at most 1024 events; the event `lost` counts the others. *out is a handle. */
floe_status floe_subscribe(floe_engine engine, uint64_t mask, floe_callback callback, void *context,
                           uint64_t *out);

/* Ends a subscription. After it returns, its callback is neither running nor called again. Inside a
 * callback of this engine, the subscription ends when that callback returns.
 * Returns FLOE_BAD_HANDLE on a second call. */
floe_status floe_unsubscribe(floe_engine engine, uint64_t subscription);

#ifdef __cplusplus
}
#endif

#endif
