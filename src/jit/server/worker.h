/* The process that compiles for others: what the program kjit-compile-worker runs.
 *
 * A worker server is one process with one thread. It opens NVRTC, compiles nothing itself, and forks a process for each
 * job that it is sent, so that a job can be killed, may crash, and leaves nothing behind. A job that precompiles
 * headers stays, and is then such a server itself: only a process that was forked from the one that made a precompiled
 * header can use it (user-visible since NVRTC 13.0).
 *
 * Life of a job: the library sends a packet with a socket; the server forks; the job's process says FRAME_BEGAN on the
 * socket, reads FRAME_REQUEST, writes FRAME_ANSWER, and says FRAME_BEGAN again for the next request that the library
 * may have (idle_jobs.h); without one it ends. If the library shuts the socket down first, the server kills the
 * process. If the process ends otherwise, the server says FRAME_DIED in its place.
 *
 * Nothing survives its parent: a server ends when its control socket is closed, and kills its jobs; a job dies with its
 * server by the parent-death signal. */
#ifndef KJIT_JIT_SERVER_WORKER_H
#define KJIT_JIT_SERVER_WORKER_H

/* The control socket of a server at its start. */
#define WORKER_CONTROL 3

/* Numbers of the packets on a control socket. */
#define WORKER_JOB 0x4a424f4bu /* beside it: the job's socket */
#define WORKER_KEEPER                                                                                                  \
  0x4b454550u /* beside it: the job's socket, and the control socket of the server that it becomes */

/* Serve on WORKER_CONTROL with the NVRTC of this path until the other end is closed. Returns the exit status. */
int worker_run(const char *nvrtc_path);

#endif
