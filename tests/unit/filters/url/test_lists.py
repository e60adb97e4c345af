"""Block lists: what a URL is found by, and what careless entries do not block."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.core.errors import InputError
from crawl2llm.filters.url.lists import Hashes, Lists, host_and_path, parse_domains
from crawl2llm.filters.url.settings import ScoreSettings

EMPTY: dict[str, list[str]] = {key: [] for key in ("folders", "domains", "suffixes", "words", "expressions")}


def lists(folder: Path, **files: str) -> Lists:
    """Lists whose files have these texts."""
    for key, text in files.items():
        (folder / f"{key}.txt").write_text(text, encoding="utf-8")
    return Lists(ScoreSettings.model_validate({**EMPTY, **{key: [str(folder / f"{key}.txt")] for key in files}}))


@pytest.mark.parametrize(
    ("host", "entry"),
    [
        ("bad.com", "bad.com"),
        ("www2.shop.bad.com", "bad.com"),
        ("bad.com.evil.org", None),
        ("notbad.com", None),
        ("kids.example.co.uk", "example.co.uk"),
        ("other.co.uk", None),  # co.uk is listed, and is a public suffix
        ("me.blogspot.com", None),
        ("blogspot.com", "blogspot.com"),
        ("192.0.2.7", "192.0.2.7"),
        ("münchen.de", "münchen.de"),
        ("", None),
    ],
)
def test_domains(tmp_path: Path, host: str, entry: str | None) -> None:
    text = "# a comment\nbad.com  # another\nexample.co.uk\nco.uk\nblogspot.com\n192.0.2.7\nxn--mnchen-3ya.de\n\n"
    assert lists(tmp_path, domains=text).listed_domain(host) == entry


CASE = Path(__file__).resolve().parents[5] / "shared" / "cases" / "pages" / "url-public-suffix" / "domains.txt"
SUFFIXES = [
    "uk",
    "com",
    "co.uk",
    "UK",
    "github.io",
    "foo.ck",
    "xn--p1ai",
    "рф",
    "internal",
    "0.0.0.0 uk",
    "||uk^",
    "https://uk/",
]
BELOW = {
    "uk": "bbc.co.uk",
    "com": "a.com",
    "co.uk": "bbc.co.uk",
    "github.io": "me.github.io",
    "foo.ck": "a.foo.ck",
    "рф": "сайт.рф",
}


@pytest.mark.skipif(not CASE.is_file(), reason="no ../shared/cases/pages/url-public-suffix")
def test_the_case_of_a_list_of_public_suffixes() -> None:
    made = Lists(ScoreSettings.model_validate({**EMPTY, "domains": [str(CASE)]}))
    assert [made.listed_domain(name) for name in ("bbc.co.uk", "example.com", "uk")] == [None, None, "uk"]
    assert made.listed_public_suffixes == ["uk", "com"]


@pytest.mark.parametrize("entry", SUFFIXES)
def test_a_public_suffix_is_a_host_alone(tmp_path: Path, entry: str) -> None:
    made = lists(tmp_path, domains=f"{entry}\nbad.com\n")
    (name,) = made.listed_public_suffixes
    assert [made.listed_domain(host) for host in (*BELOW.values(), "x.internal", "www.ck")] == [None] * 8
    assert made.listed_domain(name) == name and made.listed_domain("bad.com") == "bad.com"
    assert list(parse_domains(entry)) == [(name, False)]


def test_a_whole_host_among_addresses_that_is_a_public_suffix(tmp_path: Path) -> None:
    (tmp_path / "urls").write_text("github.io/\n")
    made = Lists(ScoreSettings.model_validate({**EMPTY, "folders": [str(tmp_path)]}))
    assert (made.listed_domain("github.io"), made.listed_domain("me.github.io"), made.listed_public_suffixes) == (
        "github.io",
        None,
        ["github.io"],
    )


@pytest.mark.parametrize("name", BELOW)
@pytest.mark.parametrize("pattern", [".", "*."])
def test_a_public_suffix_as_a_pattern_is_all_below_it(tmp_path: Path, name: str, pattern: str) -> None:
    made = lists(tmp_path, domains=f"{pattern}{name}\n")
    assert (
        made.listed_domain(BELOW[name]) == name
        and made.listed_domain("a.org") is None
        and made.listed_public_suffixes == []
    )


def test_an_exception_of_the_list_of_public_suffixes(tmp_path: Path) -> None:
    assert lists(tmp_path, domains="city.kobe.jp\n").listed_domain("x.city.kobe.jp") == "city.kobe.jp"


def test_an_end_of_hosts_may_be_a_public_suffix(tmp_path: Path) -> None:
    made = lists(tmp_path, suffixes=".xxx\n*.blogspot.com\n")
    assert made.listed_domain("any.thing.xxx") == "xxx" and made.listed_domain("me.blogspot.com") == "blogspot.com"
    assert made.listed_domain("xxx.org") is None


@pytest.mark.parametrize(
    "entry", ["0.0.0.0 bad.com", "||bad.com^", "*.bad.com", ".bad.com", "\ufeffbad.com", "https://www.bad.com/"]
)
def test_a_domain_in_other_notations(tmp_path: Path, entry: str) -> None:
    made = lists(tmp_path, domains=f"{entry}\r\n")
    assert (
        made.listed_domain("bad.com") == made.listed_domain("shop.bad.com") == "bad.com"
        and made.listed_domain("good.com") is None
    )


def test_an_end_in_punycode(tmp_path: Path) -> None:
    assert lists(tmp_path, suffixes="xn--p1ai\n").listed_domain("сайт.рф") == "рф"


@pytest.mark.parametrize("entry", ["e-mail", "two words", "adult_video"])
def test_what_can_be_no_word_of_a_url_is_refused(tmp_path: Path, entry: str) -> None:
    with pytest.raises(InputError, match=r"words\.txt, line 2: .* is not one word"):
        lists(tmp_path, words=f"fine\n{entry}\n")


def test_words_are_whole(tmp_path: Path) -> None:
    made = lists(tmp_path, words="Casino\nloan\n")
    assert made.words_in("https://a.org/best-CASINO_2024/loan?casino=1") == ["casino", "loan"]
    assert made.words_in("https://a.org/casinos/loans") == []


def test_expressions(tmp_path: Path) -> None:
    made = lists(tmp_path, expressions=r"/(wp-)?login\b")
    assert made.matching_expression("https://a.org/WP-Login?x") == r"/(wp-)?login\b"
    assert made.matching_expression("https://a.org/logins") is None


def test_posix_classes_and_hashes_in_expressions(tmp_path: Path) -> None:
    made = lists(tmp_path, expressions="# a comment\n[[:alpha:]]+sex\ncasino#vip\n")
    assert made.matching_expression("http://x.com/freesex") and made.matching_expression("http://x.com/casino#vip")
    assert made.matching_expression("http://x.com/casino-history") is None
    with pytest.raises(
        InputError, match=r"line 1: .* is no regular expression that RE2 knows: invalid character class"
    ):
        lists(tmp_path, expressions="[[:nothing:]]")


def test_an_expression_that_would_search_for_years(tmp_path: Path) -> None:
    """With a backtracking engine, each further letter doubles the time."""
    made = lists(tmp_path, expressions="(a+)+$")
    assert made.matching_expression(f"http://x.com/{'a' * 2000}!") is None


def test_what_is_no_text_in_a_url_is_searched_too(tmp_path: Path) -> None:
    assert lists(tmp_path, expressions="casino$").matching_expression("http://x.com/\ud800/CASINO")


def test_a_broken_expression_names_file_and_line(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"expressions\.txt, line 2: '\(' is no regular expression that RE2 knows: missing \)"
    ):
        lists(tmp_path, expressions="fine\n(\n")


def test_folders_in_ut1s_layout(tmp_path: Path) -> None:
    """A folder of categories, or one of them."""
    for name, files in {
        "adult": {"domains": "bad.com\n", "urls": "host.org/~bad\n"},
        "ads": {"expressions": "[?&]ad="},
    }.items():
        (tmp_path / "ut1" / name).mkdir(parents=True)
        for kind, text in files.items():
            (tmp_path / "ut1" / name / kind).write_text(text)
    (tmp_path / "ut1/README").write_text("about")
    every, one = (
        Lists(ScoreSettings.model_validate({**EMPTY, "folders": [str(tmp_path / place)]}))
        for place in ("ut1", "ut1/ads")
    )
    assert every.listed_domain("bad.com") and not one.listed_domain("bad.com")
    assert every.listed_address("http://www.host.org:8080/~bad/page.html?x#y") == "host.org/~bad"
    assert every.listed_address("http://host.org/~badly") is None and every.listed_address("http://host.org/") is None
    (tmp_path / "ut1/ads/urls").write_text("tube.com/watch?v=bad\nall.evil.org/\n")
    made = Lists(ScoreSettings.model_validate({**EMPTY, "folders": [str(tmp_path / "ut1/ads")]}))
    assert made.listed_address("https://www.tube.com/watch?v=bad#t") == "tube.com/watch?v=bad"
    assert (
        made.listed_address("https://www.tube.com/watch?v=good") is None
        and made.listed_address("https://www.tube.com/watch") is None
    )
    assert made.listed_domain("all.evil.org") == made.listed_domain("x.all.evil.org") == "all.evil.org"
    assert every.matching_expression("http://a.org/?ad=1") == one.matching_expression("http://a.org/?ad=1") == "[?&]ad="


@pytest.mark.parametrize("name", ["nothing", "empty"])
def test_a_folder_without_lists_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=f"url.score.folders: .*{name} is no folder with domains, urls, expressions"):
        Lists(ScoreSettings.model_validate({**EMPTY, "folders": [str(tmp_path / name)]}))


def test_what_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="x: not UTF-8 text"):
        Lists(ScoreSettings.model_validate({**EMPTY, "domains": [str(tmp_path / "x")]}))


@given(st.sets(st.text(max_size=8)), st.text(max_size=8))
def test_a_set_of_hashes_is_the_set(held: set[str], asked: str) -> None:
    made = Hashes(held)
    assert (asked in made) == (asked in held) and all(text in made for text in held)


@given(st.text(max_size=60))
def test_any_url_has_an_answer(url: str) -> None:
    made: Any = Lists(ScoreSettings.model_validate({**EMPTY}))
    assert made.listed_address(url) is None and made.words_in(url) == [] and made.matching_expression(url) is None
    assert not host_and_path(url).endswith("/")


def test_a_query_right_after_the_host_is_no_path(tmp_path: Path) -> None:
    assert host_and_path("http://example.com?next=/login") == "example.com"
    assert host_and_path("http://example.com#a/b") == "example.com"


def test_percent_signs_are_read(tmp_path: Path) -> None:
    made = lists(tmp_path, words="casino\nказино\n")
    assert made.words_in("http://x.com/best%20casino") == ["casino"]
    assert made.words_in("http://x.com/%D0%BA%D0%B0%D0%B7%D0%B8%D0%BD%D0%BE") == ["казино"]
    assert host_and_path("http://x.com/a%20b") == host_and_path("http://x.com/a b")


def test_several_hosts_in_a_line_of_a_hosts_file(tmp_path: Path) -> None:
    made = lists(tmp_path, domains="0.0.0.0 a.com b.com\n")
    assert made.listed_domain("a.com") and made.listed_domain("www.b.com")
