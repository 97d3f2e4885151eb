"""Split text of any script into words and numbers.

Chinese and Japanese count as two characters a word; Thai, Lao, Tibetan, Burmese and Khmer as six. A word of more than
24 letters counts as several, so a loop without spaces is a loop, too.
"""

from __future__ import annotations

import re

# Combining marks. Python's \w leaves them out, which would cut Hindi and Arabic words to pieces.
MARKS = (
    r"\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed"
    r"\u0900-\u0963\u0966-\u0dff\u1dc0-\u1dff\u200c\u200d"
)
# Scripts without spaces between words: Chinese and Japanese, then Thai, Lao, Tibetan, Burmese and Khmer.
HAN = (
    r"\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
SOUTH_EAST_ASIAN = r"\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff"
WORD = re.compile(
    rf"""
    \d{{1,24}}(?:[.,]\d{{1,24}}){{0,8}}                                 # 3.14, 1,000,000
    | [{HAN}]{{1,2}}
    | [{SOUTH_EAST_ASIAN}]{{1,6}}
    | (?:(?![{HAN}{SOUTH_EAST_ASIAN}])[^\W\d_]|[{MARKS}]){{1,24}}
    """,
    re.VERBOSE,
)
