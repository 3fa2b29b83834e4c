"""Small objects of a room, each of which can be the target: shape, and a description of its use.

They are somewhat larger than in reality, to be recognisable in a picture of 255 pixels. The split ``common_sense``
describes the target by its use instead of its name.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

from ...grid import pick
from .furniture import BLACK, GREEN, SOIL
from .parts import Item, choice, shade

Build = Callable[[Item, random.Random], None]


@dataclass(frozen=True, slots=True)
class Thing:
    """A class of small objects."""

    type: str
    use: str
    """Completion of "Find ..." that does not name the object."""
    width: int
    depth: int
    height: int
    kinds: tuple[str, ...]
    """Kinds of rooms that contain it."""
    build: Build
    on_floor: bool = False

    def make(self, rng: random.Random) -> Item:
        """Return an object of the class in local coordinates."""
        item = Item(self.type, self.width, self.depth)
        self.build(item, rng)
        return item


def _apple(item: Item, rng: random.Random) -> None:
    item.add((0, 0, 0), (130, 120, 130), choice(rng, ("#c8281e", "#d43a2c", "#7cae32")), "plain", "ellipsoid")
    item.add((59, 110, 59), (71, 150, 71), SOIL).add((66, 128, 60), (106, 146, 76), GREEN)


def _mug(item: Item, rng: random.Random) -> None:
    colour = choice(rng, ("#2f6fb4", "#e0b040", "#f0f0ec", "#b83c4c"))
    item.add((0, 0, 0), (120, 140, 120), colour, "plain", "cylinder").add(
        (15, 136, 15), (105, 143, 105), "#4a2e1e", "plain", "cylinder"
    )
    item.add((118, 100, 48), (175, 122, 72), colour).add((118, 26, 48), (175, 48, 72), colour).add(
        (153, 26, 48), (175, 122, 72), colour
    )


def _book(item: Item, rng: random.Random) -> None:
    colour = choice(rng, ("#a02c30", "#28588c", "#2e7a50"))
    item.add((0, 0, 0), (260, 8, 190), colour).add((6, 8, 6), (254, 46, 186), "#ece6d4", "page").add(
        (0, 46, 0), (260, 54, 190), colour
    )
    item.add((0, 0, 0), (8, 54, 190), colour).add((80, 54, 70), (180, 56, 110), "#f0dc90")


def _laptop(item: Item, rng: random.Random) -> None:
    body = choice(rng, ("#b8bcc2", "#4a4c52"))
    item.add((0, 0, 40), (360, 22, 290), body, "keys").add((0, 22, 25), (360, 270, 45), "#3f7fc4", "screen")


def _bread(item: Item, rng: random.Random) -> None:
    item.add((0, 0, 10), (320, 24, 160), "#c9a06a", "wood").add(
        (20, 20, 20), (300, 150, 150), "#b8742c", "crust", "ellipsoid"
    )
    item.add((255, 24, 30), (285, 130, 140), "#f0dcae")
    del rng


def _bowl(item: Item, rng: random.Random) -> None:
    colour = choice(rng, ("#3a8a9c", "#e8e4da", "#c8642c"))
    item.add((0, 0, 0), (260, 110, 260), colour, "plain", "bowl")
    for x, z, paint in ((40, 50, "#e09020"), (120, 40, "#d8b028"), (80, 120, "#e09020")):
        item.add((x, 70, z), (x + 100, 160, z + 100), paint, "plain", "ellipsoid")


def _toaster(item: Item, rng: random.Random) -> None:
    body = choice(rng, ("#c8ccd0", "#c23c34", "#5aa6a0"))
    item.add((0, 15, 0), (320, 210, 200), body, "metal").add((10, 0, 10), (310, 15, 190), BLACK)
    for z in (50, 115):
        item.add((50, 205, z), (270, 212, z + 35), BLACK).add((70, 210, z + 6), (250, 255, z + 29), "#c48a44", "crust")
    item.add((320, 120, 80), (345, 145, 120), BLACK)


def _kettle(item: Item, rng: random.Random) -> None:
    body = choice(rng, ("#d0d4d8", "#2c2e34", "#c8543c"))
    item.add((20, 0, 20), (220, 240, 220), body, "metal", "shade").add(
        (90, 240, 90), (150, 270, 150), BLACK, "plain", "cylinder"
    )
    item.add((205, 60, 105), (275, 80, 135), BLACK).add((250, 60, 105), (275, 220, 135), BLACK).add(
        (170, 200, 105), (275, 222, 135), BLACK
    )
    item.add((0, 150, 100), (60, 190, 140), body, "metal")


def _pot(item: Item, rng: random.Random) -> None:
    body = choice(rng, ("#b0b6bc", "#b83a32", "#34383e"))
    item.add((40, 0, 40), (280, 170, 280), body, "metal", "cylinder").add(
        (36, 170, 36), (284, 190, 284), shade(body, 80), "metal", "cylinder"
    )
    item.add((140, 190, 140), (180, 220, 180), BLACK, "plain", "cylinder")
    item.add((0, 120, 130), (42, 145, 190), BLACK).add((278, 120, 130), (320, 145, 190), BLACK)


def _microwave(item: Item, rng: random.Random) -> None:
    body = choice(rng, ("#d8dadc", "#3a3c42"))
    item.add((0, 10, 0), (500, 310, 340), body).add((30, 50, 340), (340, 270, 352), "#1c2024", "screen")
    item.add((380, 200, 340), (470, 270, 350), "#58d0a0")
    for y in (60, 110, 160):
        item.add((385, y, 340), (465, y + 28, 348), "#808488")


def _bottle(item: Item, rng: random.Random) -> None:
    colour = choice(rng, ("#2c6e3c", "#7a2438", "#b8862c"))
    item.add((0, 0, 0), (110, 240, 110), colour, "label", "cylinder").add(
        (0, 240, 0), (110, 320, 110), colour, "plain", "shade"
    )
    item.add((36, 300, 36), (74, 390, 74), colour, "plain", "cylinder").add(
        (34, 380, 34), (76, 405, 76), "#e0c070", "plain", "cylinder"
    )


def _vase(item: Item, rng: random.Random) -> None:
    colour = choice(rng, ("#4a6ab0", "#e6e0d4", "#a0506c"))
    item.add((60, 0, 60), (180, 220, 180), colour, "plain", "ellipsoid").add(
        (90, 190, 90), (150, 260, 150), colour, "plain", "bowl"
    )
    petals = choice(rng, ("#e8c030", "#d84870", "#f0f0f0"))
    for x, y, z in ((20, 400, 80), (130, 430, 60), (90, 370, 140), (70, 460, 100)):
        item.add((x + 44, 250, z + 30), (x + 54, y, z + 40), GREEN).add(
            (x, y - 20, z), (x + 96, y + 70, z + 90), petals, "leaves", "ellipsoid"
        )


def _alarm_clock(item: Item, rng: random.Random) -> None:
    colour = choice(rng, ("#c83c34", "#3a78a8", "#3c3c40"))
    item.add((0, 20, 0), (200, 220, 90), colour).add((10, 30, 88), (190, 210, 96), "#f4f2e8", "clock")
    for x in (20, 120):
        item.add((x, 215, 20), (x + 60, 260, 70), "#c8a850", "metal", "ellipsoid").add(
            (x + 10, 0, 30), (x + 30, 20, 60), BLACK
        )


def _table_lamp(item: Item, rng: random.Random) -> None:
    base = choice(rng, ("#6a4a32", "#3a6a8a", "#d0d0cc"))
    item.add((80, 0, 80), (180, 30, 180), base, "plain", "cylinder").add(
        (105, 25, 105), (155, 230, 155), base, "plain", "ellipsoid"
    )
    item.add((120, 220, 120), (140, 260, 140), BLACK).add((0, 240, 0), (260, 450, 260), "#f6e2a4", "plain", "shade")


def _teddy(item: Item, rng: random.Random) -> None:
    furs = (("#9a6434", "#d8ac78"), ("#c89858", "#f0d8a8"), ("#7c5a48", "#c8a48c"))
    dark, light = furs[pick(rng, len(furs))]
    item.add((70, 0, 60), (270, 230, 220), dark, "fabric", "ellipsoid").add(
        (115, 50, 170), (225, 190, 232), light, "fabric", "ellipsoid"
    )
    item.add((75, 200, 60), (265, 380, 220), dark, "fabric", "ellipsoid").add(
        (125, 230, 190), (215, 300, 245), light, "fabric", "ellipsoid"
    )
    for x in (60, 210):
        item.add((x, 335, 110), (x + 70, 405, 160), dark, "fabric", "ellipsoid")
    for x, y, z in ((20, 0, 150), (220, 0, 150), (20, 110, 110), (220, 110, 110)):
        item.add((x, y, z), (x + 100, y + 100, z + 130), dark, "fabric", "ellipsoid")
    for x in (125, 195):
        item.add((x, 300, 205), (x + 22, 324, 222), BLACK, "plain", "ellipsoid")
    item.add((155, 272, 236), (186, 296, 252), BLACK, "plain", "ellipsoid")


def _basketball(item: Item, rng: random.Random) -> None:
    item.add((0, 0, 0), (260, 260, 260), "#d8702c", "ball", "ellipsoid")
    del rng


def _box(item: Item, rng: random.Random) -> None:
    item.add((0, 0, 0), (420, 300, 340), "#b88a54").add((190, 0, 0), (230, 302, 342), "#dcc090")
    item.add((0, 300, 0), (420, 308, 10), "#a07844").add((-10, 290, 0), (0, 380, 340), "#a87e48").add(
        (420, 290, 0), (430, 380, 340), "#a87e48"
    )
    del rng


def _garbage_can(item: Item, rng: random.Random) -> None:
    colour = choice(rng, ("#4a4e54", "#3c6a52", "#a8acb0"))
    item.add((0, 0, 0), (320, 430, 320), colour, "plain", "bowl").add(
        (8, 425, 8), (312, 440, 312), "#1a1a1c", "plain", "cylinder"
    )
    for x, z in ((70, 90), (150, 60), (120, 150)):
        item.add((x, 400, z), (x + 110, 490, z + 100), "#e8e8e4", "fabric", "ellipsoid")


def _soap_bottle(item: Item, rng: random.Random) -> None:
    colour = choice(rng, ("#58b0c8", "#d870a0", "#88b848"))
    item.add((0, 0, 0), (100, 190, 100), colour, "label", "cylinder").add(
        (35, 190, 35), (65, 230, 65), "#f0f0f0", "plain", "cylinder"
    )
    item.add((30, 225, 35), (120, 250, 65), "#f0f0f0")


def _paper(item: Item, rng: random.Random) -> None:
    for y in (0, 115):
        item.add((0, y, 0), (140, y + 110, 140), "#fafaf8", "plain", "cylinder")
    item.add((50, 224, 50), (90, 228, 90), "#8a6a4a", "plain", "cylinder")
    del rng


def _towel(item: Item, rng: random.Random) -> None:
    colour = choice(rng, ("#d86a5a", "#4a8ab8", "#e4c860"))
    for y in (0, 52, 104):
        item.add((0, y, 0), (300, y + 48, 200), shade(colour, 100 - y // 8), "fabric")
    item.add((230, 0, 0), (250, 153, 201), "#fafaf6")


def _candle(item: Item, rng: random.Random) -> None:
    item.add((0, 0, 0), (160, 16, 160), "#b08a40", "metal", "cylinder")
    item.add((35, 16, 35), (125, 220, 125), choice(rng, ("#f0e8d0", "#b83c3c", "#7a4a8a")), "plain", "cylinder")
    item.add((62, 222, 62), (98, 290, 98), "#ffd048", "glow", "ellipsoid")


def _remote(item: Item, rng: random.Random) -> None:
    item.add((0, 0, 0), (90, 30, 260), BLACK)
    for z in (50, 100, 150):
        for x in (15, 55):
            item.add((x, 30, z), (x + 20, 36, z + 30), "#c8ccd0")
    item.add((35, 30, 215), (57, 37, 237), choice(rng, ("#d83030", "#e04040")))


def _pillow(item: Item, rng: random.Random) -> None:
    colour = choice(rng, ("#e0a030", "#4a9a8a", "#c0507a"))
    item.add((0, 0, 0), (440, 170, 380), colour, "checks", "ellipsoid")


ALL = ("kitchen", "living room", "bedroom", "bathroom", "study")
_K, _L, _B, _W, _S = ALL

THINGS: tuple[Thing, ...] = (
    Thing("Apple", "a fruit to bite into that keeps the doctor away", 130, 130, 150, (_K, _L, _S), _apple),
    Thing("Mug", "what someone drinks their hot coffee from", 175, 120, 143, (_K, _L, _S, _B), _mug),
    Thing("Book", "something with pages to read before falling asleep", 260, 190, 56, (_L, _B, _S), _book),
    Thing(
        "Laptop", "the machine one can write e-mails on and fold up afterwards", 360, 290, 270, (_L, _B, _S), _laptop
    ),
    Thing("Bread", "what one cuts slices from for a sandwich", 320, 170, 150, (_K,), _bread),
    Thing("Bowl", "the dish that holds the fruit", 260, 260, 160, (_K, _L), _bowl),
    Thing("Toaster", "the appliance that browns slices for breakfast", 345, 200, 255, (_K,), _toaster),
    Thing("Kettle", "what brings water to the boil for tea", 275, 240, 270, (_K,), _kettle),
    Thing("Pot", "what a stew for the whole family simmers in", 320, 320, 220, (_K,), _pot),
    Thing("Microwave", "the appliance that warms leftovers within a minute", 500, 352, 310, (_K,), _microwave),
    Thing("Bottle", "what wine or oil is poured from", 110, 110, 405, (_K, _L), _bottle),
    Thing("Vase", "what keeps cut flowers in water", 240, 240, 530, (_L, _B, _K, _S), _vase),
    Thing("AlarmClock", "what rings in the morning so that nobody oversleeps", 200, 96, 260, (_B, _S), _alarm_clock),
    Thing(
        "DeskLamp", "a small light to switch on when it gets too dark to read", 260, 260, 450, (_B, _S, _L), _table_lamp
    ),
    Thing("TeddyBear", "a soft toy that a child cuddles", 340, 280, 405, (_B, _L), _teddy),
    Thing(
        "BasketBall",
        "a toy to bounce and throw through a hoop",
        260,
        260,
        260,
        (_B, _L, _S),
        _basketball,
        on_floor=True,
    ),
    Thing("Box", "what one packs things into before moving house", 420, 340, 380, (_L, _B, _S), _box, on_floor=True),
    Thing("GarbageCan", "where rubbish is thrown", 320, 320, 490, ALL, _garbage_can, on_floor=True),
    Thing("SoapBottle", "what one presses to wash one's hands", 120, 100, 250, (_W, _K), _soap_bottle),
    Thing("ToiletPaper", "the rolls that nobody wants to run out of in the bathroom", 140, 140, 228, (_W,), _paper),
    Thing("Towel", "something folded to dry oneself with after a shower", 300, 201, 153, (_W,), _towel),
    Thing(
        "Candle", "what gives light when the power fails, once lit with a match", 160, 160, 290, (_L, _W, _B), _candle
    ),
    Thing("RemoteControl", "what switches the channel from across the room", 90, 260, 37, (_L,), _remote),
    Thing("Pillow", "something soft to lean one's back against", 440, 380, 170, (_L, _B), _pillow),
)
BY_TYPE = {thing.type: thing for thing in THINGS}


def base_instruction(kind: str) -> str:
    """Return the instruction of the split ``base``."""
    return f"navigate to the {kind} in the room and get as close to it as you can"


def common_sense_instruction(kind: str) -> str:
    """Return the instruction of the split ``common_sense``, which describes the target by its use."""
    return f"I am looking for {BY_TYPE[kind].use}. Please navigate to it and stay close to it."
