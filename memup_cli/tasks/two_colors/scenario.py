"""Builds two_colors.wad, the room of the Two-Colors task, from nothing but this file.

    python -m memup_cli.tasks.two_colors.scenario [FILE]

A WAD is a list of named lumps. Ours are text (DECORATE for what things do, two maps in UDMF) and PNG images. In MAP01
green items heal, in MAP02 red ones do; nothing else differs, so a seed lays out both maps alike. Healing items count as
found items and hurting ones as found secrets, which the engine pays by itself: no script is needed.
"""

import struct
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

WAD = Path(__file__).with_name("two_colors.wad")
COLORS = ("green", "red")  # that heal in MAP01 and in MAP02

HALF = 640  # of the room's side
MARGIN = 24  # between items and the room's walls
START, PILLAR = (0, -480), (0, -288)  # the player looks north, at the pillar
WALLS = ((256, -136, 512, -120), (-400, 64, -384, 320), (-64, 376, 192, 392))  # free-standing: x0, y0, x1, y1
ACID_DAMAGE, ACID_TICS = 8, 32
ITEM_HEALTH, FULL_HEALTH = 25, 100
FIRST_ITEMS = 10  # of each color
PILLAR_TICS = 90
ITEM_TICS = 30  # between two new items, once the pillar is gone
DIRECTOR, PILLAR_NUMBER = 20001, 20011  # editor numbers of the first color's things

Pixel = tuple[int, int, int, int]
CLEAR: Pixel = (0, 0, 0, 0)
BLACK: Pixel = (0, 0, 0, 255)


def build() -> bytes:
    lumps: list[tuple[str, bytes]] = [
        ("DECORATE", _decorate().encode()),
        ("LANGUAGE", b'[enu default]\nSECRETMESSAGE = "";\n'),  # or a text would tell which items hurt
    ]
    for number, color in enumerate(COLORS, 1):
        lumps += [(f"MAP{number:02}", b""), ("TEXTMAP", _textmap(color).encode()), ("ENDMAP", b"")]
    lumps.append(("S_START", b""))
    for color in COLORS:
        lumps += [(f"{_sprite('item', color)}A0", _item(color)), (f"{_sprite('pillar', color)}A0", _pillar(color))]
    lumps += [("S_END", b""), ("TX_START", b"")]
    lumps += [
        ("TCACID", _image(64, 64, _acid)),
        ("TCWALL", _image(64, 128, _wall)),
        ("TCCEIL", _image(64, 64, _ceiling)),
    ]
    lumps.append(("TX_END", b""))
    return _wad(lumps)


def _wad(lumps: list[tuple[str, bytes]]) -> bytes:
    data, directory, place = b"", b"", 12
    for name, content in lumps:
        directory += struct.pack("<ii8s", place, len(content), name.encode())
        data += content
        place += len(content)
    return struct.pack("<4sii", b"PWAD", len(lumps), place) + data + directory


# What things do


def _sprite(kind: str, color: str) -> str:
    return f"TC{kind[0]}{color[0]}".upper()


def _decorate() -> str:
    reach = HALF - MARGIN
    # Until it fits: a place inside a wall is refused.
    jump = (
        f"TNT1 A 0 A_Warp(AAPTR_DEFAULT, random(-{reach}, {reach}), random(-{reach}, {reach}), 0, 0, "
        'WARPF_ABSOLUTEPOSITION|WARPF_TOFLOOR, "Lie")'
    )
    parts = [
        f"""actor TwoColorsItem : CustomInventory
{{
  Radius 20
  Height 40
  +INVENTORY.QUIET
  States
  {{
  Spawn:
    TNT1 A 0 NoDelay
  Search:
    {jump}
    Loop
  Lie:
    TNT1 A -1
    Stop
  }}
}}"""
    ]
    for number, color in enumerate(COLORS):
        parts += [_item_actor(color, heals=True), _item_actor(color, heals=False)]
        parts += [_pillar_actor(color, PILLAR_NUMBER + number), _director_actor(color, DIRECTOR + number)]
    return "\n".join(parts) + "\n"


def _item_name(color: str, heals: bool) -> str:
    return f"{color.title()}{'Healing' if heals else 'Hurting'}"


def _item_actor(color: str, heals: bool) -> str:
    effect = f"HealThing({ITEM_HEALTH}, {FULL_HEALTH})" if heals else f"DamageThing({ITEM_HEALTH})"
    return f"""actor {_item_name(color, heals)} : TwoColorsItem
{{
  {"+COUNTITEM" if heals else "+COUNTSECRET"}
  States
  {{
  Lie:
    {_sprite("item", color)} A -1 Bright
    Stop
  Pickup:
    TNT1 A 0 {effect}
    Stop
  }}
}}"""


def _pillar_actor(color: str, number: int) -> str:
    """Things of a map begin with a random part of their first state, unless that takes no time and is synchronised."""
    sprite = _sprite("pillar", color)
    return f"""actor {color.title()}Pillar {number}
{{
  Radius 16
  Height 120
  +SOLID
  +SYNCHRONIZED
  States
  {{
  Spawn:
    {sprite} A 0 Bright NoDelay
    {sprite} A {PILLAR_TICS} Bright
    Stop
  }}
}}"""


def _director_actor(good: str, number: int) -> str:
    """Brings the items, in the same order of colors in both maps."""
    first, second = (
        f'A_SpawnItemEx("{_item_name(color, color == good)}", 0, 0, 0, 0, 0, 0, 0, SXF_NOCHECKPOSITION)'
        for color in COLORS
    )
    at_once = "A" * FIRST_ITEMS
    return f"""actor {good.title()}Director {number}
{{
  Radius 1
  Height 1
  +NOINTERACTION
  +SYNCHRONIZED
  States
  {{
  Spawn:
    TNT1 A 0 NoDelay
    TNT1 {at_once} 0 {first}
    TNT1 {at_once} 0 {second}
    TNT1 A {PILLAR_TICS}
  Refill:
    TNT1 A {ITEM_TICS} {first}
    TNT1 A {ITEM_TICS} {second}
    Loop
  }}
}}"""


# The room


def _textmap(good: str) -> str:
    number = COLORS.index(good)
    lines = ['namespace = "zdoom";']
    lines += [_thing(*START, 1, angle=90), _thing(*PILLAR, PILLAR_NUMBER + number), _thing(0, 0, DIRECTOR + number)]
    loops = [[(-HALF, -HALF), (-HALF, HALF), (HALF, HALF), (HALF, -HALF)]]  # clockwise: its front is inside
    loops += [[(x0, y0), (x1, y0), (x1, y1), (x0, y1)] for x0, y0, x1, y1 in WALLS]  # the other way round: outside
    vertices = side = 0
    for loop in loops:
        lines += [f"vertex {{ x = {x}.0; y = {y}.0; }}" for x, y in loop]
        for i in range(len(loop)):
            ends = f"v1 = {vertices + i}; v2 = {vertices + (i + 1) % len(loop)};"
            lines.append(f"linedef {{ {ends} sidefront = {side}; blocking = true; }}")
            lines.append('sidedef { sector = 0; texturemiddle = "TCWALL"; }')
            side += 1
        vertices += len(loop)
    lines.append(
        'sector { heightfloor = 0; heightceiling = 128; texturefloor = "TCACID"; textureceiling = "TCCEIL"; '
        f'lightlevel = 208; damageamount = {ACID_DAMAGE}; damageinterval = {ACID_TICS}; damagetype = "Slime"; }}'
    )
    return "\n".join(lines) + "\n"


def _thing(x: int, y: int, number: int, angle: int = 0) -> str:
    always = " ".join(
        f"{name} = true;" for name in [f"skill{i}" for i in range(1, 6)] + ["single", "coop", "dm", "class1"]
    )
    return f"thing {{ x = {x}.0; y = {y}.0; angle = {angle}; type = {number}; {always} }}"


# Images: walls, floor and ceiling in greys and blues that neither color is near to


def _image(width: int, height: int, pixel: Callable[[int, int], Pixel], foot: tuple[int, int] | None = None) -> bytes:
    """A PNG; `foot` is the point of a sprite that stands on the ground.

    Its data are not compressed: zlib gives other bytes in another version.
    """
    rows = b"".join(b"\0" + bytes(value for x in range(width) for value in pixel(x, y)) for y in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    chunks = [(b"IHDR", header), *([(b"grAb", struct.pack(">ii", *foot))] if foot else [])]
    chunks += [(b"IDAT", _stored(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def _stored(data: bytes) -> bytes:
    """A zlib stream of blocks that are stored as they are."""
    pieces = [data[i : i + 65535] for i in range(0, len(data), 65535)]
    blocks = b"".join(
        struct.pack("<BHH", piece is pieces[-1], len(piece), len(piece) ^ 0xFFFF) + piece for piece in pieces
    )
    return b"\x78\x01" + blocks + struct.pack(">I", zlib.adler32(data))


def _shade(color: str, value: int) -> Pixel:
    """From 0 to 255; green follows the game's palette, which has no pure one."""
    return (value, value // 8, value // 8, 255) if color == "red" else (value * 2 // 5, value, value * 3 // 8, 255)


def _item(color: str) -> bytes:
    """A gem."""
    width, height = 40, 44

    def pixel(x: int, y: int) -> Pixel:
        away = abs(2 * x + 1 - width) * height + abs(2 * y + 1 - height) * width  # up to width * height inside
        if away > width * height:
            return CLEAR
        if away * 8 > width * height * 7:
            return BLACK
        return _shade(color, 250 - 120 * away // (width * height) - (25 if x + y > 42 else 0))

    return _image(width, height, pixel, (width // 2, height + 2))


def _pillar(color: str) -> bytes:
    width, height = 48, 120

    def pixel(x: int, y: int) -> Pixel:
        half = 24 if y < 12 or y >= height - 12 else 17  # a base and a capital
        away = abs(2 * x + 1 - width)
        if away > 2 * half:
            return CLEAR
        if away > 2 * half - 3:
            return BLACK
        return _shade(color, 240 - 3 * away - (20 if y // 10 % 2 else 0))

    return _image(width, height, pixel, (width // 2, height))


def _acid(x: int, y: int) -> Pixel:
    grey = 64 + 24 * ((x // 16 + y // 16) % 2) + 12 * ((x // 8 + y // 32) % 2)
    return (grey // 2, grey // 2 + 8, grey, 255)


def _wall(x: int, y: int) -> Pixel:
    """Bricks."""
    row = y // 32
    if y % 32 < 2 or (x + 32 * (row % 2)) % 64 < 2:
        return (48, 48, 48, 255)
    grey = 112 + 12 * (row % 3)
    return (grey, grey, grey, 255)


def _ceiling(x: int, y: int) -> Pixel:
    grey = 48 + 8 * ((x // 32 + y // 32) % 2)
    return (grey, grey, grey, 255)


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else WAD
    target.write_bytes(build())
    print(f"{target}: {target.stat().st_size:,} bytes")
