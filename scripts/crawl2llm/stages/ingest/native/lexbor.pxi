"""lexbor's tree, as the package selectolax holds it: the fields that are read, and the proof that they lie where this says.

The package's wheels come without lexbor's headers, so the structs are written down here (lexbor's source/lexbor/dom/interfaces: node.h,
element.h, attr.h, character_data.h, document_fragment.h; core/str.h, core/hash.h; html/interfaces/template_element.h). They are those of one
version of the package, which scripts/crawl2llm/stages/ingest/compiled.py demands, and `Reader` compares a tree that it knows. Part of crawl2llm_native.pyx.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport uintptr_t
from libc.string cimport memcmp

cdef enum:
    SHORT = 16  # bytes of a name that is kept in place
    KNOWN = 1024  # numbers of names are below
    AN_ELEMENT = 1  # types of nodes
    A_TEXT = 3
    A_CDATA = 4
    A_FRAGMENT = 11

cdef struct String:
    unsigned char* data
    size_t length

cdef union Letters:
    unsigned char* away
    unsigned char here[SHORT + 1]

cdef struct Name:
    Letters letters
    size_t length

cdef struct Node:
    void* events
    uintptr_t name, prefix, space  # a number below KNOWN, or the address of a Name
    void* document
    Node* next
    Node* previous
    Node* parent
    Node* first
    Node* last
    void* user  # lexbor leaves it to others: see Tree
    int type

cdef struct Text:
    Node node
    String data

cdef struct Attribute:
    Node node
    uintptr_t upper, qualified
    String* value
    void* owner
    Attribute* next
    Attribute* previous

cdef struct Element:
    Node node
    uintptr_t upper, qualified
    void* kind
    Attribute* attribute
    Attribute* last_attribute
    Attribute* attribute_id
    Attribute* attribute_class
    void* style
    void* rules
    int condition, state

cdef struct Fragment:
    Node node
    Node* host

cdef struct Template:
    Element element
    Fragment* content

cdef inline unsigned char* letters_of(Name* name) noexcept:
    if name.length <= SHORT:
        return &name.letters.here[0]
    return name.letters.away


cdef inline bytes name_of(uintptr_t name):
    """The letters of a name that has no number."""
    cdef Name* one = <Name*>name
    return PyBytes_FromStringAndSize(<char*>letters_of(one), one.length)


cdef inline str text_of(String* value, size_t most):
    """A value, of at most so many bytes; what it is cut at is left out."""
    if value == NULL or value.data == NULL:
        return ""
    return PyUnicode_DecodeUTF8(<char*>value.data, min(value.length, most), "ignore")


cdef inline Node* above(Node* node) noexcept:
    """The element around a node; around the content of a template, that."""
    cdef Node* around = node.parent
    return (<Fragment*>around).host if around != NULL and around.type == A_FRAGMENT else around


cdef list walk(Node* root):
    """Each node below an element, and it: (name of an attribute or an element as a number or as bytes, its attributes, its text)."""
    cdef list out = []
    cdef Node* node = root
    cdef Attribute* attribute
    while node != NULL:
        if node.type == A_TEXT:
            out.append((None, {}, text_of(&(<Text*>node).data, -1)))
        elif node.type == AN_ELEMENT:
            found = {}
            attribute = (<Element*>node).attribute
            while attribute != NULL:
                name = attribute.node.name
                found[name if name < KNOWN else name_of(name)] = text_of(attribute.value, -1)
                attribute = attribute.next
            out.append((node.name if node.name < KNOWN else name_of(node.name), found, ""))
        if node.first != NULL:
            node = node.first
            continue
        while node != root and node.next == NULL:
            node = node.parent
        node = node.next if node != root else NULL
    return out
