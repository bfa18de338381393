/* Builds a request with the C header and reads it back. Also compiled as C++. */
#include "floe_messages.h"

int main(void) {
  floe_buffer buffer;
  floe_text paths[2];
  const floe_copy_request *request;
  size_t at;
  int right;
  memset(&buffer, 0, sizeof buffer);
  paths[0] = floe_text_of("/nix/store/a");
  paths[1] = floe_text_of("");
  at = floe_copy_request_begin(&buffer);
  floe_copy_request_set_to(&buffer, at, floe_text_of("/nix"));
  floe_copy_request_set_paths(&buffer, at, paths, 2);
  floe_copy_request_set_jobs(&buffer, at, 4);
  if (floe_flat_finish(&buffer) != 0) {
    return 1;
  }
  request = floe_copy_request_view(buffer.data, buffer.len);
  right = request && strcmp(floe_copy_request_to(request, buffer.data).data, "/nix") == 0 &&
          request->has_jobs && request->jobs == 4 && request->paths.length == 2 &&
          floe_copy_request_paths_at(request, buffer.data, 0).len == 12 &&
          floe_copy_request_store_dir(request, buffer.data).data == NULL &&
          !floe_copy_request_view(buffer.data, buffer.len - 1) &&
          !floe_error_view(buffer.data, buffer.len);
  floe_buffer_free(&buffer);
  return right ? 0 : 2;
}
