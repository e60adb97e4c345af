"""Function words by language, for Gopher's stop-word rule: at least two of them in any running text of the language.

English is Gopher's own list (Rae et al. 2021, appendix A1.1). The others were written for this project: articles,
prepositions, conjunctions and pronouns that a page of prose cannot do without; each is tested on passages of the
Universal Declaration of Human Rights. Keys are lid.176's labels.
"""

from __future__ import annotations

from collections.abc import Collection
from unicodedata import is_normalized

from crawl2llm.text.normal_forms import normal_form

STOP_WORDS: dict[str, tuple[str, ...]] = {
    language: tuple(words.split())
    for language, words in {
        "af": "die en van in is dit wat het vir met op nie te om sy",
        "ar": "في من على إلى عن أن هذا هذه التي الذي مع كان ما لا هو هي أو بين كل بعد",
        "bg": "и на в от за се да с по е не са като но що това при или",
        "bn": "এই ও এবং থেকে করে এ জন্য হয় না তার কি যে একটি করা সঙ্গে আর বা কোন তাদের হবে",
        "ca": "de la el i que en a les els un una per amb del és no al com",
        "cs": "a v se na je že s z do o i to k ve pro za by ale jako od",
        "da": "og i at er det en den til af på for som med de ikke der et har",
        "de": "der die und in den von zu das mit sich des auf für ist im dem nicht ein eine als auch es an",
        "el": "και το να του η της με που την από για στο οι τα ο τον σε τη δεν είναι",
        "en": "the be to of and that have with",
        "es": "de la que el en y a los se del las un por con no una su para es al como",
        "et": "ja on ei et see oma ka kui mis aga siis ning või oli seda",
        "eu": "eta da ez bat du zen ere dute izan baina edo bere dira diren den dela gero izango egin zuen",
        "fa": "و در به از که این را با است برای آن یک تا بر می خود هم",
        "fi": "ja on ei se että oli hän mutta joka ovat myös kun tai ole sen niin",
        "fr": "de la le et les des en un du une que est pour qui dans a par plus pas au sur ne se",
        "gl": "de a o que e en do da os un unha para con as por non se no na",
        "he": "של את על לא הוא זה עם גם או כי אל היא יש אם כל אני אך בין",
        "hi": "के में की है और से का को पर यह कि भी एक ने हैं लिए नहीं जो",
        "hr": "i u je na se da za su od s a koji o ne kao što ili iz",
        "hu": "a az és hogy nem is egy ez volt meg csak de mint vagy már el ha",
        "hy": "և է որ են մեջ այս համար հետ նաև մի եւ չի իր կամ",
        "id": "yang dan di dari untuk dengan pada ini itu dalam tidak ke adalah akan juga atau",
        "it": "di e il la che in un a per è una del della non si con i le da sono al",
        "ja": "の に は を た が で と し て も な い か ら",
        "ka": "და არ არის რომ ეს ამ იყო მისი როგორც თუ კი მაგრამ ან რომელიც უნდა მის ყოველ",
        "kk": "және мен бұл үшін бір осы деп бар емес да де ол немесе әр оның қарай болып",
        "ko": "이 그 수 것 및 등 있는 있다 더 위해 대한 한 하는 또는 함께 할 있습니다 모든 다른 이러한 그리고 "
        "위한 위하여 대하여 것이 것을 것은 때 하고",
        "lt": "ir yra į kad su iš tai kaip ar bet o už nuo jis",
        "lv": "un ir ka no par ar to kas bet uz vai arī kā",
        "mk": "и на во да се од за со не е го ќе што како но",
        "ms": "yang dan di dari untuk dengan pada ini itu dalam tidak ke adalah akan juga atau oleh",
        "nl": "de van het een en in is dat op te zijn met voor niet die aan er om ook als",
        "no": "og i det er på en til som å for med at av de ikke har et den",
        "pl": "i w na z do się że nie to jest o jak po co za od dla są przez oraz",
        "pt": "de a o que e do da em um para com não uma os no se na por mais as dos",
        "ro": "de și în a la cu pe care o nu un din că este mai pentru sau ce să",
        "ru": "и в не на что с по как это но из за у от к для о же он а то или",
        "sh": "i u je na se da za su od s a koji o ne kao što ili iz",
        "sk": "a v sa na je že s z do o aj to k vo pre za by ale ako od",
        "sl": "in je v na da se so za ki pa z ne tudi kot po ali bi jih",
        "sq": "e të në dhe për me që një i nga është si më por se",
        "sr": "и у је на се да за су од с а који о не као што или из i u je se za",
        "sv": "och i att det som en på är av för med till den har de inte om ett",
        "sw": "ya na wa kwa ni za katika la kama cha hii au kuwa lakini",
        "th": "ที่ และ ใน ของ การ ไม่ มี เป็น ให้ ได้ จะ ว่า กับ",
        "tl": "ang ng sa na at ay mga ito para hindi siya o kung may",
        "tr": "ve bir bu da de için ile çok ne gibi daha olarak o ama en ya veya her kadar sonra olan bütün ki değil ise ancak tüm",
        "uk": "і в не на що з у та до як за це від по для але є про або й",
        "ur": "کے میں کی ہے اور سے کا کو پر یہ کہ نے ہیں ایک اس بھی نہیں",
        "vi": "và của là có trong cho không được với các một những đã này để người khi",
        "zh": "的 了 是 在 不 和 有 我 人 这 這 也 为 為 与 與 以 就 到 对 對",
    }.items()
}

# Languages written without spaces: their words are searched anywhere in the text.
SPACELESS_LANGUAGES = frozenset({"bo", "dz", "ja", "km", "lo", "my", "th", "wuu", "yue", "zh"})


class StopWords:
    """One language's stop words, ready to be counted in documents."""

    def __init__(self, language: str, words: tuple[str, ...]) -> None:
        # Words are matched as written, with a capital, and in capitals: cheaper than lower-casing every text.
        self.forms = {form: word for word in words for form in (word, word.capitalize(), word.upper())}
        self.anywhere = words if language in SPACELESS_LANGUAGES else ()

    def count(self, text: str, tokens: Collection[str]) -> int:
        """How many different stop words a document has; `tokens` are the different tokens of `text`."""
        if not is_normalized("NFC", text):
            text, tokens = normal_form("NFC", text), {normal_form("NFC", token) for token in tokens}
        if self.anywhere:
            return sum(word in text for word in self.anywhere)
        return len({self.forms[form] for form in self.forms.keys() & set(tokens)})


def stop_words_by_language(overrides: dict[str, list[str]]) -> dict[str, StopWords]:
    """Stop words by language; `overrides` replaces a language's list, or switches it off where it is empty."""
    lists = {**STOP_WORDS, **{language: tuple(words) for language, words in overrides.items()}}
    return {language: StopWords(language, words) for language, words in lists.items() if words}
