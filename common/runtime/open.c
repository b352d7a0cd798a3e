#define _GNU_SOURCE /* memfd_create */
/* Opening a model: is it one, for this machine, of an ABI we know, with a variant for this CPU? */
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/runtime/age.h"
#include "common/runtime/rt_internal.h"

#if UINTPTR_MAX > 0xffffffffu
typedef Elf64_Ehdr Ehdr;
typedef Elf64_Phdr Phdr;
typedef Elf64_Shdr Shdr;
typedef Elf64_Sym Sym;
#define THIS_CLASS ELFCLASS64
#else
typedef Elf32_Ehdr Ehdr;
typedef Elf32_Phdr Phdr;
typedef Elf32_Shdr Shdr;
typedef Elf32_Sym Sym;
#define THIS_CLASS ELFCLASS32
#endif

#if defined(__x86_64__)
#define THIS_MACHINE EM_X86_64
#define THIS_MODEL_MACHINE QUENCH_MACHINE_X86_64
#elif defined(__i386__)
#define THIS_MACHINE EM_386
#define THIS_MODEL_MACHINE QUENCH_MACHINE_X86
#elif defined(__aarch64__)
#define THIS_MACHINE EM_AARCH64
#define THIS_MODEL_MACHINE QUENCH_MACHINE_AARCH64
#elif defined(__arm__)
#define THIS_MACHINE EM_ARM
#define THIS_MODEL_MACHINE QUENCH_MACHINE_ARMV7
#else
#error "libquench_rt does not know this machine"
#endif

static const char* machine_name(unsigned machine) {
  switch (machine) {
    case EM_X86_64:
      return "x86-64";
    case EM_AARCH64:
      return "aarch64";
    case EM_ARM:
      return "arm";
    case EM_386:
      return "x86";
    case EM_RISCV:
      return "risc-v";
    default:
      return "another machine";
  }
}

/* Whether [offset, offset + size) lies in a file of `total` bytes. */
static int within(uint64_t offset, uint64_t size, uint64_t total) {
  return offset <= total && size <= total - offset;
}

/* Whether tables or what they say to be in the file lie behind its end: an interrupted copy. */
static int is_cut_short(const unsigned char* data, uint64_t size, const Ehdr* header) {
  if (!within(header->e_phoff, (uint64_t)header->e_phnum * header->e_phentsize, size) ||
      !within(header->e_shoff, (uint64_t)header->e_shnum * header->e_shentsize, size))
    return 1;
  for (unsigned i = 0; header->e_phentsize == sizeof(Phdr) && i < header->e_phnum; ++i) {
    Phdr segment;
    memcpy(&segment, data + header->e_phoff + i * sizeof segment, sizeof segment);
    if (segment.p_type == PT_LOAD && !within(segment.p_offset, segment.p_filesz, size)) return 1;
  }
  return 0;
}

/* Whether the dynamic symbols in `table` (names in `strings`) have one called quench_model_query.
 */
static int table_has_query(const unsigned char* data, const Shdr* table, const Shdr* strings) {
  const size_t length = sizeof QUENCH_MODEL_QUERY_NAME;
  for (uint64_t at = 0; at + sizeof(Sym) <= table->sh_size; at += sizeof(Sym)) {
    Sym symbol;
    memcpy(&symbol, data + table->sh_offset + at, sizeof symbol);
    if (symbol.st_shndx == SHN_UNDEF || !within(symbol.st_name, length, strings->sh_size)) continue;
    if (memcmp(data + strings->sh_offset + symbol.st_name, QUENCH_MODEL_QUERY_NAME, length) == 0)
      return 1;
  }
  return 0;
}

static int exports_query(const unsigned char* data, uint64_t size, const Ehdr* header) {
  if (header->e_shentsize != sizeof(Shdr)) return 0;
  if (!within(header->e_shoff, (uint64_t)header->e_shnum * sizeof(Shdr), size)) return 0;
  for (unsigned i = 0; i < header->e_shnum; ++i) {
    Shdr table, strings;
    memcpy(&table, data + header->e_shoff + i * sizeof table, sizeof table);
    if (table.sh_type != SHT_DYNSYM || table.sh_link >= header->e_shnum) continue;
    memcpy(&strings, data + header->e_shoff + table.sh_link * sizeof strings, sizeof strings);
    if (!within(table.sh_offset, table.sh_size, size) ||
        !within(strings.sh_offset, strings.sh_size, size))
      continue;
    if (table_has_query(data, &table, &strings)) return 1;
  }
  return 0;
}

/* Looks before loading: dlopen would run the code of any library it is given. */
int quench_rt_inspect(const unsigned char* data, size_t size, const char* name,
                      quench_rt_error* error) {
  Ehdr header;
  if (quench_age_is(data, size)) {
    return quench_rt_fail(error, QUENCH_RT_ENCRYPTED,
                          "`%s` is encrypted, and no key is given: modelKey.bin and its password, "
                          "or an age identity, open it",
                          name);
  }
  if (size < EI_NIDENT || memcmp(data, ELFMAG, SELFMAG) != 0) {
    return quench_rt_fail(error, QUENCH_RT_NOT_A_MODEL,
                          "`%s` is not a model library: it is not an ELF file", name);
  }
  uint16_t machine = 0;
  if (size >= 20) memcpy(&machine, data + 18, sizeof machine);
  if (machine != THIS_MACHINE || data[EI_CLASS] != THIS_CLASS || data[EI_DATA] != ELFDATA2LSB) {
    return quench_rt_fail(error, QUENCH_RT_NOT_A_MODEL, "`%s` is for %s, this machine is %s", name,
                          machine_name(machine), machine_name(THIS_MACHINE));
  }
  if (size >= sizeof header) memcpy(&header, data, sizeof header);
  if (size < sizeof header || is_cut_short(data, size, &header)) {
    return quench_rt_fail(error, QUENCH_RT_NOT_A_MODEL,
                          "`%s` is cut short: it has %llu bytes, and its headers tell of more",
                          name, (unsigned long long)size);
  }
  if (header.e_type != ET_DYN || !exports_query(data, size, &header)) {
    return quench_rt_fail(
        error, QUENCH_RT_NOT_A_MODEL,
        "`%s` is not a model library: it does not export `" QUENCH_MODEL_QUERY_NAME "`", name);
  }
  return QUENCH_RT_OK;
}

/* Of the first version of the struct: what follows is looked at behind QUENCH_RT_HAS. */
static const size_t kFirstModelSize = offsetof(quench_model, num_cores);

static int tensors_fit(const quench_tensor_info* const* tensors, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    if (tensors[i]->rank < 0 || tensors[i]->rank > QUENCH_RT_MAX_RANK) return 0;
  }
  return 1;
}

/* Takes `library` over, also on failure. */
static int adopt(const quench_model* model, void* library, const char* name, quench_rt_model** out,
                 quench_rt_error* error) {
  int code = QUENCH_RT_OK;
  const quench_variant* variant = NULL;
  if (model == NULL) {
    code = quench_rt_fail(error, QUENCH_RT_ABI,
                          "`%s` needs a newer runtime: this one knows ABI versions up to %u", name,
                          QUENCH_ABI_VERSION);
  } else if (model->magic != QUENCH_MODEL_MAGIC || model->size < kFirstModelSize ||
             model->machine != THIS_MODEL_MACHINE || model->num_variants == 0 ||
             !tensors_fit(model->inputs, model->num_inputs) ||
             !tensors_fit(model->outputs, model->num_outputs)) {
    code = quench_rt_fail(error, QUENCH_RT_NOT_A_MODEL,
                          "`%s` is not a model library: its description is damaged", name);
  } else {
    code = quench_rt_default_variant(model, name, &variant, error);
  }
  quench_rt_model* opened = code == QUENCH_RT_OK ? calloc(1, sizeof *opened) : NULL;
  if (opened == NULL) {
    if (library != NULL) dlclose(library);
    return code != QUENCH_RT_OK ? code : quench_rt_fail(error, QUENCH_RT_MEMORY, "out of memory");
  }
  opened->model = model;
  opened->variant = variant;
  opened->library = library;
  opened->fd = -1;
  *out = opened;
  return QUENCH_RT_OK;
}

static int load(const char* path, const char* name, quench_rt_model** out, quench_rt_error* error) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    return quench_rt_fail(error, QUENCH_RT_NOT_A_MODEL, "`%s` cannot be loaded: %s", name,
                          dlerror());
  }
  quench_model_query_fn query;
  void* symbol = dlsym(library, QUENCH_MODEL_QUERY_NAME);
  memcpy(&query, &symbol, sizeof query); /* ISO C has no cast from object to function pointers */
  if (query == NULL) {
    dlclose(library);
    return quench_rt_fail(error, QUENCH_RT_NOT_A_MODEL, "`%s` is not a model library", name);
  }
  return adopt(query(QUENCH_ABI_VERSION), library, name, out, error);
}

int quench_rt_map(const char* path, const char* what, quench_rt_mapping* mapping,
                  quench_rt_error* error) {
  /* A pipe is refused below, not waited for. */
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    return quench_rt_fail(error, QUENCH_RT_IO, "cannot open `%s`: %s", path, strerror(errno));
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0) {
    close(fd);
    return quench_rt_fail(error, QUENCH_RT_NOT_A_MODEL,
                          "`%s` is not a %s: it is empty or not a file", path, what);
  }
  const uint64_t size = (uint64_t)info.st_size;
  mapping->data =
      size > SIZE_MAX ? MAP_FAILED : mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, fd, 0);
  mapping->size = (size_t)size;
  close(fd);
  if (mapping->data == MAP_FAILED)
    return quench_rt_fail(error, QUENCH_RT_IO, "cannot map `%s`: %s", path, strerror(errno));
  return QUENCH_RT_OK;
}

int quench_rt_open_file(const char* path, quench_rt_model** model, quench_rt_error* error) {
  *model = NULL;
  quench_rt_mapping file;
  int code = quench_rt_map(path, "model library", &file, error);
  if (code != QUENCH_RT_OK) return code;
  code = quench_rt_inspect(file.data, file.size, path, error);
  munmap(file.data, file.size);
  if (code != QUENCH_RT_OK) return code;
  /* A bare name would be looked up in the library path. */
  if (strchr(path, '/') != NULL) return load(path, path, model, error);
  char local[4096];
  const int length = snprintf(local, sizeof local, "./%s", path);
  if (length < 0 || (size_t)length >= sizeof local)
    return quench_rt_fail(error, QUENCH_RT_IO, "path is too long");
  return load(local, path, model, error);
}

static int write_all(int fd, const unsigned char* data, size_t size) {
  while (size > 0) {
    const ssize_t written = write(fd, data, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return 0;
    data += written;
    size -= (size_t)written;
  }
  return 1;
}

int quench_rt_open_memory(const void* data, size_t size, quench_rt_model** model,
                          quench_rt_error* error) {
  static const char kName[] = "model in memory";
  *model = NULL;
  const int code = quench_rt_inspect(data, size, kName, error);
  if (code != QUENCH_RT_OK) return code;
  const int fd = quench_rt_memory_file();
  if (fd < 0)
    return quench_rt_fail(error, QUENCH_RT_IO, "cannot create a memory file: %s", strerror(errno));
  if (!write_all(fd, data, size)) {
    const int reason = errno;
    close(fd);
    return quench_rt_fail(error, QUENCH_RT_MEMORY, "cannot fill a memory file: %s",
                          strerror(reason));
  }
  return quench_rt_load_sealed(fd, kName, model, error);
}

int quench_rt_memory_file(void) {
  return memfd_create("quench-model", MFD_CLOEXEC | MFD_ALLOW_SEALING);
}

int quench_rt_load_sealed(int fd, const char* name, quench_rt_model** model,
                          quench_rt_error* error) {
  /* Nobody changes code that was inspected. */
  if (fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) != 0) {
    const int reason = errno;
    close(fd);
    return quench_rt_fail(error, QUENCH_RT_SYSTEM, "cannot seal a memory file: %s",
                          strerror(reason));
  }
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  const int result = load(path, name, model, error);
  /* While the library is loaded the loader knows it by this path: the number must not be used
   * again. */
  if (result == QUENCH_RT_OK) {
    (*model)->fd = fd;
  } else {
    close(fd);
  }
  return result;
}

int quench_rt_open_linked(quench_model_query_fn query, quench_rt_model** model,
                          quench_rt_error* error) {
  *model = NULL;
  return adopt(query(QUENCH_ABI_VERSION), NULL, "linked model", model, error);
}

static _Atomic(quench_registration*) registered;

void quench_rt_register(quench_registration* entry) {
  entry->next = atomic_load(&registered);
  while (!atomic_compare_exchange_weak(&registered, &entry->next, entry)) {
  }
}

int quench_rt_open_registered(const char* name, quench_rt_model** model, quench_rt_error* error) {
  *model = NULL;
  char names[512] = "";
  size_t used = 0;
  const quench_registration* found = NULL;
  for (const quench_registration* each = atomic_load(&registered); each != NULL;
       each = each->next) {
    const quench_model* candidate = each->model;
    /* An ABI that is not known says nothing that could be read. */
    if (candidate->magic != QUENCH_MODEL_MAGIC || candidate->abi_version > QUENCH_ABI_VERSION)
      continue;
    const int matches = strcmp(candidate->name, name) == 0 || strcmp(candidate->uuid, name) == 0;
    if (matches && found != NULL) {
      return quench_rt_fail(error, QUENCH_RT_INVALID,
                            "two registered models are called `%s`: open them by UUID, `%s` and "
                            "`%s`",
                            name, found->model->uuid, candidate->uuid);
    }
    if (matches) found = each;
    const int n =
        snprintf(names + used, sizeof names - used, "%s`%s`", used ? ", " : "", candidate->name);
    if (n > 0 && (size_t)n < sizeof names - used) used += (size_t)n;
  }
  if (found == NULL) {
    names[used] = '\0';
    return quench_rt_fail(error, QUENCH_RT_INVALID,
                          used == 0 ? "no model is called `%s`: none is registered%s"
                                    : "no model is called `%s`, those registered are %s",
                          name, names);
  }
  return adopt(found->model, NULL, name, model, error);
}

void quench_rt_close(quench_rt_model* model) {
  if (model == NULL) return;
  if (model->library != NULL) dlclose(model->library);
  if (model->fd >= 0) close(model->fd);
  free(model);
}

const quench_model* quench_rt_describe(const quench_rt_model* model) { return model->model; }
const quench_variant* quench_rt_variant(const quench_rt_model* model) { return model->variant; }
