"""Supervised training on chats.jsonl with TRL; the model is made from nothing, as in environment.py."""

from datasets import load_dataset
from environment import make_model
from transformers import TrainerCallback
from trl import SFTConfig, SFTTrainer


class Print(TrainerCallback):
    def on_evaluate(self, args, state, control, metrics=None, **_):
        if metrics and "eval_loss" in metrics:
            print(f"step {state.global_step}  held-out loss {metrics['eval_loss']:.3f}", flush=True)


if __name__ == "__main__":
    model, tokenizer = make_model()
    data = load_dataset("json", data_files="chats.jsonl", split="train").train_test_split(0.1, seed=0)
    SFTTrainer(
        model=model,
        processing_class=tokenizer,
        train_dataset=data["train"],
        eval_dataset=data["test"],
        callbacks=[Print()],
        args=SFTConfig(
            output_dir="trl-chats", use_cpu=True, bf16=False, report_to="none", save_strategy="no", max_steps=30,
            per_device_train_batch_size=16, learning_rate=2e-3, assistant_only_loss=True, eval_strategy="steps",
            eval_steps=15, eval_on_start=True, gradient_checkpointing=False, disable_tqdm=True,
        ),
    ).train()  # fmt: skip
