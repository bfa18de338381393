/* Assertions of the tests in C. */
#ifndef FLOE_TESTS_REQUIRE_H
#define FLOE_TESTS_REQUIRE_H

#include <stdio.h>
#include <stdlib.h>

#include "floe.h"

static void require(int holds, const char *claim) {
  char text[500];
  if (!holds) {
    floe_last_error(text, sizeof text);
    fprintf(stderr, "failed: %s (last error: %s)\n", claim, text);
    exit(1);
  }
}

#endif
