# What makes a parser of HTML slow, counted in one pass over a page's bytes: see scripts/crawl2llm/stages/ingest/bounds.py.
#
# The pass cuts tags as the standard's tokenizer does. Of the tree it knows a stack of what may be open and a list of the formatting elements
# that may be opened again. Both are upper bounds: an element leaves them only if no parser can fail to end it. Where tags may be text or not,
# as the tree decides, the pass stops and says how much of the page is left.

from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport malloc
from libc.string cimport memchr, memcmp, memmove, memset
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

cdef extern from "strings.h" nogil:
    int strncasecmp(const char* one, const char* other, size_t size)

cdef enum:
    ROOM = 65536  # places for open elements, and for formatting elements
    NAMES = 32768  # places for names
    LARGEST = 1 << 28  # that a limit may be, so that there is room: n elements that are left open take n * n / 2 steps
    KINDS = 512
    LEFT_OPEN = 3  # elements that an end tag ends with its own: more would be work for each tag
    ALIKE = 3  # formatting elements that are the same, of which so many are opened again
    ADOPTED = 4  # times that the end of a formatting element around others goes through what is open
    ROOT = 4  # the depth of what is in the body: document, html, body

# What a name means. The first are groups: elements that end each other.
cdef enum:
    P = 1 << 0
    LI = 1 << 1
    OPTION = 1 << 2
    DT_DD = 1 << 3
    CELL = 1 << 4
    TR = 1 << 5
    VOID = 1 << 6
    FORMATTING = 1 << 7  # opened again behind the end of what it was left open in
    ANCHOR = 1 << 8  # a formatting element that ends the one before
    MARKER = 1 << 9  # a tag within does not find the formatting elements outside
    FOREIGN = 1 << 10  # holds other than HTML
    INTEGRATION = 1 << 11  # within those, where HTML begins again
    BREAKS_OUT = 1 << 12  # ends those
    RAW = 1 << 13  # tags within are text
    STRUCTURE = 1 << 14  # of tables
    IGNORED = 1 << 15  # a tag that may make no element
    TABLE = 1 << 16
    TEMPLATES = 1 << 17
    FRAMESET = 1 << 18
    COL = 1 << 19
    MERGED = 1 << 20  # the attributes of each are added to those of the first
    SCRIPT = 1 << 21
    BR = 1 << 22

MEANINGS = (
    (P, "p"), (LI, "li"), (OPTION, "option"), (DT_DD, "dt dd"), (CELL, "td th"), (TR, "tr"),
    (VOID, "area base basefont bgsound br col embed frame hr image img input keygen link meta param source track wbr"),
    (FORMATTING, "a b big code em font i nobr s small strike strong tt u"),
    (ANCHOR, "a"),
    (MARKER, "applet caption marquee object template td th"),
    (INTEGRATION, "desc foreignobject title mi mo mn ms mtext annotation-xml"),
    (FOREIGN, "svg math"),
    (BREAKS_OUT, "b big blockquote body br center code dd div dl dt em embed font h1 h2 h3 h4 h5 h6 head hr i img li listing menu meta"),
    (BREAKS_OUT, "nobr ol p pre ruby s small span strong strike sub sup table tt u ul var"),
    (RAW, "script style textarea title iframe noembed noframes xmp"),
    (STRUCTURE, "caption col colgroup table tbody td tfoot th thead tr"),
    (IGNORED, "html head body frame frameset form noscript caption col colgroup tbody td tfoot th thead tr"),
    (TABLE, "table"), (TEMPLATES, "template"), (FRAMESET, "frameset"), (COL, "col"), (MERGED, "html body"), (SCRIPT, "script"), (BR, "br"), (0, "select"),
)  # fmt: skip
# By name, the groups that a start tag ends, and those that an end tag ends with its own element.
ENDED_BY = {"p": P, "li": LI, "option": OPTION, "dt": DT_DD, "dd": DT_DD, "td": CELL, "th": CELL, "tr": CELL | TR}
ENDED_WITH = {"div": P, "ul": LI | P, "ol": LI | P, "dl": DT_DD | P, "select": OPTION}

cdef inline uint64_t hashed(const uint8_t* text, Py_ssize_t size) noexcept:
    """FNV-1a of a name in lower case."""
    cdef uint64_t name = 14695981039346656037ULL
    cdef Py_ssize_t at
    for at in range(size):
        name = (name ^ <uint64_t>lower(text[at])) * 1099511628211ULL
    return name


cdef uint64_t FONT = hashed(b"font", 4)
cdef uint8_t[256] ENDING  # what may end a name: 1, white space; 2, "/"; 4, ">"; 8, "="
memset(ENDING, 0, 256)
ENDING[9] = ENDING[10] = ENDING[12] = ENDING[13] = ENDING[32] = 1
ENDING[47], ENDING[62], ENDING[61] = 2, 4, 8


cdef struct Kind:
    uint64_t name
    int means, ends, closes


cdef struct Open:
    uint64_t name
    Py_ssize_t at, size  # of the name
    Py_ssize_t table, templates  # a table: the one around it, and how many templates are open
    int means
    bint cell  # a table: whether it is in a cell


cdef struct Formatting:
    uint64_t name  # 0 is a marker
    Py_ssize_t at, size, number  # of the attributes


cdef class Scan:
    """Counts a page; one object for many."""

    cdef Kind[KINDS] kinds
    cdef Open* stack
    cdef Formatting* list
    cdef uint64_t* seen
    cdef const uint8_t* text
    cdef Py_ssize_t size, depth, loose, foreign, entries, left, table, templates, pure, mixed, distinct, number, root
    cdef int64_t tags, attributes, squares, steps, again, options, items, depths, names, copies, hidden
    cdef int64_t weight, run, fostered, most_steps, most_again, most_names
    cdef bint cell, lost, template, closed, stop

    def __cinit__(self):
        cdef Kind* kind
        memset(self.kinds, 0, sizeof(self.kinds))
        for means, names in MEANINGS:
            for name in names.split():
                kind = self.kind(hashed(<bytes>name.encode(), len(name)))
                kind.name = hashed(<bytes>name.encode(), len(name))
                kind.means |= <int>means
                kind.ends, kind.closes = ENDED_BY.get(name, 0), ENDED_WITH.get(name, 0)
        self.stack = <Open*>malloc(ROOM * sizeof(Open))
        self.list = <Formatting*>malloc(ROOM * sizeof(Formatting))
        self.seen = <uint64_t*>malloc(NAMES * sizeof(uint64_t))
        if self.stack == NULL or self.list == NULL or self.seen == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.stack)
        free(self.list)
        free(self.seen)

    cdef inline Kind* kind(self, uint64_t name) noexcept:
        """What a name means, or the free place where that would be."""
        cdef size_t place = name & (KINDS - 1)
        while self.kinds[place].name and self.kinds[place].name != name:
            place = (place + 1) & (KINDS - 1)
        return &self.kinds[place]

    cdef inline void name(self, uint64_t name) noexcept:
        """A name that a parser looks up among those before."""
        cdef size_t place = name & (NAMES - 1)
        if self.names > self.most_names:
            return
        while self.seen[place] and self.seen[place] != name:
            place = (place + 1) & (NAMES - 1)
        if not self.seen[place]:
            self.seen[place] = name
            self.distinct += 1
        self.names += self.distinct

    cdef inline bint is_innermost(self, uint64_t name, Py_ssize_t at, Py_ssize_t size, Py_ssize_t below=0) noexcept:
        """Whether the innermost open element, but for so many, has the name that is at this place."""
        cdef Open* open
        if self.depth <= below:
            return False
        open = &self.stack[self.depth - 1 - below]
        return open.name == name and open.size == size and not strncasecmp(
            <const char*>self.text + open.at, <const char*>self.text + at, size
        )

    cdef void forget(self, Py_ssize_t entry) noexcept:
        """A formatting element is not opened again."""
        self.weight -= self.again_costs(entry)
        self.left -= self.list[entry].name != 0
        self.entries -= 1
        memmove(&self.list[entry], &self.list[entry + 1], (self.entries - entry) * sizeof(Formatting))

    cdef inline int64_t again_costs(self, Py_ssize_t entry) noexcept:
        """What it takes to open a formatting element again: it and its attributes, and their values by the 64 bytes."""
        return 1 + self.list[entry].number + self.list[entry].size // 64 if self.list[entry].name else 0

    cdef void push(self, uint64_t name, Py_ssize_t at, Py_ssize_t size, int means) noexcept:
        cdef Open* open = &self.stack[self.depth]
        open.name, open.at, open.size, open.means = name, at, size, means
        if means & MARKER:
            self.list[self.entries].name, self.list[self.entries].at = 0, -1
            self.entries += 1
        if means & FOREIGN:
            self.foreign += 1
            if self.pure < 0 or self.mixed >= 0:
                self.pure, self.mixed = self.depth, -1
        elif means & INTEGRATION and self.foreign and self.mixed < 0:
            self.mixed = self.depth
        if means & TABLE:
            open.table, open.templates, open.cell = self.table, self.templates, self.cell
            self.lost |= self.table >= 0 and not self.cell  # the table around it has ended
            self.table, self.cell = self.depth, False
        self.templates += (means & TEMPLATES) != 0
        self.depth += 1

    cdef void pop(self) noexcept:
        cdef Open* open
        cdef Py_ssize_t entry = self.entries - 1
        self.depth -= 1
        open = &self.stack[self.depth]
        if open.means & MARKER:
            while self.list[entry].name:
                entry -= 1
            self.forget(entry)
        self.foreign -= (open.means & FOREIGN) != 0
        self.templates -= (open.means & TEMPLATES) != 0
        if open.means & TABLE:
            self.table, self.cell = open.table, open.cell
        if self.depth <= self.pure:
            self.pure = -1
        if self.depth <= self.mixed:
            self.mixed = -1

    cdef inline bint in_foreign(self) noexcept:
        """Whether this is surely within SVG or MathML, and not in HTML within these."""
        return self.pure >= 0 and self.mixed < 0

    cdef void break_out(self, uint64_t name) noexcept:
        """A tag ends the SVG or MathML that this is in; `<font>` only with some attributes."""
        cdef Py_ssize_t left = self.pure
        self.pure = -1
        while name != FONT and self.depth > left:
            self.pop()

    cdef void look(self) noexcept:
        """A tag that a parser looks through the open elements for, for each formatting element that may have to be opened again."""
        cdef int64_t here = self.depth + self.loose
        self.steps += here * (1 + self.left)
        self.again += self.weight
        self.stop |= self.steps > self.most_steps or self.again > self.most_again or self.names > self.most_names

    cdef void format(self, uint64_t name, Py_ssize_t at, Py_ssize_t size, bint link) noexcept:
        """The start of a formatting element with these attributes: compared with those before, up to a marker."""
        cdef Py_ssize_t entry = self.entries - 1, alike = 0, earliest = -1, least
        cdef Formatting* other
        while entry >= 0 and self.list[entry].name:
            other = &self.list[entry]
            if other.name == name:
                if link and not (self.template or self.foreign):
                    self.steps += ADOPTED * (self.depth + self.loose + self.left)
                    self.forget(entry)
                    break
                least = min(other.number, self.number)
                self.steps += 1 + least * least + min(other.size, size) // 64
                if other.size == size and not memcmp(self.text + other.at, self.text + at, size):
                    alike += 1
                    earliest = entry
            entry -= 1
        if alike >= ALIKE:
            self.forget(earliest)
        self.list[self.entries] = Formatting(name, at, size, self.number)
        self.weight += self.again_costs(self.entries)
        self.left += 1
        self.entries += 1

    cdef void end_format(self, uint64_t name, Py_ssize_t open) noexcept:
        """The end tag of the innermost element, a formatting element whose name ends at `open`. A parser ends the last that may be opened
        again: if that is another, this one may be left open.
        """
        cdef Py_ssize_t entry = self.entries - 1, last = -1
        while entry >= 0 and self.list[entry].at != open:
            if self.list[entry].name == name:
                last = entry
            entry -= 1
        if entry >= 0 and last >= 0:
            self.loose += 1
        elif entry >= 0:
            self.forget(entry)

    cdef void words(self, Py_ssize_t begin, Py_ssize_t end) noexcept:
        """A text between two tags. A parser may copy the one that it is joined to."""
        cdef Py_ssize_t at = begin
        if begin == end:
            return
        self.depths += (self.depth + self.loose + ROOT) * (end - begin)
        self.copies += self.run
        self.run += end - begin
        if self.table >= 0 and not self.cell:
            while at < end and ENDING[self.text[at]] == 1:
                at += 1
            self.copies += self.fostered if at < end else 0  # it is put before the table
            self.fostered += end - begin

    cdef inline void begin_run(self, int means) noexcept:
        """A tag behind which a text is surely not joined to the one before."""
        if means & STRUCTURE:
            if self.table >= 0 and not (self.lost or self.templates or self.foreign):
                self.run = 0
        elif not means & IGNORED and (self.table < 0 or self.cell):
            self.run = 0

    cdef Py_ssize_t behind_attributes(self, Py_ssize_t at) noexcept:
        """The place behind a tag whose name has ended. number: of attributes; closed: whether it ends in a slash."""
        cdef const uint8_t* text = self.text
        cdef const uint8_t* quote
        cdef Py_ssize_t size = self.size
        cdef uint64_t name
        cdef int c
        self.number, self.closed = 0, False
        while at < size:
            c = ENDING[text[at]]
            if c == 4:
                return at + 1
            if c == 1 or c == 2:
                self.closed = c == 2
                at += 1
                continue
            self.number += 1
            self.closed = False
            name = (14695981039346656037ULL ^ <uint64_t>lower(text[at])) * 1099511628211ULL
            at += 1
            while at < size and not ENDING[text[at]]:
                name = (name ^ <uint64_t>lower(text[at])) * 1099511628211ULL
                at += 1
            self.name(name)
            while at < size and ENDING[text[at]] == 1:
                at += 1
            if at < size and text[at] == c"=":
                at += 1
                while at < size and ENDING[text[at]] == 1:
                    at += 1
                if at < size and (text[at] == c'"' or text[at] == c"'"):
                    quote = <const uint8_t*>memchr(text + at + 1, text[at], size - at - 1)
                    at = quote - text + 1 if quote != NULL else size
                else:
                    while at < size and not ENDING[text[at]] & 5:
                        at += 1
        return at

    cdef Py_ssize_t end_of_name(self, Py_ssize_t at) noexcept:
        while at < self.size and not ENDING[self.text[at]] & 7:
            at += 1
        return at

    cdef inline Py_ssize_t find(self, int c, Py_ssize_t at) noexcept:
        cdef const uint8_t* found = <const uint8_t*>memchr(self.text + at, c, self.size - at) if at < self.size else NULL
        return found - self.text if found != NULL else self.size

    cdef Py_ssize_t behind_markup(self, Py_ssize_t at) noexcept:
        """The place behind a comment or what is taken for one, which begins here."""
        cdef Py_ssize_t end, begin = at + 4
        if not strncasecmp(<const char*>self.text + at, "<!--", 4):
            end = self.find(c">", begin)
            while end < self.size and not (
                end == begin
                or (end == begin + 1 and self.text[begin] == c"-")
                or (end >= begin + 2 and self.text[end - 1] == c"-" and self.text[end - 2] == c"-")
                or (end >= begin + 3 and self.text[end - 1] == c"!" and self.text[end - 2] == c"-" and self.text[end - 3] == c"-")
            ):
                end = self.find(c">", end + 1)
        elif self.foreign and not memcmp(self.text + at, b"<![CDATA[", min(9, self.size - at)):
            if not self.in_foreign():
                self.hide(at)
                return self.size
            end = self.find(c">", at + 11)
            while end < self.size and not (self.text[end - 1] == c"]" and self.text[end - 2] == c"]"):
                end = self.find(c">", end + 1)
        else:
            end = self.find(c">", at + 2)
        return min(end + 1, self.size)

    cdef void hide(self, Py_ssize_t at) noexcept:
        """What is left of the page, from here on, may be text or tags: it is counted as the worst that it may be."""
        cdef int64_t here = self.depth + self.loose, more = 0
        self.hidden, self.stop = self.size - at, True
        while at < self.size:
            more += 1
            at = self.find(c"<", at + 1)
        self.tags += more
        self.attributes += self.hidden // 2
        self.squares += self.hidden // 2 * self.hidden // 2
        self.steps += more * (here + more) * (1 + self.left + more // 2)
        self.again += more * (self.weight + self.hidden // 4)
        self.depths += (here + more + ROOT) * self.hidden
        self.copies += more * (self.run + self.fostered + self.hidden)

    cdef inline bint ends_in(self, Py_ssize_t at, const char* name, Py_ssize_t size) noexcept:
        """Whether this name, and no longer one, stands here."""
        return at + size < self.size and ENDING[self.text[at + size]] & 7 and not strncasecmp(<const char*>self.text + at, name, size)

    cdef Py_ssize_t end_of_content(self, Py_ssize_t name, Py_ssize_t size, Py_ssize_t at, bint script) noexcept:
        """Where the end tag of a raw element begins. In a script, `<!--<script>` hides the next."""
        cdef const char* text = <const char*>self.text
        cdef bint escaped = False, twice = False
        at = self.find(c"<", at)
        while at < self.size:
            if text[at] == c">":
                if text[at - 1] == c"-" and text[at - 2] == c"-":
                    escaped = twice = False
            elif text[at + 1] == c"/":
                if self.ends_in(at + 2, text + name, size):
                    if not twice:
                        return at
                    twice = False
            elif script and escaped:
                twice |= self.ends_in(at + 1, "script", 6)
            elif script and not strncasecmp(text + at, "<!--", 4):
                escaped = True
                at += 3
            at += 1
            if not escaped:
                at = self.find(c"<", at)
            else:
                while at < self.size and text[at] != c"<" and text[at] != c">":
                    at += 1
        return self.size

    cdef Py_ssize_t start(self, Py_ssize_t at) noexcept:
        """A start tag whose name is here. Returns the place behind it, and behind the text of a raw element."""
        cdef Py_ssize_t end = self.end_of_name(at), behind = self.behind_attributes(end), content
        cdef uint64_t name = hashed(self.text + at, end - at)
        cdef Kind* kind = self.kind(name)
        cdef int means = kind.means
        cdef bint closed = self.closed
        self.name(name)
        self.attributes += self.number
        self.squares += self.number * self.number
        if means & MERGED:
            self.squares += 2 * self.number * self.root
            self.root += self.number
        self.options += (means & OPTION) != 0
        self.items += (means & (LI | DT_DD | CELL | TR)) != 0
        if means & BREAKS_OUT and self.in_foreign():
            self.break_out(name)
        if self.in_foreign():
            if not closed:
                self.push(name, at, end - at, means)
        elif means & FRAMESET or (means & COL and self.templates):
            self.hide(at)
        elif self.foreign and means & RAW and (closed or memchr(self.text + behind, c"<", self.end_of_content(at, end - at, behind, False) - behind) != NULL):
            self.hide(at)
        elif means & VOID:
            self.loose += self.foreign and not means & BREAKS_OUT
        elif closed and means & FOREIGN:
            pass
        elif closed and self.foreign:
            self.loose += 1
        else:
            if not self.foreign:
                while self.depth and self.stack[self.depth - 1].means & kind.ends:
                    self.pop()
            if means & FORMATTING:
                self.format(name, end, behind - end, (means & ANCHOR) != 0)
            self.template |= (means & TEMPLATES) != 0
            self.push(name, at, end - at, means)
            if means & RAW:
                content = behind
                behind = self.end_of_content(at, end - at, behind, (means & SCRIPT) != 0)
                self.words(content, behind)
        if means & STRUCTURE and not means & TABLE:
            self.cell = means & MARKER and not (self.foreign or self.templates)  # those of tables hold cells' text
        self.begin_run(means)
        self.look()
        return behind

    cdef Py_ssize_t end(self, Py_ssize_t at) noexcept:
        """An end tag whose name is here. Returns the place behind it."""
        cdef Py_ssize_t end = self.end_of_name(at), behind = self.behind_attributes(end), left = 0
        cdef uint64_t name = hashed(self.text + at, end - at)
        cdef Kind* kind = self.kind(name)
        cdef int means = kind.means
        self.name(name)
        self.attributes += self.number
        self.look()
        if self.in_foreign():
            if means & (P | BR):
                self.break_out(name)
            else:
                while left < self.depth - self.pure and not self.is_innermost(name, at, end - at, left):
                    left += 1
                while left and left < self.depth - self.pure:
                    self.pop()
                    left -= 1
        if self.is_innermost(name, at, end - at):
            self.pop()
            self.begin_run(means)
            if means & FORMATTING and not self.in_foreign():
                self.end_format(name, self.stack[self.depth].at + self.stack[self.depth].size)
        elif means & TABLE and self.table >= 0 and not self.lost and self.templates == self.stack[self.table].templates:
            left = self.table
            while self.depth > left:
                self.pop()
            self.run = 0
        else:
            left, self.pure = 0, -1
            if means & FORMATTING:
                self.steps += ADOPTED * (self.depth + self.loose + self.left)
            if kind.closes and not self.foreign:
                while left < LEFT_OPEN and left < self.depth and self.stack[self.depth - 1 - left].means & kind.closes:
                    left += 1
                if self.is_innermost(name, at, end - at, left):
                    for left in range(left + 1):
                        self.pop()
            if means & (TABLE | TEMPLATES) and self.table >= 0:
                self.lost, self.cell = True, False
        if means & STRUCTURE and not means & TABLE:
            self.cell = False
        return behind

    def count(self, bytes page not None, int64_t most_steps, int64_t most_again, int64_t most_names):
        """The numbers of a Counts (scripts/crawl2llm/stages/ingest/bounds.py). Over one of these limits, the pass ends. Raises ValueError for larger ones than LARGEST."""
        cdef Py_ssize_t at = 0, begin = 0
        cdef int c
        if max(most_steps, most_again, most_names) > LARGEST:
            raise ValueError(f"limits of {most_steps:,}, {most_again:,} and {most_names:,}, at most {LARGEST:,}")
        self.text, self.size = <const uint8_t*>PyBytes_AS_STRING(page), PyBytes_GET_SIZE(page)
        self.most_steps, self.most_again, self.most_names = most_steps, most_again, most_names
        self.depth = self.loose = self.foreign = self.entries = self.left = self.templates = self.distinct = self.root = 0
        self.table = self.pure = self.mixed = -1
        self.tags = self.attributes = self.squares = self.steps = self.again = self.options = self.items = self.depths = 0
        self.names = self.copies = self.hidden = self.weight = self.run = self.fostered = 0
        self.cell = self.lost = self.template = self.stop = False
        memset(self.seen, 0, NAMES * sizeof(uint64_t))
        while not self.stop:
            at = self.find(c"<", at)
            if at == self.size:
                break
            c = self.text[at + 1]  # behind the last is a zero
            if letter(c):
                self.words(begin, at)
                self.tags += 1
                at = begin = self.start(at + 1)
            elif c == c"/" and letter(self.text[at + 2]):
                self.words(begin, at)
                self.tags += 1
                at = begin = self.end(at + 2)
            elif c == c"!" or c == c"?" or (c == c"/" and self.text[at + 2] != c">"):
                self.words(begin, at)
                self.tags += 1
                at = begin = self.behind_markup(at)
            else:
                at += 1
        self.words(min(begin, self.size), self.size)
        return (
            self.tags, self.attributes, self.squares, self.steps, self.again, self.options, self.items, self.depths, self.names, self.copies,
            self.hidden,
        )
