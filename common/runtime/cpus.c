/* How many CPUs this process may keep busy. */
#define _GNU_SOURCE /* sched_getaffinity */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/runtime/rt_internal.h"

enum { kLine = 4096, kNumbers = 64 };
#define NO_QUOTA UINT32_MAX

typedef struct reader {
  int fd;
  ssize_t next, end;
  char bytes[1024];
} reader;

/* Whether there is a file root + path. */
static int open_reader(reader* file, const char* root, const char* path) {
  char name[kLine];
  const int n = snprintf(name, sizeof name, "%s%s", root, path);
  if (n < 0 || (size_t)n >= sizeof name) return 0;
  file->next = file->end = 0;
  file->fd = open(name, O_RDONLY | O_CLOEXEC);
  return file->fd >= 0;
}

/* A line without its end, cut to kLine; 0: there are no more. */
static int next_line(reader* file, char line[kLine]) {
  size_t used = 0;
  for (;;) {
    if (file->next == file->end) {
      file->next = 0;
      file->end = read(file->fd, file->bytes, sizeof file->bytes);
      if (file->end <= 0) {
        file->end = 0;
        break;
      }
    }
    const char c = file->bytes[file->next++];
    if (c == '\n') {
      line[used] = '\0';
      return 1;
    }
    if (used + 1 < kLine) line[used++] = c;
  }
  line[used] = '\0';
  return used != 0;
}

/* Whether a list like "rw,cpu,cpuacct", which ends at a colon or with the text, has the word. */
static int has_word(const char* list, const char* word) {
  const size_t size = strlen(word);
  for (;;) {
    const size_t length = strcspn(list, ",:");
    if (length == size && memcmp(list, word, size) == 0) return 1;
    if (list[length] != ',') return 0;
    list += length + 1;
  }
}

/* This process' group in the unified hierarchy or in that of version 1 with the CPU controller. */
static int own_group(const char* root, int unified, char group[kLine]) {
  reader file;
  char line[kLine];
  int found = 0;
  if (!open_reader(&file, root, "/proc/self/cgroup")) return 0;
  while (!found && next_line(&file, line)) { /* hierarchy:controllers:path */
    const char* controllers = strchr(line, ':');
    const char* path = controllers == NULL ? NULL : strchr(controllers + 1, ':');
    if (path == NULL) continue;
    found = unified ? strncmp(line, "0::", 3) == 0 : has_word(controllers + 1, "cpu");
    if (found) memcpy(group, path + 1, strlen(path + 1) + 1);
  }
  close(file.fd);
  return found;
}

/* A number at the start of a file of a group, or 0; what follows it goes to `rest`. */
static long long number_in(const char* folder, const char* name, char rest[kNumbers]) {
  reader file;
  char line[kLine];
  rest[0] = '\0';
  if (!open_reader(&file, folder, name)) return 0;
  const int found = next_line(&file, line);
  close(file.fd);
  if (!found) return 0;
  char* end;
  const long long number = strtoll(line, &end, 10);
  snprintf(rest, kNumbers, "%.*s", kNumbers - 1, end);
  return number;
}

/* A group's own quota: "150000 100000" or "max 100000" in version 2, two files in version 1. */
static uint32_t quota_of(const char* folder, int unified) {
  char rest[kNumbers];
  const long long quota = number_in(folder, unified ? "/cpu.max" : "/cpu.cfs_quota_us", rest);
  const long long period =
      unified ? strtoll(rest, NULL, 10) : number_in(folder, "/cpu.cfs_period_us", rest);
  if (quota <= 0 || period <= 0) return NO_QUOTA;
  const long long cpus = (quota - 1) / period + 1;
  return cpus < NO_QUOTA ? (uint32_t)cpus : NO_QUOTA;
}

/* The least quota of a group and those above it, as far as a mount shows them. Its `top` is the group
 * that the mount point stands for. */
static uint32_t quota_in(const char* root, const char* mount, const char* top, int unified) {
  char group[kLine], folder[kLine];
  if (!own_group(root, unified, group)) return NO_QUOTA;
  const size_t skipped = strcmp(top, "/") == 0 ? 0 : strlen(top);
  const char* below = group + skipped;
  const int inside = strncmp(group, top, skipped) == 0 && (*below == '/' || *below == '\0');
  if (!inside || strncmp(below, "/..", 3) == 0)
    below = ""; /* elsewhere: only the mount's own is known */
  const int n = snprintf(folder, sizeof folder, "%s%s%s", root, mount, below);
  if (n < 0 || (size_t)n >= sizeof folder) return NO_QUOTA;
  uint32_t least = NO_QUOTA;
  for (const size_t shortest = strlen(root) + strlen(mount);;) {
    const uint32_t quota = quota_of(folder, unified);
    if (quota < least) least = quota;
    if (strlen(folder) <= shortest) return least;
    *strrchr(folder, '/') = '\0';
  }
}

/* A line of /proc/self/mountinfo (proc_pid_mountinfo(5)):
 * 36 35 98:0 /top /mount/point rw,noatime master:1 - type source options */
static uint32_t quota_of_mount(const char* root, char* line) {
  char* type = strstr(line, " - ");
  if (type == NULL) return NO_QUOTA;
  *type = '\0';
  type += 3;
  const int unified = strncmp(type, "cgroup2 ", 8) == 0;
  if (!unified && (strncmp(type, "cgroup ", 7) != 0 || !has_word(strrchr(type, ' ') + 1, "cpu")))
    return NO_QUOTA;
  char *state = NULL, *fields[5];
  for (int i = 0; i < 5; ++i) {
    fields[i] = strtok_r(i == 0 ? line : NULL, " ", &state);
    if (fields[i] == NULL) return NO_QUOTA;
  }
  return quota_in(root, fields[4], fields[3], unified);
}

uint32_t quench_rt_quota_cpus(const char* root) {
  reader mounts;
  char line[kLine];
  uint32_t least = NO_QUOTA;
  if (!open_reader(&mounts, root, "/proc/self/mountinfo")) return least;
  while (next_line(&mounts, line)) {
    const uint32_t quota = quota_of_mount(root, line);
    if (quota < least) least = quota;
  }
  close(mounts.fd);
  return least;
}

uint32_t quench_rt_cpus(void) {
  cpu_set_t sets[8]; /* of 1024 CPUs each: the kernel refuses a set smaller than its own */
  const long cpus = sched_getaffinity(0, sizeof sets, sets) == 0 ? CPU_COUNT_S(sizeof sets, sets)
                                                                 : sysconf(_SC_NPROCESSORS_ONLN);
  const uint32_t allowed = cpus < 1 ? 1 : (uint32_t)cpus;
  const uint32_t quota = quench_rt_quota_cpus("");
  return quota < allowed ? quota : allowed;
}
