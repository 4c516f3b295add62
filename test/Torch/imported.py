"""usage: imported.py

GPT-2, Llama and Qwen 3 of transformers, exported by pc_torch, need the memory and the predicted time of the same models by
pc-import, within 2 %. Needs PyTorch, transformers, pc-import and pc-compile."""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "python")]
import torch
import transformers
from decoders import WithLoss
from pc_torch.export import export

B, S, V, LIMIT = 8, 64, 512, 0.02
COMMON = dict(vocab_size=V, pad_token_id=0, bos_token_id=1, eos_token_id=2)
LLAMA = dict(hidden_size=128, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=4, intermediate_size=256, max_position_embeddings=S)
MODELS = {
    "GPT2": dict(n_embd=128, n_layer=4, n_head=8, n_positions=S, attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0),
    "Llama": LLAMA,
    "Qwen3": LLAMA | dict(head_dim=16),
}
PLANS = ["", "--mesh dp=2", "--mesh tp=2", "--mesh dp=2 --zero=3"]


def figures(folder, model, plan):
    """Arena bytes and predicted seconds of a step."""
    subprocess.run(["pc-compile", model, "-o", folder / "program", *plan.split(), f"--report={folder / 'report.json'}"], check=True)
    report = json.loads((folder / "report.json").read_text())
    return report["per_rank"][0]["arena_bytes"]["device"], report["predicted"]["step_seconds"]


def main():
    failed = 0
    for name, sizes in MODELS.items():
        torch.manual_seed(0)
        module = transformers.AutoModelForCausalLM.from_config(getattr(transformers, name + "Config")(**COMMON, **sizes)).float()
        with tempfile.TemporaryDirectory() as work:
            folder = Path(work)
            module.save_pretrained(folder / "model")
            tokens = torch.randint(0, V, (B, S))
            export(WithLoss(module), dict(ids=tokens, targets=tokens.clone()), name, 0.0).write(folder / "exported")
            subprocess.run(["pc-import", folder / "model", "-o", folder / "imported.mlir", "--batch", str(B), "--seq", str(S)], check=True)
            for plan in PLANS:
                found, wanted = (figures(folder, folder / path, plan) for path in ("exported/model.mlir", "imported.mlir"))
                worst = max(abs(a - b) / b for a, b in zip(found, wanted))
                failed += worst > LIMIT
                print(f"{name}, {plan or 'one rank'}: {found[0]} and {wanted[0]} bytes, {found[1]:.4g} and {wanted[1]:.4g} s")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
