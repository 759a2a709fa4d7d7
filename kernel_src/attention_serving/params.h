/* The one argument of a kernel for serving attention, by value. Read by the C compiler and by NVRTC, and by every
 * family that computes these problems. docs/serving.md says what the members mean to a caller.
 *
 * All lengths, page tables and offsets are read on the device. `batch` is the number of sequences; sequence b has
 * rows of q and keys as lengths.cuh derives them. Strides are in elements; columns are contiguous. */
#ifndef KJIT_KERNEL_SRC_ATTENTION_SERVING_PARAMS_H
#define KJIT_KERNEL_SRC_ATTENTION_SERVING_PARAMS_H

/* Threads of the plan pass, which is one block; of how many sequences each keeps what they cost; bytes of the sums of
 * its warps. */
enum { SERVING_PLAN_THREADS = 1024, SERVING_PLAN_KEPT = 4, SERVING_PLAN_SUMS_BYTES = 1536 };

/* New keys of a sequence up to which the block of threads that attends to them can as well move them: its warps would
 * move more one after the other than the append pass takes with the whole card. */
enum { SERVING_FEW_NEW_KEYS = 16 };

/* What lies between neighbours of a tensor of rows: of one sequence (of q, o and dense caches), cache row, or page; of
 * one position; of one head. `batch` is 0 where the rows of all sequences follow one another. */
struct attention_serving_strides {
  long long batch;
  long long seq;
  long long head;
};

/* What the elements of an 8-bit cache are multiplied by: a number for each sequence and key head, `batch` and `head`
 * elements apart (0: all have the same). */
struct attention_serving_descales {
  const float *at; /* or null: 1 */
  long long batch, head;
};

/* A run of a schedule, as the plan pass writes it: the tile that holds the run's first unit of work. */
struct attention_serving_run {
  int sequence; /* batch: the run is empty */
  int head;     /* of k and v */
  int tile;     /* of the sequence's packed rows */
  int reserved;
  long long begins; /* position of the tile among all work */
};

/* In front of the runs of a schedule. */
struct attention_serving_plan_head {
  unsigned tag; /* params.plan_tag of the launch that wrote it; another tag: the schedule is not for this call */
  int runs;
  int parts; /* above 0: all tiles are alike, and run r is part r % parts of tile r / parts */
  int reserved;
  long long length; /* units of work of a run */
};

struct attention_serving_params {
  const void *q;         /* rows of heads_kv * group heads, head_dim columns */
  const void *k;         /* cache of keys, of q's type or of e4m3: read, and written by the append pass */
  const void *v;         /* cache of values, head_dim_v columns */
  void *o;               /* as q, head_dim_v columns */
  float *lse;            /* natural log, rows contiguous; or null */
  const void *k_new;     /* keys to append, or null */
  const void *v_new;     /* values to append */
  const void *cos, *sin; /* (rotary_rows, rotary_columns / 2), or null */
  const void *sinks;     /* one logit for each query head, or null */

  const int *cu_q;        /* batch + 1, or null: each sequence has rows_q rows */
  const int *cu_k;        /* batch + 1, or null */
  const int *cu_new;      /* batch + 1, or null: each sequence appends rows_new rows */
  const int *used_q;      /* batch: rows of q that count, or null */
  const int *used_k;      /* batch: keys in the cache before appending, or null */
  const int *cache_index; /* batch: the row of the cache or of the page table, or null: b */
  const int *leftpad;     /* batch: slots in front that hold no key, or null */
  const int *rotary_at;   /* batch: position of the first row, or null: used_k */
  const int *page_table;  /* (rows, max_pages), or null: the cache has no pages */

  struct attention_serving_plan_head *plan; /* a schedule: read by attend, written by plan; or null */
  float *partials;                          /* two slots for each block of threads */
  int *arrivals;                            /* one for each block of threads; zeros before and after every launch */

  struct attention_serving_strides q_stride, k_stride, v_stride, o_stride, k_new_stride, v_new_stride;
  struct attention_serving_descales k_descale, v_descale; /* of a cache in e4m3 */
  long long lse_batch_stride, lse_head_stride;
  long long page_table_stride;

  int batch;                     /* sequences, >= 0 */
  int heads_kv;                  /* >= 1 */
  int group;                     /* query heads that share a key head, >= 1 */
  int rows_q;                    /* without cu_q: rows of each sequence; else rows of all */
  int rows_k;                    /* without pages: positions of a cache row, with cu_k those of all; else 0 */
  int rows_new;                  /* as rows_q, of k_new */
  int cache_rows;                /* without pages: rows of the cache; else its pages */
  int page_size;                 /* positions of a page; 0: no pages */
  int page_shift;                /* log2 of it, or -1 */
  int max_pages;                 /* columns of the page table; max_pages * page_size is at most 2^30 */
  int window_left, window_right; /* keys to the left and right of the diagonal that a row sees; -1: all */
  int chunk;                     /* attention chunk; 0: none */
  int rotary_columns, rotary_rows;
  int rotary_interleaved; /* pairs (2i, 2i + 1); else (i, i + rotary_columns / 2) */
  int rotary_by_row;      /* row i of q is rotated by its own position; else all rows by that of the first */
  int sinks_fp32;         /* sinks are fp32; else of the dtype of q */
  int most_splits;        /* a tile's keys are divided among at most so many blocks of threads; 0: any number */
  int least_rows;         /* sequences with fewer rows are another launch's */
  int most_rows;          /* and so are those with more; 0: any number */
  unsigned plan_tag;      /* digest of everything that a schedule depends on but the lengths */
  float scale;            /* of the scores */
  float scale_log2;       /* the same times log2(e) */
  float softcap;          /* read where KJIT_softcap */
  int runs;               /* plan: runs of the schedule, the blocks of threads of the attend pass */
  int appends;            /* the attend pass appends the new keys itself; else the append pass has */
  int tile_shift;         /* plan: log2 of the packed rows of a tile of the attend pass */
};

#endif
