/* The runtime in machine code of each kind that this build has a compiler for: parts of the program. */
#ifndef QUENCH_CLI_RUNTIME_SETS_H_
#define QUENCH_CLI_RUNTIME_SETS_H_

#ifdef __cplusplus
extern "C" {
#endif

struct quench_runtime_set {
  const char* system; /* "aarch64-linux-gnu": whose programs link it; NULL behind the last */
  const unsigned char *shared, *shared_end;
  const unsigned char *archive, *archive_end;
};
extern const struct quench_runtime_set quench_runtime_sets[];

#ifdef __cplusplus
}
#endif
#endif /* QUENCH_CLI_RUNTIME_SETS_H_ */
