/* Installs a closure and shows its progress.
 *
 *   install CACHE ROOT KEY PATH...
 *
 * cc -I../../crates/floe-ffi/include install.c $(pkg-config --libs floe)
 */
#include <stdio.h>
#include <string.h>

#include "floe.h"
#include "floe_messages.h"

static int report_error(const char *what) {
  char text[500];
  floe_last_error(text, sizeof text);
  fprintf(stderr, "%s: %s\n", what, text);
  return 1;
}

static void print_progress(uint64_t paths, uint64_t all_paths, uint64_t bytes, uint64_t all_bytes) {
  fprintf(stderr, "\r%llu of %llu paths, %.1f of %.1f MB", (unsigned long long)paths,
          (unsigned long long)all_paths, (double)bytes / 1e6, (double)all_bytes / 1e6);
}

static void show(const floe_completion *completion) {
  const floe_progress *progress =
      floe_progress_view(completion->payload, completion->payload_len);
  if (progress) {
    print_progress(progress->paths_done, progress->paths_total, progress->nar_bytes_done,
                   progress->nar_bytes_total);
  }
}

/* Prints the reply and returns the exit code. */
static int finish(const floe_completion *completion) {
  const void *data = completion->payload;
  uint32_t i;
  if (completion->kind == FLOE_DONE) {
    const floe_copy_reply *reply = floe_copy_reply_view(data, completion->payload_len);
    if (!reply) {
      return 1;
    }
    /* No progress follows the reply, and the last one may be older. */
    print_progress(reply->copied, reply->copied, reply->nar_bytes, reply->nar_bytes);
    fprintf(stderr, "\n%llu paths installed\n", (unsigned long long)reply->copied);
    for (i = 0; i < reply->paths.length; i++) {
      printf("%s\n", floe_copy_reply_paths_at(reply, data, i).data);
    }
    return 0;
  }
  if (completion->kind == FLOE_FAILED) {
    const floe_error *error = floe_error_view(data, completion->payload_len);
    if (!error) {
      return 1;
    }
    fprintf(stderr, "\n%s\n", floe_error_message(error, data).data);
    /* The message contains the first cause. */
    for (i = 1; i < error->causes.length; i++) {
      fprintf(stderr, "  %s\n", floe_error_causes_at(error, data, i).data);
    }
    return error->kind == FLOE_ERROR_KIND_UNTRUSTED ? 3 : 1;
  }
  fprintf(stderr, "\nthe request was cancelled\n");
  return 1;
}

/* Submits the request and takes completions from the queue until it is completed. */
static int install(floe_engine engine, const floe_buffer *message) {
  floe_request request;
  floe_completion completion;
  uint64_t id;
  size_t count;
  int code = -1;
  memset(&request, 0, sizeof request);
  request.struct_size = sizeof request;
  request.method = FLOE_METHOD_INSTALL;
  request.payload = message->data;
  request.payload_len = message->len;
  request.flags = FLOE_WANTS_PROGRESS;
  if (floe_submit(engine, &request, &id) != FLOE_OK) {
    return report_error("cannot submit the request");
  }
  while (code < 0) {
    if (floe_queue_wait(engine, -1) != FLOE_OK ||
        floe_queue_take(engine, &completion, sizeof completion, 1, &count) != FLOE_OK) {
      return report_error("cannot wait for the reply");
    }
    if (count == 1) {
      if (completion.kind == FLOE_PROGRESS) {
        show(&completion);
      } else if (completion.request == id) {
        code = finish(&completion);
      }
      floe_completion_release(&completion);
    }
  }
  return code;
}

int main(int count, char **words) {
  floe_engine_options options;
  floe_engine engine;
  floe_buffer message;
  floe_text from, key, paths[64];
  size_t at, path_count = 0;
  int code;
  if (count < 5 || count > 4 + 64) {
    fprintf(stderr, "usage: install CACHE ROOT KEY PATH... (64 paths at most)\n");
    return 2;
  }
  if (floe_schema_hash() != FLOE_SCHEMA_HASH) {
    fprintf(stderr, "libfloe %s does not match the header; rebuild this program\n", floe_version());
    return 1;
  }
  from = floe_text_of(words[1]);
  key = floe_text_of(words[3]);
  while (path_count + 4 < (size_t)count) {
    paths[path_count] = floe_text_of(words[4 + path_count]);
    path_count++;
  }
  memset(&message, 0, sizeof message);
  at = floe_copy_request_begin(&message);
  floe_copy_request_set_from(&message, at, &from, 1);
  floe_copy_request_set_to(&message, at, floe_text_of(words[2]));
  floe_copy_request_set_trusted_public_keys(&message, at, &key, 1);
  floe_copy_request_set_paths(&message, at, paths, path_count);
  if (floe_flat_finish(&message) != 0) {
    fprintf(stderr, "cannot build the request: out of memory\n");
    return 1;
  }
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  if (floe_engine_open(&options, &engine) != FLOE_OK) {
    return report_error("cannot open an engine");
  }
  code = install(engine, &message);
  floe_buffer_free(&message);
  floe_engine_free(engine);
  return code;
}
