/* libfloe: moves Nix closures, verifies them, and serves them, inside your program.
 *
 *   floe_engine engine;
 *   floe_engine_options options = { .struct_size = sizeof options, .callback = on_completion };
 *   if (floe_engine_open(&options, &engine) != FLOE_OK) ...
 *   floe_submit(engine, &request, NULL);       from any thread; never waits
 *   ...                                        on_completion is called once with its end
 *   floe_engine_free(engine);
 *
 * Requests and replies are messages, as flat structs (floe_messages.h) or as CBOR (floe.cddl).
 * docs/embedding.md explains the contracts in one sitting. In short:
 *
 * - Every function may be called from any thread, also from inside a callback, unless it says
 *   otherwise. Only floe_call, floe_engine_close, floe_engine_free, floe_queue_wait and, outside
 *   a callback, floe_unsubscribe wait.
 * - A submit that returned FLOE_OK gets exactly one terminal completion (FLOE_DONE, FLOE_FAILED,
 *   FLOE_CANCELLED or FLOE_SHUT_DOWN). One that returned anything else gets none.
 * - Handles are numbers that are never given twice. A stale one is FLOE_BAD_HANDLE, never somebody
 *   else's object.
 * - What you pass in is borrowed until the function returns. What you get says who frees it.
 * - After fork(), the child of a process that had engines gets FLOE_FORKED from everything.
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
#define FLOE_ABI_VERSION ((uint32_t)1 << 16)

/* An engine. Never 0. */
typedef uint64_t floe_engine;

/* What functions return: FLOE_OK, or why nothing was done. floe_last_error has the details. */
typedef int32_t floe_status;

enum {
  FLOE_OK = 0,
  FLOE_INVALID = -1,        /* an argument is wrong; floe_last_error says how */
  FLOE_BUSY = -2,           /* so much waits already: try again later */
  FLOE_CLOSED = -3,         /* the engine is closed */
  FLOE_BAD_HANDLE = -4,          /* there is nothing with this handle, or not any more */
  FLOE_WOULD_DEADLOCK = -5, /* the call would wait for the thread that makes it */
  FLOE_NO_MEMORY = -6,      /* the system has no memory */
  FLOE_SYSTEM = -7,         /* the system refused something; floe_last_error says what */
  FLOE_FORKED = -8,         /* this is the child of a process that had engines */
  FLOE_INTERNAL = -9,       /* a fault in libfloe */
  FLOE_TIMED_OUT = -10      /* the time is over */
};

/* How a payload is encoded. 0 means FLOE_FLAT. */
enum {
  FLOE_CBOR = 1,
  FLOE_FLAT = 2
};

/* What a completion says. Below 16 it is terminal. */
enum {
  FLOE_DONE = 1,      /* the payload is the reply */
  FLOE_FAILED = 2,    /* the payload is the message Error */
  FLOE_CANCELLED = 3, /* no payload */
  FLOE_SHUT_DOWN = 4, /* the engine was closed before it was done; no payload */
  FLOE_PROGRESS = 16, /* the payload is the message Progress; never after a terminal one */
  FLOE_EVENT = 17     /* belongs to no request; method is the number of the event */
};

typedef struct floe_completion {
  size_t struct_size; /* set it to sizeof(floe_completion) where you pass one in */
  uint64_t request;   /* what floe_submit gave; 0 for an event */
  uint64_t tag;       /* the tag of the request */
  uint32_t kind;      /* FLOE_DONE and so on */
  uint32_t method;    /* the number of the method, or of the event */
  uint32_t codec;     /* how the payload is encoded */
  uint32_t reserved;  /* 0 */
  void *payload;      /* aligned to 8 bytes; may be NULL where payload_len is 0 */
  size_t payload_len; /* in bytes */
  size_t capacity;    /* the library's own */
} floe_completion;

/* Called on the engine thread, one call at a time. The completion and its payload are good until
 * it returns; copy what you keep. It must be quick, since all other completions wait for it; it
 * must not throw, longjmp, or end the thread. It may submit, cancel, subscribe and unsubscribe. */
typedef void (*floe_callback)(void *context, const floe_completion *completion);

/* Takes a piece of a NAR, on a worker, one piece after the other. May wait. Anything but 0 ends
 * the request as failed. Must not throw, longjmp, or end the thread. */
typedef int32_t (*floe_sink)(void *context, const void *data, size_t len);

/* How an engine is opened. Set struct_size; what is 0 has its default. */
typedef struct floe_engine_options {
  size_t struct_size;            /* sizeof(floe_engine_options) */
  floe_callback callback;        /* NULL: completions wait in a queue, see floe_queue_take */
  void *context;                 /* given to the callback; good until the engine is closed */
  uint32_t codec;                /* how events are encoded (FLOE_FLAT) */
  uint32_t query_workers;        /* threads that answer questions (8) */
  uint32_t copy_workers;         /* threads that move, verify, dump and serve (4) */
  uint32_t per_thread;           /* requests of one thread that may wait (65536) */
  uint64_t in_flight;            /* requests that were taken and are not completed, together with
                                    completions that wait in the queue (65536) */
  uint64_t payload_bytes;        /* bytes of payloads above 71 bytes that may wait (256 MiB) */
  uint32_t progress_interval_ms; /* how often progress is told at most (100) */
  uint32_t slow_after_ms;        /* how often a request at work is reported as slow (5000) */
} floe_engine_options;

/* The request is to be told of its progress. */
#define FLOE_WANTS_PROGRESS ((uint32_t)1)
/* The NAR goes to the descriptor of the request. */
#define FLOE_HAS_DESCRIPTOR ((uint32_t)2)

/* A request. Set struct_size; what is 0 has its default. */
typedef struct floe_request {
  size_t struct_size;   /* sizeof(floe_request) */
  uint32_t method;      /* FLOE_METHOD_INSTALL and so on, in floe_messages.h */
  uint32_t codec;       /* of the payload and of the reply (FLOE_FLAT) */
  const void *payload;  /* the encoded message; borrowed until the call returns */
  size_t payload_len;   /* in bytes, 64 MiB at most */
  uint64_t tag;         /* yours; comes back with each completion */
  uint64_t deadline_ms; /* fails if it takes longer; 0: it may take any time */
  uint32_t flags;       /* FLOE_WANTS_PROGRESS, FLOE_HAS_DESCRIPTOR */
  int32_t descriptor;   /* where a NAR goes; duplicated */
  floe_sink sink;       /* where a NAR goes, instead of a descriptor */
  void *sink_context;   /* given to the sink; good until the request is completed */
} floe_request;

/* The version of the library's ABI, as FLOE_ABI_VERSION. */
uint32_t floe_abi_version(void);

/* The version of floe, such as "0.1.0". Never freed. */
const char *floe_version(void);

/* Differs when the definition of the messages does: compare it with FLOE_SCHEMA_HASH. */
uint64_t floe_schema_hash(void);

/* A status in words. Never freed. */
const char *floe_status_text(floe_status status);

/* Why the last call of this thread was refused (FLOE_BUSY leaves it as it is): copied, ended by a
 * NUL and cut to capacity. Returns the length of the whole text without the NUL. */
size_t floe_last_error(char *out, size_t capacity);

/* Opens an engine: one thread, and workers when there is work for them.
 * FLOE_INVALID, FLOE_SYSTEM, FLOE_BUSY if there are 1024 engines, FLOE_FORKED. */
floe_status floe_engine_open(const floe_engine_options *options, floe_engine *out);

/* Accepts nothing more. What was accepted is completed: as FLOE_SHUT_DOWN what has not begun, and
 * what is at work is told to end. Does not wait; the second time it does nothing. */
floe_status floe_engine_shut_down(floe_engine engine);

/* As floe_engine_shut_down, and waits until everything is completed; from its return on no callback
 * is called. Completions that wait in the queue can still be taken.
 * FLOE_WOULD_DEADLOCK inside a callback or a sink of this engine. */
floe_status floe_engine_close(floe_engine engine);

/* As floe_engine_close, and gives the handle up. Completions in the queue are dropped. */
floe_status floe_engine_free(floe_engine engine);

/* Hands a request in. *out (which may be NULL) is its number, written before the engine sees it.
 * FLOE_OK: exactly one terminal completion follows, perhaps before this returns.
 * FLOE_BUSY, FLOE_CLOSED, FLOE_BAD_HANDLE, FLOE_INVALID, FLOE_NO_MEMORY, FLOE_FORKED: none does. */
floe_status floe_submit(floe_engine engine, const floe_request *request, uint64_t *out);

/* Hands a request in and waits for its terminal completion, which goes to *out and nowhere else;
 * release it. Progress goes to the callback or the queue. out->struct_size has to be set.
 * FLOE_WOULD_DEADLOCK inside a callback or a sink of this engine; else as floe_submit. */
floe_status floe_call(floe_engine engine, const floe_request *request, floe_completion *out);

/* Asks for the end of a request. It ends as FLOE_CANCELLED, or as it would have if it is done
 * already or does not notice in time. Unknown numbers and second calls are FLOE_OK. */
floe_status floe_cancel(floe_engine engine, uint64_t request);

/* A descriptor that is readable while completions wait, and for ever once the queue is over.
 * It belongs to the engine: poll it, and do nothing else with it. FLOE_INVALID with a callback. */
floe_status floe_queue_descriptor(floe_engine engine, int *out);

/* Takes up to capacity completions without waiting; *count is how many. Release each.
 * struct_size is sizeof(floe_completion). FLOE_CLOSED: nothing is left and nothing more comes. */
floe_status floe_queue_take(floe_engine engine, void *out, size_t struct_size, size_t capacity,
                            size_t *count);

/* Waits until something can be taken or the queue is over (FLOE_OK), or the time is over
 * (FLOE_TIMED_OUT). A negative time does not end. */
floe_status floe_queue_wait(floe_engine engine, int64_t timeout_ms);

/* Frees the payload of a completion that floe_queue_take or floe_call wrote, and sets it to NULL.
 * Not for what a callback was given. May be called after the engine was freed; NULL is nothing. */
void floe_completion_release(floe_completion *completion);

/* Subscribes to the events of mask: bit n for the event with number n (FLOE_EVENT_SLOW and so on).
 * They are given to the callback, or where it is NULL to that of the engine, or to its queue, where
 * at most 1024 events wait; how many were lost is told by the event `lost`. *out is a handle. */
floe_status floe_subscribe(floe_engine engine, uint64_t mask, floe_callback callback, void *context,
                           uint64_t *out);

/* Ends a subscription. From the return on its callback is not called, and none is running; inside
 * a callback of this engine: not called after that one. FLOE_BAD_HANDLE the second time. */
floe_status floe_unsubscribe(floe_engine engine, uint64_t subscription);

#ifdef __cplusplus
}
#endif

#endif
