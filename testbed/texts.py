"""Strategies for agents' texts in ten languages: numbers, abbreviations, URLs, markdown, emoji."""

from itertools import pairwise

from hypothesis import strategies as st

TEXTS: dict[str, tuple[str, ...]] = {
    "en": (
        "Hello! I'm Ava, your travel assistant. How can I help you today?",
        "Dr. Smith can see you at 3.30 p.m. on Monday, Jan. 5, in the St. James St. office.",
        "Your total is $42.50, i.e. $3.5 less than last month. Visit example.com for details.",
        "Sure! 😊 Here are **three options**:\n\n1. A window seat\n2. An aisle seat\n"
        "3. Whatever is left\n\nWhich one do you prefer?",
        'She said, "Wait... are you sure?" Then she left — just like that.',
        "The U.S. team won 3-2 (its 5th win), e.g. thanks to No. 10. Read [the report]"
        "(https://example.com/a_(b)?q=1) or mail me@example.com!",
        "Yes.",
        "Set `max_chars` to 250 in snake_case, then run C# code for ticket #5; it's 25 °C outside.",
    ),
    "de": (
        "Guten Tag! Wie kann ich Ihnen heute weiterhelfen?",
        "Dr. Müller ist am 3. Oktober um 14.30 Uhr da, z. B. in der Hauptstr. 5.",
        "Das kostet 1.299,50 €, d. h. ca. 10 % weniger. Mehr unter beispiel.de.",
        "Gerne! 👍 Es gibt zwei Möglichkeiten:\n- mit dem Zug\n- mit dem Auto\n\nWas passt besser?",
        "„Moment mal“, sagte er, „das stimmt doch nicht!“ Danach schwieg er …",
        "Im 19. Jahrhundert, genauer gesagt 1871, änderte sich vieles; das wissen wir.",
    ),
    "fr": (
        "Bonjour ! Comment puis-je vous aider aujourd'hui ?",
        "M. Dupont et Mme Martin arrivent à 14 h 30, p. ex. à la gare de l'Est.",
        "Cela coûte 1 299,50 €, soit env. 10 % de moins. Voir exemple.fr.",
        "Bien sûr ! 😀 Voici **deux choix** :\n\n* le train\n* l'avion\n\nLequel préférez-vous ?",
        "« Attendez… vous êtes sûr ? » demanda-t-elle. Puis elle partit.",
        "Aujourd'hui, c'est-à-dire le 1er mai, l'œuvre est à l'honneur ; n'est-ce pas ?",
    ),
    "es": (
        "¡Hola! ¿En qué puedo ayudarle hoy?",
        "El Sr. García y la Dra. López llegan a las 14.30 h, p. ej. a la Av. Central n.º 5.",
        "Cuesta 1.299,50 €, es decir, un 10 % menos. Consulte ejemplo.es.",
        "¡Claro! 🎉 Hay **dos opciones**:\n1. El tren\n2. El avión\n\n¿Cuál prefiere?",
        "«Espere... ¿está seguro?», preguntó ella. Y se fue.",
        "En EE. UU. ya es de noche; aquí, en cambio, todavía brilla el sol.",
    ),
    "pt": (
        "Olá! Como posso ajudar você hoje?",
        "O Sr. Silva e a Dra. Souza chegam às 14h30, p. ex. na Av. Paulista, nº 5.",
        "Custa R$ 1.299,50, ou seja, 10% a menos. Veja em exemplo.com.br.",
        "Claro! 🙂 Temos **duas opções**:\n- o trem\n- o avião\n\nQual você prefere?",
        "“Espere... você tem certeza?”, perguntou ela. Depois, foi embora.",
        "Não é possível: a reunião começa às dez, e já são dez e meia.",
    ),
    "it": (
        "Buongiorno! Come posso aiutarla oggi?",
        "Il Sig. Rossi e la Dott.ssa Bianchi arrivano alle 14.30, p. es. in via Roma n. 5.",
        "Costa 1.299,50 €, cioè ca. il 10% in meno. Vedi esempio.it.",
        "Certo! 😄 Ci sono **due possibilità**:\n1. il treno\n2. l'aereo\n\nQuale preferisce?",
        "«Aspetti... è sicuro?», chiese lei. Poi se ne andò.",
        "Perché no? L'amica dell'avvocato, però, non è d'accordo; peccato!",
    ),
    "ru": (
        "Здравствуйте! Чем я могу вам помочь?",
        "Д-р Иванов принимает по ул. Ленина, д. 5, т. е. рядом с метро, в 14.30.",
        "Это стоит 1 299,50 руб., т.к. сегодня скидка 10 %. Подробнее на example.ru.",
        "Конечно! 😊 Есть **два варианта**:\n- поезд\n- самолёт\n\nЧто вы выберете?",
        "«Подождите... вы уверены?» — спросила она. И ушла.",
        "В XIX в. всё было иначе; впрочем, и сейчас тоже.",
    ),
    "zh": (
        "你好！我是你的旅行助手。今天想去哪里？",
        "王医生星期一下午3点30分有空，地址是中山路5号，靠近地铁站。",
        "总共是￥42.50，比上个月少了3.5元。详情请看example.com。",
        "好的！😊以下是**两个选择**：\n\n1. 坐火车\n2. 坐飞机\n\n您喜欢哪一个？",
        "她问：“等等……你确定吗？”“确定。”他回答。",
        "我用Python 3.11和C++写代码，也用GPT-4（有时候）；你呢？",
    ),
    "ja": (
        "こんにちは！旅行アシスタントのアヤです。今日はどちらへ行かれますか？",
        "田中先生は月曜日の午後3時30分に空いています。住所は中央通り5番地です。",
        "合計は4,250円、つまり先月より3.5%安いです。詳しくはexample.comをご覧ください。",
        "もちろんです！😊二つの選択肢があります：\n- 電車\n- 飛行機\n\nどちらがよろしいですか？",
        "「ちょっと待って……本当に？」と彼女は聞いた。『はい。』",
        "コーヒーとパーティーとｶﾞｯﾂとウィキペディアについて、ゆっくり話しましょう。",
    ),
    "ko": (
        "안녕하세요! 여행 도우미 아라입니다. 오늘은 어디로 가시나요?",
        "김 선생님은 월요일 오후 3시 30분에 시간이 있습니다. 주소는 중앙로 5번지입니다.",
        "합계는 42,500원으로, 지난달보다 3.5% 적습니다. 자세한 내용은 example.com에 있습니다.",
        "물론이죠! 😊 **두 가지 방법**이 있습니다:\n1. 기차\n2. 비행기\n\n어느 쪽이 좋으세요?",
        '그녀가 물었다. "잠깐만요... 확실해요?" 그리고 떠났다.',
        "大韓民國은 한국의 한자 이름이고, iPhone은 영어 이름입니다.",
    ),
}

MIXED = (
    "Say こんにちは (konnichiwa) or 안녕하세요, then 你好! Привет too.",
    "👩‍👩‍👧 🇩🇪 1️⃣ 👍🏽",
    "--- *** ___ ~~~",
    "| Name | Price |\n|------|------:|\n| Tea | 3.5 |\n| Coffee | 4 |\n\nAnything else?",
    "```python\nprint('hi')\n```\nThat prints *hi*.",
    "café, naïve, Zoe\u0308, e\u0301te\u0301",
    "नमस्ते। आप कैसे हैं? مرحبا، كيف حالك؟ สวัสดีครับ",
    "a\u0000b\u200bc\ufeffd \ud83d lone \u2028 line",
    "http://localhost:8000/v1/tts?voice=a_b&x=1 ... -5 – 10 … <b>bold</b> & <br/> x < y > z",
)

ALL = tuple(text for texts in TEXTS.values() for text in texts) + MIXED


def any_text(max_size: int = 120) -> st.SearchStrategy[str]:
    """Draw any characters, including lone surrogates; those of real texts are more frequent."""
    frequent = st.sampled_from(
        list(" \n.!?,;:…。！？，、「」“”()[]*_#>-`~|<5a好あー한é\u0301\u200d😊\u00a0")
    )
    return st.text(st.one_of(frequent, st.characters()), max_size=max_size)


def agent_text() -> st.SearchStrategy[str]:
    """Draw pieces of agents' texts, cut at random places, mixed with noise."""
    places = st.integers(0, max(map(len, ALL)))
    piece = st.builds(
        lambda text, a, b: text[min(a, b) : max(a, b)], st.sampled_from(ALL), places, places
    )
    return st.lists(st.sampled_from(ALL) | piece | any_text(12), max_size=4).map("".join)


def chunked(text: str) -> st.SearchStrategy[list[str]]:
    """Cut `text` at random places, like the deltas of an LLM."""
    places = st.lists(st.integers(0, len(text)), max_size=12)
    return places.map(lambda cuts: _split(text, sorted(cuts)))


def _split(text: str, cuts: list[int]) -> list[str]:
    borders = [0, *cuts, len(text)]
    return [text[start:end] for start, end in pairwise(borders)]
