"""The report in a real browser: no errors, no requests, working controls."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlvr.report.comparison import write_comparison
from rlvr.report.page import write_report
from tests.support.chromium import CHROMIUM, Tab, tab
from tests.support.report_runs import CONVERSATION, TOOL_COLUMNS, write_run
from tests.support.report_runs import HOSTILE as HOSTILE_TOOLS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: apt-get install chromium"),
]

# An injected script would change the title. Violations of the page's policy appear on the console.
HOSTILE = (
    "</pre></script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"> \u2028 needle"
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with tab(tmp_path_factory.mktemp("chromium")) as driven:
        yield driven


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    return [
        write_run(folder / "one", base=[False] * 5, trained=[True] * 4 + [False], text=HOSTILE),
        write_run(folder / "two", base=[False] * 5, trained=[True] * 5, text=HOSTILE),
    ]


@pytest.fixture(scope="module")
def page(runs: list[Path]) -> Path:
    return write_report(runs[0])


@pytest.fixture
def opened(browser: Tab, page: Path) -> Tab:
    browser.messages.clear()
    browser.requests.clear()
    browser.open(page)
    return browser


def set_filters(driven: Tab, **values: str) -> str:
    """Set filters with input events; return the sentence on the matches."""
    for name, value in values.items():
        driven.evaluate(
            f"(() => {{ const field = document.getElementById('filters').elements['{name}']; field.value = '{value}';"
            " field.dispatchEvent(new InputEvent('input', {bubbles: true})); })()"
        )
    driven.evaluate("new Promise((done) => setTimeout(done, 250))")  # the page waits while a person types
    return driven.evaluate("document.getElementById('found').textContent")


def shown(driven: Tab) -> str:
    return driven.evaluate("document.getElementById('detail').textContent")


def test_no_injected_script_runs_and_no_request_is_made(opened: Tab, page: Path) -> None:
    assert opened.evaluate("document.title") == "one – report of a GRPO run"
    assert opened.messages == []
    assert opened.requests == [page.resolve().as_uri()]
    for place in range(18):
        opened.evaluate(f"window.browser.show({place})")
    assert HOSTILE in shown(opened)
    assert opened.evaluate("document.querySelectorAll('img').length + document.scripts.length") == 2
    assert opened.evaluate("document.title") == "one – report of a GRPO run" and opened.messages == []


def test_the_policy_refuses_an_injected_script(opened: Tab) -> None:
    """Without escaping: the element is inserted directly."""
    opened.evaluate(
        "(() => { const made = document.createElement('div'); made.innerHTML = "
        "'<img src=x onerror=\"document.title=1\">'; document.body.append(made); })()"
    )
    opened.wait_for("false", tries=4)
    assert opened.evaluate("document.title") == "one – report of a GRPO run"
    assert any("Content Security Policy" in message for message in opened.messages)


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ({}, "18 of 18 completions; 6 of them right (33.3 %)."),
        ({"kind": "training"}, "8 of 18 completions; 2 of them right (25.0 %)."),
        ({"kind": "trained", "right": "wrong"}, "1 of 18 completions; 0 of them right (0.0 %)."),
        ({"from": "2", "to": "4"}, "4 of 18 completions; 1 of them right (25.0 %)."),
        ({"reward": "0", "low": "0.5"}, "6 of 18 completions; 6 of them right (100.0 %)."),
        ({"prompts": "changed"}, "8 of 18 completions; 4 of them right (50.0 %)."),
        ({"search": "COMPLETION 2 of step"}, "2 of 18 completions; 2 of them right (100.0 %)."),
        ({"search": "nowhere to be found"}, "No completion matches."),
    ],
    ids=str,
)
def test_filters_select_the_matching_completions(opened: Tab, values: dict[str, str], found: str) -> None:
    assert set_filters(opened, **values) == found
    assert set_filters(opened) == found
    opened.evaluate("document.querySelector('#filters button[type=reset]').click()")
    assert set_filters(opened).startswith("18 of 18")


def test_the_keyboard_reaches_all_controls(opened: Tab) -> None:
    opened.press("/")
    assert opened.evaluate("document.activeElement.name") == "search"
    opened.evaluate("document.activeElement.blur()")
    for _ in range(30):
        opened.press("Tab")
        if opened.evaluate("document.activeElement.id") == "list":
            break
    else:
        pytest.fail("Tab never comes to the list")
    before = shown(opened)
    opened.press("ArrowDown")
    assert opened.evaluate("document.querySelector('[aria-selected=true]').id") == "found-1"
    assert opened.evaluate("document.activeElement.getAttribute('aria-activedescendant')") == "found-1"
    assert shown(opened) != before
    opened.press("End")
    assert opened.evaluate("document.querySelector('[aria-selected=true]').id") == "found-17"
    opened.press("Home")
    assert shown(opened) == before


def test_base_and_trained_answers_are_side_by_side(opened: Tab) -> None:
    set_filters(opened, kind="base")
    sides = "[...document.querySelectorAll('#detail .sides .answer h4')].map((title) => title.textContent)"
    assert opened.evaluate(sides) == ["base, held out ✗ wrong", "trained, held out ✓ right"]
    set_filters(opened, kind="training")
    assert opened.evaluate(sides) == ["step 1 ✓ right", "step 1 ✗ wrong"], "one step only: the best and the worst"


def test_a_chart_shows_its_values_under_the_pointer(opened: Tab) -> None:
    opened.evaluate("document.querySelector('svg[data-readout]').scrollIntoView({block: 'center'})")
    box = opened.evaluate(
        "(() => { const box = document.querySelector('svg[data-readout]').getBoundingClientRect();"
        " return [box.left, box.top, box.width, box.height]; })()"
    )
    opened.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0] + 0.95 * box[2], y=box[1] + 0.5 * box[3])
    tip = opened.evaluate("document.querySelector('.tip:not([hidden])').textContent")
    assert tip.startswith("step 4total: 0.4")


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False), (390, True)])
def test_it_fits_any_width_in_light_and_dark(
    browser: Tab, page: Path, runs: list[Path], width: int, dark: bool
) -> None:
    browser.messages.clear()
    for path in (page, write_comparison(runs) if dark else page):
        browser.open(path, width=width, dark=dark)
        assert browser.messages == []
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        colours = browser.evaluate(
            "[document.body, document.querySelector('h1')].map((one) => getComputedStyle(one))"
            ".map((style, at) => at ? style.color : style.backgroundColor)"
        )
        light = [sum(map(int, colour.removeprefix("rgb(").removesuffix(")").split(","))) / 3 for colour in colours]
        assert (light[0] < 60 and light[1] > 180) if dark else (light[0] > 200 and light[1] < 80)


@pytest.mark.parametrize("width", [390, 1100, 1920])
def test_a_conversation_is_shown_turn_by_turn_at_any_width(
    browser: Tab, runs: list[Path], tmp_path: Path, width: int
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    run = tmp_path / "tools"
    shutil.copytree(runs[0], run)
    rows = [
        {"step": 9, "prompt": "p", "completion": CONVERSATION, "math_correctness": 1.0, **TOOL_COLUMNS},
        {"step": 9, "prompt": "p", "completion": CONVERSATION[-1:], "math_correctness": 0.0, **TOOL_COLUMNS},
    ]
    pq.write_table(pa.Table.from_pylist(rows), run / "completions" / "completions_00009.parquet")
    browser.messages.clear()
    browser.open(write_report(run), width=width)
    assert set_filters(browser, search="max_tool_calling_iterations").startswith("2 of 20")
    labels = "[...document.querySelectorAll('#detail > .role')].map((one) => one.textContent)"
    assert browser.evaluate(labels)[3:] == ["result of run", "result of a tool", "turn 2, call"]
    assert shown(browser).count(HOSTILE_TOOLS) >= 4 and "cut off by max_tool_calling_iterations" in shown(browser)
    assert 'run(code="1")' in browser.evaluate("document.querySelector('#list li .line').textContent")
    assert browser.evaluate("document.querySelectorAll('img').length + document.scripts.length") == 2
    assert browser.messages == [] and browser.evaluate("document.documentElement.scrollWidth") <= width


WIDE_NAME = "keyword_coverage_of_the_completion"


@pytest.mark.parametrize("width", [390, 900, 1100, 1440, 1920])
def test_no_column_of_a_table_is_cut(browser: Tab, runs: list[Path], tmp_path: Path, width: int) -> None:
    run = tmp_path / "wide"
    shutil.copytree(runs[1], run)
    content = json.loads((run / "evaluation.json").read_text())
    for model in ("base", "trained"):
        content[model] |= {"rewards": {WIDE_NAME: -0.25}, "lenient": 5, "formatted": 5, "right_without_format": 3}
    (run / "evaluation.json").write_text(json.dumps(content))
    browser.open(write_report(run), width=width)
    browser.evaluate("document.body.style.fontFamily = 'DejaVu Sans'")  # wider than the other fonts of the page
    sizes = "[...document.querySelectorAll('.scroll:has(table)')].map((one) => [one.clientWidth, one.scrollWidth])"
    assert [shown for shown, needed in browser.evaluate(sizes) if needed > shown] == []
    text = browser.evaluate("document.querySelector('table').textContent")
    assert WIDE_NAME in text and "\u00a0%" in text and " %" not in text, "no line ends between a number and its sign"
