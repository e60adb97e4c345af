"""Listed words by language, and how often a text has them, in the layout of LDNOOBW (List of Dirty, Naughty, Obscene … Bad Words).

A folder has a file for each language, called by its code (`en`, `pt.txt`, `fr-CA`: of fr), with a word or phrase a line. As in C4
(Raffel et al. 2020, section 2.2) case does not count, and a word counts as a whole; in scripts without spaces it counts anywhere.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import re2

from crawl2llm.core import language_codes
from crawl2llm.core.errors import InputError

FILE = re.compile(r"([a-z]{2,3})(?:-[A-Za-z0-9-]+)?(?:\.txt)?")
# Letters and digits with the marks that follow them, which Python does not count as \w.
MARKS = "\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed\u0900-\u0963\u0966-\u0dff\u200c\u200d"
WORD = re.compile(rf"[\w{MARKS}]+")
# Han, kana, Thai, Lao, Khmer, Burmese, Tibetan: written without spaces.
SPACELESS = re.compile(
    "[\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f]"
)


def list_entries(path: Path) -> Iterator[str]:
    """The words and phrases of a file, in small letters. Raises InputError for what is no text."""
    try:
        yield from filter(None, (line.strip().casefold() for line in path.read_text(encoding="utf-8-sig").splitlines()))
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text: {error}") from error


def files_by_language(folders: Iterable[str]) -> dict[str, list[Path]]:
    """Language → its files in the folders. Raises InputError for a folder without any."""
    by_language: dict[str, list[Path]] = {}
    for name in folders:
        language_files = [
            (match[1], path)
            for path in sorted(Path(name).glob("*"))
            if path.is_file() and (match := FILE.fullmatch(path.name))
        ]
        if not language_files:
            raise InputError(
                f"toxicity.score.lists: {name} has no file that is called by a language's code, such as en or en.txt"
            )
        for language, path in language_files:
            by_language.setdefault(language, []).append(path)
    return by_language


class Terms:
    """The words and phrases of some files."""

    def __init__(self, paths: Sequence[Path], ignored: Collection[str] = ()) -> None:
        self.phrases: dict[str, list[tuple[str, ...]]] = {}  # first word → phrases, the longest first
        anywhere = set[str]()
        for entry in sorted(
            {entry for path in paths for entry in list_entries(path)}.difference(map(str.casefold, ignored))
        ):
            words = tuple(WORD.findall(entry))
            # A sign alone has no word to find it by, and a number is only one with its sign.
            if SPACELESS.search(entry) or not "".join(words).strip("0123456789"):
                anywhere.add(entry)
            else:
                self.phrases.setdefault(words[0], []).append(words)
        for phrases in self.phrases.values():
            phrases.sort(key=lambda words: (-len(words), words))
        anywhere_entries = sorted(anywhere, key=lambda entry: (-len(entry), entry))
        self.anywhere = re2.compile("|".join(map(re2.escape, anywhere_entries)).encode()) if anywhere_entries else None
        self.firsts = frozenset(self.phrases)

    def __call__(self, text: str) -> tuple[int, Counter[str]]:
        """(words, hits by word or phrase) of a text. In scripts without spaces a character counts as a word."""
        small = text.casefold()
        bare, number = (small, 0) if small.isascii() or not SPACELESS.search(small) else SPACELESS.subn(" ", small)
        words = WORD.findall(bare)
        hits = Counter[str]()
        if not self.firsts.isdisjoint(words):
            at = 0
            while at < len(words):
                for phrase in self.phrases.get(words[at], ()):
                    if len(phrase) == 1 or tuple(words[at : at + len(phrase)]) == phrase:
                        hits[" ".join(phrase)] += 1
                        at += len(phrase) - 1
                        break
                at += 1
        if self.anywhere is not None:
            hits.update(match.group().decode() for match in self.anywhere.finditer(small.encode("utf-8", "replace")))
        return len(words) + number, hits


class Lists:
    """The lists of a run: text and language → words and hits.

    always: languages whose lists are for all documents. ignored: entries by language that do not count.
    """

    def __init__(
        self, folders: Sequence[str], always: Sequence[str], ignored: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        self.files, self.always, self.ignored = files_by_language(folders), always, ignored or {}
        if lacking := sorted(set(always) - set(self.files)):
            raise InputError(
                f"toxicity.score.always has {lacking[0]!r}; toxicity.score.lists has lists of {', '.join(sorted(self.files))}"
            )
        self.terms_by_language: dict[str, Terms] = {}
        self.documents_without_list = Counter[str]()  # documents of languages that no list is of

    def __call__(self, text: str, language: str) -> tuple[int, Counter[str]]:
        """As Terms."""
        if language not in self.terms_by_language:
            list_language = next(
                (name for name in language_codes.label_names(language) if name in self.files), language
            )
            list_languages = dict.fromkeys([list_language, *self.always])
            ignored = [entry for name in list_languages for entry in self.ignored.get(name, [])]
            self.terms_by_language[language] = Terms(
                [path for name in list_languages for path in self.files.get(name, [])], ignored
            )
        self.documents_without_list[language] += not language_codes.is_listed(language, self.files)
        return self.terms_by_language[language](text)
