"""Compares two model folders in transformers: python3 compare_with_transformers.py FOLDER FOLDER

For `lockstep export`: export a Hugging Face folder and compare it with where it came from. Prints the largest difference of the
logits in float32 and exits 1 if it is not 0 or if transformers misses or ignores a tensor. Needs torch and transformers.
"""
import sys

import torch
from transformers import AutoModelForCausalLM


def load(folder):
    model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    return model.eval(), {key: value for key, value in info.items() if value}


def main():
    (first, first_info), (second, second_info) = load(sys.argv[1]), load(sys.argv[2])
    vocab_size = first.config.vocab_size
    ids = torch.randint(vocab_size, (2, 100), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        difference = (first(ids).logits - second(ids).logits).abs().max().item()
    complaints = [info for info in (first_info, second_info) if info]
    print(f"largest difference of logits: {difference}; complaints about tensors: {complaints or 'none'}")
    return 1 if difference != 0 or complaints else 0


sys.exit(main())
