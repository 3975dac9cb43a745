"""The words of made tables and of the questions about them (`sightline.synthetic.tables`)."""

from collections.abc import Sequence


def _split(text: str) -> list[str]:
    return text.split()


MONTHS = _split("January February March April May June July August September October November December")
FORMS = ("{month} {d}, {y}", "{d} {month} {y}", "{y}-{m:02}-{d:02}", "{d} {mon} {y}")

_CITIES = _split(
    "Bergen Cork Dover Kyoto Lima Turin Leeds Quito Accra Davao Hanoi Izmir Jaipur Kazan Lagos Malmo Natal"
    " Osaka Perth Rabat Sofia Tampa Utrecht Varna Wuhan Yerevan Zagreb Almaty Basel Cusco Delft Essen Faro"
    " Ghent Haifa Ibiza Jena Kotka Lucca Minsk"
)
_FIRST = "Anna Ben Clara David Emma Felix Grace Henry Ines Jonas Karin Leo Mara Nils Olga Paul Rosa Simon Tessa Viktor"
_LAST = "Adler Berg Costa Duran Evans Frost Garcia Holm Ivanov Jansen Keller Lund Moreau Novak Okada Petrov Quinn Rossi"
_ANIMALS = "Wolves Eagles Bears Hawks Lions Foxes Otters Ravens Tigers Bulls Sharks Owls Badgers Herons Lynxes Cobras"
_QUALITIES = "Silent Golden Broken Distant Hidden Crimson Frozen Gentle Hollow Ancient Bitter Restless Velvet Wandering"
_THINGS = "Harbour Mirror Garden River Lantern Bridge Forest Window Island Orchard Compass Anchor Meadow Winter Castle"
_MOUNTS = "Arn Brel Cald Dorn Elk Fenn Gras Horn Ister Jol Krum Larn Morv Norr Ost Pall Rud Sarn Tolm Ulf Vars Wend"

# Names, each of which stands once in its column: of one part, or of two.
KEYS: dict[str, tuple[Sequence[str], ...]] = {
    "City": (_CITIES,),
    "Venue": ([f"{city} {kind}" for city in _CITIES for kind in ("Arena", "Hall", "Dome")],),
    "Player": (_FIRST.split(), _LAST.split()),
    "Driver": (_LAST.split(), _split("Senior Junior Smith Baker Mason Tanner Fisher")),
    "Author": (_FIRST.split(), [f"{name}son" for name in _LAST.split()]),
    "Team": (_CITIES, _ANIMALS.split()),
    "Album": (_QUALITIES.split(), _THINGS.split()),
    "Ship": (["Star", "Pride", "Queen", "Spirit", "Dawn"], [f"of {city}" for city in _CITIES]),
    "Mountain": ([f"Mount {name}{end}" for name in _MOUNTS.split() for end in ("ach", "eck", "ora", "il")],),
    "Model": ([f"{a}{b}" for a in ("Vex", "Tor", "Lum", "Pax", "Zan") for b in ("a", "o", "ix", "en", "ara", "ium")],),
    "Station": ([f"{name} {kind}" for name in _THINGS.split() for kind in ("Road", "Park", "Cross", "Gate")],),
    "Candidate": (_FIRST.split(), [f"{name}sen" for name in _LAST.split()]),
    "Song": (["Under", "Beyond", "Without", "Towards", "Against"], [f"the {name}" for name in _THINGS.split()]),
    "Horse": (_QUALITIES.split(), _split("Dancer Prince Arrow Comet Duke Thunder Spark")),
}
# Words of which a column has a few, each often.
SORTS: dict[str, list[str]] = {
    "Country": _split("Norway Peru Japan Kenya Italy Canada Egypt Chile France Vietnam Poland Ireland"),
    "Colour": _split("red blue green yellow purple orange white black grey brown"),
    "Material": _split("wood steel glass stone copper plastic leather marble"),
    "Genre": _split("jazz rock opera folk blues techno reggae soul"),
    "Position": ["goalkeeper", "defender", "midfielder", "forward", "captain"],
    "Party": _split("Liberal Labour Conservative Green Socialist Agrarian"),
    "Status": _split("active retired closed planned damaged restored"),
    "Surface": _split("clay grass sand carpet asphalt gravel"),
    "Result": ["won", "lost", "drawn", "cancelled", "abandoned"],
    "Language": _split("Dutch Greek Hindi Korean Swahili Turkish Welsh Finnish"),
    "Class": ["junior", "senior", "veteran", "amateur", "professional"],
    "Engine": ["diesel", "petrol", "electric", "hybrid", "steam"],
    "Network": _split("Aurora Beacon Cascade Delta Echo Fusion"),
    "Region": _split("northern southern eastern western central coastal"),
}
# Least, most (in steps of the form), and how it is written: .1f in tenths, .2f in hundredths.
NUMBERS: dict[str, tuple[int, int, str]] = {
    "Gold": (0, 60, "{}"),
    "Silver": (0, 60, "{}"),
    "Bronze": (0, 60, "{}"),
    "Points": (1, 400, "{}"),
    "Goals": (0, 90, "{}"),
    "Population": (900, 2_000_000, "{:,}"),
    "Attendance": (500, 90_000, "{:,}"),
    "Votes": (100, 500_000, "{:,}"),
    "Price": (200, 90_000, "${:.2f}"),
    "Budget": (10_000, 9_000_000, "${:,}"),
    "Share": (10, 990, "{:.1f}%"),
    "Height": (20, 4_000, "{} m"),
    "Distance": (5, 900, "{} km"),
    "Weight": (300, 9_000, "{:.1f} kg"),
    "Depth": (10, 2_000, "{:.1f}"),
    "Capacity": (50, 70_000, "{:,}"),
    "Speed": (40, 350, "{}"),
    "Laps": (10, 300, "{}"),
    "Wins": (0, 120, "{}"),
    "Losses": (0, 120, "{}"),
    "Score": (100, 9_900, "{:.2f}"),
    "Seats": (2, 450, "{}"),
    "Age": (16, 95, "{}"),
    "Temperature": (-300, 450, "{:.1f}"),
}
NAMES: dict[str, Sequence[str]] = {
    "key": tuple(KEYS),
    "word": tuple(SORTS),
    "number": tuple(NUMBERS),
    "year": ("Year", "Founding year", "Season"),
    "date": ("Date", "Release date", "Birthday", "Opening", "Launch", "Election day"),
}

_COUNTED = {
    "greater": ("have more than {bound} in {by}", "have a {by} greater than {bound}", "have a {by} above {bound}"),
    "less": ("have less than {bound} in {by}", "have a {by} smaller than {bound}", "have a {by} below {bound}"),
    "at_least": ("have at least {bound} in {by}", "have a {by} of {bound} or more", "have a {by} of at least {bound}"),
    "at_most": ("have at most {bound} in {by}", "have a {by} of {bound} or less", "have a {by} of at most {bound}"),
}
_DATED = {
    "greater": ("have a {by} after {bound}", "have a {by} later than {bound}"),
    "less": ("have a {by} before {bound}", "have a {by} earlier than {bound}"),
    "at_least": ("have {bound} or later as {by}", "have a {by} not before {bound}"),
    "at_most": ("have {bound} or earlier as {by}", "have a {by} not after {bound}"),
}
_HIGHEST = {"max": ("highest", "largest", "greatest"), "min": ("lowest", "smallest", "least")}
_LATEST = {"max": ("latest", "most recent"), "min": ("earliest", "oldest")}

PHRASES: dict[str, list[str]] = {
    "count": [
        "how many rows are in the table?",
        "how many rows does the table have?",
        "what is the total number of rows?",
        "count all the rows.",
    ],
    "print": ["list every {out}.", "name all of the {out} entries.", "what are all the entries of {out}?"],
    "reset_count": [
        "whether or not the {by} is {word}, how many rows are there in all?",
        "not only with {by} {word} but with any: how many rows are there?",
        "how many rows are there with {word} or any other {by}?",
    ],
    "first_print": [
        "what is the first {out} in the table?",
        "which {out} is listed first?",
        "which {out} is at the top of the table?",
    ],
    "last_print": [
        "what is the last {out} in the table?",
        "which {out} is listed last?",
        "which {out} is at the bottom of the table?",
    ],
    "most_frequent": [
        "which {out} appears most often?",
        "what is the most common {out}?",
        "which {out} is the most frequent one?",
        "which {out} is listed the most times?",
    ],
    "match_print": [
        "what is the {out} where the {by} is {word}?",
        "what {out} belongs to the {by} {word}?",
        "for the {by} {word}, what is the {out}?",
        "which {out} is listed with the {by} {word}?",
    ],
    "match_count": [
        "how many rows have the {by} {word}?",
        "how many times is the {by} {word}?",
        "how often is {word} listed as the {by}?",
        "in how many rows is the {by} {word}?",
    ],
    "match_previous_print": [
        "what is the {out} in the row right before the {by} {word}?",
        "which {out} is listed directly above the {by} {word}?",
        "which {out} is just before the {by} {word}?",
    ],
    "match_next_print": [
        "what is the {out} in the row right after the {by} {word}?",
        "which {out} is listed directly below the {by} {word}?",
        "which {out} is just after the {by} {word}?",
    ],
    "match_first_print": [
        "what is the first {out} listed with the {by} {word}?",
        "of the rows with the {by} {word}, what is the first {out}?",
        "which {out} is the first one where the {by} is {word}?",
    ],
    "match_last_print": [
        "what is the last {out} listed with the {by} {word}?",
        "of the rows with the {by} {word}, what is the last {out}?",
        "which {out} is the last one where the {by} is {word}?",
    ],
}
for _sort, _words, _compared in (("", _HIGHEST, _COUNTED), ("date", _LATEST, _DATED), ("year", _LATEST, _DATED)):
    _behind = f":{_sort}" if _sort else ""
    for _end in ("max", "min"):
        PHRASES[f"{_end}_print{_behind}"] = [
            phrase.replace("{best}", word)
            for word in _words[_end]
            for phrase in ("which {out} has the {best} {by}?", "what is the {out} with the {best} {by}?")
        ]
        PHRASES[f"match_{_end}_print{_behind}"] = [
            phrase.replace("{best}", word)
            for word in _words[_end]
            for phrase in (
                "of the rows with the {by} {word}, which {out} has the {best} {most}?",
                "where the {by} is {word}, what is the {out} with the {best} {most}?",
            )
        ]
    PHRASES[f"max_previous_print{_behind}"] = [
        phrase.replace("{best}", word)
        for word in _words["max"]
        for phrase in (
            "which {out} is listed directly above the row with the {best} {by}?",
            "what is the {out} right before the row with the {best} {by}?",
        )
    ]
    PHRASES[f"min_next_print{_behind}"] = [
        phrase.replace("{best}", word)
        for word in _words["min"]
        for phrase in (
            "which {out} is listed directly below the row with the {best} {by}?",
            "what is the {out} right after the row with the {best} {by}?",
        )
    ]
    for _name, _phrases in _compared.items():
        PHRASES[f"{_name}_count{_behind}"] = [f"how many rows {one}?" for one in _phrases]
        PHRASES[f"{_name}_print{_behind}"] = [
            f"{start} {one}{stop}"
            for one in _phrases
            for start, stop in (("which {out} entries", "?"), ("list every {out} of the rows that", "."))
        ]
    PHRASES[f"match_greater_count{_behind}"] = [
        f"how many rows with the {{by}} {{word}} {one.replace('{by}', '{most}')}?" for one in _compared["greater"]
    ]
    PHRASES[f"greater_first_print{_behind}"] = [
        f"of the rows that {one}, what is the first {{out}}?" for one in _compared["greater"]
    ]
    PHRASES[f"less_last_print{_behind}"] = [
        f"of the rows that {one}, what is the last {{out}}?" for one in _compared["less"]
    ]
