#include "eval/facts.h"

#include <fmt/format.h>

#include "base/check.h"

namespace godwit {
namespace {

constexpr std::string_view kKinds[] = {"number", "hex", "lives", "keeps", "multi", "chain", "sum"};

constexpr std::string_view kAdjectives[] = {
    "amber",  "ancient", "bitter", "bold",   "brave",  "bronze",  "calm",   "clever", "crimson", "curious", "distant",
    "dusty",  "eager",   "faint",  "fierce", "frozen", "gentle",  "golden", "hollow", "humble",  "icy",     "ivory",
    "jolly",  "keen",    "lonely", "lucky",  "mellow", "misty",   "noble",  "olive",  "pale",    "patient", "polite",
    "proud",  "quiet",   "rapid",  "royal",  "rusty",  "scarlet", "secret", "silent", "silver",  "sleepy",  "solemn",
    "steady", "stormy",  "sturdy", "sunny",  "swift",  "tidy",    "velvet", "violet", "weary",   "windy",   "wooden"};
constexpr std::string_view kNouns[] = {
    "anchor",   "arrow",  "badger", "basket", "beacon", "bottle",  "bridge", "button", "candle", "canyon",  "castle",
    "cedar",    "cherry", "coral",  "cradle", "dagger", "dragon",  "eagle",  "engine", "falcon", "feather", "fiddle",
    "fountain", "garden", "hammer", "harbor", "island", "jacket",  "jewel",  "kettle", "ladder", "lantern", "lemon",
    "lizard",   "maple",  "meadow", "mirror", "needle", "orchard", "otter",  "palace", "parrot", "pebble",  "piano",
    "planet",   "rabbit", "raven",  "ribbon", "river",  "saddle",  "shadow", "spider", "temple", "tiger",   "tulip",
    "turtle",   "valley", "violin", "wagon",  "walnut", "willow",  "window"};
constexpr std::string_view kFirstNames[] = {
    "Ada",     "Albert", "Alice",  "Amos",  "Basil",  "Beatrice", "Bruno",  "Clara",  "Conrad", "Cora",
    "Daisy",   "Dora",   "Edgar",  "Edith", "Eliza",  "Emil",     "Esther", "Felix",  "Flora",  "Gerda",
    "Gilbert", "Greta",  "Harold", "Hazel", "Hector", "Hugo",     "Ida",    "Irene",  "Isaac",  "Ivy",
    "Jasper",  "Jonas",  "Julia",  "Lena",  "Lewis",  "Lily",     "Mabel",  "Marcus", "Martha", "Minna",
    "Nathan",  "Nora",   "Olga",   "Oscar", "Otto",   "Owen",     "Pearl",  "Percy",  "Polly",  "Ralph",
    "Rosa",    "Rufus",  "Sadie",  "Silas", "Stella", "Theo",     "Tilda",  "Ursula", "Viola",  "Wilma"};
constexpr std::string_view kSurnames[] = {
    "Abbot",  "Archer", "Baker", "Barlow", "Barton", "Becker", "Bishop", "Brand",  "Carter", "Chase",  "Cooper",
    "Crane",  "Drake",  "Ellis", "Farrow", "Fisher", "Flint",  "Forbes", "Fowler", "Grant",  "Harper", "Holt",
    "Hunter", "Irving", "Keane", "Lark",   "Marsh",  "Mason",  "Mercer", "Mills",  "Nash",   "Parker", "Pike",
    "Porter", "Quinn",  "Reed",  "Rowe",   "Sawyer", "Shaw",   "Slater", "Swan",   "Tate",   "Thorne", "Turner",
    "Wade",   "Walsh",  "Ward",  "Webb",   "Winter", "Wren",   "York"};
constexpr std::string_view kCities[] = {
    "Athens",  "Bergen", "Boston",   "Bristol", "Cairo", "Cadiz",   "Cologne", "Cork",    "Delhi",     "Dover",
    "Dresden", "Dublin", "Florence", "Geneva",  "Ghent", "Glasgow", "Hamburg", "Havana",  "Lisbon",    "Lima",
    "London",  "Lyons",  "Madrid",   "Malta",   "Milan", "Moscow",  "Munich",  "Naples",  "Odessa",    "Oslo",
    "Oxford",  "Paris",  "Prague",   "Quebec",  "Riga",  "Rome",    "Salem",   "Seville", "Stockholm", "Tangier",
    "Tokyo",   "Toledo", "Trieste",  "Tunis",   "Turin", "Venice",  "Vienna",  "Warsaw",  "Zurich"};
constexpr std::string_view kThings[] = {
    "brass compass", "silver watch", "red umbrella", "leather trunk", "old violin",   "wax candle", "torn map",
    "blue vase",     "ivory comb",   "spare key",    "velvet hat",    "glass bead",   "iron box",   "wool blanket",
    "paper lantern", "copper coin",  "wooden flute", "clay pipe",     "straw basket", "ink bottle", "gold ring",
    "tin whistle",   "silk scarf",   "stone idol",   "green bottle",  "fishing rod",  "chess set"};
constexpr std::string_view kPlaces[] = {
    "attic",       "barn",       "cellar",     "chapel",    "garden shed", "greenhouse", "kitchen",    "library",
    "lighthouse",  "mill",       "pantry",     "stable",    "study",       "tower",      "well house", "boat house",
    "coach house", "wine vault", "music room", "east wing", "guard room",  "north gate"};

// Not std::uniform_int_distribution, whose results differ between standard libraries.
uint64_t below(std::mt19937_64& random, uint64_t n) {
  return random() % n;
}

template <size_t N>
std::string_view pick(std::mt19937_64& random, const std::string_view (&words)[N]) {
  return words[below(random, N)];
}

std::string hex_digits(std::mt19937_64& random) {
  return fmt::format("{:08x}", random() & 0xFFFFFFFF);
}

// Every draw is a statement of its own: compilers differ in the order in which they evaluate arguments.
std::string make_key(std::string_view kind, std::mt19937_64& random) {
  if (kind == "hex") return hex_digits(random);
  if (kind == "number") {
    const std::string_view noun = pick(random, kNouns), adjective = pick(random, kAdjectives);
    return fmt::format("{}-{}", adjective, noun);
  }
  if (kind == "multi") {
    const std::string_view noun = pick(random, kNouns), second = pick(random, kAdjectives),
                           first = pick(random, kAdjectives);
    return fmt::format("{}-{}-{}", first, second, noun);
  }
  if (kind == "sum") {
    const std::string_view noun = pick(random, kNouns), adjective = pick(random, kAdjectives);
    return fmt::format("{} {}", adjective, noun);
  }
  if (kind == "chain") {
    std::string name;
    for (int i = 0; i < 4; ++i) name += static_cast<char>('A' + below(random, 26));
    return name;
  }
  const std::string_view surname = pick(random, kSurnames), first_name = pick(random, kFirstNames);
  return fmt::format("{} {}", first_name, surname);
}

std::string fresh_key(std::string_view kind, std::mt19937_64& random, std::set<std::string>& used) {
  std::string key = make_key(kind, random);
  while (!used.insert(key).second) key = make_key(kind, random);
  return key;
}

Fact make_multi(const std::string& key, std::mt19937_64& random) {
  Fact fact{.sentences = {},
            .question = fmt::format("What are all the special magic numbers for {}?", key),
            .lead = fmt::format("The special magic numbers for {} are", key),
            .value = ""};
  const uint64_t count = 2 + below(random, 3);
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t number = 10000 + below(random, 90000);
    fact.sentences.push_back(fmt::format(" One of the special magic numbers for {} is {}.", key, number));
    fact.value += fmt::format("{} {}", i > 0 ? "," : "", number);
  }
  fact.value += ".";
  return fact;
}

Fact make_sum(const std::string& key, std::mt19937_64& random) {
  uint64_t total = 1 + below(random, 60);
  Fact fact{.sentences = {fmt::format(" The {} counter starts at {}.", key, total)},
            .question = fmt::format("What does the {} counter show?", key),
            .lead = fmt::format("The {} counter shows", key),
            .value = fmt::format(" {}", total)};
  const uint64_t count = 1 + below(random, 4);
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t step = 1 + below(random, 9);
    total += step;
    fact.sentences.push_back(fmt::format(" The {} counter goes up by {}.", key, step));
    fact.value += fmt::format(", plus {} is {}", step, total);
  }
  fact.value += ".";
  return fact;
}

Fact make_chain(const std::string& first, std::mt19937_64& random, std::set<std::string>& used) {
  const uint64_t value = 10000 + below(random, 90000);
  Fact fact{.sentences = {fmt::format(" VAR {} = {}.", first, value)},
            .question = "",
            .lead = "",
            .value = fmt::format(" = {}.", value)};
  std::string last = first;
  const uint64_t copies = 1 + below(random, 3);
  for (uint64_t i = 0; i < copies; ++i) {
    const std::string next = fresh_key("chain", random, used);
    fact.sentences.push_back(fmt::format(" VAR {} = VAR {}.", next, last));
    fact.value = fmt::format(" = VAR {}{}", last, fact.value);
    last = next;
  }
  fact.question = fmt::format("What is the value of VAR {}?", last);
  fact.lead = fmt::format("VAR {}", last);
  return fact;
}

}  // namespace

std::span<const std::string_view> fact_kinds() {
  return kKinds;
}

size_t fact_capacity(std::string_view kind) {
  if (kind == "number") return std::size(kAdjectives) * std::size(kNouns);
  if (kind == "hex") return size_t{1} << 32;
  if (kind == "multi") return std::size(kAdjectives) * std::size(kAdjectives) * std::size(kNouns);
  if (kind == "sum") return std::size(kAdjectives) * std::size(kNouns);
  if (kind == "chain")
    return size_t{26} * 26 * 26 * 26 / 8;  // four names each at most, and half of them left to draw from
  return std::size(kFirstNames) * std::size(kSurnames);
}

Fact make_fact(std::string_view kind, std::mt19937_64& random, std::set<std::string>& used) {
  const std::string key = fresh_key(kind, random, used);
  if (kind == "multi") return make_multi(key, random);
  if (kind == "sum") return make_sum(key, random);
  if (kind == "chain") return make_chain(key, random, used);
  if (kind == "number") {
    const uint64_t value = 1000000 + below(random, 9000000);
    return {{fmt::format(" The special magic number for {} is {}.", key, value)},
            fmt::format("What is the special magic number for {}?", key),
            fmt::format("The special magic number for {} is", key),
            fmt::format(" {}.", value)};
  }
  if (kind == "hex") {
    const std::string value = hex_digits(random);
    return {{fmt::format(" The record \"{}\" holds \"{}\".", key, value)},
            fmt::format("What does the record \"{}\" hold?", key),
            fmt::format("The record \"{}\" holds", key),
            fmt::format(" \"{}\".", value)};
  }
  if (kind == "lives") {
    const std::string_view city = pick(random, kCities);
    return {{fmt::format(" {} lives in {}.", key, city)},
            fmt::format("Where does {} live?", key),
            fmt::format("{} lives in", key),
            fmt::format(" {}.", city)};
  }
  GODWIT_CHECK(kind == "keeps");
  const std::string_view thing = pick(random, kThings), place = pick(random, kPlaces);
  return {{fmt::format(" {} keeps the {} in the {}.", key, thing, place)},
          fmt::format("What does {} keep, and where?", key),
          fmt::format("{} keeps", key),
          fmt::format(" the {} in the {}.", thing, place)};
}

}  // namespace godwit
