/* The one argument of the attention_padding kernel, by value, and the numbers of its launch. Read by the C compiler and
 * by NVRTC. */
#ifndef KJIT_KERNEL_SRC_ATTENTION_PADDING_PARAMS_H
#define KJIT_KERNEL_SRC_ATTENTION_PADDING_PARAMS_H

enum {
  PADDING_THREADS = 256,    /* of a block */
  PADDING_TENSORS = 2,      /* most tensors of a launch: K and V */
  PADDING_LINE_BYTES = 128, /* bytes of a line of L2, of which a row of a copy is a multiple */
  PADDING_CHUNK_BYTES = 16  /* bytes that a thread copies at a time */
};

/* A (batch, seq, heads, columns) tensor whose rows are whole chunks, and its copy: (batch, heads, seq) rows. */
struct attention_padding_tensor {
  const char *from;
  char *to;                                        /* PADDING_LINE_BYTES-aligned */
  long long batch_stride, seq_stride, head_stride; /* bytes, of `from` */
  int chunks;                                      /* chunks of a row */
  int row_bytes;                                   /* bytes from a row of `to` to the next */
};

struct attention_padding_params {
  struct attention_padding_tensor tensors[PADDING_TENSORS]; /* as many as the grid has blocks along y */
  int heads;
  int seq;
  int pieces; /* ceil(seq / rows): blocks of threads for each (batch, head) */
};

#endif
