"""Held-out sentences of agents in every language, for the alignment benchmark.

Parameters were tuned on the sentences of `agent_text`, not on these.
"""

ENGLISH = (
    "Good morning, this is the front desk, how can I help you today?",
    "I found three flights that leave before noon, and the cheapest one stops briefly in Denver.",
    "Before I change anything, could you tell me the last four digits of your card?",
    "The doctor will see you on Wednesday at a quarter past ten.",
    "I am sorry to hear that your package was damaged, so I will send a new one right away.",
    "You can reach our support team by phone or by email at any time of the day.",
    "It looks like the router lost its connection last night around eleven.",
    "Please unplug the power cable, wait for about thirty seconds, and then plug it back in.",
    "Your reservation for two adults and one child is confirmed, and breakfast is included.",
    "We deliver to most places within two days, but the islands may take up to a week.",
    "The total comes to ninety five dollars, and you have already paid forty.",
    "Yes, that is possible, although there would be a small fee for the change.",
    "Would you rather sit by the window or on the aisle?",
    "The museum is closed on Mondays, but the garden behind it stays open until dusk.",
    "Turn left at the church, walk past the old bakery, and you will see the station ahead.",
    "I have noted that you are allergic to peanuts and that you prefer a quiet table.",
    "Let me put you on hold for a moment while I check with my colleague.",
    "Thank you for your patience, the manager has approved the full refund.",
    "If the light on the front turns orange again, just give us a call.",
    "The course starts in September, lasts twelve weeks, and ends with a written exam.",
    "There is heavy traffic on the bridge, so you should leave twenty minutes earlier.",
    "My records show that the invoice was sent twice, which explains the confusion.",
    "Unfortunately the blue jacket is sold out in your size, but we still have it in green.",
    "To confirm, you want to cancel the first order and keep the second one, right?",
    "The battery should last about six hours when you watch videos at full brightness.",
    "Our technician called this morning and said that the new part has finally arrived.",
    "You will get a text message with a link, and the link works for one hour.",
    "Honestly, the smaller apartment has a much better view over the harbor.",
    "I can offer you ten percent off if you decide before the end of the month.",
    "Have a wonderful evening, and do not hesitate to call back if anything else comes up.",
)

NUMBERS = (
    "Your confirmation code is 4215, and it is valid for 30 minutes.",
    "The total comes to $45.99, which includes $3.20 for shipping.",
    "Flight 1087 leaves from gate 22 at 6:45 on the 3rd of May.",
    "We are open from 9:30 to 17:00, but only until 14:00 on the 24th.",
    "About 15% of the 2,400 seats are left, 80 of them in row 7.",
    "Please call extension 311, or dial 0 for the operator, before 8:00.",
    "Your balance was 1,250 dollars on the 12th and is 975 dollars now.",
    "It weighs 2.5 kilos, measures 40 by 60 centimeters, and costs 19 euros.",
)
"""English sentences with figures, which voices read in different ways."""

OTHERS: dict[str, tuple[str, ...]] = {
    "de": (
        "Guten Morgen, hier ist der Kundendienst, was kann ich für Sie tun?",
        "Ihr Termin am Donnerstag um halb neun ist bestätigt, bitte bringen Sie Ihren Ausweis mit.",
        "Das Paket wurde gestern Abend zugestellt und liegt bei Ihren Nachbarn im zweiten Stock.",
        "Leider fällt der Zug nach Hamburg heute aus, aber der nächste fährt in zwanzig Minuten.",
    ),
    "fr": (
        "Bonjour, ici le service clientèle, que puis-je faire pour vous ?",
        "Votre rendez-vous de jeudi matin est confirmé, n'oubliez pas votre carte.",
        "Le colis a été livré hier soir chez votre voisin du deuxième étage.",
        "Le train pour Marseille est annulé, mais le prochain part dans vingt minutes.",
    ),
    "es": (
        "Buenos días, le atiende el servicio al cliente, ¿en qué puedo ayudarle?",
        "Su cita del jueves por la mañana está confirmada, no olvide su tarjeta.",
        "El paquete se entregó ayer por la tarde en casa de su vecino del segundo piso.",
        "El tren a Sevilla se ha cancelado, pero el próximo sale dentro de veinte minutos.",
    ),
    "pt": (
        "Bom dia, aqui é o atendimento ao cliente, como posso ajudar?",
        "A sua consulta de quinta-feira de manhã está confirmada, não esqueça o cartão.",
        "A encomenda foi entregue ontem à noite na casa do seu vizinho do segundo andar.",
        "O trem para São Paulo foi cancelado, mas o próximo sai em vinte minutos.",
    ),
    "it": (
        "Buongiorno, qui è il servizio clienti, come posso aiutarla?",
        "Il suo appuntamento di giovedì mattina è confermato, non dimentichi la tessera.",
        "Il pacco è stato consegnato ieri sera al suo vicino del secondo piano.",
        "Il treno per Milano è stato cancellato, ma il prossimo parte tra venti minuti.",
    ),
    "nl": (
        "Goedemorgen, u spreekt met de klantenservice, hoe kan ik u helpen?",
        "Uw afspraak op donderdagochtend is bevestigd, vergeet uw pasje niet.",
        "Het pakket is gisteravond bezorgd bij uw buren op de tweede verdieping.",
        "De trein naar Utrecht is vervallen, maar de volgende vertrekt over twintig minuten.",
    ),
    "ru": (
        "Доброе утро, это служба поддержки, чем я могу вам помочь?",
        "Ваша встреча в четверг утром подтверждена, не забудьте паспорт.",
        "Посылку доставили вчера вечером вашему соседу на втором этаже.",
        "Поезд до Казани отменён, но следующий отправляется через двадцать минут.",
    ),
    "zh": (
        "早上好，这里是客户服务，请问有什么可以帮您？",
        "您星期四上午的预约已经确认，请不要忘记带身份证。",
        "包裹昨天晚上已经送到您二楼的邻居家里。",
        "开往上海的火车取消了，不过下一班二十分钟以后出发。",
    ),
    "yue": (
        "早晨，呢度係客戶服務，有咩可以幫到你？",
        "你星期四朝早嘅預約已經確認咗，記得帶身份證。",
        "包裹尋晚已經送到你二樓嘅鄰居屋企。",
        "去廣州嘅火車取消咗，不過下一班二十分鐘之後開出。",
    ),
    "ja": (
        "おはようございます、カスタマーサービスです、どのようなご用件でしょうか？",
        "木曜日の朝の予約を確認しました、身分証明書をお忘れなく。",
        "荷物は昨日の夜、二階のお隣さんに届けました。",
        "大阪行きの電車は運休ですが、次の電車は二十分後に出発します。",
    ),
    "ko": (
        "안녕하세요, 고객 서비스입니다, 무엇을 도와드릴까요?",
        "목요일 아침 예약이 확인되었습니다, 신분증을 잊지 마세요.",
        "소포는 어제 저녁 이층 이웃에게 배달되었습니다.",
        "부산행 열차는 취소되었지만 다음 열차는 이십 분 후에 출발합니다.",
    ),
}
