/* A closed reader ends a request or a connection, but never the host.
 *
 *   broken_pipe STORE PATH SOCKET      a local store, a large path in it, a socket to listen on
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "floe.h"
#include "floe_messages.h"
#include "require.h"

enum { CLIENTS = 20 };

/* Makes a call and returns the kind of its completion. */
static uint32_t ask(floe_engine engine, uint32_t method, floe_buffer *message, int descriptor) {
  floe_request request;
  floe_completion completion;
  uint32_t kind;
  require(floe_flat_finish(message) == 0, "the request can be built");
  memset(&request, 0, sizeof request);
  memset(&completion, 0, sizeof completion);
  completion.struct_size = sizeof completion;
  request.struct_size = sizeof request;
  request.method = method;
  request.payload = message->data;
  request.payload_len = message->len;
  if (descriptor >= 0) {
    request.flags = FLOE_HAS_DESCRIPTOR;
    request.descriptor = descriptor;
  }
  require(floe_call(engine, &request, &completion) == FLOE_OK, "the call is accepted");
  kind = completion.kind;
  floe_completion_release(&completion);
  return kind;
}

static void pipe_without_reader_fails_the_request(floe_engine engine, char **words) {
  floe_buffer message;
  size_t at;
  int ends[2];
  require(pipe(ends) == 0, "a pipe can be created");
  close(ends[0]);
  memset(&message, 0, sizeof message);
  at = floe_nar_request_begin(&message);
  floe_nar_request_set_store(&message, at, floe_text_of(words[1]));
  floe_nar_request_set_path(&message, at, floe_text_of(words[2]));
  require(ask(engine, FLOE_METHOD_NAR, &message, ends[1]) == FLOE_FAILED, "the request fails");
  close(ends[1]);
  floe_buffer_free(&message);
}

/* Sends a request and returns the connection. */
static int get(const char *socket_path, const char *target) {
  struct sockaddr_un address;
  char request[600];
  int len, connection = socket(AF_UNIX, SOCK_STREAM, 0);
  memset(&address, 0, sizeof address);
  address.sun_family = AF_UNIX;
  snprintf(address.sun_path, sizeof address.sun_path, "%s", socket_path);
  require(connect(connection, (struct sockaddr *)&address, sizeof address) == 0, "it connects");
  len = snprintf(request, sizeof request,
                 "GET /%s HTTP/1.1\r\nHost: floe\r\nConnection: close\r\n\r\n", target);
  require(write(connection, request, (size_t)len) == len, "the server accepts a request");
  return connection;
}

/* Reads the response to a request, cut to size. */
static void fetch(const char *socket_path, const char *target, char *answer, size_t size) {
  int connection = get(socket_path, target);
  size_t len = 0;
  ssize_t got;
  while (len + 1 < size && (got = read(connection, answer + len, size - len - 1)) > 0) {
    len += (size_t)got;
  }
  answer[len] = 0;
  close(connection);
}

static void disconnecting_clients_do_not_stop_the_server(floe_engine engine, char **words) {
  static char answer[64 * 1024];
  char listen[200], target[200], byte;
  const char *url, *name = strrchr(words[2], '/');
  floe_text address;
  floe_buffer message;
  size_t at;
  int i;
  snprintf(listen, sizeof listen, "unix:%s", words[3]);
  address = floe_text_of(listen);
  memset(&message, 0, sizeof message);
  at = floe_serve_request_begin(&message);
  floe_serve_request_set_store(&message, at, floe_text_of(words[1]));
  floe_serve_request_set_listen(&message, at, &address, 1);
  require(ask(engine, FLOE_METHOD_SERVE, &message, -1) == FLOE_DONE, "the server starts");
  floe_buffer_free(&message);

  snprintf(target, sizeof target, "%.32s.narinfo", name ? name + 1 : words[2]);
  fetch(words[3], target, answer, sizeof answer);
  url = strstr(answer, "\nURL: ");
  require(url && sscanf(url, "\nURL: %199s", target) == 1, "the path has a narinfo");
  for (i = 0; i < CLIENTS; i++) {
    int connection = get(words[3], target);
    require(read(connection, &byte, 1) == 1, "the NAR begins");
    close(connection);
  }
  /* The server may not have noticed the last disconnect yet. */
  usleep(300 * 1000);
  fetch(words[3], "nix-cache-info", answer, sizeof answer);
  require(strstr(answer, "StoreDir: ") != NULL, "the server still responds");
}

int main(int count, char **words) {
  floe_engine_options options;
  floe_engine engine;
  if (count != 4) {
    fprintf(stderr, "usage: broken_pipe STORE PATH SOCKET\n");
    return 2;
  }
  require(signal(SIGPIPE, SIG_DFL) != SIG_ERR, "the default action of SIGPIPE is set");
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  require(floe_engine_open(&options, &engine) == FLOE_OK, "an engine can be opened");
  pipe_without_reader_fails_the_request(engine, words);
  disconnecting_clients_do_not_stop_the_server(engine, words);
  require(floe_engine_free(engine) == FLOE_OK, "the engine can be freed");
  printf("all checks passed\n");
  return 0;
}
