"""Furniture: functions that take a random generator and a palette and return an item in local coordinates.

An item has a width, a depth, parts, and slots where small objects can be placed (see ``parts.py``). Coordinates are
millimetres.
"""

import random
from dataclasses import dataclass

from .parts import Item, between, choice, shade


@dataclass(frozen=True, slots=True)
class Palette:
    """Colours of a room."""

    wood: str
    dark: str
    cloth: str
    accent: str
    front: str
    """Colour of kitchen fronts and painted furniture."""
    metal: str = "#b4b8bc"
    white: str = "#eceae4"


BLACK, STEEL, GREEN, SOIL = "#26262a", "#9aa0a6", "#4f8f46", "#5a4030"


def counter(rng: random.Random, palette: Palette) -> Item:
    """Return a row of kitchen cupboards with a worktop."""
    item = Item("CounterTop", between(rng, 1200, 2200, 100), 620)
    item.add((0, 80, 0), (item.width, 860, 600), palette.front, "cupboard")
    item.add((30, 0, 30), (item.width - 30, 80, 540), BLACK)
    item.add((0, 860, 0), (item.width, 900, 620), choice(rng, ("#d8d4cc", "#6a6660", palette.wood)), "plain")
    step = item.width // 3
    for index in range(3):
        item.slot(step * index + step // 2, 900, 300, step, 560)
    return item


def sink(rng: random.Random, palette: Palette) -> Item:
    """Return a counter with a basin and a tap."""
    item = Item("Sink", 900, 620)
    item.add((0, 80, 0), (900, 860, 600), palette.front, "cupboard").add((30, 0, 30), (870, 80, 540), BLACK)
    top = choice(rng, ("#d8d4cc", "#6a6660"))
    for low, high in (((0, 0), (150, 620)), ((750, 0), (900, 620)), ((150, 0), (750, 120)), ((150, 520), (750, 620))):
        item.add((low[0], 860, low[1]), (high[0], 900, high[1]), top)
    item.add((150, 800, 120), (750, 862, 520), STEEL, "metal")
    item.add((430, 900, 50), (470, 1160, 90), palette.metal, "metal", "cylinder")
    item.add((435, 1130, 60), (465, 1160, 260), palette.metal, "metal")
    return item


def stove(rng: random.Random, palette: Palette) -> Item:
    """Return a cooker with an oven and a hob."""
    body = choice(rng, ("#e8e8e8", "#c4c8cc", "#3a3c40"))
    item = Item("StoveBurner", 620, 640)
    item.add((0, 0, 0), (620, 880, 620), body, "oven").add((0, 880, 0), (620, 905, 620), BLACK, "hob")
    item.add((0, 905, 0), (620, 960, 40), body)
    item.slot(310, 905, 320, 420, 420)
    del palette
    return item


def hood(rng: random.Random, palette: Palette) -> Item:
    """Return an extractor hood that hangs above a cooker."""
    item = Item("Hood", 620, 420)
    item.add((0, 1850, 0), (620, 1930, 420), palette.metal, "metal")
    item.add((200, 1930, 0), (420, 2600, 260), palette.metal, "metal")
    del rng
    return item


def fridge(rng: random.Random, palette: Palette) -> Item:
    """Return a tall fridge with a freezer door."""
    body = choice(rng, ("#e6e8ea", "#b8bec4", "#a83c34", "#7fb0a8"))
    item = Item("Fridge", 720, 700)
    item.add((0, 20, 0), (720, 620, 660), body).add((0, 635, 0), (720, 1780, 660), body)
    item.add((10, 0, 10), (710, 1760, 650), shade(body, 45))
    item.add((50, 700, 660), (85, 1150, 700), palette.metal, "metal")
    item.add((50, 330, 660), (85, 590, 700), palette.metal, "metal")
    return item


def table(rng: random.Random, palette: Palette) -> Item:
    """Return a dining table."""
    item = Item("DiningTable", between(rng, 1300, 1900, 100), between(rng, 800, 1000, 50))
    item.add((0, 710, 0), (item.width, 750, item.depth), palette.wood, "wood")
    item.legs(710, 70, 40, shade(palette.wood, 80))
    item.add((60, 640, 60), (item.width - 60, 710, 80), shade(palette.wood, 85), "wood")
    item.add((60, 640, item.depth - 80), (item.width - 60, 710, item.depth - 60), shade(palette.wood, 85), "wood")
    step = item.width // 3
    for index in range(3):
        item.slot(step * index + step // 2, 750, item.depth // 2, step, item.depth - 120)
    return item


def round_table(rng: random.Random, palette: Palette) -> Item:
    """Return a small round table on one foot."""
    side = between(rng, 700, 1000, 50)
    item = Item("SideTable", side, side)
    middle = side // 2
    item.add((0, 680, 0), (side, 720, side), palette.wood, "wood", "cylinder")
    item.add((middle - 45, 30, middle - 45), (middle + 45, 680, middle + 45), palette.dark, "wood", "cylinder")
    item.add((middle - 240, 0, middle - 240), (middle + 240, 40, middle + 240), palette.dark, "wood", "cylinder")
    item.slot(middle, 720, middle, side * 6 // 10, side * 6 // 10)
    return item


def coffee_table(rng: random.Random, palette: Palette) -> Item:
    """Return a low table."""
    item = Item("CoffeeTable", between(rng, 900, 1200, 50), 560)
    item.add((0, 380, 0), (item.width, 420, 560), palette.wood, "wood")
    item.add((60, 130, 60), (item.width - 60, 155, 500), palette.wood, "wood")
    item.legs(380, 60, 20, palette.dark)
    for x in (item.width // 4, 3 * item.width // 4):
        item.slot(x, 420, 280, item.width // 2 - 60, 460)
    return item


def chair(rng: random.Random, palette: Palette) -> Item:
    """Return a chair; it faces away from its backrest."""
    item = Item("Chair", 440, 460)
    seat = choice(rng, (palette.cloth, palette.wood, palette.accent))
    item.add((0, 430, 0), (440, 480, 460), seat, "fabric")
    item.legs(430, 45, 0, palette.dark)
    for x in (0, 395):
        item.add((x, 480, 0), (x + 45, 940, 45), palette.dark, "wood")
    item.add((45, 780, 5), (395, 930, 35), palette.dark, "wood").add((45, 600, 5), (395, 690, 35), palette.dark, "wood")
    return item


def sofa(rng: random.Random, palette: Palette) -> Item:
    """Return a sofa with cushions."""
    item = Item("Sofa", between(rng, 1700, 2200, 100), 900)
    cloth, width = palette.cloth, item.width
    item.add((0, 60, 0), (width, 300, 880), shade(cloth, 85), "fabric")
    item.add((0, 300, 0), (width, 820, 220), cloth, "fabric")
    for x in (0, width - 180):
        item.add((x, 300, 0), (x + 180, 600, 880), shade(cloth, 92), "fabric")
    half = (width - 360) // 2
    for index in range(2):
        low = 180 + half * index
        item.add((low + 8, 300, 220), (low + half - 8, 450, 890), shade(cloth, 108), "fabric")
    item.add((200, 450, 230), (560, 760, 330), palette.accent, "fabric")
    item.add((20, 0, 20), (width - 20, 60, 860), BLACK)
    item.slot(180 + half * 3 // 2, 450, 560, half - 100, 500)
    return item


def armchair(rng: random.Random, palette: Palette) -> Item:
    """Return an armchair."""
    item = Item("ArmChair", 860, 840)
    cloth = choice(rng, (palette.cloth, palette.accent))
    item.add((0, 80, 0), (860, 300, 820), shade(cloth, 85), "fabric").add((0, 300, 0), (860, 900, 200), cloth, "fabric")
    for x in (0, 700):
        item.add((x, 300, 0), (x + 160, 580, 820), shade(cloth, 92), "fabric")
    item.add((168, 300, 200), (692, 440, 830), shade(cloth, 108), "fabric")
    item.add((40, 0, 40), (820, 80, 780), BLACK)
    item.slot(430, 440, 500, 400, 400)
    return item


def tv_bench(rng: random.Random, palette: Palette) -> Item:
    """Return a low cabinet with a television on it."""
    item = Item("TVStand", between(rng, 1400, 1800, 100), 450)
    item.add((0, 60, 0), (item.width, 480, 430), palette.wood, "drawers").add(
        (40, 0, 40), (item.width - 40, 60, 400), BLACK
    )
    left = item.width // 2
    item.add((left - 520, 560, 120), (left + 520, 1180, 160), "#2c3c50", "screen")
    item.add((left - 60, 480, 110), (left + 60, 560, 170), BLACK).add(
        (left - 200, 480, 60), (left + 200, 495, 240), BLACK
    )
    item.slot(item.width - 160, 480, 260, 280, 320)
    item.slot(160, 480, 260, 280, 320)
    return item


def bookcase(rng: random.Random, palette: Palette) -> Item:
    """Return shelves full of books; the middle shelf is free."""
    item = Item("ShelvingUnit", between(rng, 800, 1200, 100), 340)
    width, wood, boards = item.width, palette.wood, (60, 420, 790, 1150, 1520, 1880)
    for x in (0, width - 30):
        item.add((x, 0, 0), (x + 30, 1910, 330), wood, "wood")
    item.add((30, 0, 0), (width - 30, 1910, 15), shade(wood, 60))
    for y in boards:
        item.add((30, y, 15), (width - 30, y + 30, 330), wood, "wood")
    free = 2
    for index in range(5):
        if index != free:
            end = between(rng, width * 6 // 10, width - 40, 10)
            item.add((40, boards[index] + 30, 40), (end, boards[index] + 320, 270), "#3a2e24", "books")
    item.slot(width // 3, boards[free] + 30, 180, width // 2 - 80, 260)
    item.slot(width * 3 // 4, boards[free] + 30, 180, width // 2 - 120, 260)
    return item


def wall_cupboard(rng: random.Random, palette: Palette) -> Item:
    """Return cupboards high on the wall."""
    item = Item("Cabinet", between(rng, 900, 1800, 100), 350)
    item.add((0, 1450, 0), (item.width, 2100, 350), palette.front, "cupboard")
    return item


def dresser(rng: random.Random, palette: Palette) -> Item:
    """Return a chest of drawers, sometimes with a mirror above it."""
    item = Item("Dresser", between(rng, 900, 1300, 100), 480)
    item.add((0, 60, 0), (item.width, 820, 460), palette.wood, "drawers")
    item.add((0, 820, 0), (item.width, 850, 480), shade(palette.wood, 85), "wood")
    item.legs(60, 60, 20, palette.dark)
    if rng.random() < 0.5:
        item.add((150, 1050, 0), (item.width - 150, 1750, 30), "#b4c8d4", "mirror")
    for x in (item.width // 4, 3 * item.width // 4):
        item.slot(x, 850, 250, item.width // 2 - 60, 400)
    return item


def wardrobe(rng: random.Random, palette: Palette) -> Item:
    """Return a tall wardrobe."""
    item = Item("Wardrobe", between(rng, 1000, 1600, 200), 600)
    item.add((0, 60, 0), (item.width, 2050, 580), choice(rng, (palette.wood, palette.white)), "cupboard")
    item.add((0, 2050, 0), (item.width, 2090, 600), palette.dark, "wood").add(
        (20, 0, 20), (item.width - 20, 60, 560), BLACK
    )
    return item


def bed(rng: random.Random, palette: Palette) -> Item:
    """Return a bed; its headboard is at the back."""
    wide = rng.random() < 0.6
    item = Item("Bed", 1600 if wide else 1000, 2050)
    width = item.width
    item.add((0, 0, 0), (width, 1000, 60), palette.dark, "wood")
    item.add((20, 120, 60), (width - 20, 300, 2050), palette.wood, "wood").legs(120, 80, 30, palette.dark)
    item.add((30, 300, 60), (width - 30, 500, 2040), palette.white, "fabric")
    item.add((20, 330, 700), (width - 20, 525, 2060), palette.cloth, "fabric")
    item.add((20, 525, 640), (width - 20, 540, 900), palette.accent, "fabric")
    count = 2 if wide else 1
    share = (width - 100) // count
    for index in range(count):
        low = 50 + share * index
        item.add((low + 40, 490, 100), (low + share - 40, 640, 520), "#f6f4ee", "fabric", "ellipsoid")
    item.slot(width // 2, 525, 1450, width - 300, 900)
    item.depth = 2060
    return item


def night_table(rng: random.Random, palette: Palette) -> Item:
    """Return a bedside table."""
    item = Item("SideTable", 460, 420)
    item.add((0, 120, 0), (460, 540, 400), palette.wood, "drawers").add(
        (0, 540, 0), (460, 565, 420), palette.dark, "wood"
    )
    item.legs(120, 50, 15, palette.dark)
    item.slot(230, 565, 210, 400, 360)
    del rng
    return item


def desk(rng: random.Random, palette: Palette) -> Item:
    """Return a writing desk with drawers on one side."""
    item = Item("Desk", between(rng, 1200, 1600, 100), 650)
    item.add((0, 710, 0), (item.width, 745, 650), palette.wood, "wood")
    item.add((item.width - 420, 60, 30), (item.width - 20, 710, 610), palette.front, "drawers")
    for z in (30, 560):
        item.add((30, 0, z), (90, 710, z + 60), palette.dark, "wood")
    item.add((item.width - 420, 0, 30), (item.width - 20, 60, 600), BLACK)
    for x in (item.width // 4, 5 * item.width // 8):
        item.slot(x, 745, 330, item.width // 3, 480)
    return item


def washbasin(rng: random.Random, palette: Palette) -> Item:
    """Return a bathroom basin on a cupboard, with a mirror."""
    item = Item("Washbasin", between(rng, 900, 1300, 100), 520)
    middle = item.width // 2
    item.add((0, 60, 0), (item.width, 780, 480), palette.front, "cupboard").add(
        (20, 0, 20), (item.width - 20, 60, 440), BLACK
    )
    item.add((0, 780, 0), (item.width, 820, 520), "#e4e2dc")
    item.add((middle - 230, 800, 70), (middle + 230, 910, 480), "#fbfbf8", "plain", "bowl")
    item.add((middle - 190, 905, 110), (middle + 190, 914, 440), "#c4d4dc", "plain", "cylinder")
    item.add((middle - 18, 820, 25), (middle + 18, 1060, 60), palette.metal, "metal", "cylinder")
    item.add((middle - 14, 1035, 30), (middle + 14, 1060, 190), palette.metal, "metal")
    item.add((100, 1200, 0), (item.width - 100, 1900, 25), "#b4c8d4", "mirror")
    item.slot(120, 820, 260, 200, 380)
    item.slot(item.width - 120, 820, 260, 200, 380)
    return item


def bathtub(rng: random.Random, palette: Palette) -> Item:
    """Return a bathtub with water in it."""
    item = Item("Bathtub", 1700, 780)
    rim, water = palette.white, choice(rng, ("#9cc8d8", "#b8dce0"))
    for low, high in (((0, 0), (1700, 90)), ((0, 690), (1700, 780)), ((0, 90), (90, 690)), ((1610, 90), (1700, 690))):
        item.add((low[0], 0, low[1]), (high[0], 560, high[1]), rim)
    item.add((90, 0, 90), (1610, 430, 690), water)
    item.add((780, 560, 20), (820, 760, 60), palette.metal, "metal", "cylinder")
    item.add((785, 735, 40), (815, 760, 200), palette.metal, "metal")
    return item


def toilet(rng: random.Random, palette: Palette) -> Item:
    """Return a toilet."""
    item = Item("Toilet", 420, 680)
    item.add((20, 380, 0), (400, 820, 190), palette.white).add((0, 820, 0), (420, 850, 200), "#fafaf6")
    item.add((110, 0, 120), (310, 360, 520), palette.white)
    item.add((30, 260, 170), (390, 410, 680), "#fafaf6", "plain", "bowl")
    item.add((40, 400, 180), (380, 425, 670), "#e4e2dc", "plain", "cylinder")
    item.slot(210, 850, 100, 340, 170)
    del rng
    return item


def shower(rng: random.Random, palette: Palette) -> Item:
    """Return a shower with a curtain on one side."""
    item = Item("Shower", 900, 900)
    item.add((0, 0, 0), (900, 140, 900), palette.white)
    item.add((860, 140, 0), (900, 2050, 900), palette.accent, "stripes")
    item.add((60, 900, 0), (90, 2050, 30), palette.metal, "metal", "cylinder")
    item.add((20, 2000, 10), (220, 2040, 210), palette.metal, "metal", "cylinder")
    del rng
    return item


def washing_machine(rng: random.Random, palette: Palette) -> Item:
    """Return a washing machine."""
    item = Item("WashingMachine", 600, 600)
    item.add((0, 10, 0), (600, 850, 580), palette.white).add((60, 740, 578), (540, 830, 590), "#c4c8cc")
    item.add((130, 200, 572), (470, 620, 600), "#50606c", "plain", "ellipsoid")
    item.slot(300, 850, 290, 540, 520)
    del rng
    return item


def basket(rng: random.Random, palette: Palette) -> Item:
    """Return a woven basket on the floor."""
    item = Item("LaundryHamper", 420, 420)
    item.add((0, 0, 0), (420, 520, 420), "#b48c58", "weave", "bowl").add(
        (30, 500, 30), (390, 535, 390), palette.cloth, "fabric", "ellipsoid"
    )
    del rng
    return item


def plant(rng: random.Random, palette: Palette) -> Item:
    """Return a tall plant in a pot."""
    item = Item("PottedPlant", 520, 520)
    item.add((110, 0, 110), (410, 360, 410), palette.accent, "plain", "bowl")
    item.add((130, 340, 130), (390, 365, 390), SOIL, "carpet", "cylinder")
    item.add((245, 360, 245), (275, 800, 275), SOIL, "wood")
    for _ in range(7):
        x, y, z = between(rng, 0, 220), between(rng, 560, 1050), between(rng, 0, 220)
        item.add(
            (x, y, z), (x + 300, y + 260, z + 300), choice(rng, (GREEN, "#5fa050", "#3f7a3c")), "leaves", "ellipsoid"
        )
    return item


def floor_lamp(rng: random.Random, palette: Palette) -> Item:
    """Return a floor lamp."""
    item = Item("StandingLamp", 420, 420)
    item.add((60, 0, 60), (360, 30, 360), BLACK, "plain", "cylinder").add(
        (198, 30, 198), (222, 1350, 222), BLACK, "metal"
    )
    item.add((0, 1320, 0), (420, 1680, 420), choice(rng, ("#f0e0b0", palette.accent, "#f4ece0")), "plain", "shade")
    return item


def stool(rng: random.Random, palette: Palette) -> Item:
    """Return a footstool."""
    item = Item("Ottoman", 520, 520)
    item.add((0, 80, 0), (520, 420, 520), choice(rng, (palette.accent, palette.cloth)), "fabric")
    item.legs(80, 50, 30, palette.dark)
    item.slot(260, 420, 260, 420, 420)
    return item


def island(rng: random.Random, palette: Palette) -> Item:
    """Return a kitchen island."""
    item = Item("KitchenIsland", between(rng, 1400, 2000, 100), 800)
    item.add((40, 0, 40), (item.width - 40, 880, 760), palette.front, "cupboard")
    item.add((0, 880, 0), (item.width, 930, 800), palette.wood, "wood")
    step = item.width // 3
    for index in range(3):
        item.slot(step * index + step // 2, 930, 400, step, 700)
    return item


def divider(rng: random.Random, palette: Palette) -> Item:
    """Return an open bookshelf that divides the room, with books on both sides."""
    item = Item("RoomDivider", between(rng, 1500, 2300, 100), 360)
    width, wood = item.width, palette.wood
    for x in (0, width // 2 - 15, width - 30):
        item.add((x, 0, 0), (x + 30, 1900, 360), wood, "wood")
    for y in (60, 670, 1280, 1870):
        item.add((30, y, 0), (width - 30, y + 30, 360), wood, "wood")
    for index, y in enumerate((90, 700, 1310)):
        low = 40 if index != 1 else width // 2 + 30
        item.add((low, y, 40), (low + width // 2 - 80, y + 380, 320), "#3a2e24", "books")
    item.slot(width // 4, 700, 180, width // 2 - 100, 300)
    return item
