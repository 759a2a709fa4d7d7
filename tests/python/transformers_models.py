"""Models of transformers whose attention is not the plain causal one, in their smallest form, with random weights."""

from typing import Any, NamedTuple

import torch
import transformers

VOCABULARY = 64

#: Sizes that all of these have. Prompts are longer than the window and the chunk.
COMMON = dict(
    vocab_size=VOCABULARY,
    hidden_size=64,
    intermediate_size=64,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    max_position_embeddings=256,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=None,
)
WINDOW, PROMPT, TOKENS = 8, 14, 6


class Model(NamedTuple):
    """How it is made, and what it asks kjit for: without padding, and with padding on one side."""

    config: str
    kind: str
    options: dict[str, Any]
    asked: set[str]
    padded: set[str]


_LAYERS = dict(num_hidden_layers=2, layer_types=["sliding_attention", "full_attention"])
_T5 = dict(d_model=64, d_kv=16, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0)

MODELS = {
    "mistral": Model(
        "MistralConfig", "MistralForCausalLM", dict(num_hidden_layers=2, sliding_window=WINDOW),
        {"mask_mod"}, {"mask_mod"},
    ),
    "gemma2": Model(
        "Gemma2Config", "Gemma2ForCausalLM",
        dict(_LAYERS, sliding_window=WINDOW, attn_logit_softcapping=2.0, query_pre_attn_scalar=16),
        {"mask_mod", "score_mod", "causal", "softcap"}, {"mask_mod", "score_mod"},
    ),
    "gemma3": Model(
        "Gemma3TextConfig", "Gemma3ForCausalLM", dict(_LAYERS, sliding_window=WINDOW, query_pre_attn_scalar=16),
        {"mask_mod", "causal"}, {"mask_mod"},
    ),
    "gpt_oss": Model(
        "GptOssConfig", "GptOssForCausalLM",
        dict(_LAYERS, sliding_window=WINDOW, num_local_experts=2, num_experts_per_tok=1),
        {"mask_mod", "causal", "sinks"}, {"mask_mod", "sinks"},
    ),
    "llama4": Model(
        "Llama4TextConfig", "Llama4ForCausalLM",
        dict(
            num_hidden_layers=2, layer_types=["chunked_attention", "full_attention"], attention_chunk_size=WINDOW,
            intermediate_size_mlp=64, num_local_experts=2, num_experts_per_tok=1, interleave_moe_layer_step=2,
        ),
        {"mask_mod", "causal"}, {"mask_mod"},
    ),
    "t5": Model(
        "T5Config", "T5ForConditionalGeneration", _T5, {"bias"}, {"bias", "mask_mod", "score_mod"},
    ),
    "umt5": Model(
        "UMT5Config", "UMT5ForConditionalGeneration", _T5, {"bias"}, {"bias", "mask_mod", "score_mod"},
    ),
}  # fmt: skip


def computed(model: Any) -> set[str]:
    """What a model's calls are counted as when kjit computes all of them."""
    from kjit import transformers_inline

    return {"transformers" if transformers_inline.is_inline(model.config) else "kjit"}


def choose(model: Any, implementation: str) -> None:
    """In every part of the model: some releases' set_attn_implementation() leaves copies of the config as they were."""
    from kjit import transformers_attention

    transformers_attention.use(model, implementation)


def make(name: str, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Any:
    model = MODELS[name]
    torch.manual_seed(0)
    config = getattr(transformers, model.config)(**{**COMMON, **model.options})
    made = getattr(transformers, model.kind)(config)
    with torch.no_grad():  # so that sinks, biases and far tokens matter
        for parameter in made.parameters():
            if parameter.ndim > 1:
                parameter.mul_(2.0)
        for key, parameter in made.named_parameters():
            if key.endswith("sinks"):
                parameter.normal_()
    return made.to(device=device, dtype=dtype).eval()


def generate(model: Any, implementation: str, padded: bool = False, cache: Any = None) -> Any:
    """Greedy tokens with their logits. padded: the first prompt is shorter, with padding to the left."""
    choose(model, implementation)
    prompt = torch.randint(2, VOCABULARY, (2, PROMPT), generator=torch.Generator().manual_seed(1))
    counts = torch.ones_like(prompt)
    if padded:
        prompt[0, :5], counts[0, :5] = 0, 0
    return model.generate(
        prompt.to(model.device),
        attention_mask=counts.to(model.device),
        max_new_tokens=TOKENS,
        do_sample=False,
        cache_implementation=cache,
        disable_compile=True,
        return_dict_in_generate=True,
        output_logits=True,
    )
