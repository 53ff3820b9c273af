"""How the program meets its user: usage program_test.py PATH_OF_LOCKSTEP PATH_OF_CONFIGS

Bad input ends with exit code 2 and one line on stderr; every command's --help shows an example; the shipped configurations are valid."""
import json
import pathlib
import subprocess
import sys
import tempfile

LOCKSTEP, CONFIGS = sys.argv[1], pathlib.Path(sys.argv[2])
checks = 0


def run(*args, text=""):
    return subprocess.run([LOCKSTEP, *args], input=text, capture_output=True, text=True, timeout=120)


def check(condition, what):
    global checks
    checks += 1
    if not condition:
        sys.exit(f"FAILED: {what}")


def bad(args, word):
    done = run(*args)
    check(done.returncode == 2, f"{args}: exit code {done.returncode}, wanted 2; stderr: {done.stderr}")
    lines = done.stderr.splitlines()
    check(len(lines) == 1 and lines[0].startswith("lockstep: "), f"{args}: stderr must be one line: {done.stderr!r}")
    check(word in lines[0], f"{args}: no {word!r} in {lines[0]!r}")
    check(done.stdout == "", f"{args}: stdout {done.stdout!r}")


with tempfile.TemporaryDirectory() as folder:
    dir = pathlib.Path(folder)
    (dir / "config.json").write_text(json.dumps({
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 100,
        "max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "hidden_act": "silu",
        "tie_word_embeddings": True, "torch_dtype": "bfloat16"}))
    good = dir / "good.yaml"
    good.write_text(f"model: {{path: '{dir}'}}\n")
    typo = dir / "typo.yaml"
    typo.write_text(f"model: {{path: '{dir}'}}\nrollout:\n  temprature: 1\n")

    bad([], "subcommand")
    bad(["trian"], "unknown command trian")
    bad(["confg"], "did you mean config?")
    bad(["config", "--bogus"], "--bogus")
    bad(["plan"], "--config")
    bad(["plan", "--config", str(good), "-np", "many"], "--np")
    bad(["plan", "--config", str(good), "-np", "0"], "0 ranks")
    bad(["plan", "--config", str(good), "-np", "77"], "too many")
    bad(["plan", "--config", str(dir / "none.yaml")], "none.yaml")
    bad(["plan", "--config", str(good), "rollout.n=0"], "command line: rollout.n is 0")
    bad(["plan", "--config", str(good), "model.path=/nonexistent"], "/nonexistent")
    bad(["plan", "--config", str(typo)], f"{typo}:3: unknown key rollout.temprature; did you mean rollout.temperature?")
    bad(["score", "--model", str(dir)], str(dir))  # a folder without weights
    bad(["score", "--model", "/nonexistent"], "/nonexistent")
    bad(["score", "--model", str(dir), "--dtype", "f16"], "f16")

    help_text = run("--help")
    check(help_text.returncode == 0, "--help")
    names = [line.split()[0] for line in help_text.stdout.split("Subcommands:")[1].splitlines() if line.startswith("  ")]
    check("config" in names and "plan" in names, f"commands: {names}")
    for name in names:
        shown = run(name, "--help")
        check(shown.returncode == 0 and "Example" in shown.stdout and f"lockstep {name}" in shown.stdout, f"{name} --help")

    all_options = run("config")
    check(all_options.returncode == 0 and "temperature: 1" in all_options.stdout, "config")
    everything = dir / "all.yaml"
    everything.write_text(all_options.stdout)
    check(run("config", "--config", str(everything), f"model.path={dir}").returncode == 0, "what config prints must be readable")
    check(run("version").stdout.startswith("lockstep "), "version")

    for config in sorted(CONFIGS.glob("*.yaml")):
        done = run("plan", "--config", str(config), "-np", "3", f"model.path={dir}")
        check(done.returncode == 0 and "learner" in done.stdout, f"plan --config {config}: {done.stderr}")

print(f"{checks} checks")
