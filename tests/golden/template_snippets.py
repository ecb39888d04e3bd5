"""Small templates whose results under jinja2 are goldens: one construct each. See make_template_data.py.

A line is an expression; an item with "{%" or "{{" in it is a whole template.
"""

CONTEXT = {
    "s": "Hello, World",
    "text": "  one two  three \n",
    "uni": "Grüße, 世界! 🌍",
    "n": 42,
    "neg": -7,
    "f": 3.5,
    "big": 12345678901234567890,
    "yes": True,
    "no": False,
    "nil": None,
    "empty": "",
    "xs": [3, 1, 2],
    "words": ["banana", "apple", "Cherry", "apple"],
    "nested": [[1, 2], [3, 4]],
    "d": {"b": 1, "a": 2, "C": 3},
    "deep": {"x": {"y": [10, 20, {"z": "found"}]}, "items": "shadowed", "keys": 5},
    "users": [
        {"name": "Ann", "age": 31, "tags": ["x", "y"], "active": True},
        {"name": "bob", "age": 25, "tags": [], "active": False},
        {"name": "Cy", "age": 31, "tags": ["y"]},
    ],
    "html": "<a href=\"x\">'&'</a>",
    "lines": "first\nsecond\n\nlast",
    "quote": "it's",
    "dquote": 'say "hi"',
    "both": "it's \"both\"",
    "ctrl": "tab\there\x01\x7f\u200b",
    "floats": [1.0, 0.1, 1e20, 1e-7, 123456789.125, 1e16, 1e15, -0.0, 2.5e-5, 0.0001],
}

EXPRESSIONS = r"""
1
-1
+5
--3
1 + 2 * 3
(1 + 2) * 3
7 / 2
8 / 2
7 // 2
-7 // 2
7 // -2
7 % 3
-7 % 3
7 % -3
-7.5 % 2
7.5 // 2
-7.5 // 2
2 ** 10
2 ** -1
2 ** 0.5
-2 ** 2
2 ** 3 ** 2
1 / 0
1 // 0
1 % 0
1.5 + 1
0.1 + 0.2
1e3
1e20
1e16
1e15
1.5e-7
123456789012345678901
big
big + 1
-big
1_000
0x1F
0b101
0o17
1.0
100.0
1e100
floats
floats|join(' ')
true
True
false
none
None
[true, False, none]
not true
not 0
not ''
not undefined_name
1 < 2 < 3
1 < 2 > 3
1 == 1.0
1 == true
'a' < 'b'
'a' == "a"
[1, 2] == [1, 2]
[1, 2] == (1, 2)
(1, 2) < (1, 3)
[1, 2] < [1]
{'a': 1} == {'a': 1.0}
{'a': 1, 'b': 2} == {'b': 2, 'a': 1}
1 < 'a'
'a' < 1
none < 1
none == none
nil == undefined_name
undefined_name == undefined_name
undefined_name == other_undefined
undefined_name != 1
undefined_name < 1
1 <= 1.0
2 >= 3
1 != 2
'ell' in s
'xyz' in s
'xyz' not in s
1 in xs
9 not in xs
'a' in d
'z' in d
not 'z' in d
1 in 'abc'
'a' in 5
'a' in none
'a' in undefined_name
yes and no
yes and 'x'
'' or 'fallback'
0 or none
1 or 2
no or no or 'c'
yes and not no
not yes or yes
'a' if yes else 'b'
'a' if no else 'b'
'a' if no
('a' if no) is defined
'a' if yes else 'b' if no else 'c'
('x' if no else 'y') ~ 'z'
1 ~ 2 ~ 'c' ~ none ~ true ~ 1.5
'a' ~ 'b' + 'c'
1 + 2 ~ 3
'a' 'b' "c"
'a' + 'b'
'a' + 1
1 + 'a'
'ab' * 3
3 * 'ab'
'ab' * -1
[1, 2] * 2
[1] + [2]
(1,) + (2,)
[1] + (2,)
[] + []
()
(1,)
(1, 2, 3)
1, 2
[]
{}
{'a': 1, 'b': [1, 2]}
{1: 'one', none: 'nil', true: 'yes'}
{'a': 1, 'a': 2}
[1, 'a', 2.5, none, true, [1], {'k': 'v'}, (1,)]
['it\'s', "say \"hi\"", 'new\nline', 'tab\t', 'back\\slash']
[quote, dquote, both, ctrl]
[uni]
'\x41\u00e9\n\t\\'
'\q'
'\101'
"\u4e16\U0001F30D"
'a\
b'
s[0]
s[-1]
s[100]
s[100] is defined
s[1:4]
s[:5]
s[-5:]
s[::-1]
s[::2]
s[5:1:-1]
s[10:2]
s[:-7]
uni[0:6]
uni[-1]
uni[::-1]
uni|length
uni|upper
uni|lower
uni[7]
xs[0]
xs[-1]
xs[5]
xs[1:]
xs[::-1]
xs[-2:]
xs[:0]
xs[::0]
xs['a']
xs[0.5]
xs[true]
(1, 2, 3)[1:]
d['a']
d.a
d['zz']
d.zz
d.zz.yy
d['zz']['yy']
d.zz is defined
d[0] is defined
deep.x.y[2].z
deep['x']['y'][0]
deep.x.y.1
deep.items is defined
deep.items is string
deep['items']
deep.keys is callable
deep.keys()|list
nil.foo
nil.foo is defined
nil.foo.bar
n.foo is defined
undefined_name
undefined_name is defined
undefined_name.foo
undefined_name['foo']
undefined_name()
undefined_name + 1
undefined_name|length
undefined_name|list
undefined_name|join
undefined_name|upper
undefined_name|string
[undefined_name]
undefined_name is none
undefined_name is string
undefined_name is iterable
undefined_name is sequence
undefined_name is mapping
undefined_name is number
-undefined_name
n is defined
n is undefined
n is number
f is number
yes is number
s is number
n is integer
yes is integer
f is integer
f is float
n is float
s is string
n is string
d is mapping
xs is mapping
xs is iterable
s is iterable
d is iterable
n is iterable
nil is iterable
xs is sequence
s is sequence
d is sequence
n is sequence
nil is none
s is none
yes is boolean
n is boolean
yes is true
no is false
1 is true
nil is false
n is even
n is odd
neg is odd
n is divisibleby 2
n is divisibleby(5)
n is eq 42
n is equalto(42)
n is ne 42
n is gt 41
n is ge 42
n is lt 42
n is le 42
n is greaterthan 1
n is lessthan 1
n is in [1, 42]
'a' is in 'abc'
n is not in [1]
n is not none
s is not string
n is sameas 42
nil is sameas none
'ABC' is upper
'abc' is lower
'aBc' is lower
range is callable
s is callable
'upper' is filter
'nope' is filter
'odd' is test
n is nosuchtest
n is even and n is number
n is even or false
not n is even
n is not even
s|upper
s|lower
s|title
'hello wORLD-foo (bar'|title
s|capitalize
'hELLO'|capitalize
''|capitalize
text|trim
text|trim ~ '|'
'xxaxx'|trim('x')
'  a '|trim(none)
n|trim
s|length
xs|length
d|length
n|length
nil|length
xs|count
xs|join
xs|join(', ')
words|join('-')
[1, none, true, 2.5]|join('|')
users|join(', ', attribute='name')
s|join('.')
xs|first
xs|last
[]|first
[]|first is defined
''|last
s|first
s|last
d|first
undefined_name|default('dflt')
undefined_name|default
nil|default('x')
nil|default('x', true)
''|default('x', true)
''|default('x', boolean=true)
''|d('x')
0|default(5, true)
s|list
d|list
xs|list
(1, 2)|list
n|list
words|sort
words|sort(case_sensitive=true)
words|sort(reverse=true)
xs|sort
[1, 'a']|sort
users|sort(attribute='age')|map(attribute='name')|list
users|sort(attribute='age,name', reverse=true)|map(attribute='name')|list
words|unique|list
words|unique(true)|list
users|unique(attribute='age')|map(attribute='name')|list
xs|reverse|list
s|reverse
d|items|list
undefined_name|items|list
xs|items|list
d|dictsort
d|dictsort(true)
d|dictsort(by='value')
d|dictsort(reverse=true)
d|dictsort(false, 'bad')
xs|sum
users|sum(attribute='age')
[0.5, 1]|sum
[]|sum
['a']|sum
[[1], [2]]|sum(start=[])
xs|min
xs|max
words|min
words|max
[]|max
users|max(attribute='age')|string|length
words|map('upper')|list
words|map('length')|list
words|map('replace', 'a', 'A')|join(' ')
users|map(attribute='name')|list
users|map(attribute='active')|list
users|map(attribute='active', default='?')|list
users|map(attribute='tags.0', default='-')|list
users|map('nofilter')|list
words|map|list
xs|select('odd')|list
xs|reject('odd')|list
xs|select('gt', 1)|list
xs|reject('equalto', 3)|list
[0, 1, '', 'a', none]|select|list
[0, 1, '', 'a', none]|reject|list
users|selectattr('active')|map(attribute='name')|list
users|rejectattr('active')|map(attribute='name')|list
users|selectattr('age', 'equalto', 31)|map(attribute='name')|list
users|selectattr('age', '==', 31)|map(attribute='name')|list
users|selectattr('active', 'defined')|map(attribute='name')|list
users|rejectattr('name', 'in', ['Ann', 'Cy'])|map(attribute='name')|list
users|selectattr('name', 'nosuch')|list
xs|select('odd')|first
xs|select('odd')|length
xs|batch(2)|list
xs|batch(2, 'x')|list
users|groupby('age')|length
users|groupby('age')|map(attribute='grouper')|list
users|groupby('age')|map('last')|map('length')|list
s|replace('l', 'L')
s|replace('l', 'L', 2)
s|replace('', '-')
n|replace(4, 5)
s|wordcount
lines|indent
lines|indent(2)
lines|indent(2, true)
lines|indent(2, first=true, blank=true)
lines|indent('> ')
n|indent
'42'|int
'42.7'|int
'x'|int
'x'|int(-1)
'0x1f'|int(base=16)
'1f'|int(0, 16)
' 12 '|int
'1_000'|int
3.99|int
-3.99|int
true|int
none|int
[]|int
'3.14'|float
'x'|float
'x'|float(1.5)
'1e5'|float
'inf'|float
'-Infinity'|float
'nan'|float
1|float
3.14159|round(2)
2.5|round
3.5|round
-2.5|round
42|round
42.55|round(1, 'floor')
42.55|round(1, 'ceil')
1234.5|round(-2)
2.675|round(2)
3.7|round|int
neg|abs
-1.5|abs
'a'|abs
n|string
f|string ~ 'x'
nil|string
xs|string
html|e
html|escape
html|safe
'<b>'|safe + '<i>'
'<i>' + '<b>'|safe
'<b>'|safe ~ '<i>'
'<b>'|safe|upper + '&'
'%s is %d years'|format('Bob', 42)
'%05.2f|%5s|%-5s|%x'|format(3.14159, 'ab', 'cd', 255)
'%(a)s-%(b)s'|format(a=1, b='x')
'%s' % 'x'
'%s %s' % ('a', 1)
'%d%%' % 50
'%s' % none
'%d' % 'a'
'%s %s' % 'a'
'%r' % 'a'
'{} {}'.format('a', 1)
'{0} {1} {0}'.format('a', 'b')
'{x}-{y}'.format(x=1, y=2)
'{:>5}|{:<5}|{:^5}'.format('a', 'b', 'c')
'{:.2f} {:d} {:x} {:05d}'.format(3.14159, 42, 255, 7)
'{:,}'.format(1234567)
'{{}}'.format()
'{}'.format()
d|tojson
deep|tojson
users|tojson
[1, 1.0, 1e20, true, none, 'a']|tojson
(1, 2)|tojson
uni|tojson
uni|tojson(ensure_ascii=true)
html|tojson
ctrl|tojson
'\\ " / \b \f \n'|tojson
d|tojson(indent=2)
users|tojson(indent=4)
[]|tojson(indent=2)
{}|tojson(indent=2)
[[], {}]|tojson(indent=1)
d|tojson(sort_keys=true)
d|tojson(separators=(',', ':'))
d|tojson(indent=2, separators=(',', ' = '))
d|tojson(indent='\t')
{1: 2, none: 3, true: 4, 1.5: 5}|tojson
undefined_name|tojson
[undefined_name]|tojson
range(3)|tojson
xs|map('string')|tojson
floats|tojson
range(5)|list
range(2, 5)|list
range(10, 0, -3)|list
range(0)|list
range(3)
range(1, 10, 2)
range(5)[1]
range(5)|length
range(5)|last
range(1.5)
range('a')
range(0, 5, 0)
range(1000000)
dict(a=1, b=2)
dict([('a', 1)])
dict(d, z=9)
namespace(a=1).a
namespace(a=1).b is defined
namespace({'a': 5}).a
raise_exception('custom message')
strftime_now('%Y-%m-%d')
strftime_now('%d %b %Y')
strftime_now('%A, %B %d, %H:%M:%S %p %j %y %I')
strftime_now('%-d/%-m %e')
s.upper()
s.lower()
s.title()
"they're bill's".title()
s.capitalize()
s.swapcase()
text.strip()
text.lstrip()
text.rstrip() ~ '|'
'xxhixx'.strip('x')
'abcba'.strip('ab')
'\n\na'.lstrip('\n')
'a\n '.rstrip()
'世界a世'.strip('世')
s.split(', ')
s.split()
text.split()
text.split(' ')
'a,b,c'.split(',', 1)
'a,b,c'.rsplit(',', 1)
'a b  c '.split(none, 1)
'a b  c '.rsplit(none, 1)
'a,b'.split('')
''.split()
''.split(',')
'<think>x</think>y'.split('</think>')[-1]
'<think>x</think>y'.split('</think>')[0].split('<think>')[-1]
lines.splitlines()
lines.splitlines(true)
'a\r\nb\rc'.splitlines()
s.startswith('Hell')
s.startswith(('x', 'H'))
s.startswith('World', 7)
s.endswith('World')
s.endswith('x')
s.startswith(1)
s.replace('l', 'L')
s.replace('l', 'L', 1)
s.replace('l')
', '.join(words)
''.join([])
','.join([1, 2])
'-'.join('abc')
s.find('o')
s.find('zz')
s.rfind('o')
s.find('o', 5)
uni.find('界')
s.index('W')
s.index('zz')
s.count('l')
s.count('')
'aaa'.count('aa')
'prefix-x'.removeprefix('prefix-')
'x.txt'.removesuffix('.txt')
'a-b-c'.partition('-')
'a-b-c'.rpartition('-')
'abc'.partition('x')
'123'.isdigit()
'12a'.isdigit()
''.isdigit()
'abc'.isalpha()
'ab1'.isalnum()
'  '.isspace()
'ABC'.isupper()
'ABc1'.isupper()
'abc'.islower()
'7'.zfill(3)
'-7'.zfill(4)
'ab'.ljust(4) ~ '|'
'ab'.rjust(4, '*')
'ab'.center(5, '*')
'abc'.nomethod()
'abc'.nomethod is defined
'straße'.upper()
'ΑΒΓΣ'.lower()
'ЖУК'.lower()
'éa'.capitalize()
d.items()|list
d.keys()|list
d.values()|list
d.items()
d.keys()
d.get('a')
d.get('zz')
d.get('zz', 'dflt')
d.get('zz') is none
d.get('zz').foo
d.items()|length
d.copy()
xs.index(1)
xs.index(99)
xs.count(3)
(1, 2, 1).count(1)
xs.nomethod()
[1, 2][0](3)
s()
n|nosuchfilter
s|upper|lower|title
s|upper()|length
(s|length) + 1
s|length + 1
-xs|length
xs|length == 3
xs|length > 2 and s|length > 2
xs|length is odd
'abc'|upper ~ 'x'|upper
users[0].name
users[0]['tags'][0]
users[-1].name
users[1].tags|length
users|length - 1
users[users|length - 1].name
users[0:2]|map(attribute='name')|join(',')
users|last|attr('name') is defined
(users|first).name
not users[5] is defined
'role' in {'role': 1}
{'a': {'b': 1}}['a']['b']
{'a': [1, 2, {'b': 'c'}]}.a[2].b
xs[n - 42]
xs[xs[1]]
d[['a'][0]]
'a' ~ {'x': 1} ~ [1]
''.join(['a', 'b'])|upper
(('a', 1), ('b', 2))|list
[[1, 2], [3, 4]]|map('first')|list
nested|map('sum')|list
nested|sum(start=[])
lines|length
1 if 0 else 2 if 0 else 3
(1 if 1) + 1
xs is defined and xs|length > 0 and xs[0] == 3
none is defined
loop is defined
1 +
(1
[1, 2
'abc
{'a' 1}
1 2
a b
if
| upper
x |
x is
@
1 ! 2
d.
d.1.2
foo(**d)
range(*[1, 4])|list
dict(**{'q': 1})
"""

TEMPLATES = [
    # output and whitespace control
    "plain",
    "",
    "\n",
    "a\n",
    "a\n\n",
    "a\r\nb\rc\n",
    "{{ 1 }}\n{{ 2 }}\n",
    "a {{- 1 -}} b",
    "a {{+ 1 }} b",
    "a\n  {%- if yes %}\n  b\n  {%- endif %}\nc",
    "a\n  {% if yes %}\n  b\n  {% endif %}\nc",
    "a\n  {%+ if yes %}\n  b\n  {%+ endif %}\nc",
    "a {% if yes %} b {% endif %} c",
    "{% if yes %}\nx\n{% endif %}\n",
    "{% if yes +%}\nx\n{% endif +%}\n",
    "{% if yes -%}\n\n  x\n{%- endif -%}\n\n y",
    "  {# comment #}\nx",
    "a  {#- c -#}  b",
    "a\n  {# c #}  b",
    "a{# multi\nline #}b{# x +#}\nc",
    "{# unclosed",
    "{{ 1",
    "{% if yes",
    "{{ '}}' }}",
    "{{ {'a': {'b': 1}}['a']['b'] }}",
    "{{ '{{ not a tag }}' }}",
    "{% raw %}{{ x }}{% y %}{% endraw %}",
    "{% raw %}\n  a\n  {% endraw %}\nb",
    "a {%- raw -%}  b  {%- endraw -%}  c",
    "{% raw %}never closed",
    "{ x } {a} } %} }}",
    "{{ '\\n' }}{{ \"\\t\" }}|",
    "\t{% if yes %}\tx\t{% endif %}\t\ny",
    "x\u00a0 {%- if yes %}y{% endif %}",
    "{{- 'a' }} {{ 'b' -}}\n\n  c",
    "line1\n{{ 'x' }}  \n  {{ 'y' }}\n",
    # if
    "{% if no %}a{% elif yes %}b{% else %}c{% endif %}",
    "{% if no %}a{% elif no %}b{% else %}c{% endif %}",
    "{% if undefined_name %}a{% endif %}b",
    "{% if no %}{% set v = 1 %}{% endif %}{{ v is defined }}",
    "{% if yes %}{% set v = 1 %}{% endif %}{{ v }}",
    "{% if yes: %}x{% endif %}",
    "{% if yes %}x",
    "{% if %}x{% endif %}",
    "{% endif %}",
    "{% if yes %}{% endfor %}",
    "{% nosuchtag %}",
    "{% include 'x' %}",
    "{% if no %}{{ 'x'|nosuchfilter }}{% endif %}ok",
    # for
    "{% for x in xs %}{{ x }},{% endfor %}",
    "{% for x in [] %}a{% else %}none{% endfor %}",
    "{% for x in undefined_name %}a{% else %}none{% endfor %}",
    "{% for x in nil %}a{% endfor %}",
    "{% for x in 5 %}a{% endfor %}",
    "{% for c in 'héy' %}{{ c }}.{% endfor %}",
    "{% for k in d %}{{ k }}{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in d|items %}{{ k }}={{ v }};{{ loop.length }}{% endfor %}",
    "{% for k, v in d|dictsort %}{{ k }}={{ v }};{% endfor %}",
    "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for a, b in [(1, 2, 3)] %}x{% endfor %}",
    "{% for a, b in [1] %}x{% endfor %}",
    "{% for x in xs if x > 1 %}{{ x }}{{ loop.index }}{{ loop.last }} {% else %}none{% endfor %}",
    "{% for x in xs if x > 9 %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in xs if x > 1 %}{{ loop.length }}/{{ loop.revindex }} {% endfor %}",
    "{% for x in xs %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}"
    "{{ loop.revindex }}{{ loop.revindex0 }} {% endfor %}",
    "{% for x in xs %}{{ loop.previtem|default('-') }}<{{ x }}>{{ loop.nextitem|default('-') }} {% endfor %}",
    "{% for x in xs %}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% for x in words|sort %}{{ loop.changed(x) }} {% endfor %}",
    "{% for x in xs %}{% for y in xs %}{{ loop.index }}{% endfor %}{{ loop.index }} {% endfor %}",
    "{% for x in xs %}{% set outer = loop %}{% for y in [1] %}{{ outer.index }}{% endfor %}{% endfor %}",
    "{% for x in xs %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in xs %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% break %}",
    "{% for x in xs %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
    "{% set t = 0 %}{% for x in xs %}{% set t = t + x %}{{ t }} {% endfor %}{{ t }}",
    "{% for x in xs %}{{ y is defined }}{% set y = 1 %}{{ y }}{% endfor %}{{ y is defined }}",
    "{% for x in xs %}{% endfor %}{{ x is defined }}",
    "{% set x = 'o' %}{% for x in xs %}{{ x }}{% endfor %}{{ x }}",
    "{% for x in xs[::-1] %}{{ x }}{% endfor %}",
    "{% for x in xs|reverse %}{{ x }}{{ loop.index }}{% endfor %}",
    "{% for x in range(3) %}{{ x }}{% endfor %}",
    "{% for x in 1, 2 %}{{ x }}{% endfor %}",
    "{% for x in xs|map('string') %}{{ x }}{{ loop.last }}{% endfor %}",
    "{% set g = xs|select('odd') %}{{ g|list }}{{ g|list }}",
    "{% for u in users if u.active %}{{ u.name }}{% endfor %}",
    "{% set ns = namespace(stop=false) %}{% for x in xs if not ns.stop %}{{ x }}{% set ns.stop = true %}{% endfor %}",
    "{% for m in users %}{% if loop.last or (not loop.last and users[loop.index0 + 1].age == 31) %}{{ m.name }}"
    "{% endif %}{% endfor %}",
    "{% for x in xs %}a{% endfor",
    "{% for in xs %}{% endfor %}",
    "{% for x xs %}{% endfor %}",
    "{% for true in xs %}{% endfor %}",
    # set
    "{% set a = 1 %}{{ a }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}",
    "{% set a, b = [1] %}",
    "{% set a = 1, 2 %}{{ a }}",
    "{% set (a, b) = (1, 2) %}{{ a }}{{ b }}",
    "{% set ns = namespace(a=1, b='x') %}{% for x in xs %}{% set ns.a = ns.a + x %}{% endfor %}{{ ns.a }}{{ ns.b }}",
    "{% set ns = namespace() %}{{ ns.foo is defined }}{% set ns.foo = [] %}{% set ns.foo = ns.foo + [1] %}{{ ns.foo }}",
    "{% set d.x = 1 %}",
    "{% set undefined_name.x = 1 %}",
    "{% set 5 = 1 %}",
    "{% set a %}block {{ n }}{% endset %}[{{ a }}]",
    "{% set a | upper | trim %} block {% endset %}[{{ a }}]",
    "{% set a %}{% set b = 1 %}{% endset %}{{ b is defined }}",
    "{% set a = 1 %}{% if yes %}{% set a = 2 %}{% endif %}{{ a }}",
    "{% set a = none %}{{ a is none }}{{ a }}",
    "{% set messages = users[1:] %}{{ messages|length }}",
    "{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}",
    "{% with a = 1 %}{% with b = a %}{{ b }}{% endwith %}{% endwith %}",
    "{% set ns = namespace(x=1) %}{% macro m() %}{% set ns.x = ns.x + 1 %}{% endmacro %}{{ m() }}{{ m() }}{{ ns.x }}",
    # macros
    "{% macro m(a, b='B') %}[{{ a }}|{{ b }}]{% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(b=3, a=4) }}{{ m() }}",
    "{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}{{ m(none) }}",
    "{% macro m(a) %}x{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}x{% endmacro %}{{ m(z=1) }}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, z=3) }}",
    "{% macro m(a, b=a) %}{{ b }}{% endmacro %}{{ m(7) }}",
    "{% macro m() %}{{ n }}{{ later }}{% endmacro %}{% set later = 'L' %}{{ m() }}",
    "{% macro m() %}{% set inner = 1 %}{% endmacro %}{{ m() }}{{ inner is defined }}",
    "{% macro fact(k) %}{{ k * (fact(k - 1)|int) if k > 1 else 1 }}{% endmacro %}{{ fact(5) }}",
    "{% macro m() %}  x  {% endmacro %}[{{ m()|trim }}]{{ m() ~ 'y' }}{{ m is callable }}{{ m.name }}",
    "{% macro m(x) %}{{ caller(x) }}!{% endmacro %}{% call(v) m(3) %}got {{ v }}{% endcall %}",
    "{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}in {{ n }}{% endcall %}",
    "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}",
    "{% macro m(a='x', b) %}{% endmacro %}",
    "{% for x in xs %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% endfor %}",
    "{% macro m(items) %}{% for i in items %}{{ i }}{% if not loop.last %}, {% endif %}{% endfor %}{% endmacro %}"
    "{{ m(xs) }}",
    "{% macro outer(x) %}{{ inner(x) }}{% endmacro %}{% macro inner(x) %}({{ x }}){% endmacro %}{{ outer(1) }}",
    "{{ m() }}{% macro m() %}x{% endmacro %}",
    "{% macro m(d) %}{%- for k, v in d.items() %}{{ k }}:{% if v is mapping %}{{ m(v) }}{% else %}{{ v }}{% endif %};"
    "{%- endfor %}{% endmacro %}{{ m({'a': {'b': {'c': 1}}}) }}",
    "{% macro m() -%}\n  a\n{%- endmacro %}[{{ m() }}]",
    # filter blocks, generation, print
    "{% filter upper %}a{{ n }}b{% endfilter %}",
    "{% filter replace('a', 'b')|upper %}aXa{% endfilter %}",
    "{% generation %}a{{ n }}{% endgeneration %}b",
    "{% for x in xs %}{% generation %}{{ x }}{% set q = 1 %}{% endgeneration %}{{ q is defined }}{% endfor %}",
    "{% print n %}",
    # errors while rendering
    "a{{ raise_exception('stop: ' ~ n) }}",
    "{{ undefined_name.a.b }}",
    "{% for x in xs %}{{ x.foo.bar }}{% endfor %}",
    "{{ s.append(1) is defined }}",
    # Python details
    "{{ [1, 2, 3]|join(', ') }}{{ {'a': 'b'}|string }}",
    "{{ 'a' if 'b' in {'b': 1} }}",
    "{%- set x = {'type': 'function', 'function': {'name': 'f', 'parameters': {'type': 'object'}}} %}{{ x | tojson }}",
    "{{ messages is defined and messages }}",
    "{{ users | selectattr('name', 'equalto', 'bob') | list | first | attr('age') is defined }}",
    "{{ (users | selectattr('name', 'equalto', 'bob') | first).age }}",
    "{% set parts = 'a\n\nb'.split('\n') %}{{ parts }}",
    "{% if 'x' not in d and d.a == 2 %}ok{% endif %}",
    "{% if d.get('q', {}).get('r') is none %}ok{% endif %}",
    "{{ '%.1f' % 2.25 }}{{ '%.1f' % 0.35 }}",
    "{{ 10 ** 20 }} {{ 2 ** 64 }}",
]
