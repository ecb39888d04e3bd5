"""The words that facts and chats are made of. Pseudo-words and random digits make the model copy rather than recite."""

ADJECTIVES = (
    "amber ancient bitter blue bold brave brisk bronze calm clever copper crimson curious dark distant dusty eager early "
    "empty faint fierce frozen gentle giant golden grand green happy hollow humble icy idle iron ivory jolly keen kind "
    "late lazy little lonely loud lucky mellow merry mighty misty narrow noble odd old olive pale patient plain polite "
    "proud quick quiet rapid rare red rough royal rusty sandy scarlet secret sharp shy silent silver simple sleepy slow "
    "small smooth solemn steady stern stormy strange sturdy sunny swift tall tame tidy tiny velvet violet warm weary "
    "wild windy winter wise wooden yellow young").split()
NOUNS = (
    "anchor apple arrow badger basket beacon bell bird boat bottle branch bridge brook broom button cabin candle canyon "
    "carpet castle cedar chair cherry clock cloud coach copper coral cradle crow crown dagger desert dragon drum eagle "
    "engine falcon feather fern fiddle field forest fountain fox garden gate ghost glove goose hammer harbor harp hawk "
    "hill horse island jacket jewel kettle key kitten ladder lake lantern leaf lemon letter lion lizard lock map maple "
    "market meadow mill mirror monkey moon mountain needle nest oak ocean onion orchard otter owl oyster palace parrot "
    "pebble pepper piano pillow pine pirate planet pocket pond quarry quill rabbit raven ribbon ring river robin rocket "
    "rose saddle sail shadow shell shepherd ship spider spoon stone storm table temple thorn tiger tower train tulip "
    "turtle valley village violin wagon walnut whale wheel willow window wolf").split()
FIRST_NAMES = (
    "Ada Albert Alice Amos Anna Arthur Basil Beatrice Bruno Clara Conrad Cora Daisy Daniel Dora Edgar Edith Eliza Emil "
    "Esther Felix Flora Frank Fred Gerda Gilbert Grace Greta Harold Hazel Hector Helen Henry Hugo Ida Irene Isaac Ivy "
    "Jasper Joan Jonas Julia Karl Kate Lena Leo Lewis Lily Louis Lucy Mabel Marcus Martha Max Minna Moses Nathan Nell "
    "Nora Olga Oscar Otto Owen Pearl Percy Peter Polly Ralph Rosa Rufus Ruth Sadie Samuel Silas Stella Theo Thomas Tilda "
    "Ursula Victor Viola Walter Wilma Winifred").split()
SURNAMES = (
    "Abbot Archer Baker Barlow Barton Becker Bishop Brand Brook Carter Chase Cole Cooper Crane Dale Drake Ellis Farrow "
    "Fisher Flint Forbes Fowler Gale Grant Hale Harper Hart Holt Hunter Irving Keane Kerr Lane Lark Marsh Mason Mercer "
    "Mills Moss Nash Noble North Page Parker Pike Porter Quinn Reed Rowe Sawyer Shaw Slater Stone Swan Tate Thorne "
    "Turner Vale Wade Walsh Ward Webb West Winter Wood Wren York").split()
CITIES = (
    "Athens Bergen Boston Bristol Cairo Calcutta Cadiz Cologne Cork Delhi Dover Dresden Dublin Florence Geneva Ghent "
    "Glasgow Hamburg Havana Lisbon Lima London Lyons Madrid Malta Milan Moscow Munich Naples Odessa Oslo Oxford Paris "
    "Prague Quebec Riga Rome Salem Seville Smyrna Stockholm Tangier Tokyo Toledo Trieste Tunis Turin Venice Vienna "
    "Warsaw York Zurich").split()
THINGS = (
    "brass compass|silver watch|red umbrella|leather trunk|old violin|wax candle|torn map|blue vase|ivory comb|spare key|"
    "velvet hat|glass bead|iron box|wool blanket|paper lantern|copper coin|wooden flute|clay pipe|straw basket|ink bottle|"
    "gold ring|tin whistle|silk scarf|stone idol|green bottle|fishing rod|pearl necklace|chess set|hunting horn|prayer book"
).split("|")
PLACES = (
    "attic|barn|cellar|chapel|garden shed|greenhouse|kitchen|library|lighthouse|mill|pantry|stable|study|tower|well house|"
    "boat house|coach house|wine vault|music room|east wing|guard room|herb garden|north gate|dairy|forge").split("|")
COLOURS = "red blue green yellow purple orange black white brown grey pink teal crimson violet gold silver".split()
ANIMALS = "dog cat horse goat rabbit parrot turtle donkey sheep fox bear wolf owl hen duck mouse".split()
FRUITS = "apple pear plum cherry grape lemon orange peach fig melon apricot berry".split()
FOODS = "bread cheese soup rice fish cake honey porridge pie stew noodles pancakes jam butter".split()
TOOLS = "hammer saw spade axe chisel drill rake wrench anvil shovel pliers file".split()
PETS = "dog cat horse parrot rabbit goat turtle pony canary hamster".split()
RELATIVES = "sister brother mother father aunt uncle cousin teacher neighbour friend".split()
JOBS = ("baker doctor sailor teacher farmer tailor painter carpenter nurse miller clerk gardener lawyer cook "
        "blacksmith shepherd").split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
LOCKS = "door gate safe cellar alarm bicycle garage office locker archive".split()
LANGUAGES = "French German Latin Greek Dutch Spanish Polish Danish Turkish Arabic Welsh Russian".split()
EVENTS = "meeting party lesson concert dinner wedding lecture trial match exam play funeral".split()
WHERE = "in under behind beside near above inside below".split()
ROLES = "captain owner founder leader cook guard pilot mayor keeper king queen director".split()
DEEDS = ("found/find lost/lose built/build broke/break painted/paint sold/sell bought/buy stole/steal repaired/repair "
         "saw/see cleaned/clean hid/hide carried/carry burned/burn").split()  # past/present
CLASSES = [COLOURS, ANIMALS, FRUITS, TOOLS, CITIES, FIRST_NAMES, JOBS, DAYS]

_ONSETS = "b bl br c ch cl d dr f fl g gr h j k l m n p pl qu r s sh st t tr v w y z".split()
_VOWELS = "a e i o u a e i o ai ee oo".split()
_CODAS = ["", "", "", "n", "r", "l", "s", "m", "th", "x", "nd", "rk"]


def pseudo_word(r, syllables=None):
    """A word that no book holds: 'brilmosa'."""
    n = syllables or r.randint(2, 3)
    return "".join(r.choice(_ONSETS) + r.choice(_VOWELS) for _ in range(n)) + r.choice(_CODAS)


def first_name(r):
    return pseudo_word(r).capitalize() if r.random() < 0.35 else r.choice(FIRST_NAMES)


def city(r):
    return pseudo_word(r).capitalize() if r.random() < 0.35 else r.choice(CITIES)


def hex_digits(r, n=8):
    return "".join(r.choice("0123456789abcdef") for _ in range(n))


def variable(r):
    return "".join(r.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ") for _ in range(4))


def clock_time(r):
    hour = r.randint(1, 12)
    return r.choice((f"{hour} pm", f"{hour} am", f"{hour} o'clock", f"half past {hour}", f"{hour}:{r.randint(1, 5)}5"))
