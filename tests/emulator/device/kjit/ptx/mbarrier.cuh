// What the instructions of kernel_src/kjit/ptx/mbarrier.cuh do.
#pragma once
#include <kjit/types.cuh>

EMULATOR_PTX("mbarrier.init.shared::cta.b64 [%0], %1;"){
    static void run(unsigned barrier, int arrivals){emulator->mbarrier_init(barrier, arrivals);
}
}
;

EMULATOR_PTX("fence.mbarrier_init.release.cluster;"){static void run(){emulator->mbarrier_init_fence();
}
}
;

EMULATOR_PTX("mbarrier.arrive.shared::cta.b64 _, [%0];"){
    static void run(unsigned barrier){emulator->mbarrier_arrive(barrier, 0);
}
}
;

EMULATOR_PTX("{ .reg .pred arrives; .reg .b32 at; and.b32 at, %1, %2; add.u32 at, at, %0; setp.eq.s32 arrives, %1, 0; "
             "@arrives mbarrier.arrive.shared::cta.b64 _, [at]; }"){
    static void run(unsigned barrier, int lane, unsigned){if (lane == 0) emulator->mbarrier_arrive(barrier, 0);
}
}
;

EMULATOR_PTX("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"){
    static void run(unsigned barrier, int bytes){emulator->mbarrier_arrive(barrier, bytes);
}
}
;

EMULATOR_PTX("{ .reg .pred done; RETRY: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1; @!done bra RETRY; }"){
    static void run(unsigned barrier, int parity){emulator->mbarrier_wait(barrier, parity);
}
}
;

EMULATOR_PTX("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];"){
    static void run(unsigned barrier){emulator->mbarrier_arrive(barrier, 0);
}
}
;

EMULATOR_PTX("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];"){
    static void run(unsigned barrier){emulator->mbarrier_arrive(barrier, 0);
}
}
;

#include_next <kjit/ptx/mbarrier.cuh>
