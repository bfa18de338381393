#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "flat messages and these structs are little-endian"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* A reference: an offset from the start of the message, and a length. The length counts the bytes
 * of a text without its NUL, or the elements of a list. Offset 0 means empty or absent. */
typedef struct floe_ref {
  uint32_t offset;
  uint32_t length;
} floe_ref;

/* A UTF-8 text. A text inside a message ends with a NUL that len does not count. Absent: NULL. */
typedef struct floe_text {
  const char *data;
  size_t len;
} floe_text;

/* A byte string. Absent: NULL. */
typedef struct floe_bytes {
  const uint8_t *data;
  size_t len;
} floe_bytes;

/* The buffer in which a message is built. Initialize it with zeros. It can be reused for several
 * messages. Free it with floe_buffer_free. */
typedef struct floe_buffer {
  uint8_t *data;
  size_t len;
  size_t cap;
  int failed;
} floe_buffer;

/* The state of a check: the bytes, and the number of bytes that references may still span. */
typedef struct floe_flat_check {
  const uint8_t *data;
  size_t len;
  uint64_t budget;
} floe_flat_check;

/* The header of a message: FLO1, the length, the ID, and zero. */
#define FLOE_FLAT_HEADER_LEN ((size_t)16)
#define FLOE_FLAT_MAGIC ((uint32_t)0x314f4c46)

static inline floe_text floe_text_of(const char *text) {
  floe_text it;
  it.data = text;
  it.len = text ? strlen(text) : 0;
  return it;
}

static inline void floe_buffer_free(floe_buffer *buffer) {
  free(buffer->data);
  memset(buffer, 0, sizeof *buffer);
}

/* Appends zeros and returns their position. Without memory, returns 0 and marks the message as
 * failed. */
static inline size_t floe_flat_append(floe_buffer *buffer, size_t len) {
  size_t begin = buffer->len;
  if (buffer->failed) {
    return 0;
  }
  if (len > UINT32_MAX - begin) {
    buffer->failed = 1;
    return 0;
  }
  if (begin + len > buffer->cap) {
    size_t cap = begin + len < 256 ? 256 : (begin + len) * 2;
    uint8_t *data = (uint8_t *)realloc(buffer->data, cap);
    if (!data) {
      buffer->failed = 1;
      return 0;
    }
    buffer->data = data;
    buffer->cap = cap;
  }
  if (len > 0) {
    memset(buffer->data + begin, 0, len);
  }
  buffer->len = begin + len;
  return begin;
}

static inline void floe_flat_put_u32(floe_buffer *buffer, size_t at, uint32_t value) {
  if (!buffer->failed) {
    memcpy(buffer->data + at, &value, sizeof value);
  }
}

static inline void floe_flat_put_u64(floe_buffer *buffer, size_t at, uint64_t value) {
  if (!buffer->failed) {
    memcpy(buffer->data + at, &value, sizeof value);
  }
}

static inline void floe_flat_put_ref(floe_buffer *buffer, size_t at, size_t offset, size_t length) {
  floe_flat_put_u32(buffer, at, (uint32_t)offset);
  floe_flat_put_u32(buffer, at + 4, (uint32_t)length);
}

/* Begins a message and returns the position of its fixed part, or 0 if there is no memory. Fields
 * that are not set are zero, empty or absent. */
static inline size_t floe_flat_begin(floe_buffer *buffer, uint32_t id, size_t fixed_len) {
  buffer->len = 0;
  buffer->failed = 0;
  floe_flat_append(buffer, FLOE_FLAT_HEADER_LEN + fixed_len);
  floe_flat_put_u32(buffer, 0, FLOE_FLAT_MAGIC);
  floe_flat_put_u32(buffer, 8, id);
  return buffer->failed ? 0 : FLOE_FLAT_HEADER_LEN;
}

/* Ends a message, which is then in buffer->data and buffer->len. Returns 0, or -1 if there was no
 * memory or the message exceeds 4 GiB. */
static inline int floe_flat_finish(floe_buffer *buffer) {
  floe_flat_put_u32(buffer, 4, (uint32_t)buffer->len);
  return buffer->failed ? -1 : 0;
}

/* Sets the text of the field at this position. NULL leaves it empty or absent. */
static inline void floe_flat_put_text(floe_buffer *buffer, size_t at, const char *data, size_t len) {
  size_t begin;
  if (!data) {
    return;
  }
  if (len >= UINT32_MAX) {
    buffer->failed = 1;
    return;
  }
  begin = floe_flat_append(buffer, len + 1);
  if (!buffer->failed) {
    memcpy(buffer->data + begin, data, len);
    floe_flat_put_ref(buffer, at, begin, len);
  }
}

/* Sets the bytes of the field at this position. NULL leaves them empty or absent. */
static inline void floe_flat_put_bytes(floe_buffer *buffer, size_t at, const void *data,
                                       size_t len) {
  size_t begin;
  if (!data) {
    return;
  }
  begin = floe_flat_append(buffer, len);
  if (!buffer->failed) {
    if (len > 0) {
      memcpy(buffer->data + begin, data, len);
    }
    floe_flat_put_ref(buffer, at, begin, len);
  }
}

/* Sets the list of the field at this position. Returns the position of its first element, or 0 if
 * the list is empty or there is no memory. */
static inline size_t floe_flat_put_list(floe_buffer *buffer, size_t at, size_t count,
                                        size_t element_len) {
  size_t begin;
  if (count == 0) {
    return 0;
  }
  if (count > UINT32_MAX / element_len) {
    buffer->failed = 1;
    return 0;
  }
  floe_flat_append(buffer, (size_t)(-buffer->len & 7));
  begin = floe_flat_append(buffer, count * element_len);
  floe_flat_put_ref(buffer, at, begin, count);
  return begin;
}

static inline void floe_flat_put_texts(floe_buffer *buffer, size_t at, const floe_text *items,
                                       size_t count) {
  size_t begin = floe_flat_put_list(buffer, at, count, sizeof(floe_ref));
  size_t i;
  for (i = 0; begin && i < count; i++) {
    floe_flat_put_text(buffer, begin + i * sizeof(floe_ref), items[i].data, items[i].len);
  }
}

static inline void floe_flat_put_byte_strings(floe_buffer *buffer, size_t at,
                                              const floe_bytes *items, size_t count) {
  size_t begin = floe_flat_put_list(buffer, at, count, sizeof(floe_ref));
  size_t i;
  for (i = 0; begin && i < count; i++) {
    floe_flat_put_bytes(buffer, begin + i * sizeof(floe_ref), items[i].data, items[i].len);
  }
}

/* Numbers of 8 bytes each. */
static inline void floe_flat_put_numbers(floe_buffer *buffer, size_t at, const void *items,
                                         size_t count) {
  size_t begin = floe_flat_put_list(buffer, at, count, 8);
  if (begin && !buffer->failed) {
    memcpy(buffer->data + begin, items, count * 8);
  }
}

static inline uint32_t floe_flat_u32(const void *data, size_t at) {
  uint32_t value;
  memcpy(&value, (const uint8_t *)data + at, sizeof value);
  return value;
}

/* Checks the header. Returns the fixed part, or NULL if the header is invalid. */
static inline const void *floe_flat_open(floe_flat_check *check, const void *data, size_t len,
                                         uint32_t id, size_t fixed_len) {
  if (!data || ((uintptr_t)data & 7) != 0 || len < FLOE_FLAT_HEADER_LEN + fixed_len) {
    return NULL;
  }
  if (floe_flat_u32(data, 0) != FLOE_FLAT_MAGIC || floe_flat_u32(data, 4) != len ||
      floe_flat_u32(data, 8) != id || floe_flat_u32(data, 12) != 0) {
    return NULL;
  }
  check->data = (const uint8_t *)data;
  check->len = len;
  check->budget = len;
  return check->data + FLOE_FLAT_HEADER_LEN;
}

/* All references together may span at most the length of the message, so that checking it never
 * takes longer than reading it. */
static inline int floe_flat_check_span(floe_flat_check *check, uint64_t offset, uint64_t length) {
  if (offset < FLOE_FLAT_HEADER_LEN || offset + length > check->len || length > check->budget) {
    return 0;
  }
  check->budget -= length;
  return 1;
}

static inline int floe_flat_is_utf8(const uint8_t *data, size_t len) {
  size_t i = 0;
  while (i < len) {
    uint8_t first = data[i++];
    uint8_t least = 0x80, most = 0xbf;
    size_t more;
    if (first < 0x80) {
      continue;
    }
    if (first < 0xc2 || first > 0xf4) {
      return 0;
    }
    more = first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
    /* Rejects overlong forms, surrogates, and code points above U+10FFFF. */
    if (first == 0xe0) {
      least = 0xa0;
    } else if (first == 0xed) {
      most = 0x9f;
    } else if (first == 0xf0) {
      least = 0x90;
    } else if (first == 0xf4) {
      most = 0x8f;
    }
    if (len - i < more || data[i] < least || data[i] > most) {
      return 0;
    }
    for (i++, more--; more > 0; i++, more--) {
      if ((data[i] & 0xc0) != 0x80) {
        return 0;
      }
    }
  }
  return 1;
}

static inline int floe_flat_check_text(floe_flat_check *check, floe_ref ref) {
  if (ref.offset == 0) {
    return ref.length == 0;
  }
  return floe_flat_check_span(check, ref.offset, (uint64_t)ref.length + 1) &&
         check->data[(size_t)ref.offset + ref.length] == 0 &&
         floe_flat_is_utf8(check->data + ref.offset, ref.length);
}

static inline int floe_flat_check_bytes(floe_flat_check *check, floe_ref ref) {
  if (ref.offset == 0) {
    return ref.length == 0;
  }
  return floe_flat_check_span(check, ref.offset, ref.length);
}

static inline int floe_flat_check_list(floe_flat_check *check, floe_ref ref, size_t element_len) {
  if (ref.length == 0) {
    return ref.offset == 0;
  }
  return (ref.offset & 7) == 0 &&
         floe_flat_check_span(check, ref.offset, (uint64_t)ref.length * element_len);
}

/* In the functions below, `data` is the start of the message, as passed to the view. */

static inline floe_text floe_flat_text(floe_ref ref, const void *data) {
  floe_text text;
  text.data = ref.offset == 0 ? NULL : (const char *)data + ref.offset;
  text.len = ref.length;
  return text;
}

static inline floe_bytes floe_flat_bytes(floe_ref ref, const void *data) {
  floe_bytes bytes;
  bytes.data = ref.offset == 0 ? NULL : (const uint8_t *)data + ref.offset;
  bytes.len = ref.length;
  return bytes;
}

static inline const void *floe_flat_element(floe_ref list, const void *data, size_t i,
                                            size_t element_len) {
  return (const uint8_t *)data + list.offset + i * element_len;
}

static inline floe_ref floe_flat_ref_at(floe_ref list, const void *data, size_t i) {
  floe_ref ref;
  memcpy(&ref, floe_flat_element(list, data, i, sizeof ref), sizeof ref);
  return ref;
}

static inline int floe_flat_check_texts(floe_flat_check *check, floe_ref list) {
  size_t i;
  if (!floe_flat_check_list(check, list, sizeof(floe_ref))) {
    return 0;
  }
  for (i = 0; i < list.length; i++) {
    if (!floe_flat_check_text(check, floe_flat_ref_at(list, check->data, i))) {
      return 0;
    }
  }
  return 1;
}

static inline int floe_flat_check_byte_strings(floe_flat_check *check, floe_ref list) {
  size_t i;
  if (!floe_flat_check_list(check, list, sizeof(floe_ref))) {
    return 0;
  }
  for (i = 0; i < list.length; i++) {
    if (!floe_flat_check_bytes(check, floe_flat_ref_at(list, check->data, i))) {
      return 0;
    }
  }
  return 1;
}
