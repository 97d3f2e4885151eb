"""scripts/publish.py against an imitation of the hub: what arrives, what is refused, and what a failure leaves."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from huggingface_hub import constants

from rlvr.artifacts.directory import write_json
from rlvr.errors import InputError
from rlvr.export.model_card import published_recipe
from rlvr.export.publish import Publication, prepare, publish
from rlvr.export.settings import check_id
from rlvr.report.run_reader import read_run
from scripts import publish as script
from tests.rlvr.export.conftest import write_export
from tests.support.hub_server import TOKEN, Failure, HubRepository, HubServer
from tests.support.input_errors import input_error

REPO = "acme/my-model"
FILES = {
    "README.md",
    "adapter_config.json",
    "adapter_model.safetensors",
    "evaluation.json",
    "recipe.yaml",
}


def refusal(publication: Publication, repo: str = REPO, *, private: bool | None = None) -> InputError:
    with pytest.raises(InputError) as error:
        publish(publication, repo, private=private)
    return error.value


@pytest.mark.slow
def test_a_run_is_published_in_one_commit_without_pickles_paths_and_tokens(
    hub: HubServer, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main([str(run), "--repo", REPO, "--private"]) == 0
    repository = hub.repositories[REPO]
    assert set(repository.files) == FILES | {".gitattributes"} and repository.commits == 2 and repository.private
    weights = run / "adapter" / "adapter_model.safetensors"
    assert repository.files["adapter_model.safetensors"] == weights.read_bytes()
    for content in repository.files.values():
        assert b"hf_verysecret" not in content and str(run.parent).encode() not in content
    output = "".join(capsys.readouterr())
    assert TOKEN not in output and "training_args.bin" in output and f"{REPO}/commit/" in output


def test_a_dry_run_shows_files_findings_and_card_and_asks_nothing(
    hub: HubServer, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main([str(run), "--repo", REPO, "--dry_run"]) == 0
    output = capsys.readouterr().out
    assert all(name in output for name in FILES) and "## Limits" in output
    (run / "adapter" / "config.json").write_text('{"path": "/data/models/x"}')
    assert script.main([str(run), "--repo", REPO, "--dry_run"]) == 2
    assert not hub.requests


def test_a_repository_of_the_user_needs_no_namespace(hub: HubServer, run: Path) -> None:
    assert script.main([str(run), "--repo", "my-model"]) == 0
    assert set(hub.repositories) == {REPO}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        pytest.param(Failure("whoami", 401), "hub-token-refused", id="a token that was revoked"),
        pytest.param(Failure("POST /api/repos/create", 403), "hub-forbidden", id="a token that may only read"),
        pytest.param(Failure("POST /api/models", 403), "hub-forbidden", id="a repository of others"),
        pytest.param(Failure("/commit/", 409), "hub-conflict", id="two uploads at once"),
        pytest.param(Failure("/commit/", 412), "hub-conflict", id="a commit in between"),
        pytest.param(Failure("/create", 429), "hub-failed", id="too many requests"),
        pytest.param(Failure("/commit/", 503), "hub-failed", id="a hub that is down"),
        pytest.param(Failure("/commit/", 0), "hub-failed", id="a connection that is cut"),
        pytest.param(Failure("/commit/", 422, text=f"no {TOKEN}"), "hub-failed", id="anything else"),
    ],
)
def test_a_failed_upload_changes_nothing_says_why_and_continues(
    hub: HubServer, publication: Publication, failure: Failure, kind: str
) -> None:
    hub.failures.append(failure)
    error = refusal(publication)
    assert error.kind == kind and TOKEN not in str(error)
    assert all(repository.commits == 1 for repository in hub.repositories.values())
    sent = hub.count("PUT")
    publish(publication, REPO, private=None)
    assert hub.repositories[REPO].commits == 2
    if "commit" in failure.where:
        assert hub.count("PUT") == sent, "what has arrived is not sent again"


def test_weights_that_change_after_the_scan_are_not_sent(hub: HubServer, run: Path) -> None:
    publication = prepare(run, REPO)
    (run / "adapter" / "adapter_model.safetensors").write_bytes(bytes(range(1, 256)) * 40)
    assert refusal(publication).kind == "hash-mismatch" and not hub.count("PUT") and not hub.count("POST")


def test_a_text_that_changes_after_the_scan_is_sent_as_it_was_scanned(hub: HubServer, run: Path) -> None:
    publication, file = prepare(run, REPO), run / "adapter" / "adapter_config.json"
    scanned = file.read_bytes()
    file.write_text(json.dumps({"base_model_name_or_path": TOKEN}))
    publish(publication, REPO, private=None)
    assert hub.repositories[REPO].files["adapter_config.json"] == scanned


@pytest.mark.slow
def test_a_connection_that_is_cut_in_a_large_file_is_made_again(hub: HubServer, publication: Publication) -> None:
    hub.failures.append(Failure("PUT /lfs", 0))
    publish(publication, REPO, private=None)
    assert set(hub.repositories[REPO].files) > FILES


def lose_token(patch: pytest.MonkeyPatch, folder: Path) -> None:
    patch.delenv("HF_TOKEN")
    patch.setattr(constants, "HF_TOKEN_PATH", str(folder / "no-token"))


def go_offline(patch: pytest.MonkeyPatch, folder: Path) -> None:
    patch.setattr(constants, "HF_HUB_OFFLINE", True)


@pytest.mark.parametrize(("break_it", "kind"), [(lose_token, "hub-token-missing"), (go_offline, "hub-offline")])
def test_without_token_or_network_nothing_is_asked(
    hub: HubServer,
    run: Path,
    publication: Publication,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    break_it: Callable[[pytest.MonkeyPatch, Path], None],
    kind: str,
) -> None:
    break_it(monkeypatch, tmp_path)
    assert refusal(publication).kind == kind and not hub.requests
    assert script.main([str(run), "--repo", REPO]) == 2


def test_a_repository_that_exists_keeps_its_other_files_and_they_are_named(
    hub: HubServer, publication: Publication, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.repositories[REPO] = HubRepository(files={"notes.txt": b"mine", "README.md": b"old"})
    publish(publication, REPO, private=None)
    assert hub.repositories[REPO].files["notes.txt"] == b"mine"
    assert hub.repositories[REPO].files["README.md"] != b"old"
    assert "notes.txt" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("repository", "private", "kind"),
    [
        pytest.param(HubRepository(), True, "repository-is-public", id="--private for a public one"),
        pytest.param(
            HubRepository(files={"model.safetensors": b"other"}),
            None,
            "repository-has-other-weights",
            id="a model and an adapter side by side",
        ),
    ],
)
def test_a_repository_that_does_not_fit_is_left_alone(
    hub: HubServer, publication: Publication, repository: HubRepository, private: bool | None, kind: str
) -> None:
    hub.repositories[REPO] = repository
    assert refusal(publication, private=private).kind == kind and not hub.count("POST")


@pytest.mark.parametrize("repo", ["a/b/c", "../x", "acme/", "acme/my model"])
def test_what_is_no_id_of_a_repository_is_refused(repo: str) -> None:
    with input_error("invalid-repository"):
        check_id(repo)


def interrupt(run: Path) -> None:
    status = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**status, "status": "trained"}))


def name_base(name: str) -> Callable[[Path], None]:
    return lambda run: write_json(run / "adapter" / "adapter_config.json", {"base_model_name_or_path": name})


def save_elsewhere(name: str) -> Callable[[Path], None]:
    """Name a folder outside the run as the one with the model."""

    def change(run: Path) -> None:
        other = shutil.copytree(run / "adapter", run.parent / "other")
        status = json.loads((run / "run.json").read_text())
        write_json(run / "run.json", {**status, "saved": name or str(other)})

    return change


def link(name: str) -> Callable[[Path], None]:
    """Move a file or a folder of the run away, and leave a link."""
    return lambda run: (run / name).symlink_to((run / name).rename(run.parent / "elsewhere"))


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (save_elsewhere("../other"), "path-outside-run"),
        (save_elsewhere(""), "path-outside-run"),
        (link("adapter"), "path-outside-run"),
        (link("adapter/adapter_model.safetensors"), "path-outside-run"),
        (link("evaluation.json"), "path-outside-run"),
        (link("recipe.yaml"), "path-outside-run"),
        (interrupt, "run-not-finished"),
        (lambda run: shutil.rmtree(run / "adapter"), "no-weights"),
        (shutil.rmtree, "not-a-run"),
        (name_base("/data/models/tiny"), "base-not-on-hub"),
        (name_base("tiny"), "base-not-on-hub"),
    ],
)
def test_what_can_not_be_published_is_refused_at_once(run: Path, change: Callable[[Path], None], kind: str) -> None:
    change(run)
    with input_error(kind):
        prepare(run, REPO)
    assert script.main([str(run), "--repo", REPO]) == 2


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        pytest.param(lambda folder, run: None, None, id="its run is beside it"),
        pytest.param(
            lambda folder, run: (folder / "config.json").write_text("{}"), "hash-mismatch", id="changed since"
        ),
        pytest.param(lambda folder, run: (run / "result.json").unlink(), "run-not-found", id="no run"),
        pytest.param(lambda folder, run: interrupt(run), "run-not-finished", id="a run that goes on"),
    ],
)
def test_an_export_is_published_as_it_was_measured(
    run: Path, tmp_path: Path, change: Callable[[Path, Path], None], kind: str | None
) -> None:
    folder = tmp_path / "export"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "qwen2"}')
    (folder / "model.safetensors").write_bytes(b"\0" * 100)
    write_export(folder, run, "merged")
    change(folder, run)
    if kind is None:
        publication = prepare(folder, REPO)
        assert {"model.safetensors", "export.json"} < set(publication.files)
        assert "the same 9 rows: 7 answers" in publication.card and "acme/tiny" in publication.card
    else:
        with input_error(kind):
            prepare(folder, REPO)


def test_the_card_of_gguf_files_has_the_command_for_llama_cpp(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "export"
    folder.mkdir()
    (folder / "one.gguf").write_bytes(b"GGUF")
    assert f"llama-server -hf {REPO} -hff one.gguf\n" in prepare(write_export(folder, run, "gguf"), REPO).card


def header(text: str) -> bytes:
    """The beginning of safetensors with this metadata."""
    content = json.dumps({"__metadata__": {"source": text}}).encode()
    return len(content).to_bytes(8, "little") + content + bytes(range(256)) * 40


def write(path: Path, text: str | bytes) -> None:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())


GGUF = b"GGUF\3\0\0\0\x08\0\0\0%\0\0\0\0\0\0\0"  # and the length of a string
LONG = f"{'words ' * 200}\n" * 2**14


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "text", "kind", "line", "why"),
    [
        ("config.json", '{"a": [{"_name": "/data/models/tiny"}]}', "local-path", 1, "a path in a configuration"),
        ("notes.txt", f"all\nis in {Path.home()}/data\n", "local-path", 2, "a folder of the user in a text"),
        ("a.safetensors", header(f"{Path.cwd()}/x"), "local-path", 1, "a folder in the header of weights"),
        ("a.json", '{"x": "file:///srv/models/x"}', "local-path", 1, "the URL of a file"),
        ("notes.txt", "FILE:/srv/models/x", "local-path", 1, "a short URL of a file"),
        ("notes.txt", "in c:\\users\\me\\x", "local-path", 1, "a user's folder in another case"),
        ("a.json", '{"x": "C:/models/x"}', "local-path", 1, "a disk of Windows"),
        ("notes.txt", f"cwd={Path.home()}", "local-path", 1, "the home itself"),
        ("notes.txt", "from\nC:\\Users\\me\\x", "local-path", 2, "a user's folder of Windows"),
        ("a.json", '{"D:\\\\models": 1}', "local-path", 1, "a folder of Windows as a key"),
        ("a.json", '{"\\/srv\\u002fmodels": 1}', "local-path", 1, "a path with escapes as a key"),
        ("settings.json", f'{{\n"key": "{TOKEN}"}}', "secret", 2, "a token in a configuration"),
        ("modeling.py", "api_key = 'f3G7hJ2kL9mN4pQ8rS5t'\n", "secret", 1, "a key in code of the model"),
        ("tokenizer.json", f'{{"added": "{TOKEN}"}}', "secret", 1, "a token among tokens"),
        ("a.safetensors", header(TOKEN), "secret", 1, "a token in the metadata of weights"),
        ("a.gguf", GGUF + TOKEN.encode(), "secret", 1, "a token in the metadata of GGUF"),
        ("notes.txt", f"{LONG}{TOKEN}", "secret", 2**14 + 1, "a token behind 16 MiB of text"),
        ("notes.txt", f"a\n{TOKEN}".encode("utf-16"), "secret", 2, "a token in UTF-16"),
    ],
)
def test_a_finding_has_its_place_and_not_the_secret(
    run: Path, name: str, text: str | bytes, kind: str, line: int, why: str
) -> None:
    write(run / "adapter" / name, text)
    [problem] = prepare(run, REPO).problems
    assert (problem.kind, problem.path, problem.line) == (f"{kind}-in-upload", name, line), why
    assert TOKEN not in problem.message


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.safetensors", header("acme/tiny")),
        ("a.json", '{"template": "A:\\n\\n {{ x }} <\\/think>", "url": "https://host/home/me/x"}'),
        ("notes.txt", "hf_NAME, C:\\n or file:// and Users/me\n"),
    ],
)
def test_what_only_looks_like_a_path_or_a_token_is_published(run: Path, name: str, text: str | bytes) -> None:
    write(run / "adapter" / name, text)
    assert not prepare(run, REPO).problems


def test_a_vocabulary_may_hold_what_looks_like_a_path(run: Path) -> None:
    (run / "adapter" / "tokenizer.json").write_text('{"vocab": {"/usr/local/bin": 1, "/home/": 2}}')
    (run / "adapter" / ".cache").mkdir()
    found = prepare(run, REPO)
    assert not found.problems and set(found.left_out) == {".cache", "training_args.bin"}


def test_the_recipe_names_no_folder_of_this_machine(run: Path) -> None:
    assert "output_dir: my-run\n" in published_recipe(read_run(run))
