"""Makes the model's tokenizer: Gemma 4's anatomy, about 9,000 entries, learnt from the training texts."""

from __future__ import annotations

import json
import random
import shutil
import sys
from pathlib import Path

import texts
import wordings

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "engine"))

import make_tokenizer  # noqa: E402  the test engine's own, whose anatomy is the same

LEARNT = 6200


def main(out: Path) -> None:
    """Write tokenizer.json, its configuration and the chat template."""
    out.mkdir(parents=True, exist_ok=True)
    file = make_tokenizer.small(corpus=_lines(), learnt_tokens=LEARNT)
    (out / "tokenizer.json").write_text(json.dumps(file, ensure_ascii=False) + "\n", "utf-8")
    names = {f"{name}_token": f"<{name}>" for name in ("bos", "eos", "mask", "pad", "unk")}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **names}
    (out / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n", "utf-8")
    shutil.copyfile(ROOT / "engine" / "chat_template.jinja", out / "chat_template.jinja")
    print(f"{out}: {len(file['model']['vocab'])} entries")


def _lines() -> list[str]:
    """Return training texts in several spellings, and questions as prompts word them."""
    choose = random.Random(0)
    lines = [example.text for example in texts.training()]
    lines += [line.lower() for line in lines]
    for _ in range(40):
        for _, question in wordings.make_schema(choose, list(wordings.NAMES)).questions:
            lines.append(question.instructions or "")
            lines += [f"- {option.word}: {option.description or ''}" for option in question.options]
    return lines


if __name__ == "__main__":
    main(Path(sys.argv[1]))
