// The instructions of kernel_src/ptx/mbarrier.cuh.
#pragma once
#include "core/types.cuh"

EMULATOR_PTX("mbarrier.init.shared::cta.b64 [%0], %1;"){
    static void run(uint32_t barrier, int arrivals){emulator->mbarrier_init(barrier, arrivals);
}
}
;

EMULATOR_PTX("fence.mbarrier_init.release.cluster;"){static void run(){emulator->mbarrier_init_fence();
}
}
;

EMULATOR_PTX("mbarrier.arrive.shared::cta.b64 _, [%0];"){
    static void run(uint32_t barrier){emulator->mbarrier_arrive(barrier, 0);
}
}
;

EMULATOR_PTX("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"){
    static void run(uint32_t barrier, int bytes){emulator->mbarrier_arrive(barrier, bytes);
}
}
;

EMULATOR_PTX("{ .reg .pred done; RETRY: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1; @!done bra RETRY; }"){
    static void run(uint32_t barrier, int parity){emulator->mbarrier_wait(barrier, parity);
}
}
;

#include_next "ptx/mbarrier.cuh"
