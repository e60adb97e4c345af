"""A page's tree, and the elements and blocks that it makes. Part of crawl2llm_native.pyx.

Nothing here calls itself: a page may be nested as deep as it likes. Each node is visited twice, by `Tree.survey` and by `Reading.all`.
"""

from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from libc.stdint cimport uint16_t
from libc.stdlib cimport malloc, realloc
from libc.string cimport memset

# What is done with an element: the values of tags.KIND.
cdef enum:
    NOTHING, INLINE, LINK, BREAK, RULE, BLOCK, SKIP, EITHER, BUTTON, DIALOG, TEMPLATE, RAISED

# Attributes that are asked for by their place in tags.ATTRIBUTES, from 1 on. The first four hold words.
cdef enum:
    NO_ATTRIBUTE, CLASS, ID, ROLE, ITEMPROP, STYLE, HIDES, ARIA_HIDDEN, HREF, OPEN, SHADOW, TYPE

cdef enum:
    OTHERS = 32  # names of attributes that have no number in lexbor
    BESIDE_LOOKED = 16  # nodes beside an element that are looked at
    DEEP_LOOKED = 4  # elements around or within one that are looked at
    RAISED_LOOKED = 16  # nodes within a <sup>
    RAISED_LONG = 40  # bytes of its text

cdef struct Other:
    const unsigned char* letters
    size_t length
    int role

cdef size_t SAYS = 400  # bytes of a value that are looked at

cdef bint PLAIN[256]  # whether a byte is neither ASCII's white space nor the first of other white space or of what `unseen` knows
cdef int number
for number in range(256):
    PLAIN[number] = not (9 <= number <= 13 or 28 <= number <= 32 or number in (0xC2, 0xE1, 0xE2, 0xE3, 0xEF))


cdef inline size_t white(const unsigned char* data, size_t size) noexcept:
    """How many bytes the white space takes that begins here: 0 if none does. It is what str.isspace says."""
    cdef unsigned char c = data[0]
    if c < 128:
        return 9 <= c <= 13 or 28 <= c <= 32
    if c == 0xC2:
        return 2 if size > 1 and (data[1] == 0x85 or data[1] == 0xA0) else 0
    if size < 3:
        return 0
    if c == 0xE1:
        return 3 if data[1] == 0x9A and data[2] == 0x80 else 0
    if c == 0xE2:
        if data[1] == 0x80:
            return 3 if data[2] <= 0x8A or data[2] == 0xA8 or data[2] == 0xA9 or data[2] == 0xAF else 0
        return 3 if data[1] == 0x81 and data[2] == 0x9F else 0
    return 3 if c == 0xE3 and data[1] == 0x80 and data[2] == 0x80 else 0


cdef inline size_t unseen(const unsigned char* data, size_t size) noexcept:
    """How many bytes a character of tags.UNSEEN takes that begins here: 0 if none does."""
    if data[0] == 0xC2:
        return 2 if size > 1 and data[1] == 0xAD else 0
    if size < 3:
        return 0
    if data[0] == 0xE2:
        return 3 if (data[1] == 0x80 and data[2] == 0x8B) or (data[1] == 0x81 and data[2] == 0xA0) else 0
    return 3 if data[0] == 0xEF and data[1] == 0xBB and data[2] == 0xBF else 0


cdef inline bint unspaced(unsigned char first, unsigned char second) noexcept:
    """Whether a character of tags.UNSPACED begins with these bytes."""
    if first == 0xE0:
        return 0xB8 <= second <= 0xBB
    if first == 0xE1:
        return 0x80 <= second <= 0x82 or second == 0x9E or second == 0x9F or 0xA5 <= second <= 0xAA
    return first == 0xEA and (second == 0xA7 or second == 0xA9 or second == 0xAA)


cdef inline size_t divide(unsigned char* out, size_t used, const unsigned char* text, size_t left) noexcept:
    """U+200B at the end of `out` if it is a border of words there; how many bytes it takes."""
    if used < 3 or left < 2 or not unspaced(out[used - 3], out[used - 2]) or not unspaced(text[0], text[1]):
        return 0
    out[used], out[used + 1], out[used + 2] = 0xE2, 0x80, 0x8B
    return 3


cdef inline bint blank(Node* text) noexcept:
    """Whether a text is white space."""
    cdef String* data = &(<Text*>text).data
    cdef size_t at = 0, width
    while at < data.length:
        width = white(data.data + at, data.length - at)
        if not width:
            return False
        at += width
    return True


cdef inline size_t characters(const unsigned char* data, size_t size) noexcept:
    cdef size_t at, count = 0
    for at in range(size):
        count += (data[at] & 0xC0) != 0x80
    return count


cdef inline bint letter_before(const unsigned char* out, size_t used) noexcept:
    """Whether a letter or digit of an alphabet ends here, one that is written with spaces between words."""
    cdef size_t at = used - 1
    while at > 0 and out[at] & 0xC0 == 0x80:
        at -= 1
    return letter_at(out[at])


cdef inline bint letter_at(unsigned char c) noexcept:
    """The same of the character that begins with a byte: ASCII's, or of two bytes in UTF-8."""
    return 48 <= c <= 57 or 65 <= c <= 90 or 97 <= c <= 122 or 0xC3 <= c <= 0xDF


cdef enum:
    SLOTS = 131072  # for words: a power of two
    REMEMBERED = 65536  # words, after which all are forgotten
    LETTERS = 4194304  # bytes of all these words
    WORDS = 256  # of a value: SAYS bytes have 200 at most
    NEW = 3  # of a value that are matched one by one: a page may have new ones in each of its tags

cdef struct Word:
    uint64_t hash
    const unsigned char* letters  # NULL: a free slot
    size_t length
    long long bits


@cython.final
cdef class Words:
    """Words of classes, which pages share, with the bits of the groups that they name. match: tags.name_bits."""

    cdef object match
    cdef Word* slots
    cdef unsigned char* letters  # of all words, one behind the other
    cdef size_t used, count

    def __cinit__(self, match):
        self.match = match
        self.slots = <Word*>calloc(SLOTS, sizeof(Word))
        self.letters = <unsigned char*>malloc(LETTERS)  # what is not written to takes no memory
        if self.slots == NULL or self.letters == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.slots)
        free(self.letters)

    cdef inline Word* slot(self, uint64_t hash, const unsigned char* letters, size_t length) noexcept:
        """Of a word, or where it would be."""
        cdef size_t place = (hash ^ hash >> 32) & (SLOTS - 1)
        cdef Word* word = &self.slots[place]
        while word.letters != NULL and not (word.hash == hash and word.length == length and not memcmp(word.letters, letters, length)):
            place = (place + 1) & (SLOTS - 1)
            word = &self.slots[place]
        return word

    cdef bint learn(self, Word* one) except -1:
        """Matches a word, and remembers it."""
        cdef Word* word
        one.bits = self.match(PyUnicode_DecodeUTF8(<char*>one.letters, one.length, "ignore"))
        if self.count == REMEMBERED or self.used + one.length > LETTERS:
            memset(self.slots, 0, SLOTS * sizeof(Word))
            self.count = self.used = 0
        word = self.slot(one.hash, one.letters, one.length)
        if word.letters == NULL:
            memcpy(self.letters + self.used, one.letters, one.length)
            word.hash, word.letters, word.length, word.bits = one.hash, self.letters + self.used, one.length, one.bits
            self.used += one.length
            self.count += 1
        return True

    cdef long long say(self, const unsigned char* data, size_t size) except -1:
        """The bits that a value says."""
        cdef Word[WORDS] fresh
        cdef Word* word
        cdef size_t at = 0, begin, width, count = 0, number
        cdef uint64_t hash
        cdef long long bits = 0
        while at < size:
            width = 0 if PLAIN[data[at]] else white(data + at, size - at)
            if width:
                at += width
                continue
            begin, hash = at, 14695981039346656037ULL
            while at < size and (PLAIN[data[at]] or not white(data + at, size - at)):
                hash = (hash ^ <uint64_t>data[at]) * 1099511628211ULL
                at += 1
            word = self.slot(hash, data + begin, at - begin)
            if word.letters != NULL:
                bits |= word.bits
            else:
                fresh[count].hash, fresh[count].letters, fresh[count].length = hash, data + begin, at - begin
                count += 1
        for number in range(count if count <= NEW else NEW - 1):
            self.learn(&fresh[number])
            bits |= fresh[number].bits
        if count > NEW:
            begin = fresh[NEW - 1].letters - data
            bits |= <long long>self.match(PyUnicode_DecodeUTF8(<char*>data + begin, size - begin, "ignore"))
        return bits


cdef class Reader:
    """What lexbor's numbers mean.

    tags: the module crawl2llm.stages.ingest.tags. parser: selectolax.lexbor.LexborHTMLParser. Raises ValueError if a tree that is known is not what
    it must be, so if the fields of lexbor's structs lie elsewhere.
    """

    cdef object parser, conceals, raised_mark
    cdef Words words
    cdef unsigned char kinds[KNOWN]
    cdef unsigned char roles[KNOWN]
    cdef bint asked[KNOWN]  # whether `Tree.elements` is asked for it
    cdef short codes[KNOWN]
    cdef long long within[256]
    cdef dict named, numbers, names
    cdef list attributes
    cdef Other other[OTHERS]
    cdef list kept  # what `other` points into
    cdef int others
    cdef unsigned long long lengths
    cdef long long hidden
    cdef uintptr_t html, math
    cdef short custom, pre, div, ol, li
    cdef int numbering  # place in tags.ATTRIBUTES, from 1 on, of the first that numbers items, besides `type`; those behind it do so too
    cdef size_t sub
    cdef unsigned long long headings, places  # codes, a bit each

    def __init__(self, tags, parser):
        cdef int number
        kinds = (tags.NOTHING, tags.INLINE, tags.LINK, tags.BREAK, tags.RULE, tags.BLOCK, tags.SKIP, tags.EITHER, tags.BUTTON, tags.DIALOG)
        kinds = (*kinds, tags.TEMPLATE, tags.RAISED)
        if kinds != (NOTHING, INLINE, LINK, BREAK, RULE, BLOCK, SKIP, EITHER, BUTTON, DIALOG, TEMPLATE, RAISED):
            raise ValueError("scripts/crawl2llm/stages/ingest/tags.py numbers its kinds in another way")
        self.parser, self.words, self.conceals, self.raised_mark = parser, Words(tags.name_bits), tags.conceals, tags.raised_mark
        self.hidden = tags.HIDDEN
        self.attributes = [None, *tags.ATTRIBUTES]
        names, attributes, self.html = self.known(tags.PROBE)
        if lacking := (set(tags.KIND) - names.keys()) | (set(tags.ATTRIBUTES) - attributes.keys()):
            raise ValueError(f"scripts/crawl2llm/stages/ingest/tags.py: PROBE lacks {', '.join(sorted(lacking))}")
        for number in range(KNOWN):
            self.kinds[number], self.codes[number], self.roles[number] = INLINE, tags.CUSTOM, NO_ATTRIBUTE
        self.named = {}
        for name, kind in tags.KIND.items():
            code = tags.CODE.get(name, tags.CODE.get(tags.ALIKE.get(name), tags.CUSTOM))
            if isinstance(names[name], int):
                self.kinds[names[name]], self.codes[names[name]] = kind, code
            else:
                self.named[names[name]] = kind, code
        for number in range(256):
            self.within[number] = 0
        for name, bits in tags.WITHIN.items():
            self.within[tags.CODE[name]] = bits
        self.pre, self.div, self.custom = tags.CODE["pre"], tags.CODE["div"], tags.CUSTOM
        self.ol, self.li, self.sub = tags.CODE["ol"], tags.CODE["li"], names["sub"]
        self.numbering = tags.ATTRIBUTES.index("start") + 1
        self.numbers = {name: names[name] for name in tags.KIND}
        self.names = {names[name]: name for name in tags.ASKED}
        for number in range(KNOWN):
            self.asked[number] = number in self.names
        self.headings = sum([1 << tags.CODE[name] for name in tags.HEADINGS])
        self.places = sum([1 << tags.CODE[name] for name in tags.PLACES])
        self.math = names["math"]
        self.others, self.lengths, self.kept = 0, 0, []
        for number, name in enumerate(tags.ATTRIBUTES, 1):
            if isinstance(attributes[name], int):
                self.roles[attributes[name]] = number
            else:
                self.keep(attributes[name], number)

    cdef bint keep(self, bytes name, int role) except -1:
        """A name of an attribute that has no number in lexbor."""
        if self.others == OTHERS or len(name) > 63:
            raise ValueError(f"{name}: over {OTHERS} such names, or 63 letters")
        self.kept.append(name)
        self.other[self.others] = Other(<const unsigned char*><const char*>name, len(name), role)
        self.others += 1
        self.lengths |= 1ULL << len(name)
        return True

    cdef tuple known(self, str page):
        """(name of an element → its number or its bytes, the same of attributes, number of HTML's namespace) by a page's tree.

        Compares what the structs say with what selectolax says. Raises ValueError.
        """
        cdef Node* node
        cdef dict names = {}, attributes = {}
        parsed = self.parser(page)
        seen = [(None if each.tag == "-text" else each.tag, {} if each.tag == "-text" else each.attributes,
                 each.text() if each.tag == "-text" else "") for each in parsed.root.traverse(include_text=True)]
        node = <Node*><uintptr_t>parsed.root.mem_id
        if node.type != AN_ELEMENT or node.name != parsed.root.tag_id or <uintptr_t>node.first != parsed.root.first_child.mem_id:
            raise ValueError("selectolax keeps the nodes of its trees in another way")
        nodes = walk(node)
        if len(nodes) != len(seen):
            raise ValueError(f"selectolax has {len(seen)} nodes where there are {len(nodes)}")
        for (number, found, text), (name, expected, its) in zip(nodes, seen):
            same = text == its and [*found.values()] == [value or "" for value in expected.values()]
            if same and name is not None:
                same = names.setdefault(name, number) == number and (isinstance(number, int) or number == name.encode())
            for number, name in zip(found, expected):
                same = same and attributes.setdefault(name, number) == number and (isinstance(number, int) or number == name.encode())
            if not same:
                raise ValueError(f"selectolax has {(name, expected, its)} where there is {(number, found, text)}")
        # What selectolax does not show: the content of a template.
        cdef Node* template = <Node*><uintptr_t>parsed.css_first("template").mem_id
        cdef Fragment* content = (<Template*>template).content
        if content.node.type != A_FRAGMENT or content.host != template or content.node.first == NULL or above(content.node.first) != template:
            raise ValueError("selectolax keeps the content of templates in another way")
        if content.node.first.name != names["p"] or text_of(&(<Text*>content.node.first.first).data, -1) != "within":
            raise ValueError("selectolax keeps the content of templates in another way")
        if (<Node*><uintptr_t>parsed.css_first("svg").mem_id).space == node.space:
            raise ValueError("selectolax keeps namespaces in another way")
        return names, attributes, node.space

    cdef inline int kind_of(self, Node* node, short* code) except -1:
        """What is done with an element."""
        cdef bytes name
        if node.name < KNOWN:
            code[0] = self.codes[node.name]
            return self.kinds[node.name]
        name, code[0] = name_of(node.name), self.custom
        found = self.named.get(name)
        if found is not None:
            code[0] = found[1]
            return found[0]
        return EITHER if b"-" in name and node.space == self.html else INLINE

    cdef inline int role_of(self, Attribute* attribute) noexcept:
        """The place of an attribute's name in tags.ATTRIBUTES, from 1 on, or 0."""
        cdef Name* name
        cdef int number
        if attribute.node.name < KNOWN:
            return self.roles[attribute.node.name]
        name = <Name*>attribute.node.name
        if name.length < 64 and self.lengths >> name.length & 1:
            for number in range(self.others):
                if self.other[number].length == name.length and not memcmp(self.other[number].letters, letters_of(name), name.length):
                    return self.other[number].role
        return NO_ATTRIBUTE

    cdef inline Attribute* find(self, Node* node, int role) noexcept:
        """An element's attribute, or NULL."""
        cdef Attribute* attribute = (<Element*>node).attribute
        while attribute != NULL and self.role_of(attribute) != role:
            attribute = attribute.next
        return attribute

    cdef bint is_true(self, Attribute* attribute):
        return attribute != NULL and text_of(attribute.value, 16).strip().lower() == "true"

    cdef bint shadow(self, Node* template):
        """Whether a template is the declaration of a shadow tree, so shown."""
        cdef Attribute* mode = self.find(template, SHADOW)
        return mode != NULL and template.space == self.html and text_of(mode.value, 16).lower() in ("open", "closed")

    cdef long long say(self, Node* node) except -1:
        """The bits that an element's attributes say."""
        cdef long long bits = 0
        cdef int role
        cdef Attribute* attribute = (<Element*>node).attribute
        while attribute != NULL:
            role = self.role_of(attribute)
            if CLASS <= role <= ITEMPROP:
                if attribute.value != NULL:
                    bits |= self.words.say(attribute.value.data, min(attribute.value.length, SAYS))
            elif role == STYLE:
                if attribute.value != NULL and conceals(attribute.value):
                    bits |= self.conceals(text_of(attribute.value, SAYS))
            elif role == HIDES or (role == ARIA_HIDDEN and self.is_true(attribute)):
                bits |= self.hidden
            attribute = attribute.next
        return bits

    cdef bint is_numbered(self, Node* node) noexcept:
        """Whether an element's attributes say how items are numbered."""
        cdef int role
        cdef Attribute* attribute = (<Element*>node).attribute
        while attribute != NULL:
            role = self.role_of(attribute)
            if role == TYPE or role >= self.numbering:
                return True
            attribute = attribute.next
        return False

    cdef str raised_text(self, Node* node):
        """The text of a <sup>; "" if it is too long, or has a line break within."""
        cdef Node* within = node.first
        cdef bytes text = b""
        cdef int count
        cdef short code
        for count in range(RAISED_LOOKED):
            if within == NULL or len(text) > RAISED_LONG:
                break
            if within.type == A_TEXT:
                text += PyBytes_FromStringAndSize(<char*>(<Text*>within).data.data, min((<Text*>within).data.length, RAISED_LONG + 1))
            elif within.type == AN_ELEMENT and self.kind_of(within, &code) in (INLINE, LINK, RAISED) and within.first != NULL:
                within = within.first
                continue
            elif within.type == AN_ELEMENT and self.kind_of(within, &code) == BREAK:
                return ""
            while within != node and within.next == NULL:
                within = above(within)
            within = within.next if within != node else NULL
        return text.decode("utf-8", "ignore") if within == NULL and len(text) <= RAISED_LONG else ""

    cdef bint is_numerator(self, Node* node) except -1:
        """Whether a slash and a <sub> follow a <sup>."""
        cdef Node* other = node.next
        cdef String* slash
        if other == NULL or other.type != A_TEXT or other.next == NULL or other.next.name != self.sub:
            return False
        slash = &(<Text*>other).data
        return text_of(slash, 8) in ("/", "\u2044")

    cdef dict attributes_of(self, Node* node, size_t most):
        """Those of tags.ATTRIBUTES that an element has, their values of at most so many bytes."""
        cdef dict found = {}
        cdef int role
        cdef Attribute* attribute = (<Element*>node).attribute
        while attribute != NULL:
            role = self.role_of(attribute)
            if role:
                found[self.attributes[role]] = text_of(attribute.value, most)
            attribute = attribute.next
        return found

    def parse(self, bytes page not None):
        """The tree of a page in UTF-8."""
        return Tree(self, page)


cdef enum:
    AT_A_TIME = 16  # characters of ASCII that are narrowed together


def utf8(str page not None):
    """The page in UTF-8, without lone surrogates. Nearly all characters of most pages are ASCII, and stored in two bytes each."""
    cdef Py_ssize_t at = 0, size = len(page), used = 0, each
    cdef const uint16_t* text = <const uint16_t*>PyUnicode_DATA(page)
    cdef unsigned char* out
    cdef uint16_t c
    cdef uint64_t words[4]
    cdef uint16_t wide[AT_A_TIME]
    cdef unsigned char narrow[AT_A_TIME]
    cdef bytes encoded
    if PyUnicode_KIND(page) != 2:
        return page.encode("utf-8", "ignore")
    # What is not written to takes no memory.
    out = <unsigned char*>PyMem_RawMalloc(3 * size)
    if out == NULL:
        raise MemoryError()
    while at < size:
        if at + AT_A_TIME <= size:
            memcpy(wide, text + at, sizeof(wide))
            memcpy(words, wide, sizeof(words))
            if not (words[0] | words[1] | words[2] | words[3]) & 0xFF80FF80FF80FF80ULL:
                for each in range(AT_A_TIME):
                    narrow[each] = <unsigned char>wide[each]
                memcpy(out + used, narrow, AT_A_TIME)
                at += AT_A_TIME
                used += AT_A_TIME
                continue
        for each in range(min(AT_A_TIME, size - at)):
            c = text[at + each]
            if c < 0x80:
                out[used] = <unsigned char>c
                used += 1
            elif c < 0x800:
                out[used], out[used + 1] = 0xC0 | c >> 6, 0x80 | c & 63
                used += 2
            elif not 0xD800 <= c < 0xE000:
                out[used], out[used + 1], out[used + 2] = 0xE0 | c >> 12, 0x80 | c >> 6 & 63, 0x80 | c & 63
                used += 3
        at += min(AT_A_TIME, size - at)
    try:
        encoded = PyBytes_FromStringAndSize(<char*>out, used)
    finally:
        PyMem_RawFree(out)
    return encoded


cdef inline bint conceals(String* value) noexcept:
    """Whether a style may say `display: none` or `visibility: hidden`: whether it has a y, a colon, and an n or h."""
    cdef size_t at, other, size = min(value.length, SAYS)
    cdef const unsigned char* data = value.data
    for at in range(1, size):
        if data[at] != 58:
            continue
        other = at - 1
        while other > 0 and not PLAIN[data[other]]:
            other -= 1
        if data[other] | 32 != 121 and data[other] < 128:
            continue
        other = at + 1
        while other < size and not PLAIN[data[other]]:
            other += 1
        if other < size and (data[other] | 32 == 110 or data[other] | 32 == 104 or data[other] >= 128):
            return True
    return False


@cython.final
cdef class Numbers:
    """Whole numbers that come one after the other."""

    cdef long long* data
    cdef Py_ssize_t count, room

    def __dealloc__(self):
        free(self.data)

    cdef inline bint add(self, long long number) except -1:
        if self.count == self.room:
            self.grow()
        self.data[self.count] = number
        self.count += 1
        return True

    cdef bint grow(self) except -1:
        cdef Py_ssize_t room = max(2 * self.room, 64)
        cdef long long* data = <long long*>realloc(self.data, room * sizeof(long long))
        if data == NULL:
            raise MemoryError()
        self.data, self.room = data, room
        return True

    def array(self):
        return array("q", PyBytes_FromStringAndSize(<char*>self.data, self.count * sizeof(long long)))


cdef class Tree:
    """A page as lexbor reads it. nodes: their number; depth: of the deepest; depths: the sum over all of them.

    What is in a template counts only if it is the declaration of a shadow tree. `user` of an element says whether it has a block within: 1
    for <div> alone, 2 for others, else 0.
    """

    cdef Reader reader
    cdef object parsed
    cdef Node* root
    cdef readonly Py_ssize_t nodes, depth, depths
    cdef bint formulas  # whether it has any
    cdef Numbers places  # of the elements that `elements` may be asked for

    def __init__(self, Reader reader not None, bytes page not None):
        self.reader = reader
        self.parsed = reader.parser(page, options=1)
        root = self.parsed.root
        self.root = <Node*><uintptr_t>root.mem_id if root is not None else NULL
        self.nodes = self.depth = self.depths = 0
        self.places = Numbers()
        self.survey()

    cdef Node* inside(self, Node* node):
        """The first node within another one."""
        cdef Node* first = node.first
        cdef short code
        if first == NULL and node.type == AN_ELEMENT and self.reader.kind_of(node, &code) == TEMPLATE and self.reader.shadow(node):
            first = (<Template*>node).content.node.first
        return first

    cdef bint survey(self) except -1:
        """Counts nodes, and marks the elements that have a block within, and finds those that `elements` may be asked for."""
        cdef Node* node = self.root
        cdef Node* around
        cdef Node* skipped = NULL  # what is in it is not shown
        cdef Py_ssize_t depth = 1
        cdef uintptr_t holds
        cdef int kind
        cdef short code
        while node != NULL:
            self.nodes += 1
            self.depths += depth
            if depth > self.depth:
                self.depth = depth
            if node.type == AN_ELEMENT:
                kind = self.reader.kind_of(node, &code)
                self.formulas |= node.name == self.reader.math
                if node.name < KNOWN and self.reader.asked[node.name] and node.space == self.reader.html:
                    self.places.add(<long long><uintptr_t>node)
                if skipped == NULL:
                    if kind == BLOCK or kind == RULE:
                        holds = 1 if code == self.reader.div else 2
                        around = above(node)
                        while around != NULL and <uintptr_t>around.user < holds:
                            around.user = <void*>holds
                            around = above(around)
                    elif kind == SKIP or (kind == DIALOG and self.reader.find(node, OPEN) == NULL):
                        skipped = node
            around = self.inside(node)
            if around != NULL:
                node = around
                depth += 1
                continue
            while node != self.root and node.next == NULL:
                if node == skipped:
                    skipped = NULL
                node = above(node)
                depth -= 1
            if node == skipped:
                skipped = NULL
            node = node.next if node != self.root else NULL
        return True

    def elements(self, names not None, Py_ssize_t most, size_t value, size_t text):
        """[(name, attributes of tags.ATTRIBUTES, text)] of HTML's elements with these names, in their order, `most` of them.

        names: of tags.ASKED. value, text: bytes of a value and a text at most; what is cut off is left out. Of scripts only those are given
        whose type has `ld+json` in it; they and titles with their text.
        """
        cdef Node* node
        cdef Py_ssize_t place
        cdef list out = []
        cdef bint[KNOWN] wanted
        cdef str its
        memset(wanted, 0, sizeof(wanted))
        for name in names:
            if not self.reader.asked[<uintptr_t>self.reader.numbers[name]]:
                raise ValueError(f"{name} is not one of tags.ASKED")
            wanted[<uintptr_t>self.reader.numbers[name]] = True
        for place in range(self.places.count):
            node = <Node*><uintptr_t>self.places.data[place]
            if wanted[node.name]:
                if len(out) == most:
                    break
                name = self.reader.names[node.name]
                if name == "script" and not self.is_linked_data(node):
                    continue
                its = ""
                if (name == "title" or name == "script") and node.first != NULL and node.first.type == A_TEXT:
                    its = text_of(&(<Text*>node.first).data, text)
                out.append((name, self.reader.attributes_of(node, value), its))
        return out

    cdef bint is_linked_data(self, Node* script) except -1:
        cdef Attribute* type = self.reader.find(script, TYPE)
        return type != NULL and "ld+json" in text_of(type.value, 100)

    def read(self):
        """The lists of a Markup (scripts/crawl2llm/stages/ingest/markup.py)."""
        cdef Reading page = Reading(self.reader)
        if self.root != NULL:
            page.all(self)
        elements = [each.array() for each in (page.parent, page.code, page.own_bits, page.bits, page.first, page.last)]
        return *elements, page.text, *[each.array() for each in (page.node, page.links, page.linked, page.marks)], page.numbered


cdef class Reading:
    """One page on its way to elements and blocks."""

    cdef Reader reader
    cdef Numbers parent, code, own_bits, bits, first, last, node, links, linked, marks
    cdef list text
    cdef dict numbered  # attributes of lists and items, by their element
    cdef Node** opened  # the nodes of the open elements of blocks, the innermost last
    cdef Py_ssize_t* numbers  # of these elements
    cdef Py_ssize_t open, room
    cdef unsigned char* out  # the text of the block at hand
    cdef size_t used, size
    cdef bint space, line, apart  # what stands before the next character; apart: a space between two letters
    cdef bint divided  # U+200B, if it stands between two characters of tags.UNSPACED
    cdef Node* raised  # a <sup> in brackets
    cdef Node* field  # a text that stands apart, such as a label
    cdef size_t field_used
    cdef Py_ssize_t pre, here, link_count, link_chars, mark_count, breaks
    cdef Node* link
    cdef bint formulas

    def __cinit__(self, Reader reader not None):
        self.reader = reader
        self.parent, self.code, self.own_bits, self.bits, self.first, self.last = [Numbers() for _ in range(6)]
        self.node, self.links, self.linked, self.marks = [Numbers() for _ in range(4)]
        self.text, self.numbered = [], {}
        self.room, self.size = 64, 4096
        self.opened = <Node**>realloc(NULL, self.room * sizeof(Node*))
        self.numbers = <Py_ssize_t*>realloc(NULL, self.room * sizeof(Py_ssize_t))
        self.out = <unsigned char*>realloc(NULL, self.size)
        if self.opened == NULL or self.numbers == NULL or self.out == NULL:
            raise MemoryError()
        self.opened[0], self.numbers[0], self.open = NULL, 0, 1
        self.element(0, 0, 0)

    def __dealloc__(self):
        free(self.opened)
        free(self.numbers)
        free(self.out)

    cdef bint make_room(self, size_t more) except -1:
        cdef size_t size = self.size
        cdef unsigned char* out
        while size < self.used + more:
            size *= 2
        if size > self.size:
            out = <unsigned char*>realloc(self.out, size)
            if out == NULL:
                raise MemoryError()
            self.out, self.size = out, size
        return True

    cdef bint flush(self) except -1:
        """The text since the last border of a block is a block."""
        cdef size_t begin = 0, end = self.used, at = 0, width
        if self.used:
            if self.pre:
                # Without lines that are blank at the beginning and the end; the last line without white space at its end.
                while at < end:
                    width = white(self.out + at, end - at)
                    if not width:
                        break
                    if self.out[at] == 10:
                        begin = at + 1
                    at += width
                if at == end:
                    end = begin = 0
            if end > begin:
                text = PyUnicode_DecodeUTF8(<char*>self.out + begin, end - begin, "replace")
                self.text.append(text.rstrip() if self.pre else text)
                self.node.add(self.here)
                self.links.add(self.link_count)
                self.linked.add(self.link_chars)
                self.marks.add(self.mark_count)
            self.used, self.space, self.line, self.apart = 0, False, False, False
            self.link_count, self.link_chars, self.mark_count, self.breaks = self.link != NULL, 0, 0, 0
        return True

    cdef bint add(self, String* data) except -1:
        """A text: in <pre> as it is, else each run of white space as one space, and none at the ends of a line; without what `unseen` knows."""
        cdef size_t at = 0, begin, width, used, before, size = data.length
        cdef const unsigned char* text = data.data
        cdef unsigned char* out
        self.make_room(size + 4)
        out, used = self.out, self.used
        before = used
        if self.pre:
            while at < size:
                width = 0 if PLAIN[text[at]] else unseen(text + at, size - at)
                if width:
                    self.divided = self.divided or text[at + 1] == 0x80
                    at += width
                    continue
                if self.divided:
                    used += divide(out, used, text + at, size - at)
                    self.divided = False
                if text[at] != 13:
                    out[used] = text[at]
                    used += 1
                elif at + 1 == size or text[at + 1] != 10:
                    out[used] = 10
                    used += 1
                at += 1
            self.breaks = 0
        else:
            while at < size:
                width = 0 if PLAIN[text[at]] else white(text + at, size - at)
                if width:
                    self.space = True
                    at += width
                    continue
                width = 0 if PLAIN[text[at]] else unseen(text + at, size - at)
                if width:
                    self.divided = self.divided or text[at + 1] == 0x80
                    at += width
                    continue
                if self.divided:
                    if not self.space and not self.line:
                        width = divide(out, used, text + at, size - at)
                        before += width * (used == before)
                        used += width
                    self.divided = False
                if used and (self.space or self.line or (self.apart and letter_before(out, used) and letter_at(text[at]))):
                    out[used] = 10 if self.line else 32
                    before += used == before  # what is not of this text
                    used += 1
                self.space = self.line = self.apart = False
                begin = at
                at += 1
                while at < size and PLAIN[text[at]]:
                    at += 1
                memcpy(out + used, text + begin, at - begin)
                used += at - begin
            if used > before:
                self.breaks = 0
        self.used = used
        if self.link != NULL:
            self.link_chars += characters(out + before, used - before)
        return True

    cdef bint begin(self, Node* node, short code) except -1:
        """An element of a block."""
        cdef long long bits = self.reader.within[code]
        cdef Py_ssize_t around = self.here
        self.flush()
        if (<Element*>node).attribute != NULL:
            bits |= self.reader.say(node)
            if (code == self.reader.li or code == self.reader.ol) and self.reader.is_numbered(node):
                self.numbered[self.parent.count] = self.reader.attributes_of(node, 16)
        if self.open == self.room:
            self.grow()
        self.here = self.parent.count
        self.opened[self.open], self.numbers[self.open] = node, self.here
        self.open += 1
        self.pre += code == self.reader.pre
        self.element(around, code, bits)
        return True

    cdef bint element(self, Py_ssize_t around, short code, long long bits) except -1:
        self.parent.add(around)
        self.code.add(code)
        self.own_bits.add(bits)
        self.bits.add(bits | self.bits.data[around] if self.bits.count else bits)
        self.first.add(len(self.text))
        self.last.add(-1)
        return True

    cdef bint grow(self) except -1:
        cdef Node** opened = <Node**>realloc(self.opened, 2 * self.room * sizeof(Node*))
        cdef Py_ssize_t* numbers
        if opened == NULL:
            raise MemoryError()
        self.opened = opened
        numbers = <Py_ssize_t*>realloc(self.numbers, 2 * self.room * sizeof(Py_ssize_t))
        if numbers == NULL:
            raise MemoryError()
        self.numbers, self.room = numbers, 2 * self.room
        return True

    cdef bint end(self) except -1:
        """The end of the innermost element of a block."""
        self.flush()
        self.open -= 1
        self.last.data[self.here] = len(self.text)
        self.pre -= self.code.data[self.here] == self.reader.pre
        self.here = self.numbers[self.open - 1]
        return True

    cdef bint alone(self, Node* node) except -1:
        """Whether an element stands directly in one of tags.PLACES, without text beside it.

        White space, what is not shown and controls of forms are no text; a line break is a border.
        """
        cdef Node* other
        cdef int way, count, kind
        cdef short code
        if above(node) != self.opened[self.open - 1] or not self.reader.places >> self.code.data[self.here] & 1:
            return False
        for way in range(2):
            other = node.next if way else node.previous
            count = 0
            while other != NULL and count < BESIDE_LOOKED:
                if other.type == A_TEXT or other.type == A_CDATA:
                    if not blank(other):
                        return False
                elif other.type == AN_ELEMENT:
                    kind = self.reader.kind_of(other, &code)
                    if kind == BLOCK or kind == BREAK or kind == RULE or other.user != NULL:
                        break
                    if kind == LINK or ((kind == INLINE or kind == RAISED) and other.first != NULL):
                        return False
                other = other.next if way else other.previous
                count += 1
        return True

    cdef bint write(self, bytes mark) except -1:
        cdef String text
        text.data, text.length = <unsigned char*><char*>mark, len(mark)
        return self.add(&text)

    cdef bint begin_raised(self, Node* node) except -1:
        """What stands before a <sup>."""
        cdef size_t begin = self.used - min(self.used, <size_t>8)
        before = PyUnicode_DecodeUTF8(<char*>self.out + begin, self.used - begin, "ignore")
        mark = self.reader.raised_mark(before, self.reader.raised_text(node), self.reader.is_numerator(node))
        if mark == "^(" and self.raised == NULL:
            self.raised = node
        elif mark == "^(":
            mark = "^"
        if mark:
            self.write(mark.encode())
        return True

    cdef bint in_formula(self, Node* node, bint begins) except -1:
        """What MathML draws between the parts of a fraction, a power and a root, where one of them begins or ends."""
        cdef Node* around = above(node)
        cdef Node* other = node.previous
        cdef bint root = node.name >= KNOWN and name_of(node.name) == b"msqrt"
        cdef bytes name = name_of(around.name) if around != NULL and around.type == AN_ELEMENT and around.name >= KNOWN else b""
        while other != NULL and other.type != AN_ELEMENT:
            other = other.previous
        if not (root or name == b"mfrac" or (name == b"msup" and other != NULL)):
            return True
        if begins and other != NULL and name in (b"mfrac", b"msup"):
            self.space = False
            self.write(b"/" if name == b"mfrac" else b"^")
        if begins and root:
            self.write("\u221a".encode())
        text = self.reader.raised_text(node)
        if len(text) != 1 and not text.isalnum():
            if not begins:
                self.space = False
            self.write(b"(" if begins else b")")
        return True

    cdef bint heads(self, Node* node) except -1:
        """Whether a button stands in a heading, as those that open and close a section do."""
        cdef int count
        for count in range(DEEP_LOOKED):
            node = above(node)
            if node == NULL or node == self.opened[self.open - 1]:
                break
        return node != NULL and self.reader.headings >> self.code.data[self.here] & 1

    cdef bint drawn(self, Node* node) except -1:
        """Whether an element that is hidden from screen readers only draws the formula beside it."""
        cdef Node* other
        cdef int way, count
        if not self.reader.is_true(self.reader.find(node, ARIA_HIDDEN)):
            return False
        for way in range(2):
            other = node.next if way else node.previous
            for count in range(DEEP_LOOKED):
                if other == NULL or other.type != AN_ELEMENT:
                    break
                if other.name == self.reader.math:
                    return True
                other = other.first
        return False

    cdef bint enter(self, Node* node) except -1:
        """An element begins. Whether what is within is read."""
        cdef short code
        cdef int kind = self.reader.kind_of(node, &code)
        if kind == INLINE or kind == RAISED:
            self.mark_count += 1
            if self.formulas and (<Element*>node).attribute != NULL and self.drawn(node):
                return False
            if node.space != self.reader.html:
                self.in_formula(node, True)
            elif kind == RAISED and self.used and not self.line and node.user == NULL:
                self.begin_raised(node)
            return True
        if kind == NOTHING:
            return False
        if kind == LINK:
            if self.link == NULL and self.reader.find(node, HREF) != NULL:
                self.link = node
                self.link_count += 1
            return True
        if kind == BREAK:
            if self.used:
                self.breaks += 1
                if self.pre:
                    self.make_room(1)
                    self.out[self.used] = 10
                    self.used += 1
                elif self.breaks > 1:
                    self.flush()
                else:
                    self.line = True
            return False
        if kind == RULE:
            self.flush()
            return False
        if kind == TEMPLATE:
            return self.reader.shadow(node)
        if kind == DIALOG:
            kind = BLOCK if self.reader.find(node, OPEN) != NULL else SKIP
        elif kind == BUTTON:
            # Its content is phrasing: what else is in it was not meant to be, for an end tag is missing.
            kind = BLOCK if <uintptr_t>node.user == 2 else INLINE if self.heads(node) else SKIP
        elif kind == EITHER:
            kind = BLOCK if node.user != NULL or (code != self.reader.custom and self.alone(node)) else INLINE
            if kind == INLINE and code != self.reader.custom and node.name != self.reader.math:
                self.field, self.field_used, self.apart = node, self.used, True
        if kind == BLOCK:
            self.begin(node, code)
            return True
        self.mark_count += 1
        if kind == SKIP:
            self.apart = True
        return kind == INLINE

    cdef bint leave(self, Node* node) except -1:
        """An element ends whose inside was read."""
        cdef short code
        cdef int kind
        if node == self.opened[self.open - 1]:
            self.end()
        elif node == self.link:
            self.link = NULL
        else:
            kind = self.reader.kind_of(node, &code)
            self.mark_count += kind != LINK and kind != TEMPLATE and node.first != NULL
            if node.space != self.reader.html:
                self.in_formula(node, False)
            if node == self.raised:
                self.write(b")")
                self.raised = NULL
            if node == self.field:
                self.space = self.space or self.used > self.field_used
                self.field = NULL
        return True

    cdef bint all(self, Tree tree) except -1:
        """Every node of a page, in order."""
        cdef Node* node = tree.root
        cdef Node* first
        cdef bint within
        self.formulas = tree.formulas
        while True:
            within = False
            if node.type == A_TEXT or node.type == A_CDATA:
                self.add(&(<Text*>node).data)
            elif node.type == AN_ELEMENT:
                within = self.enter(node)
            if within:
                first = tree.inside(node)
                if first != NULL:
                    node = first
                    continue
                self.leave(node)
            while node != tree.root and node.next == NULL:
                node = above(node)
                self.leave(node)
            if node == tree.root:
                break
            node = node.next
        self.flush()
        self.last.data[0] = len(self.text)
        return True
