"""The newest line of a log that is being written."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawl2llm.commands.log_tail import Tail, seconds_left


@pytest.mark.parametrize(
    ("message", "seconds"),
    [("3/s, 9s left", 9), ("1m05s left", 65), ("2h03m left", 7380), ("nobody left", None), ("kept 3", None)],
)
def test_time_left(message: str, seconds: float | None) -> None:
    assert seconds_left(message) == seconds


def test_a_log_is_read_once_and_only_by_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    tail = Tail(path)
    assert tail.read_warnings() == [] and tail.message == ""
    path.write_text(
        "10:00:00 pretrain.train: step 10/40, loss 2.5000, learning rate 1.00e-03, 12,000 tokens/s, 1m05s left\n"
    )
    assert tail.read_warnings() == [] and (tail.loss, tail.speed) == (2.5, "12,000 tokens/s")
    assert tail.time_left and tail.time_left[0] == 65
    with path.open("a") as log:
        log.write("a library's line\n10:00:01 pretrain.train: warn")
        log.flush()
        assert tail.read_warnings() == []
        log.write("ing: odd\n")
    assert tail.read_warnings() == ["pretrain.train: warning: odd"]
    assert tail.read_warnings() == []


def test_the_result_is_what_was_measured_at_last_and_no_steps_own_loss(tmp_path: Path) -> None:
    path = tmp_path / "sft.log"
    tail = Tail(path)
    path.write_text(
        "10:00:00 finetune.train sft: held-out loss before: 4.2900 nats a token\n"
        "10:00:01 finetune.train sft: 44/47 steps, 1.4/s, 2s left, loss 3.369\n"
        "10:00:02 finetune.train sft: held-out loss after: 3.7981 nats a token\n"
    )
    tail.read_warnings()
    assert tail.result == "held-out loss 3.798 nats a token" and tail.loss == 3.369


def test_a_log_that_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("10:00:00 language.score 00001: a long line of an attempt before\n")
    tail = Tail(path)
    tail.read_warnings()
    path.write_text("10:00:00 language.score 00001: new\n")
    tail.read_warnings()
    assert tail.message == "new"


def test_that_a_training_resumes_is_shown_of_this_start_alone(tmp_path: Path) -> None:
    path, words = (
        tmp_path / "train.log",
        "10:00:00 pretrain.train: resuming after step {} of 40, checkpoint of 09:58 (a)\n",
    )
    path.write_text(words.format(10) + "10:00:09 pretrain.train: step 12/40, loss 2.5000, 9 tokens/s, 5s left\n")
    tail = Tail(path)
    assert tail.read_warnings() == [] and (tail.loss, tail.speed, tail.time_left) == (None, "", None)
    with path.open("a") as log:
        log.write(words.format(20))
    assert tail.read_warnings() == ["pretrain.train: resuming after step 20 of 40, checkpoint of 09:58 (a)"]
    path.write_text(words.format(30)[:-4])  # begun anew
    assert tail.read_warnings() == []
    with path.open("a") as log:
        log.write("(a)\n")
    assert len(tail.read_warnings()) == 1
