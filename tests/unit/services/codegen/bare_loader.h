/* A loader of model libraries that knows no C library: what Android's does with one, and no more.
 *
 * A library that it takes needs no other one and no version of a symbol, lies in segments that pages
 * of 16 KiB hold, has hash tables of both kinds, and relocations of its own address alone. */
#ifndef QUENCH_TESTS_BARE_LOADER_H_
#define QUENCH_TESTS_BARE_LOADER_H_

#include "common/runtime/abi.h"

/* The library's query, or NULL and why in `error`, which has 256 bytes. It is never unloaded. */
quench_model_query_fn bare_load(const char* path, char* error);

#endif /* QUENCH_TESTS_BARE_LOADER_H_ */
