#define _GNU_SOURCE
#include "tests/unit/services/codegen/bare_loader.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__x86_64__)
enum { kMachine = EM_X86_64, kRelative = R_X86_64_RELATIVE };
#elif defined(__i386__)
enum { kMachine = EM_386, kRelative = R_386_RELATIVE };
#elif defined(__aarch64__)
enum { kMachine = EM_AARCH64, kRelative = R_AARCH64_RELATIVE };
#elif defined(__arm__)
enum { kMachine = EM_ARM, kRelative = R_ARM_RELATIVE };
#endif

#if __SIZEOF_POINTER__ == 8
#define RELOCATION_TYPE ELF64_R_TYPE
#else
#define RELOCATION_TYPE ELF32_R_TYPE
#endif

enum { kPage = 16 << 10, kTags = 64 };

typedef ElfW(Addr) Address;

typedef struct {
  unsigned char* base; /* address 0 of the library */
  Address dynamic[kTags];
  unsigned long long seen; /* tags, a bit each */
  int versions;
} Library;

static quench_model_query_fn refuse(char* error, const char* reason, unsigned long number) {
  snprintf(error, 256, "%s (%lu)", reason, number);
  return NULL;
}

static int has(const Library* library, int tag) { return (int)(library->seen >> tag & 1); }

static Address round_up(Address value) { return (value + kPage - 1) / kPage * kPage; }

static int protection(const ElfW(Phdr) * segment) {
  return (segment->p_flags & PF_R ? PROT_READ : 0) | (segment->p_flags & PF_W ? PROT_WRITE : 0) |
         (segment->p_flags & PF_X ? PROT_EXEC : 0);
}

/* Maps the segments to pages of 16 KiB at one reserved place. */
static const char* map_segments(int fd, const ElfW(Ehdr) * header, const ElfW(Phdr) * segments,
                                Library* library) {
  Address end = 0;
  for (int i = 0; i < header->e_phnum; ++i) {
    const ElfW(Phdr)* segment = &segments[i];
    if (segment->p_type != PT_LOAD) continue;
    if (segment->p_align < kPage || segment->p_align % kPage != 0)
      return "a segment is aligned to less than 16 KiB";
    if (segment->p_vaddr % kPage != segment->p_offset % kPage)
      return "a segment lies in its page as it does not in the file";
    if (segment->p_vaddr / kPage * kPage < end) return "segments share a page of 16 KiB";
    if ((segment->p_flags & PF_W) && (segment->p_flags & PF_X))
      return "a segment can be written and run";
    end = round_up(segment->p_vaddr + segment->p_memsz);
  }
  unsigned char* place = mmap(NULL, end + kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (place == MAP_FAILED) return "no memory";
  library->base = (unsigned char*)round_up((Address)place);
  for (int i = 0; i < header->e_phnum; ++i) {
    const ElfW(Phdr)* segment = &segments[i];
    if (segment->p_type != PT_LOAD) continue;
    const Address begin = segment->p_vaddr / kPage * kPage;
    const Address lead = segment->p_vaddr - begin;
    unsigned char* at = library->base + begin;
    const Address size = round_up(lead + segment->p_memsz);
    if (mmap(at, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
        MAP_FAILED)
      return "no memory";
    if (pread(fd, at, lead + segment->p_filesz, (off_t)(segment->p_offset - lead)) !=
        (ssize_t)(lead + segment->p_filesz))
      return "a segment lies beyond the file's end";
  }
  return NULL;
}

static const char* read_dynamic(const ElfW(Ehdr) * header, const ElfW(Phdr) * segments,
                                Library* library) {
  const ElfW(Dyn)* entry = NULL;
  for (int i = 0; i < header->e_phnum; ++i) {
    if (segments[i].p_type == PT_DYNAMIC)
      entry = (const ElfW(Dyn)*)(void*)(library->base + segments[i].p_vaddr);
  }
  if (entry == NULL) return "there is no dynamic section";
  for (; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_GNU_HASH) continue; /* looked up below */
    if (entry->d_tag == DT_VERSYM || entry->d_tag == DT_VERNEED || entry->d_tag == DT_VERDEF)
      return "symbols have versions";
    if (entry->d_tag == DT_TEXTREL) return "code is relocated";
    if (entry->d_tag < 0 || entry->d_tag >= kTags) continue;
    library->dynamic[entry->d_tag] = entry->d_un.d_ptr;
    library->seen |= 1ull << entry->d_tag;
  }
  if (has(library, DT_NEEDED)) return "it needs another library";
  if (has(library, DT_JMPREL)) return "it calls functions of others";
  if (has(library, DT_INIT_ARRAY) || has(library, DT_FINI_ARRAY))
    return "it runs code when it is loaded";
  if (!has(library, DT_HASH) || !has(library, DT_SYMTAB) || !has(library, DT_STRTAB))
    return "there is no hash table of the older kind";
  return NULL;
}

static const char* relocate(const Library* library) {
  const unsigned char* at = library->base + library->dynamic[DT_REL];
  for (Address i = 0; has(library, DT_REL) && i < library->dynamic[DT_RELSZ];
       i += sizeof(ElfW(Rel))) {
    ElfW(Rel) each;
    memcpy(&each, at + i, sizeof each);
    if (RELOCATION_TYPE(each.r_info) != kRelative) return "a relocation asks for a symbol";
    Address value;
    memcpy(&value, library->base + each.r_offset, sizeof value);
    value += (Address)library->base;
    memcpy(library->base + each.r_offset, &value, sizeof value);
  }
  at = library->base + library->dynamic[DT_RELA];
  for (Address i = 0; has(library, DT_RELA) && i < library->dynamic[DT_RELASZ];
       i += sizeof(ElfW(Rela))) {
    ElfW(Rela) each;
    memcpy(&each, at + i, sizeof each);
    if (RELOCATION_TYPE(each.r_info) != kRelative) return "a relocation asks for a symbol";
    const Address value = (Address)library->base + (Address)each.r_addend;
    memcpy(library->base + each.r_offset, &value, sizeof value);
  }
  return NULL;
}

/* The symbol's address by the older hash table, whose chain count is the number of symbols. */
static void* find_symbol(const Library* library, const char* name, int* undefined) {
  uint32_t count;
  memcpy(&count, library->base + library->dynamic[DT_HASH] + 4, sizeof count);
  void* found = NULL;
  for (uint32_t i = 1; i < count; ++i) {
    ElfW(Sym) symbol;
    memcpy(&symbol, library->base + library->dynamic[DT_SYMTAB] + i * sizeof symbol, sizeof symbol);
    *undefined += symbol.st_shndx == SHN_UNDEF;
    const char* text = (const char*)(library->base + library->dynamic[DT_STRTAB] + symbol.st_name);
    if (symbol.st_shndx != SHN_UNDEF && strcmp(text, name) == 0)
      found = library->base + symbol.st_value;
  }
  return found;
}

static int has_gnu_hash(const ElfW(Ehdr) * header, const ElfW(Phdr) * segments,
                        const Library* library) {
  for (int i = 0; i < header->e_phnum; ++i) {
    if (segments[i].p_type != PT_DYNAMIC) continue;
    const ElfW(Dyn)* entry = (const ElfW(Dyn)*)(void*)(library->base + segments[i].p_vaddr);
    for (; entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag == DT_GNU_HASH) return 1;
    }
  }
  return 0;
}

quench_model_query_fn bare_load(const char* path, char* error) {
  Library library = {0};
  ElfW(Ehdr) header;
  ElfW(Phdr) segments[16];
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return refuse(error, "cannot open it", 0);
  if (pread(fd, &header, sizeof header, 0) != (ssize_t)sizeof header ||
      memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_machine != kMachine ||
      header.e_type != ET_DYN)
    return refuse(error, "it is not a library for this machine", header.e_machine);
  if (header.e_phnum > 16 || header.e_phentsize != sizeof *segments ||
      pread(fd, segments, header.e_phnum * sizeof *segments, (off_t)header.e_phoff) !=
          (ssize_t)(header.e_phnum * sizeof *segments))
    return refuse(error, "its segments cannot be read", header.e_phnum);
  const char* problem = map_segments(fd, &header, segments, &library);
  close(fd);
  if (problem == NULL) problem = read_dynamic(&header, segments, &library);
  if (problem == NULL && !has_gnu_hash(&header, segments, &library))
    problem = "there is no hash table of the newer kind";
  if (problem == NULL) problem = relocate(&library);
  if (problem != NULL) return refuse(error, problem, 0);
  for (int i = 0; i < header.e_phnum; ++i) {
    const Address begin = segments[i].p_vaddr / kPage * kPage;
    if (segments[i].p_type == PT_LOAD &&
        mprotect(library.base + begin, round_up(segments[i].p_vaddr + segments[i].p_memsz) - begin,
                 protection(&segments[i])) != 0)
      return refuse(error, "a segment cannot be protected", (unsigned long)i);
  }
  int undefined = 0;
  void* symbol = find_symbol(&library, QUENCH_MODEL_QUERY_NAME, &undefined);
  if (undefined > 0) return refuse(error, "it has symbols of others", (unsigned long)undefined);
  if (symbol == NULL) return refuse(error, "it has no query", 0);
  __builtin___clear_cache((char*)library.base, (char*)library.base + kPage);
  quench_model_query_fn query;
  memcpy(&query, &symbol, sizeof query);
  return query;
}
