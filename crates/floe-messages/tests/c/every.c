/* Reads `EveryType` messages from stdin, each after its length. For each message, writes whether it
 * is valid. If it is, builds the same message again and writes it after its length. */
#include <stdio.h>

#include "../shapes/shapes.h"

/* More than the length of any list of the test. */
#define MANY 4096

static void put_inner(floe_buffer *buffer, size_t at, const floe_inner *inner, const void *data) {
  /* The numbers of a list are stored like an array. */
  const uint64_t *numbers = (const uint64_t *)floe_flat_element(inner->numbers, data, 0, 8);
  floe_inner_set_amount(buffer, at, inner->amount);
  floe_inner_set_label(buffer, at, floe_inner_label(inner, data));
  floe_inner_set_numbers(buffer, at, numbers, inner->numbers.length);
}

static void put_lists(floe_buffer *buffer, size_t at, const floe_every_type *it, const void *data) {
  static floe_text texts[MANY];
  static floe_bytes bytes[MANY];
  static uint64_t uints[MANY];
  size_t i, first;
  for (i = 0; i < it->uint_list.length && i < MANY; i++) {
    uints[i] = floe_every_type_uint_list_at(it, data, i);
  }
  floe_every_type_set_uint_list(buffer, at, uints, i);
  for (i = 0; i < it->text_list.length && i < MANY; i++) {
    texts[i] = floe_every_type_text_list_at(it, data, i);
  }
  floe_every_type_set_text_list(buffer, at, texts, i);
  for (i = 0; i < it->bytes_list.length && i < MANY; i++) {
    bytes[i] = floe_every_type_bytes_list_at(it, data, i);
  }
  floe_every_type_set_bytes_list(buffer, at, bytes, i);
  first = floe_every_type_set_message_list(buffer, at, it->message_list.length);
  for (i = 0; i < it->message_list.length; i++) {
    put_inner(buffer, first + i * sizeof(floe_inner),
              floe_every_type_message_list_at(it, data, i), data);
  }
}

static int build(floe_buffer *buffer, const floe_every_type *it, const void *data) {
  size_t at = floe_every_type_begin(buffer);
  floe_every_type_set_bool_one(buffer, at, (int)it->bool_one);
  floe_every_type_set_uint_one(buffer, at, it->uint_one);
  floe_every_type_set_text_one(buffer, at, floe_every_type_text_one(it, data));
  floe_every_type_set_bytes_one(buffer, at, floe_every_type_bytes_one(it, data));
  floe_every_type_set_enum_one(buffer, at, it->enum_one);
  put_inner(buffer, floe_every_type_set_message_one(buffer, at), &it->message_one, data);
  if (it->has_bool_optional) {
    floe_every_type_set_bool_optional(buffer, at, (int)it->bool_optional);
  }
  if (it->has_uint_optional) {
    floe_every_type_set_uint_optional(buffer, at, it->uint_optional);
  }
  floe_every_type_set_text_optional(buffer, at, floe_every_type_text_optional(it, data));
  floe_every_type_set_bytes_optional(buffer, at, floe_every_type_bytes_optional(it, data));
  if (it->has_enum_optional) {
    floe_every_type_set_enum_optional(buffer, at, it->enum_optional);
  }
  put_lists(buffer, at, it, data);
  return floe_flat_finish(buffer);
}

int main(void) {
  floe_buffer buffer;
  uint32_t len;
  memset(&buffer, 0, sizeof buffer);
  while (fread(&len, sizeof len, 1, stdin) == 1) {
    void *data = malloc(len ? len : 1);
    const floe_every_type *it;
    if (!data || fread(data, 1, len, stdin) != len) {
      return 1;
    }
    it = floe_every_type_view(data, len);
    fputc(it ? 1 : 0, stdout);
    if (it) {
      if (build(&buffer, it, data) != 0) {
        return 2;
      }
      len = (uint32_t)buffer.len;
      fwrite(&len, sizeof len, 1, stdout);
      fwrite(buffer.data, 1, buffer.len, stdout);
    }
    free(data);
  }
  floe_buffer_free(&buffer);
  return 0;
}
