"""Read one number from a short text, exactly.

Reads integers, decimals, fractions, mixed numbers and powers of ten, in ASCII, Unicode and simple LaTeX. They may have
thousands separators (comma, space, underscore, apostrophe, points as in 1.234.567), a currency sign, a percent sign, a
unit in words, or the left side of an equation that is true ("6 * 7 = 42"). A doubtful text is no number: "42 or 41",
"42/0", "42!", "42x", "42...". Neither are numbers in words, and expressions that must be simplified.

A value is an `int` or a `Fraction`, never a float: 42.0005 is not 42, and no integer is too long. At most 200
characters are read, every pattern runs in linear time, and no string raises an exception.
"""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction

from rlvr.verifiers.math.sums import gives, is_sum

Number = int | Fraction


def word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


MAX_CHARACTERS = 200

_PLAIN = re.compile(r"\$?(-?[0-9]{1,18})\.?")
DECIMAL = re.compile(r"-?[0-9]*\.[0-9]+")

_NUMBER = re.compile(
    r"""
    (?P<outer>[+-]?)[ ]?
    (?:US\$|(?:USD|EUR|GBP|INR|Rs\.?)[ ]|[$€£¥₹₩])?[ ]?
    (?P<inner>[+-]?)[ ]?
    (?:
        (?P<whole>[0-9]{1,18})[ ](?:and[ ])?(?P<numerator>[0-9]{1,18})[ ]?/[ ]?(?P<denominator>[0-9]{1,18})
      | (?P<over>[0-9]{1,18})[ ]?/[ ]?(?P<under>[0-9]{1,18})
      | (?P<digits>
            [0-9]{1,3}(?:\.[0-9]{3}){2,}(?:,[0-9]{1,2})?(?![0-9.])
          | [1-9][0-9]{0,2}\.[0-9]{3},[0-9]{1,2}(?![0-9])
          | (?:[1-9][0-9]{0,2}(?:(?:,[0-9]{3})+|(?:[ ][0-9]{3})+|(?:_[0-9]{3})+|(?:'[0-9]{3})+)(?![0-9])
            |[0-9]{1,2}(?:,[0-9]{2})+,[0-9]{3}(?![0-9])
            |[0-9]+)(?:\.[0-9]+)?
          | \.[0-9]+
        )
        (?:
            [eE](?P<e>[+-]?[0-9]{1,3})
          | [ ]?\*[ ]?10[ ]?\^[ ]?(?P<brace>\{)?(?P<ten>[+-]?[0-9]{1,3})(?(brace)\})
        )?
    )
    (?![0-9])
    """,
    re.VERBOSE,
)

_POINTS_SEPARATE = re.compile(r"[0-9]{1,3}\.[0-9]{3}[.,]")  # 1.234.567 and 1.234,50, as many countries write them
_SEPARATORS = {ord(","): None, ord(" "): None, ord("_"): None, ord("'"): None}

# ----------------------------------------------------------------------------------------------------------------------
# Text after a number that does not change it

_LETTER = "A-Za-zÀ-ÖØ-öø-ɏ"
_TAIL = re.compile(rf"[{_LETTER} ,.'/()%°€£¥₹₩¢$*_`\"!-]*")
_BARE_TAIL = re.compile(r"[ *_`\"'$%°€£¥₹₩¢]*\.?[ *_`\"'$]*")
# Parts of a unit that look like another number or an unknown: "five-dollar bills", "T-shirts", "sixth grade pupils",
# "dozens of eggs", "M&Ms".
_COMPOUND = re.compile(
    r"\b(?:(?:one|two|three|four|five|six|seven|eight|nine|ten|twelve|twenty|fifty"
    r"|(?!pi|bn|mn)[A-Za-z][a-z]|[A-JLN-Za-jl-z])-(?=[a-z]{3})"
    r"|(?:third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|eleventh|twelfth)[ -](?=grade)"
    r"|dozens? (?=of [a-z]{3}|(?!and|for|the|per|each|every|all|which|that|because|since|more|less|are|was)[a-z]{3})"
    r"|o'(?=clock)|(?:[A-Z]&[A-Z]|m&m)(?:'?s)?\b|(?:wrong|incorrect) (?=(?:answers|questions)\b))"
    rf"|(?<=[{_LETTER}]) (?:more|less|fewer)(?=[ .*_]{{0,4}}\Z)"
)
# A second number that counts something else: "7 eggs in 4 weeks".
_EXTENT = re.compile(
    rf"(?<=[{_LETTER}])(?<!percent)( (?:in|for|after|within|during|every|per|from|of|at|on)(?: the| all| those)?)"
    rf" (?:[0-9.]{{1,9}}|one|two|three|four|five|six|seven|eight|nine|ten|twelve)(?= [{_LETTER}]{{2}})"
)
_ODD_TAIL = re.compile(
    rf"""
      (?<![{_LETTER}])-|-(?![{_LETTER}])    # a minus or a range, not a hyphen
    | (?<![{_LETTER}])!                     # a factorial
    | /(?![ ]?[{_LETTER}])                  # a division, not "per"
    | [ ]\*[ ]                              # a product
    | \.[ ]?\. | ,[ ]?$
    """,
    re.VERBOSE,
)
_WORD = re.compile(rf"[{_LETTER}]+")
_UNIT_POWER = re.compile(
    rf"(?<![{_LETTER}])(m|cm|mm|km|ft|in|yd|mi|inch|inches|feet|yards|miles|meters?|metres?|(?<=/)s)(?:\^?\{{?[23]\}}?|[²³])"
)
_SIGN_OF_UNIT = re.compile(rf"[µμ][mgslL]|[kM]?Ω|℃|℉|円|元(?![{_LETTER}])")
_MAX_UNIT_WORDS = 12

# Units that may follow the digits without a space: "60km", "5pm" (the hour), "30kg".
_ATTACHED_UNITS = word_set("""
g kg mg lb lbs oz m km cm mm mi ft in yd l L ml mL h hr hrs min mins s sec secs ms mph kph kmh am pm AM PM
USD EUR GBP cents W kW kWh
""")
_SHORT_UNITS = frozenset("agmlLhsCFW")
_TWO_LETTERS = word_set("""
of in to an by at on as he it we my us up km cm mm kg mg ml mL lb oz ft yd mi hr pm am PM AM kW GB MB TB Hz TV CD sq US
""")
_SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_SCALE = re.compile(rf" ?({'|'.join(_SCALES)})(?![{_LETTER}])|[kK](?![{_LETTER}])", re.IGNORECASE)
# Words after a number that change it, add another number, or retract it.
_CHANGING_WORDS = word_set("""
or nor not no never if but maybe perhaps possibly either unless except wrong incorrect false wait actually hmm sorry
correction instead rather approximately about roughly around nearly almost approx probably unknown plus minus divided
multiplied squared cubed factorial mod modulo root sqrt power remainder base pi negative infinity step method
methods approach repeating recurring is was are were be been less more least most than fails too vs versus lakh lakhs
crore crores gross score bn mn ppm bps binary octal hex hexadecimal doubled tripled halved lie give take counting cos
sin tan cot sec csc log ln theta alpha beta gamma lambda sigma omega sixths sevenths eighths ninths elevenths twelfths
sixth seventh eighth ninth twelfth ish inverse reciprocal tens mil twentieths cannot none false doubt
""")
_NUMBER_WORDS = word_set("""
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred hundreds thousand thousands million
millions billion billions trillion trillions dozen dozens half halves quarter third thirds fourth fourths fifth
fifths tenth tenths hundredth hundredths thousandth thousandths
""")
_NO_UNITS = _CHANGING_WORDS | _NUMBER_WORDS

# ----------------------------------------------------------------------------------------------------------------------
# Spellings


class _Spellings(dict[int, str | int]):
    """Table for `str.translate` from Unicode minus signs, spaces, digits and fractions to ASCII.

    NFKC normalisation would turn 42² into 422 and 2½ into 21/2.
    """

    def __missing__(self, code: int) -> str | int:
        digit = unicodedata.decimal(chr(code), None)
        self[code] = code if digit is None else str(digit)
        return self[code]


_ASCII = _Spellings()
for _plain, _variants in (
    ("-", "−–—‒―‐‑﹣－⁻"),
    ("+", "＋﹢"),
    (" ", "\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"),
    ("", "\u200b\u200c\u200d\u2060\ufeff\u00ad"),
    (",", "，"),
    (".", "．"),
    ("%", "％﹪"),
    ("$", "＄﹩"),
    ("/", "⁄∕／÷"),
    ("*", "×·⋅∗"),
    ("=", "＝"),
    ("'", "’‘ʼ"),
    ('"', "“”„"),
):
    _ASCII.update(dict.fromkeys(map(ord, _variants), _plain))
for _glyph in "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞":
    _ASCII[ord(_glyph)] = f" {Fraction(unicodedata.numeric(_glyph)).limit_denominator(8)} "

_LATEX = (
    (re.compile(r"\\([$%])"), r"\1"),
    (re.compile(r"(?<=[{])(?:~|\\[,;: ])+"), ""),  # \mathrm{~cm}
    (re.compile(r"\{\\rm ([a-zA-Z ]{1,20})\}"), r" \1 "),
    (re.compile(r"\\(?:text|mbox|textrm|mathrm)\s?\{([^{}\\]*?)\s?\}\s?(?=\^)"), r" \1"),
    (re.compile(r"\\(?:text(?:bf|it|rm)?|math(?:rm|bf|it)|operatorname|mbox|rm)\s?\{([^{}\\]*)\}"), r" \1 "),
    (
        re.compile(r"\\[dtc]?frac\s?(?:\{\s?(-?[0-9]{1,18})\s?\}|([0-9]))\s?(?:\{\s?([0-9]{1,18})\s?\}|([0-9]))"),
        r" \1\2/\3\4 ",
    ),
    (re.compile(r"\s?\{\s?,\s?\}\s?"), ","),
    (re.compile(r"\\!\s?"), ""),
    (re.compile(r"(?<=[0-9])(?:\\[,;: ]|~)(?=[0-9]{3}(?![0-9]))"), ","),
    (re.compile(r"(?:\^\s?\{\s?\\circ\s?\}|\^\s?\\circ|\\degree)(?![A-Za-z])"), " degrees "),
    (re.compile(r"\\(?:times|cdot)(?![A-Za-z])"), "*"),
    (re.compile(r"\\(?:[,;: ()\[\]]|q?quad(?![A-Za-z])|displaystyle(?![A-Za-z]))"), " "),
    (re.compile(r"(?<=[0-9 ])~(?=[0-9A-Za-z ])"), " "),
)


def to_ascii(text: str) -> str:
    """The same text with Unicode minus signs, spaces, digits, quotes and fractions spelt in ASCII."""
    return text if text.isascii() else text.translate(_ASCII)


# ----------------------------------------------------------------------------------------------------------------------
# Reading


def read_number(text: str) -> Number | None:
    """Read `text` as one number, perhaps with a unit ("18 dollars"), or as the right side of an equation, else None."""
    stripped = text.strip()
    if plain := _PLAIN.fullmatch(stripped):
        return int(plain[1])
    if len(text) > MAX_CHARACTERS:
        return None
    stripped = to_ascii(stripped)
    if "\\" in stripped or "{" in stripped or "~" in stripped:
        for pattern, replacement in _LATEX:
            stripped = pattern.sub(replacement, stripped)
    stripped = " ".join(stripped.split()).strip("*_`\"' ✅✓✔☑🎉\ufe0f")
    if stripped[:9].lower() == "negative ":
        stripped = f"-{stripped[9:]}"
    if len(stripped) > 2 and stripped[0] == stripped[-1] == "$":
        stripped = stripped.strip("$ ").strip("*_`\"' ")  # mathematics in dollar signs, and not a currency
    if " x " in stripped or "x10" in stripped:
        stripped = re.sub(r"(?<=[0-9)]) ?x ?(?=[$(0-9])", "*", stripped)
    return _read_equation(stripped) if "=" in stripped else _read_term(stripped)


def _read_term(text: str) -> Number | None:
    match = _NUMBER.match(text)
    if match is None or (match["outer"] and match["inner"]):
        return None
    value: Number
    if match["whole"]:
        numerator, denominator = int(match["numerator"]), int(match["denominator"])
        if not 0 < numerator < denominator:
            return None
        value = int(match["whole"]) + Fraction(numerator, denominator)
    elif match["under"]:
        if int(match["under"]) == 0:
            return None
        value = Fraction(int(match["over"]), int(match["under"]))
    else:
        digits = match["digits"]
        if _POINTS_SEPARATE.match(digits):
            digits = digits.replace(".", "").replace(",", ".")
        digits = digits.translate(_SEPARATORS)
        value = Fraction(digits) if "." in digits else int(digits)
        if exponent := match["e"] or match["ten"]:
            value = value * Fraction(10) ** int(exponent)
    if match["outer"] == "-" or match["inner"] == "-":
        value = -value

    tail = text[match.end() :]
    if not tail or _BARE_TAIL.fullmatch(tail):
        return value
    if scale := _SCALE.match(tail):
        value *= _SCALES.get((scale.group(1) or "thousand").lower(), 1)
        tail = tail[scale.end() :]
    return value if is_unit(tail) else None


def is_unit(tail: str) -> bool:
    """Whether the text after a number is a unit (" dollars per week"), and neither changes it nor adds another."""
    tail = _SIGN_OF_UNIT.sub(" units", tail)
    tail = _COMPOUND.sub("", _EXTENT.sub(r"\1", _UNIT_POWER.sub(r"\1", tail)))
    if not _TAIL.fullmatch(tail) or _ODD_TAIL.search(tail):
        return False
    words = _WORD.findall(tail)
    if not words:
        return _BARE_TAIL.fullmatch(tail) is not None
    if _WORD.match(tail) and words[0] not in _ATTACHED_UNITS:
        return False
    if len(words) > _MAX_UNIT_WORDS:
        return False
    return not any(
        word.lower() in _NO_UNITS
        or (len(word) == 1 and word not in _SHORT_UNITS)
        or (len(word) == 2 and word not in _TWO_LETTERS)
        for word in re.sub(r"'[a-z]{1,2}(?![a-z])", "", tail).translate(_NOT_LETTERS).split()
    )


_DECIMAL_COMMA = re.compile(
    r"\$?[€£]?(-?(?:0,[0-9]{1,12}|(?:[1-9][0-9]{0,17}|[1-9][0-9]{0,2}(?:[ .][0-9]{3})+),(?:[0-9]{1,2}|[0-9]{4,12})))"
    r"(?![0-9,.])"
)


def read_decimal_comma(text: str) -> Number | None:
    """Read "1000,99 kg" as 1000.99; None if the text has another form.

    Three digits after the comma are thousands, and "1,22" may be a list: call this only if the value is known.
    """
    text = to_ascii(text.strip()).replace("{,}", ",")
    match = _DECIMAL_COMMA.match(text)
    if match is None or not is_unit(text[match.end() :]):
        return None
    return Fraction(re.sub("[ .]", "", match[1]).replace(",", "."))


def is_number_word(word: str) -> bool:
    """Whether a word is a number or a part of one: "forty", "thousand", "thirds"."""
    return word.lower() in _NUMBER_WORDS


def is_unit_word(word: str) -> bool:
    """Whether a word after an expression can be its unit, rather than a variable or a function."""
    return word in _ATTACHED_UNITS or word.lower() in _LONG_UNITS


_LONG_UNITS = word_set("""
degrees degree radians units unit inches inch feet foot yards miles mile meters metres centimeters centimetres
kilometers kilograms grams pounds ounces seconds minutes hours days weeks months years dollars cents euros percent
square cubic people students ways points
""")
_NOT_LETTERS = {ord(character): " " for character in ",.'/()%°€£¥₹₩¢$*_`\"!-"}

# The left side of an equation names the right side ("Total", "x") or is its computation ("6 * 7"). "2x = 42" and
# "x + 1 = 42" are equations to be solved, which are no numbers.
_NAME = re.compile(rf"[{_LETTER} _'$]{{0,60}}")
_NO_LABELS = word_set(
    "not or nor never and twice half double triple square cube sqrt log ln sin cos tan negative minus"
)


def is_label_word(word: str) -> bool:
    """Whether a word on the left of an equals sign can name the right side."""
    return word.lower() not in _NO_LABELS


def _read_equation(text: str) -> Number | None:
    *left_sides, right = text.split("=")
    value = _read_term(right.strip(" $"))
    if value is None:
        return None
    for side in left_sides:
        side = side.strip()
        if _NAME.fullmatch(side):
            if any(not is_label_word(word) or (len(word) == 2 and word.islower()) for word in _WORD.findall(side)):
                return None
        elif is_sum(side):
            if not gives(side, right, value):
                return None  # "8 + 1 = 7"
        elif _read_term(side) != value:
            return None  # "41 = 42": two numbers
    return value


_SIGNIFICANT_DIGITS = 10


def is_rounding(text: str, value: Number, exact: Number) -> bool:
    """Whether a decimal is an exact number, rounded at ten or more significant digits.

    A decimal of 15 to 17 digits may be a double as programs print it, with an error in its last bit: 0.6666666666666666
    for 2/3, 0.30000000000000004 for 0.3. An integer is no rounding, nor is it rounded.

    Args:
        text: the decimal as written; its last zeros count.
    """
    if value.denominator == 1 or exact.denominator == 1:
        return False
    value, exact = Fraction(value), Fraction(exact)
    error = abs(value - exact)
    if error * 10 ** (_SIGNIFICANT_DIGITS - 1) > abs(exact):
        return False
    places = next((places for places in range(1, 1300) if 10**places % value.denominator == 0), 0)
    if DECIMAL.fullmatch(text):
        places = max(places, len(text.partition(".")[2]))
    digits = len(str(int(abs(value) * 10**places)))
    if not places or digits < _SIGNIFICANT_DIGITS:
        return False
    return 2 * error * 10**places <= 1 or (15 <= digits <= 17 and error * 2**52 <= abs(exact))


def format_number(value: Number) -> str:
    """Format a number in its shortest exact notation: "70000", "18.5", "1/3"."""
    if value.denominator == 1:
        return str(value.numerator)
    for places in range(1, 31):
        if 10**places % value.denominator == 0:
            digits = str(abs(int(value * 10**places))).rjust(places + 1, "0")
            return f"{'-' if value < 0 else ''}{digits[:-places]}.{digits[-places:]}"
    return f"{value.numerator}/{value.denominator}"


# A numeral of another base, such as 204_5.
BASED = re.compile(r"([0-9]{1,40})_([2-9]|\{[0-9]{1,2}\})(?![0-9])")


def read_numeral(based: re.Match[str]) -> int | None:
    """Read a match of `BASED`, such as 204_5; None if a digit is not one of the base."""
    try:
        return int(based[1], int(based[2].strip("{}")))
    except ValueError:
        return None
