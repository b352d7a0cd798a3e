/* Worker threads for one session.
 *
 * A job's tasks are cut into shares, one for each thread, and these into pieces. A thread takes the pieces
 * of its own share in order, so that it goes on where it left off and finds what it fetched ahead, then
 * what others have not begun.
 *
 * A job is open while its state has the kOpen bit; a worker joins by adding 1 to the state while it
 * is open, so the caller, after closing the job, waits only for those that joined: workers still
 * asleep cost nothing. Between jobs a worker spins briefly (the next kernel is usually microseconds
 * away), then sleeps on a condition variable. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "common/runtime/rt_internal.h"

enum { kSpins = 4000, kPieces = 4 }; /* pieces of a share even out unequal cores */
#define kOpen 0x80000000u

typedef struct worker {
  quench_rt_pool* pool;
  pthread_t thread;
  uint32_t index;
} worker;

/* Apart from others by a cache line. */
typedef struct share {
  _Atomic uint32_t next; /* piece to take */
  char apart[60];
} share;

struct quench_rt_pool {
  /* The job. Written by the caller before it opens the job, read by those that joined. */
  quench_task task;
  void* arg;
  int64_t count;
  uint32_t num_shares;
  uint32_t pieces; /* of a share */
  share* shares;
  _Atomic int32_t result; /* first non-zero one */

  _Atomic uint32_t state;      /* kOpen | number of workers inside */
  _Atomic uint32_t generation; /* counts jobs, so that a worker joins each one once */
  _Atomic uint32_t sleepers;
  _Atomic int stop;

  pthread_mutex_t mutex;
  pthread_cond_t wake;
  uint32_t num_workers; /* that were started */
  uint32_t threads;     /* that take part, with the caller; changes between jobs only */
  worker workers[];
};

static void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__) || defined(__arm__)
  __asm__ volatile("yield");
#endif
}

/* Where part `i` of `parts` equal ones of [0, count) begins. */
static int64_t part_begin(int64_t count, uint32_t parts, uint32_t i) {
  const int64_t rest = count % parts;
  return count / parts * i + (i < rest ? i : rest);
}

/* Takes pieces of a share until there are none, or some task has failed. */
static void work_on(quench_rt_pool* pool, uint32_t of, uint32_t index) {
  const int64_t first = part_begin(pool->count, pool->num_shares, of);
  const int64_t count = part_begin(pool->count, pool->num_shares, of + 1) - first;
  while (atomic_load_explicit(&pool->result, memory_order_relaxed) == 0) {
    const uint32_t piece =
        atomic_fetch_add_explicit(&pool->shares[of].next, 1, memory_order_relaxed);
    if (piece >= pool->pieces) return;
    const int64_t begin = first + part_begin(count, pool->pieces, piece);
    const int64_t end = first + part_begin(count, pool->pieces, piece + 1);
    const int32_t result = pool->task(pool->arg, begin, end, index);
    int32_t none = 0;
    if (result != 0) atomic_compare_exchange_strong(&pool->result, &none, result);
  }
}

static void work(quench_rt_pool* pool, uint32_t index) {
  for (uint32_t i = 0; i < pool->num_shares; ++i)
    work_on(pool, (index + i) % pool->num_shares, index);
}

static int join_job(quench_rt_pool* pool) {
  uint32_t state = atomic_load(&pool->state);
  while (state & kOpen) {
    if (atomic_compare_exchange_weak(&pool->state, &state, state + 1)) return 1;
  }
  return 0;
}

/* Returns when there has been a job after `seen`, or the pool stops. */
static void wait_for_job(quench_rt_pool* pool, uint32_t seen) {
  for (int i = 0; i < kSpins; ++i) {
    if (atomic_load(&pool->generation) != seen || atomic_load(&pool->stop)) return;
    relax();
  }
  pthread_mutex_lock(&pool->mutex);
  atomic_fetch_add(&pool->sleepers, 1);
  while (atomic_load(&pool->generation) == seen && !atomic_load(&pool->stop))
    pthread_cond_wait(&pool->wake, &pool->mutex);
  atomic_fetch_sub(&pool->sleepers, 1);
  pthread_mutex_unlock(&pool->mutex);
}

static void* worker_main(void* arg) {
  worker* self = arg;
  quench_rt_pool* pool = self->pool;
  uint32_t seen = 0;
  while (!atomic_load(&pool->stop)) {
    wait_for_job(pool, seen);
    seen = atomic_load(&pool->generation);
    if (join_job(pool)) {
      if (self->index < pool->threads) work(pool, self->index);
      atomic_fetch_sub(&pool->state, 1);
    }
  }
  return NULL;
}

int32_t quench_rt_pool_run(quench_rt_pool* pool, quench_task task, void* arg, int64_t count,
                           int64_t grain) {
  if (count <= 0) return 0;
  const int64_t grains = count / (grain < 1 ? 1 : grain);
  if (grains < 2 || pool->threads == 1) return task(arg, 0, count, 0);

  pool->task = task;
  pool->arg = arg;
  pool->count = count;
  pool->num_shares = grains < pool->threads ? (uint32_t)grains : pool->threads;
  const int64_t pieces = grains / pool->num_shares;
  pool->pieces = pieces < kPieces ? (uint32_t)pieces : kPieces;
  for (uint32_t i = 0; i < pool->num_shares; ++i)
    atomic_store_explicit(&pool->shares[i].next, 0, memory_order_relaxed);
  atomic_store_explicit(&pool->result, 0, memory_order_relaxed);
  atomic_store(&pool->state, kOpen);
  atomic_fetch_add(&pool->generation, 1);
  if (atomic_load(&pool->sleepers) != 0) {
    pthread_mutex_lock(&pool->mutex);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->mutex);
  }
  work(pool, 0);
  atomic_fetch_and(&pool->state, ~kOpen);
  /* A worker may have been preempted in the middle of its piece: let it have this core. */
  for (int spins = 0; atomic_load(&pool->state) != 0; ++spins) {
    if (spins < kSpins) {
      relax();
    } else {
      sched_yield();
    }
  }
  return atomic_load(&pool->result);
}

quench_rt_pool* quench_rt_pool_create(uint32_t num_threads) {
  const uint32_t wanted = num_threads - 1;
  quench_rt_pool* pool = calloc(1, sizeof *pool + wanted * sizeof(worker));
  if (pool == NULL) return NULL;
  pool->shares = calloc(num_threads, sizeof(share));
  if (pool->shares == NULL) {
    free(pool);
    return NULL;
  }
  pthread_mutex_init(&pool->mutex, NULL);
  pthread_cond_init(&pool->wake, NULL);
  for (uint32_t i = 0; i < wanted; ++i) {
    worker* self = &pool->workers[i];
    self->pool = pool;
    self->index = i + 1;
    if (pthread_create(&self->thread, NULL, worker_main, self) != 0) {
      quench_rt_pool_free(pool);
      return NULL;
    }
    pool->num_workers = i + 1;
  }
  pool->threads = num_threads;
  return pool;
}

int quench_rt_pool_use(quench_rt_pool* pool, uint32_t num_threads) {
  if (num_threads > pool->num_workers + 1) return 0;
  pool->threads = num_threads;
  return 1;
}

void quench_rt_pool_free(quench_rt_pool* pool) {
  if (pool == NULL) return;
  pthread_mutex_lock(&pool->mutex);
  atomic_store(&pool->stop, 1);
  pthread_cond_broadcast(&pool->wake);
  pthread_mutex_unlock(&pool->mutex);
  for (uint32_t i = 0; i < pool->num_workers; ++i) pthread_join(pool->workers[i].thread, NULL);
  pthread_cond_destroy(&pool->wake);
  pthread_mutex_destroy(&pool->mutex);
  free(pool->shares);
  free(pool);
}
