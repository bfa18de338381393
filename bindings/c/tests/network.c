/* Installs a path with network options.
 *
 *   network CACHE ROOT KEY PATH [OPTION=VALUE]...
 *
 * An option has the name of a field of floe_network_options.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "floe.h"
#include "floe_messages.h"
#include "require.h"

/* Returns the value if the word is NAME=VALUE, or NULL. */
static const char *value_of(const char *word, const char *name) {
  const size_t len = strlen(name);
  return strncmp(word, name, len) == 0 && word[len] == '=' ? word + len + 1 : NULL;
}

static void set_option(floe_buffer *message, size_t at, const char *word) {
  const char *value;
  if ((value = value_of(word, "http_proxy")) != NULL) {
    floe_network_options_set_http_proxy(message, at, floe_text_of(value));
  } else if ((value = value_of(word, "no_proxy")) != NULL) {
    floe_network_options_set_no_proxy(message, at, floe_text_of(value));
  } else if ((value = value_of(word, "netrc_files")) != NULL) {
    const floe_text file = floe_text_of(value);
    floe_network_options_set_netrc_files(message, at, &file, 1);
  } else if ((value = value_of(word, "certificates")) != NULL) {
    floe_network_options_set_certificates(message, at, floe_text_of(value));
  } else if ((value = value_of(word, "connections")) != NULL) {
    floe_network_options_set_connections(message, at, strtoull(value, NULL, 10));
  } else if ((value = value_of(word, "connect_timeout_ms")) != NULL) {
    floe_network_options_set_connect_timeout_ms(message, at, strtoull(value, NULL, 10));
  } else if ((value = value_of(word, "stall_timeout_ms")) != NULL) {
    floe_network_options_set_stall_timeout_ms(message, at, strtoull(value, NULL, 10));
  } else if ((value = value_of(word, "attempts")) != NULL) {
    floe_network_options_set_attempts(message, at, strtoull(value, NULL, 10));
  } else if ((value = value_of(word, "narinfo_disk_cache")) != NULL) {
    floe_network_options_set_narinfo_disk_cache(message, at, floe_text_of(value));
  } else {
    require(0, "every option is known");
  }
}

/* Prints the number of installed paths or the error, and returns the exit code. */
static int finish(const floe_completion *completion) {
  if (completion->kind == FLOE_DONE) {
    const floe_copy_reply *reply =
        floe_copy_reply_view(completion->payload, completion->payload_len);
    require(reply != NULL, "the reply is valid");
    printf("%llu paths installed\n", (unsigned long long)reply->copied);
    return 0;
  }
  {
    const floe_error *error = floe_error_view(completion->payload, completion->payload_len);
    require(error != NULL, "the error is valid");
    printf("%s\n", floe_error_message(error, completion->payload).data);
  }
  return 1;
}

int main(int count, char **words) {
  floe_engine_options options;
  floe_engine engine;
  floe_request request;
  floe_completion completion;
  floe_buffer message;
  floe_text from, key, path;
  size_t at, network;
  int i, code;
  require(count >= 5, "there are enough arguments");
  from = floe_text_of(words[1]);
  key = floe_text_of(words[3]);
  path = floe_text_of(words[4]);
  memset(&message, 0, sizeof message);
  at = floe_copy_request_begin(&message);
  floe_copy_request_set_from(&message, at, &from, 1);
  floe_copy_request_set_to(&message, at, floe_text_of(words[2]));
  floe_copy_request_set_trusted_public_keys(&message, at, &key, 1);
  floe_copy_request_set_paths(&message, at, &path, 1);
  network = floe_copy_request_set_network(&message, at);
  for (i = 5; i < count; i++) {
    set_option(&message, network, words[i]);
  }
  require(floe_flat_finish(&message) == 0, "the request can be built");
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  require(floe_engine_open(&options, &engine) == FLOE_OK, "an engine can be opened");
  memset(&request, 0, sizeof request);
  request.struct_size = sizeof request;
  request.method = FLOE_METHOD_INSTALL;
  request.payload = message.data;
  request.payload_len = message.len;
  memset(&completion, 0, sizeof completion);
  completion.struct_size = sizeof completion;
  require(floe_call(engine, &request, &completion) == FLOE_OK, "the call is accepted");
  code = finish(&completion);
  floe_completion_release(&completion);
  floe_buffer_free(&message);
  floe_engine_free(engine);
  return code;
}
