"""Write a model folder without weights: a byte-level tokenizer trained on Python's own library, a config, a template.

`tiny_model.py FOLDER [--weights]`; without weights it is enough for servers that only simulate the model, and for vLLM
with dummy weights. With them (random ones) it needs transformers and torch.
"""

import json
import sys
import sysconfig
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]
WORDS = 4096
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def main() -> None:
    """Write the folder."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=WORDS, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    sources = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[:100]
    tokenizer.train_from_iterator((path.read_text(errors="ignore") for path in sources), trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    ids = {"bos_token_id": 0, "eos_token_id": 3}
    shape = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "head_dim": 32}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 2048}
    kind = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": WORDS, "dtype": "bfloat16"}
    numbers = {"rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": True}
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "<|im_end|>"}
    files = {
        "config.json": {**kind, **shape, **heads, **numbers, **ids},
        "generation_config.json": ids,
        "tokenizer_config.json": {**names, "model_max_length": 2048, "chat_template": TEMPLATE},
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=1))
    if "--weights" in sys.argv[2:]:
        write_weights(folder)


def write_weights(folder: Path) -> None:
    """Write random weights for the config in the folder, the same each time."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(7)
    AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder)).save_pretrained(folder)


if __name__ == "__main__":
    main()
