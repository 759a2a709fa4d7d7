"""Sliding tile attention of a video by kjit: each tile of tokens sees the tiles in a window around it.

    python sliding_tile_attention.py

The tokens of the video come tile by tile, and words stand behind them. A query sees the tiles of a window, whose centre
is moved inwards at the borders so that every window has the same size; the words see everything and are seen by
everybody. Without a GPU the mask is compared with its meaning, place by place; with one, attention is computed and
compared with PyTorch's.
"""

import torch

import kjit


def sliding_tile(video, tile, window):
    """mask_mod(b, h, q, k) for sizes in (time, rows, columns): video and tile in tokens, window in tiles.

    A tile's sizes divide those of the video; a window's are odd and at most the tiles of that axis.
    Tokens are numbered tile by tile, tiles in the order of (time, rows, columns); what is behind them are words.
    """
    tiles = [whole // part for whole, part in zip(video, tile)]
    size, tokens = tile[0] * tile[1] * tile[2], video[0] * video[1] * video[2]
    reach = [width // 2 for width in window]

    def place(token):
        number = token // size
        return number // (tiles[1] * tiles[2]), number % (tiles[1] * tiles[2]) // tiles[2], number % tiles[2]

    def mask(b, h, q, k):
        seen = (q >= tokens) | (k >= tokens)
        inside = None
        for at, other, count, steps in zip(place(q), place(k), tiles, reach):
            center = at.clamp(steps, count - 1 - steps)
            near = (center - other).abs() <= steps
            inside = near if inside is None else inside & near
        return seen | inside

    return mask


def by_meaning(video, tile, window, words):
    """(tokens, tokens) conditions, made from each token's coordinates and without the order's arithmetic."""
    tiles = [whole // part for whole, part in zip(video, tile)]
    axes = torch.meshgrid(*(torch.arange(count) for count in tiles), indexing="ij")
    size = tile[0] * tile[1] * tile[2]
    seen = torch.ones(axes[0].numel(), axes[0].numel(), dtype=torch.bool)
    for axis, count, width in zip(axes, tiles, window):
        of_tile = axis.flatten()
        first = (of_tile - width // 2).clamp(0, count - width)
        seen &= (of_tile >= first[:, None]) & (of_tile < first[:, None] + width)
    seen = seen.repeat_interleave(size, 0).repeat_interleave(size, 1)
    return torch.nn.functional.pad(seen, (0, words, 0, words), value=True)


def compare_on_host(video, tile, window, words):
    """How many places were compared, and how many of them differ."""
    exact = by_meaning(video, tile, window, words)
    length = exact.shape[0]
    bound = kjit.variant.bind(mask_mod=sliding_tile(video, tile, window))
    sizes = dict(seq_q=length, seq_kv=length)
    differ = 0
    for q in range(0, length, 3):
        for k in range(length):
            differ += bound.evaluate(0.0, 0, 0, q, k, **sizes).seen != bool(exact[q, k])
    return len(range(0, length, 3)) * length, differ


def compare_on_gpu(video, tile, window, words, heads=4, columns=128):
    """The largest difference from PyTorch's attention with the mask as a tensor, and the largest value."""
    exact = by_meaning(video, tile, window, words).cuda()
    shape = (1, exact.shape[0], heads, columns)
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    found = kjit.attention(q, k, v, mask_mod=sliding_tile(video, tile, window))
    views = (each.transpose(1, 2) for each in (q, k, v))
    right = torch.nn.functional.scaled_dot_product_attention(*views, attn_mask=exact).transpose(1, 2)
    return (found - right).abs().max().item(), right.abs().max().item()


if __name__ == "__main__":
    print(kjit.explain(mask_mod=sliding_tile((30, 48, 80), (6, 8, 8), (3, 3, 5))))
    places, differ = compare_on_host((6, 4, 6), (2, 2, 2), (3, 1, 3), words=5)
    print(f"on the host: {places} places, {differ} differ")
    if torch.cuda.is_available():
        difference, largest = compare_on_gpu((12, 16, 24), (6, 8, 8), (1, 1, 3), words=32)
        print(f"on the GPU: differs by {difference:.4f} of {largest:.2f}")
