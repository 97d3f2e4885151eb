"""What a statement says of itself: its sections, several right answers, pictures, and how outputs are compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlvr.data.code import io_tests, problem_text
from rlvr.data.code.problem_text import ProblemStatement, parse_statement
from rlvr.data.io import read_rows

REAL = Path(__file__).resolve().parents[4].parent / "shared" / "data" / "code_contests_easy_train.parquet"

# The 125 problems of the prepared easy tier that have several right answers; all 808 were read, one by one.
SEVERAL = """
1400_A 1405_A 1178_A 1450_A 898_A 727_A 1228_A 977_B 755_A 1433_C 1237_A 1521_A 1088_A 1291_A 490_A 1104_A 932_A
1343_B 1144_C 1323_A 1430_A 221_A 1337_A 770_A 948_A 1216_B 384_A 1497_A 1461_A 1389_A 1206_A 3_A 1051_B 246_A
988_A 244_A 1092_A 939_B 1325_A 711_A 1326_A 1385_A 1408_A 1398_A 801_B 1093_B 1335_B 1333_A 864_A 749_A 1056_A
1057_A 424_A 1216_A 1130_A 1373_A 1422_A 1265_A 357_A 1372_A 334_A 199_A 1419_D1 1513_A 1520_C 732_B 701_A 507_A
1436_B 1047_A 1108_A 1382_A 747_B 306_A 805_A 1438_A 1443_A 987_A 644_A 1541_A 1153_A 1380_A 1526_A 998_A 1093_A
1515_A 1536_A 421_A 1269_A 1015_A 1427_A 584_A 234_B 1546_A 34_A 776_A 472_A 412_A 219_A 1073_A 1352_A 1388_A
1225_A 143_A 753_A 1343_A 1155_A 1189_A 263_B 233_A 1504_A 1096_A 1107_A 822_B 250_A 1154_A 1493_A 1244_A 491_A
652_B 1174_A 1312_B 322_A 1447_A 1430_C
"""
SEVERAL_ANSWERS = frozenset(SEVERAL.split())


@pytest.fixture(scope="module")
def problems() -> dict[str, tuple[ProblemStatement, list[dict[str, str]]]]:
    """The real problems: the statement and all tests of each, by its number."""
    if not REAL.is_file():
        pytest.skip("the prepared CodeContests are not on this machine (looked in ../shared/data)")
    found = {}
    for row in read_rows(REAL):
        truth = row["reward_model"]["ground_truth"]
        tests = io_tests.pair_tests(truth["public_tests"]) + io_tests.pair_tests(truth["private_tests"])
        statement = parse_statement(problem_text.strip_prompt(row["prompt"][0]["content"]))
        found[truth["name"].split(".")[0]] = (statement, io_tests.drop_truncated(tests))
    return found


@pytest.mark.slow
def test_the_rule_for_several_answers_errs_as_often_as_the_page_says(problems: dict) -> None:
    said = {
        number
        for number, (statement, tests) in problems.items()
        if problem_text.find_several_answers(statement, [test["output"] for test in tests])
        or (problem_text.find_tolerance(statement) is None and io_tests.has_contradictions(tests))
    }
    assert problems.keys() >= SEVERAL_ANSWERS and len(SEVERAL_ANSWERS) == 125
    assert SEVERAL_ANSWERS - said == problem_text.KNOWN_SEVERAL_ANSWERS & problems.keys()
    assert len(SEVERAL_ANSWERS - said) == 6
    assert said - SEVERAL_ANSWERS == {"299_A", "1505_A"}


def test_every_real_statement_has_its_sections(problems: dict) -> None:
    for number, (statement, _) in problems.items():
        assert statement.input and statement.output or number == "1505_A", number


def test_real_problems_are_compared_as_their_statements_say(problems: dict) -> None:
    ways = {
        number: problem_text.choose_comparison(statement, [test["output"] for test in tests])
        for number, (statement, tests) in problems.items()
    }
    floats = {number: tolerance for number, (way, tolerance) in ways.items() if way == "float"}
    exact = dict.fromkeys(("706_A", "1199_B", "919_A", "624_A", "127_A"), 1e-6)
    assert floats == {**exact, **dict.fromkeys(("157_B", "200_B", "591_A"), 1e-4)}
    assert ways["1294_A"][0] == ways["814_A"][0] == "yes_no"  # asks for "YES" and expects "Yes", and the reverse
    assert ways["1373_B"][0] == ways["1075_A"][0] == "yes_no"  # DA and NET, White and Black
    assert ways["4_A"][0] == "lines"


# ----------------------------------------------------------------------------------------------------------------------

WHOLE = """\
A story of Input and Output.

Input

One integer n.

Output

Print n.

Examples

Input

3


Output

3

Note

Look at <image>.
"""


def test_a_statement_is_taken_apart_at_its_headings() -> None:
    statement = parse_statement(WHOLE)
    assert statement.story == "A story of Input and Output."
    assert statement.input == "One integer n."
    assert statement.output == "Print n."
    assert statement.note == "Look at <image>."


@pytest.mark.parametrize(
    ("text", "story", "output", "why"),
    [
        ("Print n.", "Print n.", "", "no headings at all"),
        ("Input\n\nn\n\nOutput\n\nPrint n.", "", "Print n.", "no story and no examples"),
        ("A\r\n\r\nInput\r\n\r\nn\r\n\r\nOutput\r\n\r\nB", "A", "B", "line ends of Windows"),
        ("A\n\nOutput\n\nB\n\nExample\n\nOutput\n\n1", "A", "B", "no input"),
    ],
)
def test_statements_without_some_headings_are_read_too(text: str, story: str, output: str, why: str) -> None:
    statement = parse_statement(text)
    assert (statement.story, statement.output) == (story, output), why


LEAD_IN = "Write a C++ solution for this problem. Put your thoughts in <think> tags and your solution in <code> tags."


@pytest.mark.parametrize(
    ("prompt", "why"),
    [
        (f"<|im_start|>user\n{LEAD_IN}\n\nProblem:\n{WHOLE}<|im_start|>assistant\n", "as it stands in the file"),
        (
            f"<|im_start|>user\n{LEAD_IN}\n\nProblem:\n\n{WHOLE}<|im_end|>\n<|im_start|>assistant\n<think>\n",
            "turns closed",
        ),
        (f"<|im_start|>system\nBe good.<|im_end|>\n<|im_start|>user\n{WHOLE}<|im_start|>assistant\n", "a system turn"),
        (f"{LEAD_IN}\n\nProblem:\n{WHOLE}", "no turn"),
        (WHOLE, "the problem alone"),
    ],
)
def test_only_the_problem_is_kept_of_a_baked_prompt(prompt: str, why: str) -> None:
    assert problem_text.strip_prompt(prompt) == WHOLE.strip(), why


def statement(output: str = "", story: str = "", note: str = "") -> ProblemStatement:
    return ProblemStatement(story=story, input="", output=output, note=note)


@pytest.mark.parametrize(
    ("output", "several", "why"),
    [
        ("If there are multiple answers, print any of them.", True, "said outright"),
        ("Print any suitable m.", True, "any, with an adjective"),
        ("Print one integer — any positive value of x.", True, "any behind a dash"),
        ("Print -1 if there is none and any good string otherwise.", True, "any behind and"),
        ("Print the indices in arbitrary order.", True, "an order that is free"),
        ("You can print each letter in any case (upper or lower).", False, "the case of letters"),
        ("Print DA in any register.", False, "the case of letters, as Russians say it"),
        ("Print YES if the program will produce any output.", False, "any as every"),
        ("Print the number of moves if you can perform any number of them.", False, "any number of moves"),
        ("There aren't multiple possible answers — the answer is unique for any input data.", False, "a denial"),
        ("Print the maximum length. There can be multiple longest substrings.", False, "a number, in any event"),
        ("Print the lexicographically smallest permutation.", True, "an arrangement is taken for one of several"),
    ],
)
def test_several_answers_are_seen_in_how_the_output_is_described(output: str, several: bool, why: str) -> None:
    assert (problem_text.find_several_answers(statement(output), ["1 2 3"]) is not None) == several, why


def test_an_arrangement_is_asked_for_only_where_more_than_one_thing_is_printed() -> None:
    asked = statement("Print the minimum number of changes needed to get the permutation.")
    assert problem_text.find_several_answers(asked, ["3\n", "4\n"]) is None


@pytest.mark.parametrize(
    ("story", "note", "several", "why"),
    [
        ("Find any good coloring.", "", True, "in the story"),
        ("", "Print ai in any order, separate the numbers by spaces.", True, "in the note"),
        ("In one move he can choose any cell.", "", False, "any in a rule of the game"),
        ("Kirito can fight the dragons in any order.", "", False, "an order in the story"),
    ],
)
def test_several_answers_in_story_and_note_take_more_words(story: str, note: str, several: bool, why: str) -> None:
    found = problem_text.find_several_answers(statement("Print it.", story, note), ["1"])
    assert (found is not None) == several, why


@pytest.mark.parametrize(
    ("fields", "depends", "why"),
    [
        ({"story": "The row with <image> rows above it."}, True, "a formula in the story"),
        ({"output": "Print <image>."}, True, "a formula in the output"),
        ({"note": "<image>"}, False, "a picture that explains an example"),
        ({"output": "The checker program will consider your answer correct, if <image>."}, False, "a tolerance"),
    ],
)
def test_an_image_matters_where_the_problem_is_posed(fields: dict, depends: bool, why: str) -> None:
    assert problem_text.depends_on_image(statement(**fields)) == depends, why


@pytest.mark.parametrize(
    ("output", "tolerance", "why"),
    [
        ("The absolute or relative error should not exceed 10^{-6}.", 1e-6, "TeX"),
        ("The answer is accepted if absolute or relative error doesn't exceed 10 - 4.", 1e-4, "a lost superscript"),
        ("Your answer must have a relative error less than 1e-9.", 1e-9, "as programmers write it"),
        ("It is valid if it differs from the correct one by at most 10 - 9.", 1e-9, "the word error is not needed"),
        ("Absolute or relative error is at most 0.001.", 1e-3, "a decimal"),
        ("Correct if its absolute or relative error is small.", 1e-6, "without a number"),
        ("Print the number of errors.", None, "errors of another kind"),
        ("Print the answer modulo 10^9 + 7.", None, "a large number"),
        ("The absolute value does not exceed 1000.", None, "an absolute value"),
    ],
)
def test_the_tolerance_is_the_one_that_the_statement_names(output: str, tolerance: float | None, why: str) -> None:
    assert problem_text.find_tolerance(statement(output)) == tolerance, why


FREE_CASE = "You can print each letter in any case."


@pytest.mark.parametrize(
    ("output", "outputs", "way", "why"),
    [
        (f"Print YES or NO. {FREE_CASE}", ["YES", "NO\nYES"], "yes_no", "free case"),
        ("Print the letters in upper or lower case.", ["yes"], "yes_no", "free case in other words"),
        ("Output is case-insensitive.", ["Finite"], "yes_no", "words other than yes and no"),
        ("Print YES or NO.", ["YES", "NO"], "lines", "the case is not free"),
        ("Print YES or NO.", ["Yes", "No"], "yes_no", "the expected outputs are not written as asked for"),
        (f"Print YES and n numbers. {FREE_CASE}", ["YES\n1 2"], "lines", "not only words"),
        ("Relative or absolute error 10^-6.", ["0.5"], "float", "a real number"),
        ("Relative or absolute error 10^-6.", ["500"], "float", "a real number that happens to be whole"),
        ("Relative or absolute error 10^-6.", ["impossible"], "lines", "no number at all"),
        ("Print the price.", ["0.5"], "lines", "a real number without a tolerance"),
    ],
)
def test_the_comparison_follows_from_statement_and_outputs(output: str, outputs: list, way: str, why: str) -> None:
    assert problem_text.choose_comparison(statement(output), outputs)[0] == way, why


@pytest.mark.parametrize(
    ("story", "note", "outputs", "chosen", "why"),
    [
        ("", "Your answer may have an absolute error of 10^{-4}.", ["0.5"], ("float", 1e-4), "in the note"),
        ("It may differ from ours by 1e-9.", "", ["2", "0.5"], ("float", 1e-9), "in the story"),
        ("It may differ from ours by 1e-9.", "", ["2"], ("lines", 1e-6), "integers: of a measurement, perhaps"),
        ("The fourth digit differs.", "", ["0.5"], ("lines", 1e-6), "no error is allowed"),
    ],
)
def test_the_tolerance_of_decimals_may_stand_anywhere(
    story: str, note: str, outputs: list, chosen: tuple[str, float], why: str
) -> None:
    assert problem_text.choose_comparison(statement("Print it.", story, note), outputs) == chosen, why


@pytest.mark.parametrize(
    ("output", "add_decimal_points", "why"),
    [
        ("500\n", "500.0\n", "a whole number"),
        ("-3 0.25\n7", "-3.0 0.25\n7.0", "several"),
        ("1e5", "1e5", "an exponent already makes it real"),
        ("YES\n3", "YES\n3", "not only numbers: 3 may be a count"),
    ],
)
def test_whole_numbers_become_real_ones_where_real_ones_are_asked_for(
    output: str, add_decimal_points: str, why: str
) -> None:
    assert problem_text.add_decimal_points(output) == add_decimal_points, why


@pytest.mark.parametrize(
    ("fields", "files", "why"),
    [
        ({"output": "Write the answer to output.txt."}, ["output.txt"], "a file"),
        ({"output": "Prefer PrintWriter to System.out in Java."}, [], "advice for Java"),
        ({"output": "Print it."}, [], "nothing"),
    ],
)
def test_named_files_are_found(fields: dict, files: list, why: str) -> None:
    assert problem_text.named_files(statement(**fields)) == files, why


def test_interactive_problems_are_known_by_their_words() -> None:
    assert problem_text.is_interactive(statement(story="This is an interactive problem."))
    assert not problem_text.is_interactive(statement(story="Two friends interact."))
