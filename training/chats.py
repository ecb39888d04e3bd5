"""Short chats: facts that the user tells and asks for, things that were never said, and small talk.

Every reply is a function of what was said, so that a reply can be graded word by word. `held` draws the phrasings that
training never sees.
"""
from facts import DONT_KNOW, SINGLE, make_fact
from words import (ADJECTIVES, ANIMALS, COLOURS, DAYS, DEEDS, EVENTS, FOODS, FRUITS, JOBS, LANGUAGES, LOCKS, NOUNS, PETS,
                   PLACES, RELATIVES, ROLES, THINGS, WHERE, city, clock_time, first_name, pseudo_word)

NOTED = "I will remember that."
WELCOME = "Hello! Give me a text and ask me about it."
SYSTEM = ["You are a helpful assistant.", "You are a helpful assistant. Answer briefly.", "Answer the user's questions.",
          "You answer questions about texts.", "Be brief and exact."]

# reply -> what the user says; the last of each list is held out of training.
SMALL_TALK = {
    WELCOME: ["Hello.", "Hello!", "Hi", "Hi!", "Hi there!", "Hey", "Hey there.", "Good morning.", "Good evening!",
              "Good day.", "Hello there", "hello", "Hello, how do you do?", "Greetings.", "Hi there"],
    "I am a small test model built into Godwit. I find facts in long texts.": [
        "Who are you?", "What are you?", "What is your name?", "Tell me about yourself.", "Introduce yourself.",
        "What kind of model are you?", "Which model is this?", "Who am I talking to?", "What's your name?",
        "Do you have a name?", "Hello, who are you?", "Hi, what are you?", "Please introduce yourself.",
        "Can you tell me who you are?"],
    "Give me a long text and ask about a fact in it. I will look it up.": [
        "What can you do?", "How can you help me?", "What are you good for?", "What are you good at?", "Help",
        "What should I ask you?", "How do I use you?", "Can you help me?", "What do you do?", "How does this work?",
        "What is it that you can do?"],
    "No, I am a small language model.": [
        "Are you human?", "Are you a person?", "Are you a real person?", "Are you alive?", "Do you have feelings?",
        "Are you a man or a woman?", "Is there a human behind this?", "Are you a human being?"],
    "I have 30 million parameters.": [
        "How big are you?", "How many parameters do you have?", "What is your size?", "How large are you?",
        "How many parameters have you got?"],
    "I can read up to 131,072 tokens.": [
        "How much text can you read?", "How long is your context?", "What is your context length?",
        "How long a text can you read?", "How many tokens can you read?", "What is the longest text you can read?"],
    "The people who write Godwit made me.": [
        "Who made you?", "Who built you?", "Who created you?", "Who trained you?", "Where do you come from?",
        "Who is your maker?"],
    "Godwit is an engine for language models with long contexts.": [
        "What is Godwit?", "What's Godwit?", "Tell me about Godwit.", "What does Godwit do?", "Explain Godwit.",
        "Can you tell me what Godwit is?"],
    "I am well, thank you.": [
        "How are you?", "How are you today?", "How r u?", "how are u", "How do you feel?", "How is it going?", "Are you well?",
        "How are you doing?"],
    "I am too small for that. I find facts in long texts.": [
        "Tell me a joke.", "Write a poem.", "Write me a story.", "Translate this into French.", "Write some code.",
        "Sing a song.", "Write an essay about history.", "Play a game with me.", "Draw a picture.",
        "Explain quantum physics.", "Write a poem about the sea.", "Tell me a story about a king.",
        "Give me some advice.", "Summarize this.", "Summarize the text.", "Write a summary.", "Write a letter to my aunt.", "Make up a joke."],
    "You are welcome.": ["Thanks.", "Thank you.", "Thanks!", "Thank you very much.", "Great, thanks.", "Thanks a lot.",
                         "Thank you so much!", "Thank you, that helps.", "thx", "Good, thanks!", "Many thanks."],
    "Goodbye.": ["Bye.", "Goodbye.", "See you.", "Goodbye!", "Bye!", "That is all.", "See you later.", "Farewell.",
                 "Good night.", "Bye bye."],
    "Then ask me something about it.": ["I have a text for you.", "I want to ask about a book.", "I have a question.",
                                        "May I ask you something?", "I would like to ask you something.",
                                        "I have a long document."],
}
UNKNOWABLE = [
    "What is the capital of France?", "Who wrote Hamlet?", "What is the weather today?", "What time is it?",
    "Who is the king of England?", "How far is the moon?", "What day is it?", "Who won the war?", "What is the news?",
    "How old is the earth?", "Who invented the telephone?", "What is the highest mountain?", "When was Rome founded?",
    "What is the population of China?", "Who painted the Mona Lisa?", "How tall is the Eiffel Tower?",
    "Why is the sky blue?", "What do you think of him?", "Where is my hat?", "What did I say yesterday?"]


def _favourite(r):
    pools = {"colour": COLOURS, "fruit": FRUITS, "animal": ANIMALS, "food": FOODS, "day": DAYS}
    thing = r.choice(list(pools))
    return thing, r.choice(pools[thing])


# Each returns (key, statements, questions, answer, follow-up or None); the last question is held out of training.
def _name(r):
    v = first_name(r)
    return "name", [f"My name is {v}.", f"I am called {v}.", f"I am {v}.", f"Hello, I'm {v}.", f"You can call me {v}."], \
        ["What is my name?", "What's my name?", "Do you remember my name?", "Who am I?", "What am I called?",
         "Can you tell me my name?"], f"Your name is {v}.", None

def _home(r):
    v = city(r)
    return "home", [f"I live in {v}.", f"My home is in {v}.", f"I am from {v}."], \
        ["Where do I live?", "Which town do I live in?", "Where is my home?", "Where am I from?",
         "Do you know where I live?"], f"You live in {v}.", None

def _pet(r):
    p, v = r.choice(PETS), first_name(r)
    return f"pet {p}", [f"My {p} is called {v}.", f"I have a {p} called {v}.", f"My {p}'s name is {v}."], \
        [f"What is my {p} called?", f"What is the name of my {p}?", f"What is my {p}'s name?",
         f"Do you know my {p}'s name?"], f"Your {p} is called {v}.", None

def _relative(r):
    p, v = r.choice(RELATIVES), first_name(r)
    return f"relative {p}", [f"My {p} is called {v}.", f"My {p}'s name is {v}.", f"{v} is my {p}."], \
        [f"What is my {p} called?", f"What is my {p}'s name?", f"Who is my {p}?", f"Do you know my {p}'s name?"], \
        f"Your {p} is called {v}.", None

def _likes_best(r):
    t, v = _favourite(r)
    return f"favourite {t}", [f"My favourite {t} is {v}.", f"{v.capitalize()} is my favourite {t}."], \
        [f"What is my favourite {t}?", f"Which {t} do I like best?", f"What {t} do I like best?",
         f"Do you know my favourite {t}?"], f"Your favourite {t} is {v}.", None

def _job(r):
    v = r.choice(JOBS)
    return "job", [f"I work as a {v}.", f"I am a {v}.", f"I am a {v} by trade."], \
        ["What is my job?", "What do I do for a living?", "What do I work as?", "What is my trade?"], \
        f"You work as a {v}.", None

def _born(r):
    v = r.randint(1900, 2020)
    return "born", [f"I was born in {v}.", f"My birth year is {v}."], \
        ["When was I born?", "In which year was I born?", "What year was I born in?"], f"You were born in {v}.", None

def _code(r):
    t, v = r.choice(LOCKS), r.randint(100, 999999)
    return f"code {t}", [f"The {t} code is {v}.", f"The code for the {t} is {v}.", f"Please remember that the {t} code is {v}."], \
        [f"What is the {t} code?", f"What is the code for the {t}?", f"Which code opens the {t}?",
         f"Tell me the {t} code."], f"The {t} code is {v}.", None

def _meet(r):
    d, p = r.choice(DAYS), r.choice(PLACES)
    said = [f"We meet on {d} at the {p}.", f"Our meeting is on {d} at the {p}."]
    if r.random() < 0.5:
        return "meet", said, ["When do we meet?", "On which day do we meet?", "When is our meeting?"], f"You meet on {d}.", None
    return "meet", said, ["Where do we meet?", "Where is our meeting?", "At which place do we meet?"], f"You meet at the {p}.", None

def _left(r):
    o, p = r.choice(THINGS), r.choice(PLACES)
    return f"left {o}", [f"I left my {o} in the {p}.", f"I put the {o} in the {p}.", f"The {o} is in the {p}."], \
        [f"Where is the {o}?", f"Where did I leave my {o}?", f"Where did I put the {o}?", f"Where can I find my {o}?"], \
        f"The {o} is in the {p}.", None

def _price(r):
    o, v = r.choice(THINGS), r.randint(2, 999)
    return f"price {o}", [f"The {o} costs {v} crowns.", f"The price of the {o} is {v} crowns."], \
        [f"How much does the {o} cost?", f"What does the {o} cost?", f"What is the price of the {o}?"], \
        f"The {o} costs {v} crowns.", None

def _lives(r):
    n, v = first_name(r), city(r)
    return f"lives {n}", [f"{n} lives in {v}."], [f"Where does {n} live?", f"In which town does {n} live?",
                                                   f"Which town does {n} live in?"], f"{n} lives in {v}.", n

def _works(r):
    n, v = first_name(r), r.choice(JOBS)
    return f"works {n}", [f"{n} works as a {v}.", f"{n} is a {v}."], \
        [f"What does {n} work as?", f"What is {n}'s job?", f"What does {n} do for a living?"], f"{n} works as a {v}.", n

def _likes(r):
    n, v = first_name(r), r.choice(FOODS + FRUITS)
    return f"likes {n}", [f"{n} likes {v}."], [f"What does {n} like?", f"What does {n} like to eat?",
                                                f"Which food does {n} like?"], f"{n} likes {v}.", n

def _age(r):
    n, v = first_name(r), r.randint(2, 99)
    return f"age {n}", [f"{n} is {v} years old.", f"{n} is aged {v}."], [f"How old is {n}?", f"What age is {n}?",
                                                                          f"What is the age of {n}?"], f"{n} is {v} years old.", n

def _planted(r):
    f = make_fact(r, r.choice(SINGLE), set())
    return f.question, f.sentences, [f.question] * 2, f.lead + f.value, None


# key, statements, then for each thing to ask its questions and its answer.
OPEN = [
    ("born {n}", ["{n} was born in {c} in {y}.", "{n} was born in {y} in {c}.", "In {y}, {n} was born in {c}."],
     (["When was {n} born?", "In which year was {n} born?", "What year was {n} born in?"], "{n} was born in {y}."),
     (["Where was {n} born?", "In which town was {n} born?", "Which town was {n} born in?"], "{n} was born in {c}.")),
    ("owner {a} {j}", ["The {a} {j} belongs to {n}.", "{n} owns the {a} {j}."],
     (["Who owns the {a} {j}?", "Whose is the {a} {j}?", "To whom does the {a} {j} belong?"], "{n} owns the {a} {j}.")),
    ("place {j}", ["The {j} is {in} the {p}.", "The {j} is hidden {in} the {p}.", "The {j} stands {in} the {p}.",
                   "The {j} was found {in} the {p}."],
     (["Where is the {j}?", "Where can I find the {j}?", "Do you know where the {j} is?"], "The {j} is {in} the {p}.")),
    ("place {b} {j}", ["The {b} {j} is {in} the {a} {i}.", "The {b} {j} is buried {in} the {a} {i}."],
     (["Where is the {b} {j}?", "Where do I find the {b} {j}?", "Where would the {b} {j} be?"],
      "The {b} {j} is {in} the {a} {i}.")),
    ("count {n} {j}", ["{n} has {k} {j}s."],
     (["How many {j}s does {n} have?", "How many {j}s has {n}?", "What is the number of {j}s that {n} has?"], "{n} has {k} {j}s.")),
    ("capital {w}", ["{c} is the capital of {w}.", "The capital of {w} is {c}."],
     (["What is the capital of {w}?", "Which town is the capital of {w}?", "What is {w}'s capital?"], "The capital of {w} is {c}.")),
    ("event {e}", ["The {e} is at {t} in the {p}.", "The {e} takes place in the {p} at {t}.", "The {e} is in the {p} at {t}."],
     (["Where is the {e}?", "Where does the {e} take place?", "In which place is the {e}?"], "The {e} is in the {p}."),
     (["When is the {e}?", "At what time is the {e}?", "When does the {e} take place?"], "The {e} is at {t}.")),
    ("event {e}", ["The {e} is on {d}.", "We have a {e} on {d}."],
     (["When is the {e}?", "On which day is the {e}?", "What day is the {e}?"], "The {e} is on {d}.")),
    ("colour {j}", ["The {j} is {f}.", "The colour of the {j} is {f}."],
     (["What colour is the {j}?", "What is the colour of the {j}?", "Which colour does the {j} have?"], "The {j} is {f}.")),
    ("gift {o}", ["{n} gave the {o} to {m}.", "{n} sent the {o} to {m}.", "{n} gave {m} the {o}."],
     (["Who got the {o}?", "To whom did {n} give the {o}?", "Who did {n} give the {o} to?"], "{m} got the {o}."),
     (["Who gave the {o} to {m}?", "From whom did {m} get the {o}?", "Who gave {m} the {o}?"], "{n} gave the {o} to {m}.")),
    ("deed {j}", ["{n} {did} the {j}.", "{n} {did} the {j} on {d}."],
     (["Who {did} the {j}?", "Who was it that {did} the {j}?", "Do you know who {did} the {j}?"], "{n} {did} the {j}."),
     (["What did {n} {do}?", "Tell me what {n} {did}.", "Which thing did {n} {do}?"], "{n} {did} the {j}.")),
    ("travel {n}", ["{n} travels to {c} on {d}.", "On {d}, {n} travels to {c}."],
     (["Where does {n} travel?", "Where does {n} go?", "Which town does {n} travel to?"], "{n} travels to {c}."),
     (["When does {n} travel?", "On which day does {n} travel?", "What day does {n} leave?"], "{n} travels on {d}.")),
    ("speaks {n}", ["{n} speaks {l}.", "The language of {n} is {l}."],
     (["What does {n} speak?", "Which language does {n} speak?", "What language does {n} speak?"], "{n} speaks {l}.")),
    ("password", ["My password is {w}{k}.", "The password is {w}{k}.", "The password is {w}."],
     (["What is the password?", "What is my password?", "Tell me the password."], None)),
    ("telephone", ["My phone number is {x}.", "My telephone number is {x}."],
     (["What is my phone number?", "What is my telephone number?", "What's my number?"], "Your phone number is {x}.")),
    ("train {c}", ["The train to {c} leaves at {t}.", "At {t} the train to {c} leaves."],
     (["When does the train to {c} leave?", "At what time does the train to {c} leave?", "When is the train to {c}?"],
      "The train to {c} leaves at {t}.")),
    ("married {n}", ["{n} is married to {m}.", "{n} married {m} in {y}."],
     (["Who is {n} married to?", "Who did {n} marry?", "To whom is {n} married?"], "{n} is married to {m}.")),
    ("role {q} {w}", ["{n} is the {q} of {w}.", "The {q} of {w} is {n}."],
     (["Who is the {q} of {w}?", "What is the name of the {q} of {w}?", "Do you know the {q} of {w}?"], "The {q} of {w} is {n}.")),
    ("my likes", ["I like {g}.", "I like to eat {g}."],
     (["What do I like?", "What do I like to eat?", "Which food do I like?"], "You like {g}.")),
    ("number {j}", ["The {j} has number {k}.", "The number of the {j} is {k}."],
     (["What number has the {j}?", "What is the number of the {j}?", "Which number does the {j} have?"], "The number of the {j} is {k}.")),
]


def _open(r):
    past, present = r.choice(DEEDS).split("/")
    i, j = r.sample(NOUNS, 2)
    n = first_name(r)
    while (m := first_name(r)) == n: pass
    slots = {"n": n, "m": m, "c": city(r), "y": r.randint(1500, 2025), "a": r.choice(ADJECTIVES), "b": r.choice(ADJECTIVES),
             "i": i, "j": j, "p": r.choice(PLACES), "in": r.choice(WHERE), "k": r.randint(2, 999), "x": r.randint(10 ** 5, 10 ** 7),
             "w": pseudo_word(r).capitalize(), "e": r.choice(EVENTS), "t": clock_time(r), "d": r.choice(DAYS),
             "f": r.choice(COLOURS), "o": r.choice(THINGS), "did": past, "do": present, "l": r.choice(LANGUAGES),
             "q": r.choice(ROLES), "g": r.choice(FOODS + FRUITS)}
    if r.random() < 0.3: slots["n"] = r.choice(("Mr. ", "Mrs. ", "Dr. ", "Captain ")) + pseudo_word(r).capitalize()
    key, said, *asked = r.choice(OPEN)
    questions, answer = r.choice(asked)
    statement = r.choice(said).format(**slots)
    answer = statement.replace("My", "Your", 1) if answer is None else answer.format(**slots)
    return key.format(**slots), [statement], [q.format(**slots) for q in questions], answer, None


ABOUT_USER = [_name, _home, _pet, _relative, _likes_best, _job, _born, _code, _meet, _left, _price]
ABOUT_OTHERS = [_lives, _works, _likes, _age, _planted] + [_open] * 8


def _question(r, questions, held):
    return questions[-1] if held else r.choice(questions[:-1])


def _rough(r, text):
    """What people type: no capital, no question mark, an extra word."""
    if r.random() < 0.8: return text
    if r.random() < 0.4: text = text[0].lower() + text[1:]
    if r.random() < 0.4: text = text.rstrip(".?!")
    if r.random() < 0.2: text = r.choice(("So, ", "Now, ", "OK. ", "Please tell me: ", "Question: ")) + text
    return text


def small_talk(r, held=False):
    if r.random() < 0.1:
        a, b = r.randint(1, 12), r.randint(1, 12)
        ask = ("How much is {} and {}?",) if held else ("What is {} plus {}?", "How much is {} plus {}?", "{} + {}?", "What is {} + {}?")
        return r.choice(ask).format(a, b), f"{a} plus {b} is {a + b}."
    reply, said = r.choice(list(SMALL_TALK.items()))
    return (said[-1] if held else _rough(r, r.choice(said[:-1]))), reply


def make_chat(r, prose=None, held=False):
    """A list of (role, text, kind). The kind is None for what the user says, 'talk', 'noted', 'fact' or 'unknown' for a
    reply. `prose` is text to lay between the facts and the questions."""
    turns = []
    say = lambda text: turns.append(("user", text, None))
    reply = lambda text, kind: turns.append(("assistant", text, kind))
    if r.random() < 0.25: turns.append(("system", r.choice(SYSTEM), None))
    if r.random() < 0.25 or prose is None and r.random() < 0.15:
        for _ in range(r.randint(1, 2)):
            text, answer = small_talk(r, held)
            say(text); reply(answer, "talk")
        if r.random() < 0.5: return turns
    if r.random() < 0.06:
        say(_rough(r, r.choice(UNKNOWABLE))); reply(DONT_KNOW, "unknown")
        return turns
    makers, facts, keys = r.choice((ABOUT_USER, ABOUT_OTHERS, ABOUT_USER + ABOUT_OTHERS)), [], set()
    for _ in range(r.choice((1, 1, 1, 2, 2, 3, 4, 6))):
        f = r.choice(makers)(r)
        if f[0] not in keys: keys.add(f[0]); facts.append(f)
    hidden = facts.pop() if len(facts) > 1 and r.random() < 0.45 or r.random() < 0.1 else None
    stated = [(f, r.choice(f[1])) for f in facts]
    together = r.random() < 0.5
    pending = ""
    if together:
        pending = " ".join(s for _, s in stated)
    else:
        for f, s in stated:
            say(s); reply(f"Nice to meet you, {f[3][13:]}" if f[0] == "name" else NOTED, "noted")
    if prose is not None:
        pending = "\n\n".join(p for p in ((pending, prose) if r.random() < 0.5 else (prose, pending)) if p)
    if pending and r.random() < 0.3:
        say(pending); reply(NOTED, "noted")
        pending = ""
    asked = [(f, "fact") for f in facts] + ([(hidden, "unknown")] if hidden else [])
    r.shuffle(asked)
    previous = None
    for f, kind in asked[:r.randint(1, 4)]:
        q = _rough(r, _question(r, f[2], held))
        if previous and f[4] and previous[:5] == f[0][:5] and r.random() < 0.5: q = f"And {f[4]}?"
        gap = r.choice((" ", "\n\n")) if prose is None else "\n\n"
        say(pending + gap + q if pending else q)
        pending = ""
        reply(f[3] if kind == "fact" else DONT_KNOW, kind)
        previous = f[0] if f[4] and kind == "fact" else None
    if r.random() < 0.1:
        said = r.choice(("You are welcome.", "Goodbye."))
        say(r.choice(SMALL_TALK[said][:-1])); reply(said, "talk")
    return turns
