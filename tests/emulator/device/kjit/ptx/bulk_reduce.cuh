// What the instructions of kernel_src/kjit/ptx/bulk_reduce.cuh do.
#pragma once
#include <kjit/types.cuh>

EMULATOR_PTX("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;"){
    static void run(void *global, unsigned shared,
                    int bytes){emulator->bulk_store(global, shared, (unsigned)bytes, true);
}
}
;

EMULATOR_PTX("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"){
    static void run(void *global, unsigned shared,
                    int bytes){emulator->bulk_store(global, shared, (unsigned)bytes, false);
}
}
;

EMULATOR_PTX("st.shared.v4.f32 [%0], {%1, %2, %3, %4};"){
    static void run(unsigned shared, float a, float b, float c, float d){const float values[4] = {a, b, c, d};
emulator->store_shared(shared, values, sizeof values);
}
}
;

EMULATOR_PTX("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};"){
    static void run(void *global, float a, float b, float c, float d){const float values[4] = {a, b, c, d};
float sums[4];
emulator->load_atomic(sums, global, sizeof sums, EMULATOR_ADDS);
for (int i = 0; i < 4; i++)
  sums[i] += values[i];
emulator->store_atomic(global, sums, sizeof sums, EMULATOR_ADDS);
}
}
;

EMULATOR_PTX("fence.proxy.async.global;"){static void run(){emulator->global_proxy_fence();
}
}
;

EMULATOR_PTX("ld.global.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"){
    static void run(unsigned &w0, unsigned &w1, unsigned &w2, unsigned &w3, const void *global){kjit::Chunk c;
emulator->load_global(&c, global, sizeof c);
w0 = c.word[0], w1 = c.word[1], w2 = c.word[2], w3 = c.word[3];
}
}
;

EMULATOR_PTX("ld.acquire.gpu.global.s32 %0, [%1];"){static void run(int &value, const int *global){
    emulator->load_atomic(&value, global, sizeof value, EMULATOR_ACQUIRES);
}
}
;

EMULATOR_PTX("red.release.gpu.global.add.s32 [%0], %1;"){
    static void run(int *global, int value){emulator_add(global, value, EMULATOR_RELEASES);
}
}
;

#include_next <kjit/ptx/bulk_reduce.cuh>
