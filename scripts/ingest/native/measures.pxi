"""What a page's blocks look like, in whole numbers: their text, the elements around them, their neighbours, and where they stand.

Part of crawl2llm_native.pyx. What it is for is said in scripts/ingest/measures.py. All is linear in the number of elements and blocks.
"""

cdef enum:
    LONG = 80  # characters of a block that looks like a paragraph
    # A measure must not tell one page from another by its size. Hardly any page with gold text has over 50,000 characters of it, so the
    # largest of these pages are mostly lists, and a reference of a million characters would be taken for one.
    MANY = 100  # numbers of blocks, and distances in blocks, are counted so far
    AGAIN = 8  # times that a text occurs on the page are counted so far
    MOST = 32000  # a measure is at most so large
    LOOKED = 20000  # characters of a block whose kinds are counted
    ABOVE = 7  # the element of each block, the one around it, …

cdef tuple LEVELS = (0, 1, 2, 3, 4, 6)  # elements above a block that are looked at

# Kinds of characters: what the bits of tables.KINDS mean.
cdef enum:
    DIGIT, UPPER, SPACE, STOP, COMMA, SEPARATOR, CHARACTERS

cdef tuple OF_ELEMENT = ("blocks", "share", "density", "prose", "prose in text")
cdef tuple ELEMENT = tuple([tuple([f"{name} {level}" for level in LEVELS]) for name in OF_ELEMENT])
cdef dict BESIDE = {name: {by: f"{name} {by:+}" for by in range(-4, 5)} for name in ("length", "density", "code", "stops", "score")}

ctypedef long long whole_number


cdef whole_number[::1] zeros(Py_ssize_t count):
    return array("q", bytes(8 * max(count, 1)))


cdef inline whole_number share(whole_number part, whole_number whole) noexcept:
    """The part in thousandths of the whole."""
    return part * 1000 // max(whole, 1)


cdef inline whole_number between(whole_number value, whole_number least, whole_number most) noexcept:
    return min(max(value, least), most)


@cython.boundscheck(False)  # `check` has looked at all numbers of elements and blocks
cdef class Page:
    """The measures of a page's blocks. markup: a Markup with a block or more. tables: the module scripts.ingest.measures."""

    cdef readonly Py_ssize_t count
    cdef readonly object length, kind  # of each block: its characters, the code of its element
    cdef Py_ssize_t elements, makes
    cdef list texts
    cdef whole_number[::1] lengths, links, marks, linked, parent, code, own, bits, begin, end, above
    cdef whole_number[::1] value, more  # of each block; for the measure at hand
    cdef whole_number[::1] make  # blocks whose elements say the same are likely of one kind: its number
    cdef const unsigned char[::1] kinds
    cdef tuple groups
    cdef whole_number first_heading, last_heading
    cdef short[:, ::1] rows
    cdef dict number_of
    cdef list names

    def __init__(self, markup, tables):
        cdef Py_ssize_t block, level
        self.texts = markup.text
        self.count, self.elements = len(self.texts), len(markup.parent)
        self.kinds, self.groups = tables.KINDS, tables.NAMES
        self.first_heading, self.last_heading = tables.HEADINGS
        self.length, self.kind = array("q", bytes(8 * self.count)), array("q", bytes(8 * self.count))
        self.lengths = self.length
        cdef whole_number[::1] kinds = self.kind
        for block in range(self.count):
            self.lengths[block] = len(<str>self.texts[block])
        self.links, self.marks, self.linked = array("q", markup.links), array("q", markup.marks), array("q", markup.linked)
        self.parent, self.code, self.own, self.bits = [array("q", each) for each in (markup.parent, markup.code, markup.own, markup.bits)]
        self.begin, self.end = array("q", markup.first), array("q", markup.last)
        self.above = zeros(ABOVE * self.count)
        node = array("q", markup.node)
        cdef whole_number[::1] own = node
        self.check(own)
        for block in range(self.count):
            self.linked[block] = min(self.linked[block], self.lengths[block])
            self.above[block] = own[block]
            kinds[block] = self.code[own[block]]
            for level in range(1, ABOVE):
                self.above[level * self.count + block] = self.parent[self.above[(level - 1) * self.count + block]]
        self.value, self.more, self.make = zeros(self.count), zeros(self.count), zeros(self.count)
        cdef dict found = {}
        for block in range(self.count):
            kind = (self.code[self.around(0, block)], self.bits[self.around(0, block)], self.code[self.around(1, block)])
            self.make[block] = found.setdefault(kind, len(found))
        self.makes = len(found)

    cdef bint check(self, whole_number[::1] node) except -1:
        """Raises ValueError for a Markup whose numbers are of no element or block: nothing looks at them again."""
        cdef Py_ssize_t element, block
        sizes = [len(each) for each in (self.code, self.own, self.bits, self.begin, self.end)]
        blocks = [len(each) for each in (node, self.links, self.marks, self.linked)]
        if not self.count or sizes != [self.elements] * 5 or blocks != [self.count] * 4:
            raise ValueError(f"a Markup of {self.elements} elements and {self.count} blocks has lists of {sizes} and {blocks}")
        for element in range(self.elements):
            if not (0 <= self.parent[element] <= max(element - 1, 0) and 0 <= self.begin[element] <= self.end[element] <= self.count):
                raise ValueError(f"element {element} of a Markup lies in none, or has no blocks")
        for block in range(self.count):
            if not 0 <= node[block] < self.elements:
                raise ValueError(f"block {block} of a Markup lies in no element")
        return True

    cdef inline Py_ssize_t around(self, Py_ssize_t level, Py_ssize_t block) noexcept:
        """The element so many levels above a block."""
        return self.above[level * self.count + block]

    cdef inline bint wants(self, str name) except -1:
        return self.names is not None or name in self.number_of

    cdef bint put(self, str name, whole_number[::1] values) except -1:
        """A measure of every block goes into its row, where it is wanted."""
        cdef Py_ssize_t block, row
        if self.names is not None:
            self.names.append(name)
            return True
        found = self.number_of.get(name)
        if found is None:
            return True
        row = found
        for block in range(self.count):
            self.rows[row, block] = <short>between(values[block], -MOST, MOST)
        return True

    cdef bint same(self, str name, whole_number value) except -1:
        """A measure of the page."""
        if not self.wants(name):
            return True
        self.value[:] = value
        return self.put(name, self.value)

    cdef bint shares(self, str name, whole_number[::1] part, whole_number whole) except -1:
        cdef Py_ssize_t block
        if not self.wants(name):
            return True
        for block in range(self.count):
            self.value[block] = share(part[block], whole)
        return self.put(name, self.value)

    cdef bint beside(self, str name, whole_number[::1] values, Py_ssize_t reach, whole_number outside) except -1:
        """The values of the blocks up to `reach` places before ("name -1") and behind ("name +1")."""
        cdef Py_ssize_t by, block
        names = BESIDE[name]
        for by in range(-reach, reach + 1):
            if by and self.wants(names[by]):
                for block in range(self.count):
                    self.value[block] = values[block + by] if 0 <= block + by < self.count else outside
                self.put(names[by], self.value)
        return True

    cdef bint since(self, str ago, str on, whole_number[::1] where) except -1:
        """How many blocks ago one was of these, and how many further on one is, which may be itself."""
        cdef Py_ssize_t block
        cdef whole_number away = MANY
        for block in range(self.count):
            away = 0 if where[block] else min(away + 1, MANY)
            self.value[block] = away
        self.put(ago, self.value)
        away = MANY
        for block in range(self.count - 1, -1, -1):
            away = 0 if where[block] else min(away + 1, MANY)
            self.value[block] = away
        return self.put(on, self.value) if on else True

    cdef whole_number[::1] sums(self, whole_number[::1] values):
        """Of the values of an element's blocks."""
        cdef whole_number[::1] out = zeros(self.elements), running = self.running(values)
        cdef Py_ssize_t element
        for element in range(self.elements):
            out[element] = running[self.end[element]] - running[self.begin[element]]
        return out

    cdef whole_number[::1] running(self, whole_number[::1] values):
        """The sum of the values before each block, and of all."""
        cdef whole_number[::1] out = zeros(self.count + 1)
        cdef Py_ssize_t block
        for block in range(self.count):
            out[block + 1] = out[block] + values[block]
        return out

    cdef whole_number[::1] of_make(self, whole_number[::1] values):
        """For each make, the sum over its blocks."""
        cdef whole_number[::1] out = zeros(self.makes)
        cdef Py_ssize_t block
        for block in range(self.count):
            out[self.make[block]] += values[block]
        return out

    cdef bint above_put(self, str name, whole_number[::1] of_element, Py_ssize_t level) except -1:
        """A measure of the element so many levels above each block."""
        cdef Py_ssize_t block
        if not self.wants(name):
            return True
        for block in range(self.count):
            self.value[block] = of_element[self.around(level, block)]
        return self.put(name, self.value)

    cdef list characters(self):
        """How many characters of each kind a block has, of the first LOOKED; what it ends with; whether it begins in upper case."""
        cdef list out = [zeros(self.count) for _ in range(CHARACTERS + 2)]
        cdef whole_number[::1] digits = out[DIGIT], upper = out[UPPER], space = out[SPACE], stops = out[STOP], commas = out[COMMA]
        cdef whole_number[::1] separators = out[SEPARATOR], ends = out[CHARACTERS], begins = out[CHARACTERS + 1]
        cdef Py_ssize_t block, place, size
        cdef int width, kind = 0
        cdef void* data
        cdef Py_UCS4 c
        cdef str text
        for block in range(self.count):
            text = self.texts[block]
            width, data, size = PyUnicode_KIND(text), PyUnicode_DATA(text), min(len(text), LOOKED)
            for place in range(size):
                c = PyUnicode_READ(width, data, place)
                kind = self.kinds[<Py_ssize_t>c] if <Py_ssize_t>c < 65536 else 0
                if place == 0:
                    begins[block] = kind >> UPPER & 1
                if kind:
                    digits[block] += kind >> DIGIT & 1
                    upper[block] += kind >> UPPER & 1
                    space[block] += kind >> SPACE & 1
                    stops[block] += kind >> STOP & 1
                    commas[block] += kind >> COMMA & 1
                    separators[block] += kind >> SEPARATOR & 1
            ends[block] = (kind >> STOP & 1) + 2 * (kind >> COMMA & 1)
        return out

    cdef bint open(self, dict number_of, short[:, ::1] rows) except -1:
        if rows is not None and rows.shape[1] != self.count:
            raise ValueError(f"{self.count} blocks, and rows of {rows.shape[1]}")
        self.number_of, self.rows, self.names = number_of, rows, None if number_of is not None else []
        return True

    def first(self, dict number_of, short[:, ::1] rows):
        """The measures of every block, before any score: number_of[name] is the row of a measure; one that is not there is left out.

        rows: [measures, blocks]. Where `number_of` is None, all names are returned instead.
        """
        self.open(number_of, rows)
        self.of_text()
        self.of_elements()
        self.of_place()
        self.of_others()
        return self.names

    cdef bint of_text(self) except -1:
        """What a block is by itself."""
        cdef Py_ssize_t block, bit
        cdef list found = self.characters()
        cdef whole_number[::1] digits = found[DIGIT], upper = found[UPPER], one = found[0]
        cdef whole_number looked
        for block in range(self.count):
            looked = min(self.lengths[block], LOOKED)
            digits[block], upper[block] = share(digits[block], looked), share(upper[block], looked)
            self.more[block] = share(self.linked[block], self.lengths[block])
        self.put("length", self.lengths)
        self.put("linked", self.linked)
        self.put("links", self.links)
        self.put("density", self.more)
        self.put("marks", self.marks)
        for name, one in zip(("digits", "upper", "spaces", "stops", "commas", "separators", "end", "upper first"), found):
            self.put(name, one)
        self.beside("length", self.lengths, 3, -1)
        self.beside("density", self.more, 3, -1)
        self.beside("stops", found[STOP], 1, -1)
        self.above_put("code", self.code, 0)
        self.above_put("code above", self.code, 1)
        self.above_put("code two above", self.code, 2)
        cdef whole_number[::1] near = zeros(self.count)
        for block in range(self.count):
            for bit in range(4):
                near[block] |= self.own[self.around(bit, block)]
        for bit, (by, within) in enumerate(self.groups):
            if self.names is not None or by in self.number_of:
                for block in range(self.count):
                    self.value[block] = near[block] >> bit & 1
                self.put(by, self.value)
            if self.names is not None or within in self.number_of:
                for block in range(self.count):
                    self.value[block] = self.bits[self.around(0, block)] >> bit & 1
                self.put(within, self.value)
        return True

    cdef whole_number[::1] paragraphs(self):
        """The length of each block that looks like a paragraph, else 0."""
        cdef whole_number[::1] out = zeros(self.count)
        cdef Py_ssize_t block
        for block in range(self.count):
            if self.lengths[block] >= LONG and share(self.linked[block], self.lengths[block]) < 400:
                out[block] = self.lengths[block]
        return out

    cdef bint of_elements(self) except -1:
        """The elements around: how many blocks, how much of the page, how much of it links and paragraphs."""
        cdef whole_number[::1] text = self.sums(self.lengths), link = self.sums(self.linked), prose = self.sums(self.paragraphs())
        cdef whole_number whole = text[0], all_prose = prose[0], begin, end, size, element
        cdef Py_ssize_t block, level, which, main
        for which in range(len(LEVELS)):
            level = LEVELS[which]
            for kind in range(5):
                if not self.wants(ELEMENT[kind][which]):
                    continue
                for block in range(self.count):
                    element = self.around(level, block)
                    if kind == 0:
                        self.value[block] = min(self.end[element] - self.begin[element], MANY)
                    elif kind == 1:
                        self.value[block] = share(text[element], whole)
                    elif kind == 2:
                        self.value[block] = share(link[element], text[element])
                    elif kind == 3:
                        self.value[block] = share(prose[element], all_prose)
                    else:
                        self.value[block] = share(prose[element], text[element])
                self.put(ELEMENT[kind][which], self.value)
        # The innermost element with most of the paragraphs, and how far from it a block is.
        for least in (500, 800):
            main = self.elements - 1 if all_prose else 0
            while main and prose[main] * 1000 < all_prose * <whole_number>least:
                main -= 1
            begin, end = self.begin[main], self.end[main]
            for block in range(self.count):
                self.value[block] = between(min(block - begin, 0) + max(block - end + 1, 0), -MANY, MANY)
            self.put(f"from main {least}", self.value)
            self.same(f"main blocks {least}", min(end - begin, MANY))
            self.same(f"main density {least}", share(link[main], text[main]))
        return self.same("page density", share(link[0], whole))

    cdef bint of_place(self) except -1:
        """Where on the page a block stands."""
        cdef whole_number[::1] written = self.paragraphs(), length = self.running(self.lengths), prose = self.running(written)
        cdef whole_number[::1] code = zeros(self.count)
        cdef Py_ssize_t block, heading = -1
        for block in range(self.count):
            self.value[block] = block
            code[block] = self.code[self.around(0, block)]
        self.shares("place", self.value, self.count)
        self.shares("text before", length, length[self.count])
        self.shares("prose before", prose, prose[self.count])
        self.since("since prose", "until prose", written)
        for block in range(self.count):
            if code[block] == self.first_heading and (heading < 0 or self.lengths[block] > self.lengths[heading]):
                heading = block
        for block in range(self.count):
            self.value[block] = between(block - heading, -MANY, MANY) if heading >= 0 else -MANY
        self.put("after h1", self.value)
        self.beside("code", code, 3, -1)
        for block in range(self.count):
            code[block] = self.first_heading <= code[block] <= self.last_heading
        return self.since("since heading", "", code)

    cdef bint of_others(self) except -1:
        """Other blocks: those of the same make, of the same text, and the nearest."""
        cdef whole_number[::1] ones = zeros(self.count), written = self.paragraphs()
        cdef Py_ssize_t block, by, reach
        ones[:] = 1
        cdef whole_number[::1] size = self.of_make(ones), length = self.of_make(self.lengths), linked = self.of_make(self.linked)
        cdef whole_number[::1] texts = self.running(self.lengths), links = self.running(self.linked), prose = self.running(written)
        for block in range(self.count):
            self.value[block] = min(size[self.make[block]], MANY)
        self.put("make", self.value)
        for block in range(self.count):
            self.value[block] = share(length[self.make[block]], texts[self.count])
        self.put("make text", self.value)
        for block in range(self.count):
            self.value[block] = share(linked[self.make[block]], length[self.make[block]])
        self.put("make density", self.value)
        cdef dict seen = {}
        for text in self.texts:
            seen[text] = seen.get(text, 0) + 1
        for block in range(self.count):
            self.value[block] = min(<whole_number>seen[self.texts[block]], AGAIN)
        self.put("repeated", self.value)
        for by in (-1, 1):
            for block in range(self.count):
                self.value[block] = 0 <= block + by < self.count and (
                    self.around(0, block) == self.around(0, block + by) or self.around(1, block) == self.around(1, block + by)
                )
            self.put(f"siblings {by:+}", self.value)
        for reach in (4, 10):
            self.within(f"text within {reach}", texts, None, reach)
            self.within(f"prose within {reach}", prose, None, reach)
            self.within(f"density within {reach}", links, texts, reach)
        return True

    cdef bint within(self, str name, whole_number[::1] part, whole_number[::1] whole, Py_ssize_t reach, whole_number times=1000) except -1:
        """The sum over the blocks so near, by running sums; `times` its share of another one where there is one."""
        cdef Py_ssize_t block, low, high
        if not self.wants(name):
            return True
        for block in range(self.count):
            low, high = max(block - reach, 0), min(block + reach + 1, self.count)
            self.value[block] = part[high] - part[low]
            if whole is not None:
                self.value[block] = self.value[block] * times // max(whole[high] - whole[low], 1)
        return self.put(name, self.value)

    def second(self, const whole_number[::1] scores, dict number_of, short[:, ::1] rows):
        """The measures that the scores of the first forest add: those of the neighbours, and of the elements around; as `first`."""
        self.open(number_of, rows)
        cdef whole_number[::1] score = zeros(self.count), good = zeros(self.count), weighed = zeros(self.count)
        cdef whole_number whole
        cdef Py_ssize_t block, level, reach, element
        for block in range(self.count):
            score[block] = between(scores[block], -800, 800)
            good[block] = self.lengths[block] if score[block] > 0 else 0
            weighed[block] = self.lengths[block] * between(score[block], -300, 300)
        self.put("score", score)
        self.beside("score", score, 4, -900)
        cdef whole_number[::1] before = self.running(good), length = self.running(self.lengths), weight = self.running(weighed)
        whole = max(before[self.count], 1)
        self.shares("good before", before, whole)
        for block in range(self.count):
            self.value[block] = share(whole - before[block + 1], whole)
        self.put("good after", self.value)
        self.same("page good share", share(whole, length[self.count]))
        for block in range(self.count):
            self.more[block] = score[block] > 0 and self.lengths[block] >= LONG
        self.since("since good", "until good", self.more)
        for reach in (3, 8):
            self.within(f"score within {reach}", weight, length, reach, 1)
        cdef whole_number[::1] mean = self.sums(weighed), of_length = self.sums(self.lengths), held = self.sums(good)
        for element in range(self.elements):
            mean[element] = mean[element] // max(of_length[element], 1)
            held[element] = share(held[element], whole)
        for level in range(5):
            self.above_put(f"score {level} above", mean, level)
            self.above_put(f"good {level} above", held, level)
        cdef whole_number[::1] of_weight = self.of_make(weighed), of_text = self.of_make(self.lengths)
        for block in range(self.count):
            self.value[block] = of_weight[self.make[block]] // max(of_text[self.make[block]], 1)
        self.put("make score", self.value)
        return self.names
