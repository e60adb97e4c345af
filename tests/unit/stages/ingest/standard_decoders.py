"""Decoders written from the text of the WHATWG encoding standard, byte by byte: what `decode` must be equal to.

Each takes bytes and `index`, which gives the text of one whole sequence beyond ASCII, or None for one that the standard's index lacks.
"""

from __future__ import annotations

from collections.abc import Callable

Index = Callable[[bytes], str | None]
ERROR = "\ufffd"
SHIFTS = {b"(B": "ASCII", b"(J": "Roman", b"(I": "katakana", b"$@": "lead", b"$B": "lead"}  # ISO-2022-JP


def single_byte(data: bytes, index: Index) -> str:
    """9.1"""
    return "".join(chr(byte) if byte < 0x80 else index(bytes([byte])) or ERROR for byte in data)


def two_bytes(data: bytes, index: Index, is_lead: Callable[[int], bool], alone: Callable[[int], str]) -> str:
    """12.1, 13.3 and 14.1: an ASCII byte that completes no lead byte is read again; `alone` is the text of a byte that leads none."""
    text, queue = [], list(reversed(data))
    while queue:
        byte = queue.pop()
        if byte < 0x80:
            text.append(chr(byte))
        elif not is_lead(byte):
            text.append(alone(byte))
        elif not queue:
            text.append(ERROR)
        else:
            trail = queue.pop()
            character = index(bytes([byte, trail]))
            if character is None and trail < 0x80:
                queue.append(trail)
            text.append(character or ERROR)
    return "".join(text)


def is_east_asian_lead(byte: int) -> bool:
    """Whether a byte leads two in Big5 and EUC-KR."""
    return 0x81 <= byte <= 0xFE


def shift_jis(data: bytes, index: Index) -> str:
    """13.3"""

    def alone(byte: int) -> str:
        if byte == 0x80:
            return "\x80"
        return chr(0xFF61 - 0xA1 + byte) if 0xA1 <= byte <= 0xDF else ERROR

    return two_bytes(data, index, lambda byte: 0x81 <= byte <= 0x9F or 0xE0 <= byte <= 0xFC, alone)


def gb18030(data: bytes, index: Index) -> str:
    """11.2"""
    text, queue, held = [], list(reversed(data)), b""
    while queue:
        byte = queue.pop()
        if len(held) == 3:
            if 0x30 <= byte <= 0x39:
                text.append(index(held + bytes([byte])) or ERROR)
            else:
                queue += [byte, held[2], held[1]]
                text.append(ERROR)
            held = b""
        elif len(held) == 2:
            if 0x81 <= byte <= 0xFE:
                held += bytes([byte])
            else:
                queue += [byte, held[1]]
                text.append(ERROR)
                held = b""
        elif held and 0x30 <= byte <= 0x39:
            held += bytes([byte])
        elif held:
            character = index(held + bytes([byte])) if 0x40 <= byte <= 0x7E or 0x80 <= byte <= 0xFE else None
            if character is None and byte < 0x80:
                queue.append(byte)
            text.append(character or ERROR)
            held = b""
        elif byte < 0x80:
            text.append(chr(byte))
        elif byte == 0x80:
            text.append("€")
        elif byte <= 0xFE:
            held = bytes([byte])
        else:
            text.append(ERROR)
    return "".join(text) + (ERROR if held else "")


def euc_jp(data: bytes, index: Index) -> str:
    """13.1"""
    text, queue, leading, jis0212 = [], list(reversed(data)), 0, False
    while queue:
        byte = queue.pop()
        if leading == 0x8E and 0xA1 <= byte <= 0xDF:
            leading = 0
            text.append(chr(0xFF61 - 0xA1 + byte))
        elif leading == 0x8F and 0xA1 <= byte <= 0xFE:
            jis0212, leading = True, byte
        elif leading:
            character = None
            if 0xA1 <= leading <= 0xFE and 0xA1 <= byte <= 0xFE:
                character = index((b"\x8f" if jis0212 else b"") + bytes([leading, byte]))
            leading, jis0212 = 0, False
            if character is None and byte < 0x80:
                queue.append(byte)
            text.append(character or ERROR)
        elif byte < 0x80:
            text.append(chr(byte))
        elif byte in (0x8E, 0x8F) or 0xA1 <= byte <= 0xFE:
            leading = byte
        else:
            text.append(ERROR)
    return "".join(text) + (ERROR if leading else "")


def iso_2022_jp(data: bytes, index: Index) -> str:
    """13.2"""
    text, queue = [], list(reversed(data))
    state = output_state = "ASCII"
    leading, output = 0, False
    while queue or state not in {"ASCII", "Roman", "katakana", "lead"}:
        byte = queue.pop() if queue else None
        if state == "escape start":
            if byte in (0x24, 0x28):
                leading, state = byte, "escape"
            else:
                queue += [] if byte is None else [byte]
                output, state = False, output_state
                text.append(ERROR)
        elif state == "escape":
            shift = None if byte is None else SHIFTS.get(bytes([leading, byte]))
            if shift:
                state = output_state = shift
                text += [ERROR] if output else []
                output = True
            else:
                queue += [leading] if byte is None else [byte, leading]
                output, state = False, output_state
                text.append(ERROR)
        elif byte == 0x1B:
            text += [ERROR] if state == "trail" else []
            state = "escape start"
        elif state == "trail":
            state = "lead"
            text.append((index(bytes([leading, byte])) if byte and 0x21 <= byte <= 0x7E else None) or ERROR)
        else:
            assert byte is not None
            output = False
            if state == "lead" and 0x21 <= byte <= 0x7E:
                leading, state = byte, "trail"
            elif state == "katakana" and 0x21 <= byte <= 0x5F:
                text.append(chr(0xFF61 - 0x21 + byte))
            elif state == "Roman" and byte in (0x5C, 0x7E):
                text.append("¥" if byte == 0x5C else "‾")
            elif state in {"ASCII", "Roman"} and byte < 0x80 and byte not in (0x0E, 0x0F):
                text.append(chr(byte))
            else:
                text.append(ERROR)
    return "".join(text)


def utf_16(data: bytes, order: str) -> str:
    """14.3, UTF-16 of either byte order, "big" or "little"."""
    units = [int.from_bytes(data[at : at + 2], order) for at in range(0, len(data) - 1, 2)]  # type: ignore[arg-type]
    text: list[str] = []
    surrogate = 0
    for unit in units:
        if surrogate and 0xDC00 <= unit <= 0xDFFF:
            text.append(chr(0x10000 + ((surrogate - 0xD800) << 10) + unit - 0xDC00))
            surrogate = 0
            continue
        text += [ERROR] if surrogate else []
        surrogate = unit if 0xD800 <= unit <= 0xDBFF else 0
        if not surrogate:
            text.append(ERROR if 0xDC00 <= unit <= 0xDFFF else chr(unit))
    return "".join(text) + (ERROR if surrogate or len(data) % 2 else "")


def reference(data: bytes, charset: str, index: Index) -> str:
    """The text of `data` by the standard's decoder of `charset`, except UTF-8's."""
    match charset:
        case "big5" | "euc-kr":
            return two_bytes(data, index, is_east_asian_lead, lambda byte: ERROR)
        case "shift_jis":
            return shift_jis(data, index)
        case "gbk" | "gb18030":
            return gb18030(data, index)
        case "euc-jp":
            return euc_jp(data, index)
        case "iso-2022-jp":
            return iso_2022_jp(data, index)
        case "utf-16le" | "utf-16be":
            return utf_16(data, "little" if charset == "utf-16le" else "big")
        case "replacement":
            return ERROR if data else ""
        case "x-user-defined":
            return "".join(chr(byte if byte < 0x80 else 0xF780 + byte - 0x80) for byte in data)
        case _:
            return single_byte(data, index)
