"""Chat templates that loop, or take memory, are ended; the others lay out as transformers does."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from crawl2llm.commands.serve import template_worker
from crawl2llm.commands.serve.chat_template import ChatTemplate
from crawl2llm.core.errors import InputError
from crawl2llm.training.template import Template

HI = [{"role": "user", "content": "Hi é\ud800"}, {"role": "assistant", "content": "{{ 7 * 7 }}"}]
LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}"
TEXT = "{% for message in messages %}{{ message.content }}{% endfor %}"


@pytest.fixture(scope="module")
def shared() -> ChatTemplate:
    """One process for all templates of this module, since its start takes a second."""
    return ChatTemplate("", {"eos_token": "<|end|>", "bos_token": "<s>"}, "x/chat_template.jinja")


def laid_out(shared: ChatTemplate, template: str) -> str:
    shared.template = template
    return shared(HI)


@pytest.mark.parametrize(
    "template",
    [
        "{{ 10 ** (10 ** 9) }}",  # in one operation, when the template is compiled
        "{% if messages[0].content == 'never' %}" + TEXT + "{% else %}" + LOOP + "{% endif %}",
    ],
)
def test_a_template_that_does_not_end(shared: ChatTemplate, template: str) -> None:
    with pytest.raises(InputError, match=r"x/chat_template\.jinja: .*within a second of processor time"):
        laid_out(shared, template)
    assert laid_out(shared, "{{ eos_token }}") == "<|end|>"  # another process


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{ 'a' * 10 ** 10 }}", "MiB of memory|OverflowError"),
        (
            "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
            "MiB of memory|processor time",
        ),
        ("{{ '%999999999d' % 1 }}", "MiB of memory"),
        ("{{ 'a' * 20000000 }}", "20,000,000 characters"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "without an end"),
        ("{% if %}", "TemplateSyntaxError"),
        ("{{ raise_exception('roles must alternate') }}", "TemplateError: roles must alternate"),
        ("{{ ''.__class__.__mro__ }}", "SecurityError"),
    ],
)
def test_a_template_that_cannot_lay_out(shared: ChatTemplate, template: str, said: str) -> None:
    with pytest.raises(InputError, match=rf"x/chat_template\.jinja: its chat template cannot .*({said})"):
        laid_out(shared, template)
    assert laid_out(shared, "ok") == "ok"


@pytest.mark.parametrize(
    "template",
    [
        Template.parse("Question: {question}\nAnswer: {answer}").chat_template(),
        TEXT + "{{ bos_token }}{% if add_generation_prompt %}<|a|>{% endif %}",
        "{% for message in messages %}\n  {% generation %}{{ message | tojson }}{% endgeneration %}\n{% endfor %}",
    ],
)
def test_the_text_is_that_of_transformers(shared: ChatTemplate, template: str) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    expected, _ = render_jinja_template([HI], chat_template=template, add_generation_prompt=True, **shared.special)
    assert laid_out(shared, template) == expected[0]


def test_a_process_that_dies_leaves_nothing_and_costs_no_conversation(shared: ChatTemplate) -> None:
    for _ in range(3):
        assert laid_out(shared, "ok") == "ok" and shared.process
        open_files = len(list(Path("/proc/self/fd").iterdir()))
        shared.process.kill()
        shared.process.wait()
        assert laid_out(shared, "ok") == "ok"
        assert len(list(Path("/proc/self/fd").iterdir())) <= open_files


def test_a_conversation_takes_little_and_the_process_ends(shared: ChatTemplate, tmp_path: Path) -> None:
    own = ChatTemplate(TEXT, {}, str(tmp_path))
    own(HI)
    process = own.process
    assert process
    for _ in range(100):
        own(HI)
    assert own.process is process, "one for all conversations"
    del own
    gc.collect()
    assert process.poll() is not None
    assert template_worker.SECONDS == 1
