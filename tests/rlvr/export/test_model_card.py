"""The model card of trained weights: its evidence, and nothing of this machine, of a secret or of a model's markup."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import ModelCard, get_token
from markdown_it import MarkdownIt

import run_grpo
from rlvr.artifacts.directory import write_json
from rlvr.export import markdown
from rlvr.export.model_card import model_card
from rlvr.report.run_reader import read_run
from scripts.publish import main as publish_script
from tests.conftest import REPOSITORY, TINY_MODEL
from tests.rlvr.export.conftest import write_export
from tests.support.hub_server import TOKEN, Failure, HubServer, environment
from tests.support.report_runs import HOSTILE, write_run

DEMO = REPOSITORY / "recipes" / "demo-arithmetic.yaml"
PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
# Closes code blocks of any usual length, and tries what a card can be broken with.
BREAKOUT = (
    f"{HOSTILE}\r\n````\r```` \n~~~~~\n</details>\n\n# heading\n[link](https://example.org) <https://example.org>\n"
    "www.x.org ![image](https://example.org/x.png)\n| a | b |\n---\nlicense: mit\n---\n\u202egnp.x\x1b[2J"
)


def card_of(run: Path, kind: str = "adapter", repo: str = "acme/my-model") -> str:
    return model_card(read_run(run), kind, repo)


def test_the_metadata_of_a_card_is_the_result_and_the_base(run: Path) -> None:
    data = ModelCard(card_of(run)).data
    assert (data.base_model, data.library_name, data.base_model_relation) == ("acme/tiny", "peft", "adapter")
    [result] = data.eval_results
    assert (result.metric_value, result.dataset_split, result.dataset_name) == (7 / 9, "test", "arithmetic")


def test_a_card_has_result_interval_settings_hashes_examples_and_limits(run: Path) -> None:
    status = json.loads((run / "run.json").read_text())
    write_json(run / "run.json", {**status, "reward_files": {"math_correctness": "4f" * 32}})
    text = card_of(run)
    assert "from 0.0 % to 77.8 %" in text and re.search(r"\| 95 % interval \| .* … .* \|", text)
    assert "4f" * 32 in text and "groups of 8 completions" in text
    assert "## Right answers (the first 5 of 7)" in text and "## Wrong answers (all)" in text
    assert text.count("<summary>row ") == 7
    assert "Measured on 9 rows of the test split" in text and "base in 4 bits" in text


def test_an_accuracy_that_leaves_out_many_rows_is_in_the_text_alone(run: Path) -> None:
    evaluation = json.loads((run / "evaluation.json").read_text())
    evaluation["trained"]["unscored"] = 3
    write_json(run / "evaluation.json", evaluation)
    text = card_of(run)
    assert ModelCard(text).data.eval_results is None
    assert "did not judge 3 of 12 answers of the trained model" in text


def test_without_a_measurement_a_card_says_so(run: Path) -> None:
    (run / "evaluation.json").unlink()
    text = card_of(run)
    assert "was not measured" in text and ModelCard(text).data.eval_results is None


def test_what_models_and_data_wrote_stays_text(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", base=[False] * 3, trained=[True] * 3, text=BREAKOUT)
    recipe = (run / "recipe.yaml").read_text().replace("name: arithmetic", f"name: {json.dumps(BREAKOUT[:80])}")
    (run / "recipe.yaml").write_text(recipe)
    text = card_of(run)
    card = ModelCard(text)
    assert card.data.to_dict().keys() == {"library_name", "model-index", "pipeline_tag", "tags"}
    tokens = [inner for token in PARSER.parse(card.text) for inner in (token, *(token.children or ()))]
    html = {token.content.strip() for token in tokens if token.type in ("html_block", "html_inline")}
    assert all(re.fullmatch(r"<br>|</details>|<details><summary>(recipe|row \d+)</summary>", one) for one in html)
    addresses = [str(token.attrs.get("href") or token.attrs.get("src")) for token in tokens if token.attrs]
    assert {one for one in addresses if "example" in one or "x.org" in one} == set()
    assert sum(token.type == "heading_open" for token in tokens) == len(re.findall(r"(?m)^#+ [A-Zm]", card.text))
    assert "\x1b" not in text and "\u202e" not in text and "\r" not in text


@pytest.mark.parametrize("text", [TOKEN, f"open('{Path.home()}/notes')"])
def test_an_answer_that_the_scan_would_refuse_is_no_example(tmp_path: Path, text: str) -> None:
    assert "<summary>row" not in card_of(write_run(tmp_path / "run", base=[True], trained=[True], text=text))


@pytest.mark.parametrize("text", [BREAKOUT, "`", "```", "` a ``", "", "|", "a\\", "\\`"])
def test_code_shows_a_text_as_it_is(text: str) -> None:
    [block] = PARSER.parse(markdown.block(text))
    assert block.type == "fence" and len(block.content.splitlines()) >= len(text.split("\n")) - 1
    inline = PARSER.parseInline(markdown.code(text))[0].children or []
    assert [token.type for token in inline] == (["code_inline"] if text.strip() else [])
    escaped = PARSER.parseInline(markdown.escape(text))[0].children or []
    assert {token.type for token in escaped} <= {"text", "text_special"}


def write_weights(run: Path, base: str) -> None:
    """An adapter that changes answers, for the bundled model under another name."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(TINY_MODEL, dtype=torch.float32)
    adapted = get_peft_model(model, LoraConfig(init_lora_weights=False, target_modules=["q_proj", "v_proj"]))
    adapted.peft_config["default"].base_model_name_or_path = base
    adapted.save_pretrained(run / "adapter")
    AutoTokenizer.from_pretrained(TINY_MODEL).save_pretrained(run / "adapter")


@pytest.mark.slow
def test_the_code_of_a_card_loads_what_was_published(hub: HubServer, run: Path, tmp_path: Path) -> None:
    write_weights(run, "acme/tiny")
    hub.add("acme/tiny", TINY_MODEL)
    assert publish_script([str(run), "--repo", "acme/adapter"]) == 0
    shutil.copytree(TINY_MODEL, tmp_path / "merged")
    assert publish_script([str(write_export(tmp_path / "merged", run, "merged")), "--repo", "acme/merged"]) == 0
    cards = [hub.repositories[f"acme/{kind}"].files["README.md"].decode() for kind in ("adapter", "merged")]
    pieces = [piece for card in cards for piece in re.findall(r"(?ms)^```python\n(.*?)^```", card)]
    program = "\nprint('----')\n".join(pieces)
    shown = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environment(hub, tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    adapter_answer, merged_answer = shown.stdout.split("----\n")
    assert adapter_answer != merged_answer


WORDS = ["--max_steps", "1", "--warmup_steps", "0", "--evaluation.rows", "8", "--report_to", "none"]
PUSH = ["--push_to_hub", "true", "--hub_model_id", "acme/my-model"]


@pytest.mark.slow
def test_the_cards_of_a_run_name_no_path_and_an_adapter_of_a_local_base_is_not_pushed(
    hub: HubServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    words = [*WORDS, *PUSH, "--save_strategy", "steps", "--save_steps", "1", "--output_dir", str(run)]
    assert run_grpo.main(["--config", str(DEMO), *words]) == 1
    assert json.loads((run / "run.json").read_text())["status"] == "done", "a later start does not train again"
    output = capsys.readouterr().err
    assert "base_model_name_or_path" in output and f"publish.py {run} --repo acme/my-model" in output
    assert not hub.repositories and not (run / "failure.txt").exists()
    cards = {str(path.parent.relative_to(tmp_path)): path.read_text() for path in run.rglob("README.md")}
    assert set(cards) == {"run", "run/adapter", "run/checkpoint-1"}
    for card in cards.values():
        assert "None" not in card and str(REPOSITORY) not in card and str(tmp_path) not in card
        assert "models/tiny-arithmetic" in card and "| Task | arithmetic |" in card
        assert re.search(r"math\\_correctness `[0-9a-f]{64}`", card), "the hash of the reward's file"
    for folder in ("run", "run/adapter"):
        assert "On 8 held-out problems" in cards[folder] and "95 % interval" in cards[folder]
    assert "trained model was not measured" in cards["run/checkpoint-1"]


@pytest.mark.slow
def test_a_run_pushes_once_after_its_report_and_a_failed_push_can_be_made_later(hub: HubServer, tmp_path: Path) -> None:
    run = tmp_path / "run"
    full = ["--use_peft", "false", "--load_in_4bit", "false", "--use_bnb_nested_quant", "false"]
    hub.failures.append(Failure("POST /api/repos/create", 403))
    words = [*WORDS, *PUSH, *full, "--hub_private_repo", "true", "--output_dir", str(run)]
    assert run_grpo.main(["--config", str(DEMO), *words]) == 1
    assert (run / "report.html").is_file() and hub.count("POST /api/models") == 0
    assert publish_script([str(run), "--repo", "acme/my-model", "--private"]) == 0
    repository = hub.repositories["acme/my-model"]
    assert repository.commits == 2 and repository.private, "TRL's own push would be a commit more"
    assert {"README.md", "model.safetensors", "result.json"} <= set(repository.files)
    assert "training_args.bin" not in repository.files
    assert TOKEN not in (run / "model" / "training_args.bin").read_bytes().decode("latin-1") and get_token() == TOKEN
