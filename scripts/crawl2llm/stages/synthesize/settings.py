"""The settings of the stage synthesize."""

from typing import Annotated, Any, Literal

from crawl2llm.core.setting_types import EndpointSettings, PromptName, Seed
from crawl2llm.core.settings import Allowed, NonEmpty, Number, Settings, section, setting
from crawl2llm.stages.ingest.settings import TextSource


class File(TextSource):
    """A file, or a folder of files, that texts are made from."""

    kind: Literal["text", "jsonl", "parquet"] = setting()
    path: NonEmpty = setting()


class SeedSources(Settings):
    """Documents that the texts are made from. From corpora: only training documents that no model wrote."""

    corpus: list[NonEmpty] = setting(
        [],
        "Folders from corpus.write of an earlier run, such as results/main/corpus/write. A variant may name main's "
        "folder.",
        unique=True,
        file="manifests",
    )
    files: list[File] = setting(
        [],
        "Files in place of a corpus, as ingest.extract reads them: `path` is a file or a folder, all files of "
        "which are read, `kind` text, jsonl or parquet. A document has the id that it has in a source of the "
        "same `name`.",
        file=True,
    )
    share: Number = setting(1, "Share of the documents that are seeds, chosen by hash.", gt=0, le=1)
    number: int | None = setting(None, "Most seeds, chosen by hash; null is any number.", ge=1)


class BudgetLimits(Settings):
    """Most that the replies may cost, stored replies included. Once it is spent, the step ends and uses the texts it has."""

    tokens: int | None = setting(None, "Tokens of prompts and replies together; null has no bound.", ge=1)
    money: Number | None = setting(None, "In the unit of the prices; null has no bound.", gt=0)


class Prices(Settings):
    """What the endpoint costs, in any unit of money."""

    prompt: Number = setting(0, "Price of a million tokens of prompts.", ge=0, le=1000000)
    completion: Number = setting(0, "Price of a million tokens of replies.", ge=0, le=1000000)


class TextSettings(EndpointSettings):
    """Settings of both steps: the seeds, the model, the check of replies, and the budget."""

    seeds: SeedSources = section()
    model: NonEmpty | None = setting(None, "Name of the model that writes, as its endpoint calls it.")
    min_characters: int = setting(200, "Shorter passages are passed over.", ge=1, le=1000000)
    temperature: Number = setting(
        0.7, "Sampling temperature of the endpoint's model; 0 takes the likeliest token.", ge=0, le=2
    )
    max_tokens: int = setting(1024, "Longest reply in tokens. One that is cut there is dropped.", ge=1, le=65536)
    request: dict[str, Any] = setting(
        {},
        "Further keys of each request, as its endpoint knows them: `{top_p: 0.9}`; null takes one away, as in "
        "`{max_tokens: null, max_completion_tokens: 1024}`.",
    )
    refusals: list[NonEmpty] = setting(
        [
            "\\bas an? (?:AI|artificial intelligence|(?:large )?language model)\\b",
            "\\bI(?:'m|’m| am) (?:just |only )?an? (?:AI|artificial intelligence|(?:large )?language model)\\b",
            "^\\W*(?:unfortunately,? )?I(?:'m|’m| am) (?:very |so )?(?:sorry|afraid|unable|not able)\\b",
            "\\bI (?:can(?:no|'|’)?t|can not|won(?:'|’)t|will not) "
            "(?:help|assist|fulfil|fulfill|provide|comply|write|rewrite|rephrase|paraphrase|create|generate)\\b",
        ],
        "Regular expressions; a reply that matches one in its first 300 characters, in any case, is a refusal.",
    )
    copy_max: Number = setting(
        0.8,
        "A reply is dropped as a copy if at least this share of its 5-grams is in the seed or prompt; normalised as "
        "for dedup.",
        gt=0,
        le=1,
    )
    language: NonEmpty | None = setting(
        "bundled:lid.176.ftz",
        "A fastText language model, as language.score.model; a reply in another language than its seed is dropped if "
        "both probabilities are at least 0.65. null: no check.",
        file=True,
        pinned=True,
    )
    budget: BudgetLimits = section()
    prices: Prices = section()
    files: int = setting(
        4, "Files of texts, distributed over the shards; all texts of a seed are in one file.", ge=1, le=4096
    )
    seed: Seed = setting(0, "Seed of the choice of seeds, of styles and of the order.")
    requests: int = setting(8, "Requests at the same time.", ge=1, le=1024, placement=True)
    attempts: int = setting(
        10,
        "Attempts at a request before the step fails. Waits double from 0.5 to 45 seconds, or follow Retry-After, up "
        "to 600.",
        ge=1,
        le=100,
        placement=True,
    )
    seconds: Number = setting(300, "Most seconds that a request waits for an answer.", gt=0, le=86400, placement=True)
    cache: NonEmpty = setting(
        ".cache/synthesize",
        "Folder of the replies, by a hash of the request; a request with a stored reply is not repeated.",
        placement=True,
    )


class RephraseSettings(TextSettings):
    """Passages of documents in other words: Rephrase the Web (WRAP, arXiv:2401.16380). The prompts are our own; the four
    styles are those of its section 3.
    """

    styles: dict[
        PromptName,
        Annotated[str, Allowed(pattern=r"\{text\}", form="text with {text}")],
    ] = setting(
        {
            "easy": "Rewrite the text below for a small child who has just learnt to read. Use short sentences and only the "
            "simplest words, and explain what the child cannot know. Keep to what the text says. Reply with the "
            "rewritten text alone, in the language of the text.\n\n{text}",
            "medium": "Rewrite the text below in clear and correct prose, as a good encyclopedia would write it. Keep every "
            "fact, leave out what belongs to the web page alone, and add nothing. Reply with the rewritten text "
            "alone, in the language of the text.\n\n{text}",
            "hard": "Rewrite the text below for a scholar of its subject. Write densely, with exact terms and long, precise "
            "sentences. Keep every fact and add nothing. Reply with the rewritten text alone, in the language of "
            "the text.\n\n{text}",
            "qa": "Turn the text below into a conversation of questions and answers that covers all it says. Begin every "
            "question with `Question:` and every answer with `Answer:`, each on a line of its own. Ask nothing that "
            "the text does not answer. Reply with the conversation alone, in the language of the text.\n\n{text}",
        },
        "The styles by name, each a prompt in which `{text}` is replaced by the passage.",
    )
    versions: int = setting(1, "Styles that each passage is written in, chosen by hash.", ge=1, le=100)
    passage_characters: int = setting(
        1200,
        "Longest passage; longer texts are cut between paragraphs, sentences or words. The paper takes 300 "
        "tokens (section 3), about 1,200 characters of English.",
        ge=50,
        le=1000000,
    )


class SeedSettings(TextSettings):
    """New texts on the subject of a document, for an audience and in a format: Cosmopedia (huggingface.co/blog/cosmopedia).
    The prompt is our own; audiences and formats are as there.
    """

    prompt: str = setting(
        "Here is an extract of a web page:\n\n{text}\n\nWrite {format} on a subject that this extract touches "
        "on. Your readers are {audience}. Explain what they need to know in an order that they can follow, with "
        "reasons and examples, and be correct. Do not mention the extract, and do not copy its sentences. Begin "
        "with the text itself, in the language of the extract.",
        "The prompt, with `{text}` (the extract), `{format}` and `{audience}`.",
        pattern=r"\{text\}",
        form="text with {text}",
    )
    audiences: dict[
        PromptName,
        NonEmpty,
    ] = setting(
        {
            "children": "children of about ten years",
            "school": "pupils of a secondary school",
            "college": "students in their first years at a university",
            "experts": "people who work in the field",
            "general": "curious people without any training in the field",
        },
        "The audiences by name, each as words that take the place of `{audience}`.",
    )
    formats: dict[
        PromptName,
        NonEmpty,
    ] = setting(
        {
            "textbook": "a section of a textbook",
            "article": "an article for a blog",
            "guide": "a guide that goes step by step",
            "story": "a short story in which somebody learns about it",
            "dialogue": "a talk between a teacher and a pupil",
        },
        "The formats by name, each as words that take the place of `{format}`.",
    )
    versions: int = setting(1, "Pairs of format and audience that each seed is used for, chosen by hash.", ge=1, le=100)
    passage_characters: int = setting(
        1000, "Longest extract of a seed: its beginning, up to the end of a paragraph or sentence.", ge=50, le=1000000
    )
    temperature: Number = setting(0.8, "What the endpoint's model draws with; 0 takes the likeliest token.", ge=0, le=2)
    max_tokens: int = setting(2048, "Longest reply in tokens. One that is cut there is dropped.", ge=1, le=65536)


class SynthesizeSettings(Settings):
    """Texts that a model behind an OpenAI-compatible endpoint writes from existing documents. A step runs if a
    source of kind `synthesized` names it."""

    rephrase: RephraseSettings = section()
    seed: SeedSettings = section()
