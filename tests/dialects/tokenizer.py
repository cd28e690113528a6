"""A tokenizer of whole words, in the layout that the tools want, for servers that count words as tokens.

Run with a tool's own interpreter, as this project does not need it: python tokenizer.py FOLDER.
"""

import json
import sys
from pathlib import Path

TEXT = "the of and to in is was for that on with as by are this from be at or an have not which one all but can"
TEMPLATE = "{% for m in messages %}{{ m['content'] }} {% endfor %}"


def main() -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    names = ["[UNK]", "<s>", "</s>", *(f"\N{LOWER ONE EIGHTH BLOCK}{word}" for word in TEXT.split())]
    names += [f"\N{LOWER ONE EIGHTH BLOCK}w{number}" for number in range(4000)]
    made = Tokenizer(models.WordLevel({name: index for index, name in enumerate(names)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    made.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": "[UNK]",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "pad_token": "</s>",
        "model_max_length": 131072,
        "chat_template": TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    model = {"model_type": "gpt2", "vocab_size": len(names), "bos_token_id": 1, "eos_token_id": 2}
    (folder / "config.json").write_text(json.dumps(model))


if __name__ == "__main__":
    main()
