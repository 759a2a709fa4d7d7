/* Ctrl-C and a scheduler's SIGTERM during long work: noticed, so that it can end in order and say how to go on. */
#ifndef KJIT_TOOLS_INTERRUPT_H
#define KJIT_TOOLS_INTERRUPT_H

/* From now on SIGINT, SIGTERM and SIGHUP are noted; one that is ignored (nohup) stays so. */
void interrupt_catch(void);

/* Around the start of threads: they never see the signals, which come to the thread that starts them. */
void interrupt_hold(void);
void interrupt_let(void);

/* The signal that came; 0: none. */
int interrupt_signal(void);

/* As before interrupt_catch(). */
void interrupt_release(void);

/* Die of the signal that came, as a shell expects of who was interrupted. Returns when none came. */
void interrupt_pass_on(void);

#endif
