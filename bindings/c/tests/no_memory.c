/* libfloe without memory: no request is lost, and the host continues. */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "floe.h"
#include "floe_messages.h"
#include "require.h"

enum { LARGE = 48 << 20, MEDIUM = 24 << 20, SPARE = 32 << 20, TRIES = 100 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t arrived = PTHREAD_COND_INITIALIZER;
static int done, failed;

static void count(void *context, const floe_completion *completion) {
  (void)context;
  pthread_mutex_lock(&lock);
  if (completion->kind == FLOE_DONE) {
    done++;
  } else if (completion->kind == FLOE_FAILED) {
    failed++;
  }
  pthread_cond_signal(&arrived);
  pthread_mutex_unlock(&lock);
}

/* Waits until this many requests are completed. */
static void wait_for(int ends) {
  pthread_mutex_lock(&lock);
  while (done + failed < ends) {
    pthread_cond_wait(&arrived, &lock);
  }
  pthread_mutex_unlock(&lock);
}

/* Limits the memory of the process to its current size plus spare bytes; 0 removes the limit. */
static void limit_memory(size_t spare) {
  struct rlimit limit;
  unsigned long pages = 0;
  FILE *statm = fopen("/proc/self/statm", "r");
  require(statm && fscanf(statm, "%lu", &pages) == 1, "the kernel reports the memory in use");
  fclose(statm);
  require(getrlimit(RLIMIT_AS, &limit) == 0, "the limit can be read");
  limit.rlim_cur = spare ? pages * (size_t)sysconf(_SC_PAGESIZE) + spare : limit.rlim_max;
  require(setrlimit(RLIMIT_AS, &limit) == 0, "the limit can be set");
}

static int submit(uint64_t engine, uint32_t method, const void *payload, size_t len) {
  floe_request request;
  memset(&request, 0, sizeof request);
  request.struct_size = sizeof request;
  request.method = method;
  request.payload = payload;
  request.payload_len = len;
  return floe_submit(engine, &request, NULL);
}

int main(void) {
  floe_engine_options options;
  uint64_t engine;
  char text[500], *large = calloc(1, LARGE);
  floe_buffer bytes;
  int i;

  /* The arena of another thread reserves 64 MiB of addresses, which would exceed the limit. */
  require(mallopt(M_ARENA_MAX, 1) == 1, "all threads can share one arena");

  memset(&bytes, 0, sizeof bytes);
  floe_bytes_request_begin(&bytes);
  floe_flat_put_bytes(&bytes, FLOE_FLAT_HEADER_LEN, large, MEDIUM);
  require(large && floe_flat_finish(&bytes) == 0, "there is memory without a limit");

  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.callback = count;
  require(floe_engine_open(&options, &engine) == FLOE_OK, "an engine can be opened");
  require(submit(engine, FLOE_METHOD_PING, NULL, 0) == FLOE_OK, "a request is accepted");
  wait_for(1);

  /* More often than the budget for payloads allows if it were not released. */
  limit_memory(SPARE);
  for (i = 0; i < TRIES; i++) {
    require(submit(engine, FLOE_METHOD_PING, large, LARGE) == FLOE_NO_MEMORY,
            "a payload without memory is refused");
  }
  require(floe_last_error(text, sizeof text) > 0, "the error has a text");
  require(submit(engine, FLOE_METHOD_PING, NULL, 0) == FLOE_OK, "a small request is accepted");
  wait_for(2);

  /* There is memory for the request, but not for the reply. */
  require(submit(engine, FLOE_METHOD_BYTES, bytes.data, bytes.len) == FLOE_OK,
          "a medium payload is accepted");
  wait_for(3);
  require(failed == 1, "a reply without memory is a failure");

  limit_memory(0);
  require(submit(engine, FLOE_METHOD_PING, large, LARGE) == FLOE_OK,
          "the large payload is accepted with memory");
  require(submit(engine, FLOE_METHOD_BYTES, bytes.data, bytes.len) == FLOE_OK,
          "the medium payload is accepted with memory");
  wait_for(5);
  require(floe_engine_free(engine) == FLOE_OK, "the engine can be freed");
  require(done == 4 && failed == 1, "each accepted request is completed once");
  floe_buffer_free(&bytes);
  free(large);
  printf("all checks passed\n");
  return 0;
}
