// The instructions of kernel_src/ptx/tensor_copy.cuh.
#pragma once
#include "core/types.cuh"

EMULATOR_PTX("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
             " [%0], [%1, {%3, %4, %5, %6}], [%2];"){static void run(uint32_t shared, const void *map, uint32_t barrier,
                                                                     int c0, int c1, int c2,
                                                                     int c3){const int at[4] = {c0, c1, c2, c3};
emulator->tensor_load(shared, map, barrier, at, 4);
}
}
;

// What stays in L2 is not looked at.
EMULATOR_PTX("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint"
             " [%0], [%1, {%3, %4, %5, %6}], [%2], %7;"){
    static void run(uint32_t shared, const void *map, uint32_t barrier, int c0, int c1, int c2, int c3,
                    int64_t){const int at[4] = {c0, c1, c2, c3};
emulator->tensor_load(shared, map, barrier, at, 4);
}
}
;

EMULATOR_PTX("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];"){
    static void run(const void *map, uint32_t shared, int c0, int c1, int c2,
                    int c3){const int at[4] = {c0, c1, c2, c3};
emulator->tensor_store(map, shared, at, 4);
}
}
;

EMULATOR_PTX("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
             " [%0], [%1, {%3, %4, %5, %6, %7}], [%2];"){
    static void run(uint32_t shared, const void *map, uint32_t barrier, int c0, int c1, int c2, int c3,
                    int c4){const int at[5] = {c0, c1, c2, c3, c4};
emulator->tensor_load(shared, map, barrier, at, 5);
}
}
;

EMULATOR_PTX("cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];"){
    static void run(const void *map, uint32_t shared, int c0, int c1, int c2, int c3,
                    int c4){const int at[5] = {c0, c1, c2, c3, c4};
emulator->tensor_store(map, shared, at, 5);
}
}
;

EMULATOR_PTX("cp.async.bulk.commit_group;"){static void run(){emulator->tensor_store_commit();
}
}
;

EMULATOR_PTX("cp.async.bulk.wait_group.read 0;"){static void run(){emulator->tensor_store_wait(0, true);
}
}
;

EMULATOR_PTX("cp.async.bulk.wait_group 0;"){static void run(){emulator->tensor_store_wait(0, false);
}
}
;

EMULATOR_PTX("fence.proxy.async.shared::cta;"){static void run(){emulator->proxy_fence();
}
}
;

#include_next "ptx/tensor_copy.cuh"
