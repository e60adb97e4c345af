"""What a page's blocks look like, in whole numbers: their text, the elements around them, their neighbours, and where they stand.

Part of crawl2llm_native.pyx. What it is for is said in scripts/crawl2llm/stages/ingest/measures.py. All is linear in the number of elements and blocks.
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
    PIECE = 98304  # bytes of memory that are asked for at a time

cdef tuple LEVELS = (0, 1, 2, 3, 4, 6)  # elements above a block that are looked at

# Kinds of characters: what the bits of tables.KINDS mean.
cdef enum:
    DIGIT, UPPER, SPACE, STOP, COMMA, SEPARATOR, CHARACTERS

# By the bits of a character, what it adds to two numbers that hold the counts of three kinds each.
cdef uint64_t COUNTED[1 << CHARACTERS], COUNTED_TOO[1 << CHARACTERS]
cdef enum:
    FIELD = 20  # bits of a count
for number in range(1 << CHARACTERS):
    COUNTED[number] = (number & 1) | <uint64_t>(number >> UPPER & 1) << FIELD | <uint64_t>(number >> SPACE & 1) << 2 * FIELD
    COUNTED_TOO[number] = (number >> STOP & 1) | <uint64_t>(number >> COMMA & 1) << FIELD | <uint64_t>(number >> SEPARATOR & 1) << 2 * FIELD

cdef tuple OF_ELEMENT = ("blocks", "share", "density", "prose", "prose in text")
cdef tuple ELEMENT = tuple([tuple([f"{name} {level}" for level in LEVELS]) for name in OF_ELEMENT])
cdef dict BESIDE = {name: {by: f"{name} {by:+}" for by in range(-4, 5)} for name in ("length", "density", "code", "stops", "score")}
cdef tuple OF_SCORE = tuple([(f"score {level} above", f"good {level} above") for level in range(5)])

ctypedef long long whole_number


cdef inline whole_number between(whole_number value, whole_number least, whole_number most) noexcept:
    return min(max(value, least), most)


cdef inline short measured(whole_number value) noexcept:
    return <short>between(value, -MOST, MOST)


@cython.cdivision(True)
cdef inline whole_number divided(whole_number part, whole_number whole) noexcept:
    """part // whole; for a whole under 1, by 1."""
    cdef whole_number by = max(whole, 1), found = part / by
    return found - 1 if part < 0 and found * by != part else found


cdef inline whole_number share(whole_number part, whole_number whole) noexcept:
    """The part in thousandths of the whole."""
    return divided(part * 1000, whole)


@cython.final
cdef class Room:
    """Lists of zeros that are given back together."""

    cdef void** last  # the pieces; each begins with the one before
    cdef unsigned char* free
    cdef size_t left

    def __dealloc__(self):
        cdef void** piece = self.last
        cdef void** before
        while piece != NULL:
            before = <void**>piece[0]
            free(piece)
            piece = before

    cdef whole_number* zeros(self, Py_ssize_t count) except NULL:
        cdef size_t size = max(count, 1) * sizeof(whole_number), more
        cdef void** piece
        cdef unsigned char* out
        if self.left < size:
            more = max(size, <size_t>PIECE)
            piece = <void**>malloc(sizeof(whole_number) + more)
            if piece == NULL:
                raise MemoryError()
            piece[0] = self.last
            self.last, self.free, self.left = piece, <unsigned char*>piece + sizeof(whole_number), more
        out = self.free
        self.free += size
        self.left -= size
        memset(out, 0, size)
        return <whole_number*>out


cdef struct Make:
    whole_number code, bits, around
    Py_ssize_t number  # from 1 on; 0: a free place


cdef class Page:
    """The measures of a page's blocks. markup: a Markup with a block or more. tables: the module crawl2llm.stages.ingest.measures."""

    cdef readonly Py_ssize_t count
    cdef readonly object length, kind  # of each block: its characters, the code of its element
    cdef Py_ssize_t elements, makes
    cdef list texts, held
    cdef Room own_room, room  # what stays, and what one call needs
    cdef const whole_number* links
    cdef const whole_number* marks
    cdef const whole_number* parent
    cdef const whole_number* code
    cdef const whole_number* own_bits
    cdef const whole_number* bits
    cdef const whole_number* begin
    cdef const whole_number* end
    cdef whole_number* lengths
    cdef whole_number* linked
    cdef whole_number* above
    cdef whole_number* make  # blocks whose elements say the same are likely of one kind: its number
    cdef whole_number* value  # of each block, for the measure at hand
    cdef const unsigned char[::1] kinds
    cdef tuple groups
    cdef whole_number first_heading, last_heading
    cdef short[:, ::1] rows
    cdef dict number_of
    cdef list names

    def __init__(self, markup, tables):
        cdef Py_ssize_t block, level
        cdef const whole_number* node
        cdef const whole_number* linked
        self.texts, self.held = markup.text, []
        self.count, self.elements = len(self.texts), len(markup.parent)
        if not self.count:
            raise ValueError("a Markup without blocks")
        self.kinds, self.groups = tables.KINDS, tables.NAMES
        self.first_heading, self.last_heading = tables.HEADINGS
        self.own_room = Room()
        self.parent, self.code = self.numbers(markup.parent, self.elements), self.numbers(markup.code, self.elements)
        self.own_bits, self.bits = self.numbers(markup.own_bits, self.elements), self.numbers(markup.bits, self.elements)
        self.begin, self.end = self.numbers(markup.first, self.elements), self.numbers(markup.last, self.elements)
        self.links, self.marks = self.numbers(markup.links, self.count), self.numbers(markup.marks, self.count)
        node, linked = self.numbers(markup.node, self.count), self.numbers(markup.linked, self.count)
        self.check(node)
        self.length, self.kind = array("q", bytes(8 * self.count)), array("q", bytes(8 * self.count))
        self.lengths = <whole_number*>self.numbers(self.length, self.count)
        cdef whole_number* kind = <whole_number*>self.numbers(self.kind, self.count)
        self.linked, self.above = self.own_room.zeros(self.count), self.own_room.zeros(ABOVE * self.count)
        for block in range(self.count):
            self.lengths[block] = len(<str>self.texts[block])
            self.linked[block] = min(linked[block], self.lengths[block])
            self.above[block] = node[block]
            kind[block] = self.code[node[block]]
        for level in range(1, ABOVE):
            for block in range(self.count):
                self.above[level * self.count + block] = self.parent[self.above[(level - 1) * self.count + block]]
        self.value, self.make = self.own_room.zeros(self.count), self.own_room.zeros(self.count)
        self.find_makes()

    cdef const whole_number* numbers(self, given, Py_ssize_t count) except NULL:
        """A list of so many numbers. Raises ValueError."""
        cdef whole_number[::1] found = given if isinstance(given, array) else array("q", given)
        if found.shape[0] != count:
            raise ValueError(f"a Markup of {self.elements} elements and {self.count} blocks has a list of {found.shape[0]}")
        self.held.append(found)
        return &found[0] if count else <const whole_number*>self.own_room.zeros(1)

    cdef bint check(self, const whole_number* node) except -1:
        """Raises ValueError for a Markup whose numbers are of no element or block: nothing looks at them again."""
        cdef Py_ssize_t element, block
        for element in range(self.elements):
            if not (0 <= self.parent[element] <= max(element - 1, 0) and 0 <= self.begin[element] <= self.end[element] <= self.count):
                raise ValueError(f"element {element} of a Markup lies in none, or has no blocks")
        for block in range(self.count):
            if not 0 <= node[block] < self.elements:
                raise ValueError(f"block {block} of a Markup lies in no element")
        return True

    cdef bint find_makes(self) except -1:
        """Numbers the makes of blocks in the order of their first ones."""
        cdef Py_ssize_t block, size = 16
        cdef size_t place
        cdef Make* found
        cdef Make* made
        cdef whole_number code, bits, around
        while size < 2 * self.count:
            size *= 2
        made = <Make*>calloc(size, sizeof(Make))
        if made == NULL:
            raise MemoryError()
        for block in range(self.count):
            code, bits, around = self.code[self.around(0, block)], self.bits[self.around(0, block)], self.code[self.around(1, block)]
            place = (<uint64_t>bits * 0x9E3779B97F4A7C15ULL + <uint64_t>(code * 1009 + around) * 0xC2B2AE3D27D4EB4FULL) >> 32
            found = &made[place & (size - 1)]
            while found.number and not (found.code == code and found.bits == bits and found.around == around):
                place += 1
                found = &made[place & (size - 1)]
            if not found.number:
                self.makes += 1
                found.code, found.bits, found.around, found.number = code, bits, around, self.makes
            self.make[block] = found.number - 1
        free(made)
        return True

    cdef inline Py_ssize_t around(self, Py_ssize_t level, Py_ssize_t block) noexcept:
        """The element so many levels above a block."""
        return self.above[level * self.count + block]

    cdef short* row(self, str name) except? NULL:
        """Where a measure of every block goes; NULL if it is not wanted."""
        cdef Py_ssize_t number
        if self.names is not None:
            self.names.append(name)
            return NULL
        found = self.number_of.get(name)
        if found is None:
            return NULL
        number = found
        if not 0 <= number < self.rows.shape[0]:
            raise ValueError(f"row {number} of {self.rows.shape[0]}, for {name}")
        return &self.rows[number, 0]

    cdef bint put(self, str name, const whole_number* values) except -1:
        """A measure of every block goes into its row, if it is wanted."""
        cdef Py_ssize_t block
        cdef short* out = self.row(name)
        if out != NULL:
            for block in range(self.count):
                out[block] = measured(values[block])
        return True

    cdef bint same(self, str name, whole_number value) except -1:
        """A measure of the page."""
        cdef Py_ssize_t block
        cdef short* out = self.row(name)
        if out != NULL:
            for block in range(self.count):
                out[block] = measured(value)
        return True

    cdef bint shares(self, str name, const whole_number* part, whole_number whole) except -1:
        cdef Py_ssize_t block
        cdef short* out = self.row(name)
        if out != NULL:
            for block in range(self.count):
                out[block] = measured(share(part[block], whole))
        return True

    cdef bint beside(self, str name, const whole_number* values, Py_ssize_t reach, whole_number outside) except -1:
        """The values of the blocks up to `reach` places before ("name -1") and behind ("name +1")."""
        cdef Py_ssize_t by, block, begin, end
        cdef short* out
        names = BESIDE[name]
        for by in range(-reach, reach + 1):
            out = self.row(names[by]) if by else NULL
            if out == NULL:
                continue
            begin, end = min(max(-by, 0), self.count), max(min(self.count - by, self.count), 0)
            for block in range(begin):
                out[block] = measured(outside)
            for block in range(begin, end):
                out[block] = measured(values[block + by])
            for block in range(max(begin, end), self.count):
                out[block] = measured(outside)
        return True

    cdef bint since(self, str ago, str on, const whole_number* where) except -1:
        """How many blocks ago one was of these, and how many further on one is, which may be itself."""
        cdef Py_ssize_t block
        cdef whole_number away = MANY
        cdef short* out = self.row(ago)
        if out != NULL:
            for block in range(self.count):
                away = 0 if where[block] else min(away + 1, MANY)
                out[block] = <short>away
        away, out = MANY, self.row(on) if on else NULL
        if out != NULL:
            for block in range(self.count - 1, -1, -1):
                away = 0 if where[block] else min(away + 1, MANY)
                out[block] = <short>away
        return True

    cdef whole_number* sums(self, const whole_number* values) except NULL:
        """Of the values of an element's blocks."""
        cdef whole_number* out = self.room.zeros(self.elements)
        cdef whole_number* running = self.running(values)
        cdef Py_ssize_t element
        for element in range(self.elements):
            out[element] = running[self.end[element]] - running[self.begin[element]]
        return out

    cdef whole_number* running(self, const whole_number* values) except NULL:
        """The sum of the values before each block, and of all."""
        cdef whole_number* out = self.room.zeros(self.count + 1)
        cdef Py_ssize_t block
        for block in range(self.count):
            out[block + 1] = out[block] + values[block]
        return out

    cdef whole_number* of_make(self, const whole_number* values) except NULL:
        """For each make, the sum over its blocks."""
        cdef whole_number* out = self.room.zeros(self.makes)
        cdef Py_ssize_t block
        for block in range(self.count):
            out[self.make[block]] += values[block]
        return out

    cdef bint above_put(self, str name, const whole_number* of_element, Py_ssize_t level) except -1:
        """A measure of the element so many levels above each block."""
        cdef Py_ssize_t block
        cdef short* out = self.row(name)
        if out != NULL:
            for block in range(self.count):
                out[block] = measured(of_element[self.around(level, block)])
        return True

    cdef bint bits_put(self, str name, const whole_number* values, int bit) except -1:
        """Whether a bit of each block's value is set."""
        cdef Py_ssize_t block
        cdef short* out = self.row(name)
        if out != NULL:
            for block in range(self.count):
                out[block] = <short>(values[block] >> bit & 1)
        return True

    cdef bint open(self, dict number_of, short[:, ::1] rows) except -1:
        if rows is not None and rows.shape[1] != self.count:
            raise ValueError(f"{self.count} blocks, and rows of {rows.shape[1]}")
        if number_of and rows is None:
            raise ValueError("measures without rows")
        self.number_of, self.rows, self.names = number_of, rows, None if number_of is not None else []
        self.room = Room()
        return True

    def first(self, dict number_of, short[:, ::1] rows):
        """The measures of every block, before any score: number_of[name] is the row of a measure; one that is not there is left out.

        rows: [measures, blocks]. If `number_of` is None, all names are returned instead.
        """
        self.open(number_of, rows)
        self.of_text()
        self.of_elements()
        self.of_place()
        self.of_others()
        self.room, self.rows = None, None
        return self.names

    cdef bint of_text(self) except -1:
        """What a block is by itself."""
        cdef Py_ssize_t block, place, size
        cdef int width, number, first, last
        cdef void* data
        cdef uint64_t counted, too
        cdef Py_UCS4 c
        cdef str text
        cdef whole_number* density = self.room.zeros(self.count)
        cdef whole_number* found[CHARACTERS + 2]  # how many characters of each kind; what a block ends with; whether it begins in upper case
        for number in range(CHARACTERS + 2):
            found[number] = self.room.zeros(self.count)
        for block in range(self.count):
            text = self.texts[block]
            width, data, size = PyUnicode_KIND(text), PyUnicode_DATA(text), min(len(text), LOOKED)
            counted, too, first, last = 0, 0, 0, 0
            for place in range(size):
                c = PyUnicode_READ(width, data, place)
                last = self.kinds[<Py_ssize_t>c] if <Py_ssize_t>c < 65536 else 0
                if place == 0:
                    first = last
                counted += COUNTED[last]
                too += COUNTED_TOO[last]
            found[DIGIT][block] = share(counted & ((1 << FIELD) - 1), size)
            found[UPPER][block] = share(counted >> FIELD & ((1 << FIELD) - 1), size)
            found[SPACE][block] = counted >> 2 * FIELD
            found[STOP][block] = too & ((1 << FIELD) - 1)
            found[COMMA][block] = too >> FIELD & ((1 << FIELD) - 1)
            found[SEPARATOR][block] = too >> 2 * FIELD
            found[CHARACTERS][block] = (last >> STOP & 1) + 2 * (last >> COMMA & 1)
            found[CHARACTERS + 1][block] = first >> UPPER & 1
            density[block] = share(self.linked[block], self.lengths[block])
        self.put("length", self.lengths)
        self.put("linked", self.linked)
        self.put("links", self.links)
        self.put("density", density)
        self.put("marks", self.marks)
        for number, name in enumerate(("digits", "upper", "spaces", "stops", "commas", "separators", "end", "upper first")):
            self.put(name, found[number])
        self.beside("length", self.lengths, 3, -1)
        self.beside("density", density, 3, -1)
        self.beside("stops", found[STOP], 1, -1)
        self.above_put("code", self.code, 0)
        self.above_put("code above", self.code, 1)
        self.above_put("code two above", self.code, 2)
        cdef whole_number* near = self.room.zeros(self.count)
        cdef whole_number* within = self.value
        for block in range(self.count):
            within[block] = self.bits[self.around(0, block)]
            for number in range(4):
                near[block] |= self.own_bits[self.around(number, block)]
        for number, (by, inside) in enumerate(self.groups):
            self.bits_put(by, near, number)
            self.bits_put(inside, within, number)
        return True

    cdef whole_number* paragraphs(self) except NULL:
        """The length of each block that looks like a paragraph, else 0."""
        cdef whole_number* out = self.room.zeros(self.count)
        cdef Py_ssize_t block
        for block in range(self.count):
            if self.lengths[block] >= LONG and share(self.linked[block], self.lengths[block]) < 400:
                out[block] = self.lengths[block]
        return out

    cdef bint of_elements(self) except -1:
        """The elements around: how many blocks, how much of the page, how much of it links and paragraphs."""
        cdef whole_number* text = self.sums(self.lengths)
        cdef whole_number* link = self.sums(self.linked)
        cdef whole_number* prose = self.sums(self.paragraphs())
        cdef whole_number* found[5]
        cdef whole_number whole = text[0], all_prose = prose[0], begin, end
        cdef Py_ssize_t block, element, main
        cdef int which, kind
        cdef short* out
        for kind in range(5):
            found[kind] = self.room.zeros(self.elements)
        for element in range(self.elements):
            found[0][element] = min(self.end[element] - self.begin[element], MANY)
            if text[element]:  # else all shares are 0
                found[1][element] = share(text[element], whole)
                found[2][element] = share(link[element], text[element])
                found[3][element] = share(prose[element], all_prose)
                found[4][element] = share(prose[element], text[element])
        for which in range(len(LEVELS)):
            for kind in range(5):
                self.above_put(ELEMENT[kind][which], found[kind], LEVELS[which])
        # The innermost element with most of the paragraphs, and how far from it a block is.
        for least in (500, 800):
            main = self.elements - 1 if all_prose else 0
            while main and prose[main] * 1000 < all_prose * <whole_number>least:
                main -= 1
            begin, end = self.begin[main], self.end[main]
            out = self.row(f"from main {least}")
            if out != NULL:
                for block in range(self.count):
                    out[block] = <short>between(min(block - begin, 0) + max(block - end + 1, 0), -MANY, MANY)
            self.same(f"main blocks {least}", min(end - begin, MANY))
            self.same(f"main density {least}", share(link[main], text[main]))
        return self.same("page density", share(link[0], whole))

    cdef bint of_place(self) except -1:
        """Where on the page a block stands."""
        cdef whole_number* written = self.paragraphs()
        cdef whole_number* length = self.running(self.lengths)
        cdef whole_number* prose = self.running(written)
        cdef whole_number* code = self.room.zeros(self.count)
        cdef Py_ssize_t block, heading = -1
        cdef short* out
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
        out = self.row("after h1")
        if out != NULL:
            for block in range(self.count):
                out[block] = <short>between(block - heading, -MANY, MANY) if heading >= 0 else -MANY
        self.beside("code", code, 3, -1)
        for block in range(self.count):
            code[block] = self.first_heading <= code[block] <= self.last_heading
        return self.since("since heading", "", code)

    cdef bint of_others(self) except -1:
        """Other blocks: those of the same make, of the same text, and the nearest."""
        cdef whole_number* ones = self.room.zeros(self.count)
        cdef whole_number* written = self.paragraphs()
        cdef Py_ssize_t block, other
        cdef int by, reach
        cdef short* out
        for block in range(self.count):
            ones[block] = 1
        cdef whole_number* size = self.of_make(ones)
        cdef whole_number* length = self.of_make(self.lengths)
        cdef whole_number* linked = self.of_make(self.linked)
        cdef whole_number* texts = self.running(self.lengths)
        cdef whole_number* links = self.running(self.linked)
        cdef whole_number* prose = self.running(written)
        for block in range(self.count):
            self.value[block] = min(size[self.make[block]], MANY)
        self.put("make", self.value)
        for block in range(self.makes):
            size[block] = share(length[block], texts[self.count])
            linked[block] = share(linked[block], length[block])
        for block in range(self.count):
            self.value[block] = size[self.make[block]]
        self.put("make text", self.value)
        for block in range(self.count):
            self.value[block] = linked[self.make[block]]
        self.put("make density", self.value)
        cdef dict seen = {}
        cdef whole_number* earliest = ones
        cdef whole_number* times = self.room.zeros(self.count)
        for block in range(self.count):
            earliest[block] = seen.setdefault(self.texts[block], block)
            times[earliest[block]] += 1
        for block in range(self.count):
            self.value[block] = min(times[earliest[block]], AGAIN)
        self.put("repeated", self.value)
        for by in (-1, 1):
            out = self.row(f"siblings {by:+}")
            if out != NULL:
                for block in range(self.count):
                    other = block + by
                    out[block] = 0 <= other < self.count and (
                        self.around(0, block) == self.around(0, other) or self.around(1, block) == self.around(1, other)
                    )
        for reach in (4, 10):
            self.within(f"text within {reach}", texts, NULL, reach, 1)
            self.within(f"prose within {reach}", prose, NULL, reach, 1)
            self.within(f"density within {reach}", links, texts, reach, 1000)
        return True

    cdef bint within(self, str name, const whole_number* part, const whole_number* whole, Py_ssize_t reach, whole_number times) except -1:
        """The sum over the blocks so near, by running sums; `times` its share of another one if there is one."""
        cdef Py_ssize_t block, low, high
        cdef whole_number value
        cdef short* out = self.row(name)
        if out == NULL:
            return True
        for block in range(self.count):
            low, high = max(block - reach, 0), min(block + reach + 1, self.count)
            value = part[high] - part[low]
            out[block] = measured(value if whole == NULL else divided(value * times, whole[high] - whole[low]))
        return True

    def second(self, const whole_number[::1] scores, dict number_of, short[:, ::1] rows):
        """The measures that the scores of the first forest add: those of the neighbours, and of the elements around; as `first`."""
        if scores.shape[0] != self.count:
            raise ValueError(f"{self.count} blocks, and {scores.shape[0]} scores")
        self.open(number_of, rows)
        cdef whole_number* score = self.room.zeros(self.count)
        cdef whole_number* good = self.room.zeros(self.count)
        cdef whole_number* weighed = self.room.zeros(self.count)
        cdef whole_number whole
        cdef Py_ssize_t block, level, element
        cdef int reach
        cdef short* out
        for block in range(self.count):
            score[block] = between(scores[block], -800, 800)
            good[block] = self.lengths[block] if score[block] > 0 else 0
            weighed[block] = self.lengths[block] * between(score[block], -300, 300)
        self.put("score", score)
        self.beside("score", score, 4, -900)
        cdef whole_number* before = self.running(good)
        cdef whole_number* length = self.running(self.lengths)
        cdef whole_number* weight = self.running(weighed)
        whole = max(before[self.count], 1)
        self.shares("good before", before, whole)
        out = self.row("good after")
        if out != NULL:
            for block in range(self.count):
                out[block] = measured(share(whole - before[block + 1], whole))
        self.same("page good share", share(whole, length[self.count]))
        for block in range(self.count):
            self.value[block] = score[block] > 0 and self.lengths[block] >= LONG
        self.since("since good", "until good", self.value)
        for reach in (3, 8):
            self.within(f"score within {reach}", weight, length, reach, 1)
        cdef whole_number* mean = self.sums(weighed)
        cdef whole_number* of_length = self.sums(self.lengths)
        cdef whole_number* held = self.sums(good)
        for element in range(self.elements):
            if of_length[element]:  # else both are 0
                mean[element] = divided(mean[element], of_length[element])
                held[element] = share(held[element], whole)
        for level in range(5):
            self.above_put(OF_SCORE[level][0], mean, level)
            self.above_put(OF_SCORE[level][1], held, level)
        cdef whole_number* of_weight = self.of_make(weighed)
        cdef whole_number* of_text = self.of_make(self.lengths)
        for block in range(self.makes):
            of_weight[block] = divided(of_weight[block], of_text[block])
        for block in range(self.count):
            self.value[block] = of_weight[self.make[block]]
        self.put("make score", self.value)
        self.room, self.rows = None, None
        return self.names
