#!/usr/bin/env python3
"""Times one peer on one case and prints its figure as the last word of the output.

  peers.py convert MODEL.gguf DIR                    DIR/hf: float32 Hugging Face copy, DIR/bf16.gguf: for llama.cpp
  peers.py llamacpp DIR --batch 64 --prompt 64 --new 48     tokens/s decoded, without sampling
  peers.py transformers DIR --rows 16 --length 192 --dtype bf16|f32     tokens/s of forward + backward
  peers.py trl DIR --steps 5 --new 64 --dtype bf16|f32       seconds of a GRPO step: 8 prompts x 8 samples

scripts/bench/run calls it from a virtual environment with requirements.txt.
"""
import argparse
import ctypes
import os
import random
import re
import statistics
import tempfile
import time

THREADS = len(os.sched_getaffinity(0))


def convert(args):
    import llama_cpp
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder, name = os.path.split(os.path.abspath(args.model))
    target = os.path.join(args.dir, "hf")
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
    weights = model.state_dict()
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    plain = type(model)(model.config).float()
    plain.load_state_dict(weights, strict=False)
    plain.tie_weights()
    plain.save_pretrained(target)
    AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(target)

    options = llama_cpp.llama_model_quantize_default_params()
    options.allow_requantize, options.nthread = True, THREADS
    options.ftype = llama_cpp.LLAMA_FTYPE_MOSTLY_BF16
    out = os.path.join(args.dir, "bf16.gguf").encode()
    if llama_cpp.llama_model_quantize(args.model.encode(), out, ctypes.byref(options)) != 0:
        raise SystemExit("llama.cpp could not convert the model")


def llamacpp(args):
    import llama_cpp as lc

    silent = lc.llama_log_callback(lambda *unused: None)
    lc.llama_log_set(silent, ctypes.c_void_p(0))
    lc.llama_backend_init()
    model = lc.llama_model_load_from_file(os.path.join(args.dir, "bf16.gguf").encode(), lc.llama_model_default_params())
    options = lc.llama_context_default_params()
    options.n_ctx = args.batch * (args.prompt + args.new + 8)
    options.n_batch, options.n_ubatch, options.n_seq_max = 2048, 512, args.batch
    options.n_threads = options.n_threads_batch = THREADS
    options.kv_unified, options.flash_attn_type = False, 1
    context = lc.llama_init_from_model(model, options)
    batch = lc.llama_batch_init(2048, 0, 1)

    def decode(entries):  # (position, sequence, whether logits are wanted)
        for i, (position, sequence, logits) in enumerate(entries):
            batch.token[i] = random.randrange(100, 40000)
            batch.pos[i], batch.n_seq_id[i], batch.logits[i] = position, 1, logits
            batch.seq_id[i][0] = sequence
        batch.n_tokens = len(entries)
        if lc.llama_decode(context, batch) != 0:
            raise SystemExit("llama.cpp could not decode")

    prompts = [(p, s, p == args.prompt - 1) for s in range(args.batch) for p in range(args.prompt)]
    for begin in range(0, len(prompts), 2048):
        decode(prompts[begin:begin + 2048])
    start = time.monotonic()
    for step in range(args.new):
        decode([(args.prompt + step, s, True) for s in range(args.batch)])
    print(f"llama.cpp bf16 decode, batch {args.batch}: tokens/s {args.batch * args.new / (time.monotonic() - start):.0f}")


def transformers(args):
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(THREADS)
    model = AutoModelForCausalLM.from_pretrained(os.path.join(args.dir, "hf"), dtype=torch.float32).train()
    ids = torch.randint(100, 40000, (args.rows, args.length))

    def step():
        model.zero_grad()
        start = time.monotonic()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.dtype == "bf16"):
            logits = model(ids, use_cache=False).logits[:, :-1].float()
        logprobs = torch.log_softmax(logits, -1).gather(-1, ids[:, 1:, None])
        (-logprobs.mean()).backward()
        return time.monotonic() - start

    step()
    print(f"transformers {args.dtype} forward + backward: tokens/s {args.rows * args.length / step():.0f}")


def trl(args):
    import torch
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    torch.set_num_threads(THREADS)
    rows = []
    for _ in range(8 * args.steps):
        a, b = random.randint(1, 9), random.randint(1, 9)
        question = f"What is {a} + {b}? Reply with the number only."
        rows.append({"prompt": [{"role": "user", "content": question}], "answer": str(a + b)})

    def last_number(completions, answer, **unused):
        return [float(re.findall(r"\d+", c[0]["content"])[-1:] == [a]) for c, a in zip(completions, answer)]

    with tempfile.TemporaryDirectory() as out:
        config = GRPOConfig(output_dir=out, per_device_train_batch_size=16, gradient_accumulation_steps=4,
                            num_generations=8, max_completion_length=args.new, learning_rate=2e-5,
                            lr_scheduler_type="constant", max_steps=args.steps, logging_steps=1, use_cpu=True,
                            bf16=args.dtype == "bf16", report_to="none", save_strategy="no", beta=0.0, temperature=1.0,
                            gradient_checkpointing=False, disable_tqdm=True)
        trainer = GRPOTrainer(model=os.path.join(args.dir, "hf"), reward_funcs=last_number, args=config,
                              train_dataset=Dataset.from_list(rows))
        trainer.train()
    seconds = [log["step_time"] for log in trainer.state.log_history if "step_time" in log]
    print(f"TRL {args.dtype} GRPO step, up to {args.new} new tokens: seconds {statistics.median(seconds):.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for run in (convert, llamacpp, transformers, trl):
        command = commands.add_parser(run.__name__)
        command.set_defaults(run=run)
        if run is convert:
            command.add_argument("model")
        command.add_argument("dir")
        for name, default in (("batch", 64), ("prompt", 64), ("new", 48 if run is llamacpp else 64), ("rows", 16),
                              ("length", 192), ("steps", 5)):
            command.add_argument(f"--{name}", type=int, default=default)
        command.add_argument("--dtype", choices=("bf16", "f32"), default="bf16")
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
