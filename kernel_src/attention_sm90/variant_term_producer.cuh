// The producers of a variant's terms: one thread for each consumer, in a warp of its own, that brings the terms of the
// consumer's 64 rows from their tensor by TMA, where its strides let a tensor map describe it.
//
// It goes through the planned tiles and their key blocks as the producer of K and V does. A block's terms are boxes of
// 64 keys, each in a slot of the consumer's ring, whose mbarriers are the box's own: "full" completes when TMA has
// written the box, "empty" when each of the consumer's warps has read its rows of it. So a consumer waits for no other
// one's terms, and terms come as early as their consumer has read those before.
#pragma once
#include "attention_sm90/variant_producer.cuh"

struct TermProducer {
  const attention_sm90_variant_params &p;
  const Layout at;
  const int consumer;
  Ring<shared::kTermSlots == 0 ? 1 : shared::kTermSlots> boxes;

  KJIT_DEVICE TermProducer(const attention_sm90_variant_params &params, Layout layout, int consumer)
      : p(params), at(layout), consumer(consumer) {}

  // One thread.
  KJIT_DEVICE void run() {
    variant::BlockWalk walk;
    walk.entries = p.variant.lists.entries;
    Tile tile;
    for (int parity = 0;; parity ^= 1) {
      mbarrier_wait_parity(at.plan_full(), parity);
      if (!Plan::load(at.plan(), tile, walk)) break;
      mbarrier_arrive(at.plan_empty());
      int place[kAxes];
      find_place(tile, place);
      for (int i = walk.position; i < walk.count; i++)
        load_block(place, block_of(walk, i));
    }
  }

private:
  static constexpr int kAxes = 4;

  // The block that a walk visits in a turn.
  KJIT_DEVICE static int block_of(const variant::BlockWalk &walk, int i) {
    const int entry = entry_in_turn(walk, i);
    return !kParted || walk.first_entry >= 0 ? entry / kEntryStates : entry / 2;
  }
  // Where the terms of this consumer's rows lie: the map's axes are the tensor's, the last first.
  KJIT_DEVICE void find_place(const Tile &tile, int (&place)[kAxes]) const {
#if KJIT_VARIANT_TILE && KJIT_VARIANT_TILE_ROWS >= 0
    const kjit_variant_arguments &a = p.variant.arguments;
    const kjit_variant_tensor_argument &tensor = a.tensors[KJIT_VARIANT_TILE_TENSOR];
    int axes[kAxes];
    kjit_variant_tile_axes(a, tile.batch, tile.head, tile.first_query(consumer), axes);
#pragma unroll
    for (int i = 1; i < kAxes; i++) {
      const int axis = KJIT_VARIANT_TILE_AXES - 1 - i;
      place[i] = 0;
      if (axis < 0) continue;
      if (axis == KJIT_VARIANT_TILE_ROWS)
        place[i] = axes[axis];
      else if (tensor.stride[axis] != 0)
        place[i] = variant::larger(variant::smaller(axes[axis], tensor.size[axis] - 1), 0);
    }
#endif
  }

  KJIT_DEVICE void load_block(const int (&place)[kAxes], int block) {
#if KJIT_VARIANT_TILE && KJIT_VARIANT_TILE_ROWS >= 0
#pragma unroll 1
    for (int i = 0; i < shared::kTermBoxes; i++) {
      const uint32_t full = at.box_full(consumer, boxes.slot);
      mbarrier_wait_parity(at.box_empty(consumer, boxes.slot), boxes.parity ^ 1);
      mbarrier_arrive_expect_tx(full, shared::kBoxBytes);
      tma_load(at.box(consumer, boxes.slot), (const TensorMap *)&p.terms, full,
               block * cfg::kKeyRows + i * SM90_CHUNK_COLUMNS, place[1], place[2], place[3]);
      boxes.advance();
    }
#endif
  }
};
