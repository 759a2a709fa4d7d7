#!/usr/bin/env python3
"""Generates text with a small, randomly initialised Llama, once with PyTorch's sdpa and once with kjit.

usage: transformers_generate.py [--tokens N]

The text means nothing: the weights are random. What counts is that both attentions give the same logits within what
rounding does to them, and how many calls kjit took.
"""

import argparse

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from kjit import transformers_attention

#: The vocabulary: printable ASCII, so that a token is a character.
ALPHABET = [chr(code) for code in range(32, 127)]
PROMPT = "Attention is a weighted mean: "


def make_model(device):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(ALPHABET),
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
    )
    return LlamaForCausalLM(config).to(device=device, dtype=torch.bfloat16).eval()


def generate(model, attention, tokens):
    """Greedy text from the prompt, and the logits of each step."""
    model.set_attn_implementation(attention)
    prompt = torch.tensor([[ALPHABET.index(letter) for letter in PROMPT]], device=model.device)
    result = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=tokens,
        do_sample=False,
        pad_token_id=0,
        eos_token_id=None,
        return_dict_in_generate=True,
        output_logits=True,
    )
    return result.sequences[0], torch.stack(result.logits)[:, 0].float()


def compare(device="cuda", tokens=48):
    """What both attentions said. Logits are compared up to the first token that differs: behind it the texts do."""
    transformers_attention.register()
    transformers_attention.counts.clear()
    model = make_model(device)
    sdpa, sdpa_logits = generate(model, "sdpa", tokens)
    kjit, kjit_logits = generate(model, "kjit", tokens)
    same = (sdpa == kjit).long().cumprod(0).sum().item() - len(PROMPT)
    steps = min(same + 1, tokens)
    return {
        "text": "".join(ALPHABET[token] for token in kjit.tolist()),
        "same_tokens": same,
        "tokens": tokens,
        "logit_difference": (sdpa_logits[:steps] - kjit_logits[:steps]).abs().max().item(),
        "largest_logit": sdpa_logits.abs().max().item(),
        "calls": dict(transformers_attention.counts),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=48, help="how many to generate (48)")
    found = compare(tokens=parser.parse_args().tokens)
    print(found["text"])
    print(f"equal tokens      {found['same_tokens']} of {found['tokens']}")
    print(f"logits differ by  {found['logit_difference']:.4f}, the largest being {found['largest_logit']:.4f}")
    print(f"attention calls   {', '.join(f'{name}: {count}' for name, count in found['calls'].items())}")


if __name__ == "__main__":
    main()
